"""`regard import`: a Hugging Face folder becomes a model folder."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    source: Annotated[Path, typer.Argument(help="A local folder with config.json and model.safetensors.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The model folder to write.")] = None,
) -> None:
    """Turn a local Hugging Face folder (GPT-2, BERT, Marian) into a model folder."""
    from regard.interop.hf_import import import_huggingface

    out = out or Path(f"{source.resolve().name}-regard")
    imported = import_huggingface(source, out)
    print(f"{imported.kind}: {imported.parameters:,} parameters from {source} to {imported.folder}")
    for tensor, reason in imported.left_out:
        print(f"left out: {tensor} ({reason})")
    for note in imported.notes:
        print(f"note: {note}")
