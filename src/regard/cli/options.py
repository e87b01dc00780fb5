"""Options that several commands share."""

import logging
import sys
from typing import Annotated

import typer

Engine = Annotated[
    str, typer.Option(help="auto, torch or ctranslate2; auto takes the fastest that can do what is asked.")
]
Precision = Annotated[str, typer.Option(help="Numbers of the engine ctranslate2: int8 or float32.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say which engine is used, and why.")]


def say_why(verbose: bool) -> None:
    """Show on stderr what the parts of regard have to say about their choices."""
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("regard: %(message)s"))
        logger = logging.getLogger("regard")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    """A value that is one of several."""
    from regard.config.complaint import nearest
    from regard.errors import ConfigError

    if value not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ConfigError(f"{option} {value}: should be {listed}{nearest(value, choices)}.")
    return value
