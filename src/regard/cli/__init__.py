"""The command `regard`: one file per sub-command, each of which parses, calls and prints.

Nothing here imports torch until a command needs it, so that `regard --help` answers at once.
"""

import io
import os
import sys
from typing import Annotated

import typer

from regard.cli import (
    average,
    classify,
    compare,
    config,
    demo,
    embed,
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
from regard.cli.entry import BROKEN_PIPE_EXIT_CODE, exit_on_signals, hidden_exit_code
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
app.command("demo")(demo.run)
app.command("train")(train.run)
app.command("translate")(translate.run)
app.command("generate")(generate.run)
app.command("serve")(serve.run)
app.command("fill")(fill.run)
app.command("classify")(classify.run)
app.command("embed")(embed.run)
app.command("evaluate")(evaluate.run)
app.command("score")(score.run)
app.command("average")(average.run)
app.command("compare")(compare.run)
app.command("look")(look.run)
app.command("plot")(plot.run)
app.command("model")(model.show)
app.add_typer(config.app, name="config")
app.command("lab")(lab.run)
app.command("import")(import_.run)
app.command("export")(export.run)


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
    # Threads that wait should soon sleep: where they spin on, one other program makes training many times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # read by OpenMP when torch is imported, which is later
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the locale says
    try:
        with exit_on_signals():
            app()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer has met it, and ends with 1
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        raise
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("regard: interrupted.", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # a path that may not be looked at, a name that is too long, a full disk
        print(f"regard: {error.filename or 'the output'}: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
    except Exception as error:
        code = hidden_exit_code(error)
        if code is None:
            raise
        sys.exit(code)
    finally:
        _flush()


def _flush() -> None:
    """Write what is left, so that a failure to do so is met here; a reader such as `head` may have had enough."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        print(f"regard: the output: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
