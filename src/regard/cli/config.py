"""`regard config show`: print all settings and where each comes from."""

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.help import Command, Group
from regard.cli.input_output import print_text
from regard.cli.options import OUTPUT_PANEL, SettingsOption, argument, examples, option
from regard.errors import ConfigError

EXAMPLES = examples("regard config show tiny --set model.layers=3", "regard config show runs/en-it")
app = typer.Typer(cls=Group, no_args_is_help=True, help="Show settings.")


@app.callback()
def _config() -> None:
    pass


@app.command("show", cls=Command, epilog=EXAMPLES)
def show(
    source: Annotated[
        str | None, argument("Preset, TOML file or run folder; the defaults if omitted.", "SOURCE")
    ] = None,
    settings: SettingsOption = None,
    as_json: Annotated[
        bool, option(OUTPUT_PANEL, "--json", help="Print JSON, without the origins of settings.")
    ] = False,
) -> None:
    """Print all settings as TOML, with the origin of each as a comment."""
    from regard.config import ConfigSource, load_sources, preset_names, to_toml, validate_sources

    folder = Path(source) if source and source not in preset_names() else None
    if folder is not None and folder.is_dir():
        text = _read_run_config(folder / "config.toml")
        if not settings and not as_json:
            print_text(text, end="")  # it has the origins of its run
            return
        source = str(folder / "config.toml")
    sources = load_sources(source, settings or [])
    config = validate_sources(sources)
    if as_json:
        print_text(config.model_dump_json(indent=2))
    else:
        print_text(to_toml(config, sources or [ConfigSource("default", {})]), end="")


def _read_run_config(path: Path) -> str:
    """Return the text of the settings of a run; ConfigError if it is no valid TOML file."""
    from regard.files import read_regular_file

    try:
        text = read_regular_file(path).decode("utf-8")
        tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); restore it from a copy.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is damaged ({error}); restore it from a copy.") from None
    return text
