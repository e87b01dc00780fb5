"""The command `regard`: one file per subcommand, which parses options, calls the library and prints results.

torch is not imported until a command needs it, so that `regard --help` is fast.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import (
    average,
    classify,
    compare,
    config,
    demo,
    embed,
    entry,
    evaluate,
    export,
    fill,
    generate,
    import_,
    lab,
    look,
    model,
    plot,
    score,
    serve,
    train,
    translate,
)
from regard.cli.options import GLOBAL_PANEL, option
from regard.errors import ConfigError
from regard.version import __version__

app = typer.Typer(
    name="regard",
    help='Train, run and inspect the Transformer of "Attention Is All You Need" and related models.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = {
    "demo": demo,
    "train": train,
    "translate": translate,
    "generate": generate,
    "serve": serve,
    "fill": fill,
    "classify": classify,
    "embed": embed,
    "evaluate": evaluate,
    "score": score,
    "average": average,
    "compare": compare,
    "look": look,
    "plot": plot,
    "model": model,
    "lab": lab,
    "import": import_,
    "export": export,
}
COMMAND_CLASSES = {"train": train.TrainCommand}
for _name, _module in COMMANDS.items():
    app.command(_name, cls=COMMAND_CLASSES.get(_name), epilog=_module.EXAMPLES)(_module.run)
app.add_typer(config.app, name="config")


def _print_version(requested: bool) -> None:
    if requested:
        print(f"regard {__version__}")
        raise typer.Exit


def load_plugins(modules: list[str] | None) -> None:
    """Import modules that register components: installed ones, or files in the current folder."""
    for name in modules or []:
        folder = str(Path.cwd())
        sys.path.insert(0, folder)
        try:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ImportError("not a module name")
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"--plugin {name}: cannot be imported ({error}); "
                "pass the name of an installed module, or of a .py file in this folder without its suffix."
            ) from error
        finally:
            sys.path.remove(folder)


@app.callback()
def _regard(
    version: Annotated[
        bool,
        option(GLOBAL_PANEL, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        option(
            GLOBAL_PANEL,
            "--plugin",
            callback=load_plugins,
            help="Import a module that registers positions, attention kernels, optimizers, tasks, … Repeatable.",
            metavar="MODULE",
        ),
    ] = None,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process."""
    entry.run(app)
