"""`regard export`: a model in the format of another program, which runs it without regard."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def run(
    model: Annotated[Path, typer.Argument(help="A model folder, or a run's folder: then its best.", metavar="MODEL")],
    to: Annotated[Literal["ctranslate2", "huggingface"], typer.Option("--to", help="Whose format.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write.")] = None,
    quantization: Annotated[
        Literal["int8", "float32"] | None,
        typer.Option(
            "--quantization", help="Bits of a number, for ctranslate2: int8, a quarter of the size, or float32."
        ),
    ] = None,
) -> None:
    """Write a model for CTranslate2 (fast on CPUs) or for Hugging Face's transformers (Marian, GPT-2, BERT)."""
    from regard.errors import ConfigError

    if quantization is not None and to != "ctranslate2":
        raise ConfigError(f"--quantization {quantization}: is for --to ctranslate2; leave it out.")
    from regard.models.folder_files import resolve_model_folder

    folder = resolve_model_folder(model)
    out = out or Path(f"{_name(model)}-{to}")
    if to == "ctranslate2":
        _to_ctranslate2(folder, out, quantization or "int8")
    else:
        _to_huggingface(folder, out)


def _to_ctranslate2(folder: Path, out: Path, precision: Literal["int8", "float32"]) -> None:
    from regard.interop.ctranslate2 import export_ctranslate2
    from regard.interop.example import ctranslate2_example
    from regard.models.folder_files import read_config

    export_ctranslate2(folder, out, precision)
    _tell(f"{out}: for CTranslate2, {precision}", ctranslate2_example(out, read_config(folder)))


def _to_huggingface(folder: Path, out: Path) -> None:
    from regard.interop.example import huggingface_example
    from regard.interop.hf_export import export_huggingface
    from regard.models.folder_files import read_config

    exported = export_huggingface(folder, out)
    for note in exported.notes:
        print(f"note: {note}")
    _tell(f"{out}: for transformers, {exported.kind}", huggingface_example(out, read_config(folder)))


def _tell(what: str, example: list[str]) -> None:
    print(f"{what}. In Python:\n")
    for line in example:
        print(f"    {line}")


def _name(model: Path) -> str:
    """What to call an exported model: as its run, where its own folder has but a place there for a name."""
    path = model.resolve()
    return path.parent.name if path.name in ("best", "last") else path.name
