"""`regard config show`: every setting, and where it came from."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Look at settings.")


@app.callback()
def _config() -> None:
    pass


@app.command("show")
def show(
    source: Annotated[
        str | None, typer.Argument(help="A preset, a TOML file or a run's folder; without it, the defaults.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, such as model.layers=3; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, without origins.")] = False,
) -> None:
    """Print all settings as TOML, each with where it came from."""
    from regard.config import ConfigSource, load_sources, preset_names, to_toml, validate_sources

    folder = Path(source) if source and source not in preset_names() else None
    if folder is not None and (folder / "config.toml").is_file() and not settings:
        print((folder / "config.toml").read_text("utf-8"), end="")  # it has its origins beside it
        return
    if folder is not None and folder.is_dir():
        source = str(folder / "config.toml")
    sources = load_sources(source, settings or [])
    config = validate_sources(sources)
    if as_json:
        print(config.model_dump_json(indent=2))
    else:
        print(to_toml(config, sources or [ConfigSource("default", {})]), end="")
