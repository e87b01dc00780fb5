"""Options that several commands share."""

import logging
import sys
from typing import Annotated

import typer

ModelFolder = Annotated[str, typer.Argument(help="A model folder, or a run's folder: then its best.", metavar="MODEL")]
Engine = Annotated[
    str, typer.Option(help="auto, torch or ctranslate2; auto takes the fastest that can do what is asked.")
]
Precision = Annotated[str, typer.Option(help="Numbers of the engine ctranslate2: int8 or float32.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say which engine is used, and why.")]


def log_engine_choice(verbose: bool) -> None:
    """Show on stderr what the parts of regard have to say about their choices."""
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("regard: %(message)s"))
        logger = logging.getLogger("regard")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    """A value that is one of several."""
    from regard.config.errors import did_you_mean
    from regard.errors import ConfigError

    if value not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ConfigError(f"{option} {value}: should be {listed}{did_you_mean(value, choices)}.")
    return value


def check_text(option: str, text: str, *, empty: bool = False) -> None:
    """A text that can be looked for or written: Unicode, and not empty unless it may be."""
    from regard.errors import ConfigError

    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{option}: is not UTF-8; type it again, or set the terminal to UTF-8.") from None
    if not text and not empty and option != "--prefix":
        raise ConfigError(f"{option}: is empty; say which text is meant.")
