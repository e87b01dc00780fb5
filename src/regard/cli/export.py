"""`regard export`: convert a model to the format of CTranslate2 or Hugging Face transformers."""

from pathlib import Path
from typing import Annotated, Literal

from regard.cli.options import MODEL_PANEL, OUTPUT_PANEL, ModelArgument, examples, option

EXAMPLES = examples(
    "regard export runs/en-it --to ctranslate2 --out models/en-it", "regard export runs/gpt --to huggingface"
)


def run(
    model: ModelArgument,
    to: Annotated[
        Literal["ctranslate2", "huggingface"], option(OUTPUT_PANEL, "--to", help="Target format of the model.")
    ],
    out: Annotated[
        Path | None, option(OUTPUT_PANEL, "--out", "-o", help="Folder to write; NAME-FORMAT by default.")
    ] = None,
    quantization: Annotated[
        Literal["int8", "float32"] | None,
        option(
            MODEL_PANEL,
            "--quantization",
            help="Weights of the ctranslate2 format: int8 (default, a quarter of the size) or float32.",
        ),
    ] = None,
) -> None:
    """Convert a model for CTranslate2 (fast on CPUs) or for Hugging Face transformers (Marian, GPT-2, BERT)."""
    from regard.errors import ConfigError

    if quantization is not None and to != "ctranslate2":
        raise ConfigError(f"--quantization {quantization}: is for --to ctranslate2; remove it.")
    from regard.models.folder_files import resolve_model_folder

    folder = resolve_model_folder(model)
    out = out or Path(f"{_run_name(model)}-{to}")
    if to == "ctranslate2":
        _to_ctranslate2(folder, out, quantization or "int8")
    else:
        _to_huggingface(folder, out)


def _to_ctranslate2(folder: Path, out: Path, precision: Literal["int8", "float32"]) -> None:
    from regard.interop.ctranslate2 import export_ctranslate2
    from regard.interop.example import ctranslate2_example
    from regard.models.folder_files import read_config

    export_ctranslate2(folder, out, precision)
    _print_usage(f"{out}: for CTranslate2, {precision}", ctranslate2_example(out, read_config(folder)))


def _to_huggingface(folder: Path, out: Path) -> None:
    from regard.interop.example import huggingface_example
    from regard.interop.hf_export import export_huggingface
    from regard.models.folder_files import read_config

    report = export_huggingface(folder, out)
    for note in report.notes:
        print(f"note: {note}")
    _print_usage(f"{out}: for transformers, {report.kind}", huggingface_example(out, read_config(folder)))


def _print_usage(description: str, example: list[str]) -> None:
    print(f"{description}. In Python:\n")
    for line in example:
        print(f"    {line}")


def _run_name(model: Path) -> str:
    """Return the name of a model: that of its run if the folder is called best or last."""
    path = model.resolve()
    return path.parent.name if path.name in ("best", "last") else path.name
