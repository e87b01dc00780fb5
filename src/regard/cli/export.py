"""`regard export`: convert a model to the format of CTranslate2 or Hugging Face transformers."""

from pathlib import Path
from typing import Annotated

from regard.cli.options import MODEL_PANEL, OUTPUT_PANEL, ModelArgument, examples, option

EXAMPLES = examples(
    "regard export runs/en-it --to ctranslate2 --out models/en-it", "regard export runs/gpt --to huggingface"
)


def run(
    model: ModelArgument,
    to: Annotated[
        str, option(OUTPUT_PANEL, "--to", help="Target format: ctranslate2, huggingface, or one of a plugin.")
    ],
    out: Annotated[
        Path | None, option(OUTPUT_PANEL, "--out", "-o", help="Folder to write; NAME-FORMAT by default.")
    ] = None,
    quantization: Annotated[
        str | None,
        option(
            MODEL_PANEL,
            "--quantization",
            help="Weights of the ctranslate2 format: int8 (default, a quarter of the size) or float32.",
        ),
    ] = None,
) -> None:
    """Convert a model for CTranslate2 (fast on CPUs) or for Hugging Face transformers (Marian, GPT-2, BERT)."""
    from regard.interop.exporters import EXPORTERS
    from regard.models.folder_files import resolve_model_folder

    exporter = EXPORTERS[to]
    report = exporter(resolve_model_folder(model), out or Path(f"{_run_name(model)}-{to}"), quantization)
    for note in report.notes:
        print(f"note: {note}")
    print(f"{report.folder}: for {report.program}, {report.kind}. In Python:\n")
    for line in report.example:
        print(f"    {line}")


def _run_name(model: Path) -> str:
    """Return the name of a model: that of its run if the folder is called best or last."""
    path = model.resolve()
    return path.parent.name if path.name in ("best", "last") else path.name
