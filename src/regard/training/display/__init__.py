"""Progress display of training: a live bar on a terminal, plain lines elsewhere.

All output goes to one stream, standard error; results are printed to standard output by the commands.
"""

import os
from typing import TextIO

from regard.training.display.base import Progress, ProgressDisplay, ResilientDisplay, Sample
from regard.training.display.lines import LinesDisplay
from regard.training.display.terminal import TerminalDisplay

__all__ = [
    "LinesDisplay",
    "Progress",
    "ProgressDisplay",
    "ResilientDisplay",
    "Sample",
    "TerminalDisplay",
    "display_for",
]


def display_for(stream: TextIO, quiet: bool = False) -> ProgressDisplay:
    """The display that suits a stream: live on a terminal, lines elsewhere, nothing when quiet."""
    if quiet:
        return ProgressDisplay()
    if stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return TerminalDisplay(stream)
    return LinesDisplay(stream)
