"""The command `regard`: one file per sub-command, each of which parses, calls and prints.

Nothing here imports torch until a command needs it, so that `regard --help` answers at once.
"""

import io
import os
import sys
from typing import Annotated

import typer

from regard.cli import import_, lab, model
from regard.errors import RegardError
from regard.version import __version__

app = typer.Typer(
    name="regard",
    help='Train, run and open up the Transformer of "Attention Is All You Need" and the systems around it.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("model")(model.show)
app.command("lab")(lab.run)
app.command("import")(import_.run)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _regard(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; a failure that the user can mend is one sentence on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # text is UTF-8 here, whatever the locale says
    try:
        app()
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output, such as `head`, has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
