"""`regard average`: one model from the mean of several models' weights."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    models: Annotated[list[Path], typer.Argument(help="Model folders, or one run's folder.", metavar="MODEL")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model folder to write.")],
    last: Annotated[
        int | None, typer.Option(min=2, help="Of a run, average the weights of so many of its last validations.")
    ] = None,
) -> None:
    """Average the weights of models of one shape and vocabulary, or of the last validations of a run."""
    from regard.errors import ConfigError
    from regard.training.averaging import average_folders, average_run

    if last is not None and len(models) > 1:
        raise ConfigError(f"--last {last}: is for one run's folder, but there are {len(models)}; drop it.")
    if last is None and len(models) == 1:
        raise ConfigError("one model has no mean; give several, or a run's folder and --last 5.")
    origin = average_folders(models, out) if last is None else average_run(models[0], last, out)
    print(origin)
    print(f"Model: {out}")
