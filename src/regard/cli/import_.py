"""`regard import`: convert a Hugging Face folder to a model folder."""

from pathlib import Path
from typing import Annotated

from regard.cli.options import OUTPUT_PANEL, argument, examples, option

EXAMPLES = examples("regard import downloads/gpt2 --out models/gpt2")


def run(
    source: Annotated[Path, argument("Local folder with config.json and model.safetensors.", "SOURCE")],
    out: Annotated[
        Path | None, option(OUTPUT_PANEL, "--out", "-o", help="Model folder to write; SOURCE-regard by default.")
    ] = None,
) -> None:
    """Convert a local Hugging Face folder (GPT-2, BERT, Marian) to a model folder."""
    from regard.interop.hf_import import import_huggingface

    out = out or Path(f"{source.resolve().name}-regard")
    report = import_huggingface(source, out)
    print(f"{report.kind}: {report.parameters:,} parameters from {source} to {report.folder}")
    for tensor, reason in report.skipped:
        print(f"skipped: {tensor} ({reason})")
    for note in report.notes:
        print(f"note: {note}")
