"""`regard average`: a model with the mean of several models' weights."""

from pathlib import Path
from typing import Annotated

from regard.cli.options import MODEL_PANEL, OUTPUT_PANEL, argument, examples, option

EXAMPLES = examples(
    "regard average runs/a runs/b runs/c --out runs/mean",
    "regard average runs/en-it --last 5 --out runs/en-it-mean",
)


def run(
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
    print(description)
    print(f"Model: {out}")
