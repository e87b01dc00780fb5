"""Commands that write model folders from others: `regard average`, `merge`, `import` and `export`."""

from pathlib import Path
from typing import Annotated

from regard.cli.input_output import print_text
from regard.cli.options import MODEL_PANEL, OUTPUT_PANEL, ModelArgument, argument, examples, option

AVERAGE_EXAMPLES = examples(
    "regard average runs/a runs/b runs/c --out runs/mean",
    "regard average runs/en-it --last 5 --out runs/en-it-mean",
)
MERGE_EXAMPLES = examples("regard merge runs/tutor --out models/tutor")
IMPORT_EXAMPLES = examples(
    "regard import downloads/gpt2 --out models/gpt2",
    "regard import downloads/SmolLM2-135M-Instruct.Q8_0.gguf",
    "regard import HuggingFaceTB/SmolLM2-135M-Instruct",
)
EXPORT_EXAMPLES = examples(
    "regard export runs/en-it --to ctranslate2 --out models/en-it",
    "regard export runs/gpt --to huggingface",
    "regard export runs/llama --to gguf --quantization Q8_0",
)


def average_models(
    models: Annotated[list[Path], argument("Model folders, or one run folder with --last.", "MODEL")],
    out: Annotated[Path, option(OUTPUT_PANEL, "--out", "-o", help="Model folder to write; must not exist yet.")],
    last: Annotated[
        int | None, option(MODEL_PANEL, min=2, help="Average the weights of this many last validations of one run.")
    ] = None,
) -> None:
    """Average the weights of models with equal networks and vocabularies, or of the last validations of a run."""
    from regard.errors import ConfigError
    from regard.training.averaging import average_folders, average_run

    if last is not None and len(models) > 1:
        raise ConfigError(f"--last {last}: is for one run folder, but there are {len(models)}; remove it.")
    if last is None and len(models) == 1:
        raise ConfigError("one model has no mean; pass several models, or a run folder and --last 5.")
    description = average_folders(models, out) if last is None else average_run(models[0], last, out)
    print_text(description)
    print_text(f"Model: {out}")


def merge_adapter(
    adapter: Annotated[Path, argument("Folder of an adapter, or of a run that trained one.", "ADAPTER")],
    out: Annotated[Path, option(OUTPUT_PANEL, "--out", "-o", help="Model folder to write; must not exist yet.")],
) -> None:
    """Add the matrices of a LoRA adapter to its base model, and write a complete model folder."""
    from regard.models.folder import save_merged

    parameters, layers = save_merged(adapter, out)
    print_text(f"Merged the matrices of {layers} layers; {parameters:,} parameters.")
    print_text(f"Model: {out}")


def import_model(
    source: Annotated[
        Path,
        argument(
            "Local folder with config.json and model.safetensors, a GGUF file, or ORGANIZATION/NAME of the "
            "Hugging Face hub.",
            "SOURCE",
        ),
    ],
    out: Annotated[
        Path | None, option(OUTPUT_PANEL, "--out", "-o", help="Model folder to write; SOURCE-regard by default.")
    ] = None,
) -> None:
    """Convert a Hugging Face model (Llama, GPT-2, BERT, Marian, T5, …), local or of the hub, or a GGUF file."""
    if source.suffix == ".gguf":
        from regard.interop.gguf import import_gguf_file

        report = import_gguf_file(source, out or Path(f"{source.stem}-regard"))
    else:
        from regard.interop.hub import download_model, is_hub_name
        from regard.interop.huggingface import import_huggingface

        name = source.as_posix() if is_hub_name(source) else None
        folder = source if name is None else download_model(name)
        report = import_huggingface(folder, out or Path(f"{source.resolve().name}-regard"), name=name)
    print_text(f"{report.kind}: {report.parameters:,} parameters from {source} to {report.folder}")
    for tensor, reason in report.skipped:
        print_text(f"skipped: {tensor} ({reason})")
    for note in report.notes:
        print_text(f"note: {note}")


def export_model(
    model: ModelArgument,
    to: Annotated[
        str, option(OUTPUT_PANEL, "--to", help="Target format: ctranslate2, huggingface, gguf, or one of a plugin.")
    ],
    out: Annotated[
        Path | None,
        option(OUTPUT_PANEL, "--out", "-o", help="Folder to write, or a .gguf file; NAME-FORMAT by default."),
    ] = None,
    quantization: Annotated[
        str | None,
        option(
            MODEL_PANEL,
            "--quantization",
            help="Weights of the ctranslate2 format: int8 (default, a quarter of the size) or float32; of gguf: F16 "
            "(default), Q8_0 or F32.",
        ),
    ] = None,
) -> None:
    """Convert a model for CTranslate2 (fast on CPUs), Hugging Face (Llama, GPT-2, BERT, Marian) or llama.cpp."""
    from regard.interop.exporters import EXPORTERS
    from regard.models.folder_files import resolve_model_folder

    exporter = EXPORTERS[to]
    report = exporter(resolve_model_folder(model), out or Path(f"{_run_name(model)}-{to}"), quantization)
    for note in report.notes:
        print_text(f"note: {note}")
    print_text(f"{report.folder}: for {report.program}, {report.kind}. In Python:\n")
    for line in report.example:
        print_text(f"    {line}")


def _run_name(model: Path) -> str:
    """Return the name of a model: that of its run if the folder is called best or last."""
    path = model.resolve()
    return path.parent.name if path.name in ("best", "last") else path.name
