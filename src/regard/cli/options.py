"""Options that several commands share, the panels of `--help`, and checks of option values."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import ConfigError, InputError
from regard.registry import ENGINES, PRECISIONS

# Panels of `--help`
DATA_PANEL = "Data"
MODEL_PANEL = "Model"
TRAINING_PANEL = "Training"
DECODING_PANEL = "Decoding"
OUTPUT_PANEL = "Output"
SERVER_PANEL = "Server"
LIMITS_PANEL = "Limits"
WORKERS_PANEL = "Workers"
DEVICE_PANEL = "Devices"
HARDWARE_PANEL = "Hardware"
GLOBAL_PANEL = "Global"
PANELS = (  # in the order of `--help`
    SERVER_PANEL,
    DATA_PANEL,
    MODEL_PANEL,
    TRAINING_PANEL,
    DECODING_PANEL,
    LIMITS_PANEL,
    WORKERS_PANEL,
    DEVICE_PANEL,
    HARDWARE_PANEL,
    OUTPUT_PANEL,
    GLOBAL_PANEL,
)
FILE = "FILE"  # metavar of options that take files


def option(panel: str, *names: str, help: str, **settings: Any) -> Any:
    """Return a typer option with a description in a panel of `--help`."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


def argument(help: str, metavar: str) -> Any:
    """Return a typer argument with a description."""
    return typer.Argument(help=help, metavar=metavar)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Make an input that a network cannot process a usage error, where the input is an argument of the command."""
    try:
        yield
    except InputError as error:
        raise ConfigError(str(error)) from None


def examples(*commands: str) -> str:
    """Return the end of a command's `--help`: command lines that show its use."""
    return "\n".join(["Examples:" if len(commands) > 1 else "Example:", *(f"$ {command}" for command in commands)])


def file_option(*names: str, help: str) -> Any:
    """Return an option of the data panel that takes files and can be repeated."""
    return option(DATA_PANEL, *names, help=help, metavar=FILE)


def _column(name: str, content: str) -> Any:
    """Return an option of the data panel that names a column."""
    return option(DATA_PANEL, name, help=f"Column of the {content}.", metavar="COLUMN")


Files = list[str] | None
ModelArgument = Annotated[Path, argument("Model folder, or run folder for its best model.", "MODEL")]
SourceOption = Annotated[Files, file_option("--source", help="Source sentences, one per line. Repeatable.")]
TargetOption = Annotated[
    Files, file_option("--target", help="Translations, aligned with --source line by line. Repeatable.")
]
ParsesOption = Annotated[
    Files, file_option("--parses", help="Dependency parses of --source in CoNLL-U, for syntax positions. Repeatable.")
]
SourceColumnOption = Annotated[
    str | None, _column("--source-column", "source of pairs in TSV, CSV and JSON Lines: name in the header, or number")
]
TargetColumnOption = Annotated[str | None, _column("--target-column", "target of pairs: name in the header, or number")]
TextColumnOption = Annotated[str | None, _column("--text-column", "text: name in the header, or number")]
LabelColumnOption = Annotated[str | None, _column("--label-column", "label: name in the header, or number")]
ParseOption = Annotated[
    str | None,
    option(
        DATA_PANEL,
        "--parses",
        help="Dependency parse in CoNLL-U, required by models with syntax positions.",
        metavar="FILE",
    ),
]
InputOption = Annotated[
    str,
    option(DATA_PANEL, "--input", "-i", help="Input file, one text per line; - is stdin. Reads .gz.", metavar="FILE"),
]
OutputOption = Annotated[
    Path | None,
    option(
        OUTPUT_PANEL,
        "--output",
        "-o",
        help="Output file instead of stdout, written atomically. Writes .gz.",
        metavar="FILE",
    ),
]
EnsembleOption = Annotated[
    list[Path] | None,
    option(
        MODEL_PANEL, help="Another model to ensemble with: probabilities are averaged. Repeatable.", metavar="MODEL"
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    option(
        MODEL_PANEL, "--set", help="Override a setting, such as training.steps=5000. Repeatable.", metavar="KEY=VALUE"
    ),
]
BeamOption = Annotated[
    int | None, option(DECODING_PANEL, help="Beam width; 1 is greedy search. By default the model's, usually 4.")
]
SplitSentencesOption = Annotated[
    bool | None,
    option(
        DATA_PANEL,
        "--split-sentences/--no-split-sentences",
        help="Translate each sentence of a line on its own, or none; by default only in lines longer than in training.",
        show_default=False,
    ),
]
LengthPenaltyOption = Annotated[
    float | None,
    option(
        DECODING_PANEL,
        help="Exponent of the length penalty; larger values favor longer output. By default the model's, usually 0.6.",
    ),
]
SuppressOption = Annotated[
    list[str] | None, option(DECODING_PANEL, help="Word that must not occur in the output. Repeatable.", metavar="WORD")
]
MaxGeneratedOption = Annotated[
    int, option(DECODING_PANEL, min=1, help="Maximum number of tokens a language model generates.")
]
EngineOption = Annotated[
    str,
    option(
        DECODING_PANEL,
        help="auto, torch or ctranslate2; auto is the fastest that supports all options.",
        metavar="NAME",
    ),
]
PrecisionOption = Annotated[
    str, option(DECODING_PANEL, help="Weights of the ctranslate2 engine: int8 or float32.", metavar="NAME")
]
DeviceOption = Annotated[
    str,
    option(HARDWARE_PANEL, help="auto, cpu, cuda, cuda:N or mps; auto is a CUDA GPU if there is one.", metavar="NAME"),
]
SkipInvalidOption = Annotated[
    bool, option(DATA_PANEL, "--skip-invalid", help="Skip and count invalid lines instead of stopping at the first.")
]
QuietOption = Annotated[bool, option(OUTPUT_PANEL, "--quiet", "-q", help="Show no progress, only results and errors.")]
VerboseOption = Annotated[bool, option(OUTPUT_PANEL, "--verbose", "-v", help="Log which engine is used, and why.")]


def log_engine_choice(verbose: bool) -> None:
    """Log the package's decisions to stderr if `verbose`."""
    if verbose:
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("regard: %(message)s"))
        logger = logging.getLogger("regard")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option if it is one of the choices, else raise ConfigError."""
    from regard.config import did_you_mean
    from regard.errors import ConfigError

    if value not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ConfigError(f"{option} {value}: should be {listed}{did_you_mean(value, choices)}.")
    return value


def check_engine(engine: str, precision: str = "int8") -> None:
    """Raise ConfigError unless these are an engine and a precision."""
    check_choice("--engine", engine, ENGINES)
    check_choice("--precision", precision, PRECISIONS)


def check_text(option: str, text: str, *, empty: bool = False) -> None:
    """Raise ConfigError if a text is not valid Unicode, or empty while `empty` is false."""
    from regard.errors import ConfigError

    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{option}: is not UTF-8; type it again, or set the terminal to UTF-8.") from None
    if not text and not empty:
        raise ConfigError(f"{option}: is empty; pass a text.")
