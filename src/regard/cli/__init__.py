"""The command `regard`: parse options, call the library and print results; one file per subcommand.

This file has the table of commands, plugins, and the entry point, where errors become one message and an exit code, and
signals clean up before they end the process. The module of a command is imported when the command is run or explained,
and torch when it is needed, so that `regard --help` and `regard translate` start quickly.
"""

import io
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Thread, main_thread
from types import FrameType
from typing import Annotated, Any

import typer

from regard.cli.help import CommandEntry, Group, LazyCommands
from regard.cli.input_output import print_text
from regard.cli.options import GLOBAL_PANEL, option
from regard.errors import ConfigError, RegardError
from regard.version import __version__

SIGNAL_EXIT_CODE = 128  # a shell adds this to the number of the signal that ended a program
# Exit code of `regard translate … | head -1`: as cat and grep, the command ends silently with SIGPIPE's code.
BROKEN_PIPE_EXIT_CODE = SIGNAL_EXIT_CODE + 13
LOST_SIGNAL_SECONDS = 0.1

COMMANDS: dict[str, CommandEntry] = {
    "demo": CommandEntry(
        "regard.cli.demo:run",
        "Train an English-Italian translator on the built-in phrasebook, test it, and translate a few sentences.",
    ),
    "train": CommandEntry("regard.cli.train:run", "Train a model on your data.", command_class="TrainCommand"),
    "prepare": CommandEntry("regard.cli.prepare:run", "Tokenize data ahead of training."),
    "translate": CommandEntry(
        "regard.cli.translate:run",
        "Translate a text, or the lines of stdin or a file: one output line per input line, in order, or HTML.",
    ),
    "generate": CommandEntry(
        "regard.cli.generate:run",
        "Continue prompts. In a terminal and without a prompt, starts an interactive session.",
    ),
    "chat": CommandEntry(
        "regard.cli.chat:run",
        "Chat with a language model, in a terminal or line by line from stdin.",
    ),
    "serve": CommandEntry(
        "regard.cli.serve:run",
        "Serve models over HTTP with LibreTranslate's, OpenAI's and regard's own routes; see docs/how-to/serve.md.",
    ),
    "fill": CommandEntry(
        "regard.cli.fill:run", 'Fill the masks of lines such as "The man [MASK] a dinosaur.", in order.'
    ),
    "classify": CommandEntry(
        "regard.cli.classify:run", "Print the label of each line of text, or of each pair of texts separated by a tab."
    ),
    "embed": CommandEntry(
        "regard.cli.embed:run",
        "Print a vector for each line of text, or pair of texts separated by a tab; numbers are separated by tabs.",
    ),
    "evaluate": CommandEntry(
        "regard.cli.evaluate:run",
        "Evaluate a model on data: a translator by BLEU, chrF, TER and loss, a language model by loss and bits per "
        "byte.",
    ),
    "score": CommandEntry(
        "regard.cli.score:run",
        "Print the log-probability (natural logarithm, end token included) of each translation or line of text.",
    ),
    "average": CommandEntry(
        "regard.cli.model_files:average_models",
        "Average the weights of models with equal networks and vocabularies, or of the last validations of a run.",
        "AVERAGE_EXAMPLES",
    ),
    "merge": CommandEntry(
        "regard.cli.model_files:merge_adapter",
        "Add the matrices of a LoRA adapter to its base model, and write a complete model folder.",
        "MERGE_EXAMPLES",
    ),
    "compare": CommandEntry(
        "regard.cli.compare:run",
        "Train or load several models and print a table of size, speed, loss and BLEU; plot their validation curves.",
    ),
    "look": CommandEntry(
        "regard.cli.look:run",
        "Trace a forward pass: tokens, every layer and head, every decoding step, the search and the alignment.",
    ),
    "plot": CommandEntry(
        "regard.cli.plot:run",
        "Plot attention weights, word alignment and head costs of a model, or how attention and recurrence work.",
    ),
    "model": CommandEntry(
        "regard.cli.model:run",
        "Show the parts of a network with their parameters, FLOPs per token, and memory for training.",
    ),
    "plan": CommandEntry(
        "regard.cli.plan:run",
        "Estimate memory, communication and step time of each layout of devices, and recommend one.",
    ),
    "lab": CommandEntry(
        "regard.cli.lab:run",
        "Test a claim of the paper by an experiment on small networks; writes a figure, numbers and a page.",
    ),
    "import": CommandEntry(
        "regard.cli.model_files:import_model",
        "Convert a Hugging Face model (Llama, GPT-2, BERT, Marian, T5, …), local or of the hub, or a GGUF file.",
        "IMPORT_EXAMPLES",
    ),
    "export": CommandEntry(
        "regard.cli.model_files:export_model",
        "Convert a model for CTranslate2 (fast on CPUs), Hugging Face (Llama, GPT-2, BERT, Marian) or llama.cpp.",
        "EXPORT_EXAMPLES",
    ),
    "batch": CommandEntry(
        "regard.cli.batch:app", "Run a task over many files, with several processes or on a cluster."
    ),
    "config": CommandEntry("regard.cli.config:app", "Show settings."),
}


class CommandGroup(Group):
    """All commands; each is imported when it is first used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": LazyCommands(COMMANDS)})

    def summaries(self) -> dict[str, str]:
        """Return the description of each command."""
        return {name: entry.summary for name, entry in COMMANDS.items()}


app = typer.Typer(
    name="regard",
    cls=CommandGroup,
    help='Train, run and inspect the Transformer of "Attention Is All You Need" and related models.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        print_text(f"regard {__version__}")
        raise typer.Exit


def load_plugins(modules: list[str] | None) -> list[str] | None:
    """Import modules that register components: installed ones, or files in the current folder; return their names."""
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
    return modules


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


# --- entry point ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command line of this process; errors that the user can fix are printed to stderr as one message."""
    # Idle OpenMP threads should sleep soon: with other programs running, spinning makes training many times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # read when torch is imported, which is later
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # their search reads the metadata of all installed packages
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # regardless of the locale
    try:
        with exit_on_signals():
            app()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer catches it and exits with 1
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        raise
    except RegardError as error:
        print_text(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_text("regard: interrupted.", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # missing permissions, a name that is too long, a full disk
        print_text(f"regard: {error.filename or 'the output'}: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
    except Exception as error:
        code = hidden_exit_code(error)
        if code is None:
            raise
        sys.exit(code)
    finally:
        _flush()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, so that temporary files are removed as on Ctrl-C."""
    handlers = {number: signal.getsignal(number) for number in _default_signals()}
    try:
        for number in handlers:
            signal.signal(number, _exit_with_signal)
    except ValueError:  # only the main thread can set signal handlers
        handlers = {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def hidden_exit_code(error: BaseException | None) -> int | None:
    """Return the exit code of a signal that arrived while a compiled module was imported, and became another error."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return SIGNAL_EXIT_CODE + signal.SIGINT
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return error.code
        error = error.__cause__ or error.__context__
    return None


class SignalExit(SystemExit):
    """The exit that a signal requests."""


def _exit_with_signal(number: int, frame: FrameType | None) -> None:
    raise _signal_exit(number)  # without a local name, which would keep a dropped exception alive


def _signal_exit(number: int) -> SignalExit:
    request = SignalExit(SIGNAL_EXIT_CODE + number)
    Thread(target=_repeat_lost_signal, args=(number, weakref.ref(request)), daemon=True).start()
    return request


def _repeat_lost_signal(number: int, request: "weakref.ref[SignalExit]") -> None:
    """Send a signal again when its exception was dropped: by a bare `except`, a destructor or a callback."""
    while request() is not None:  # it still propagates, or files are being removed
        time.sleep(LOST_SIGNAL_SECONDS)
    if hasattr(signal, "pthread_kill"):  # to the main thread, where it also interrupts a blocked read
        signal.pthread_kill(main_thread().ident or 0, number)


def _default_signals() -> list[int]:
    """Return the signals that would end the process; signals that are ignored, as by nohup, stay ignored."""
    names = ("SIGTERM", "SIGHUP")  # Windows has only the first
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]


def _flush() -> None:
    """Flush stdout here, so that a full disk or a closed pipe ends with the right exit code."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        print_text(f"regard: the output: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
