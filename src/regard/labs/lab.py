"""Definition of a lab: a claim from the literature and the experiment that tests it.

An experiment is a module with a description of its method (`METHOD`), its limitations (`LIMITATIONS`) and a function
`run`. It is imported on first use, so that listing the labs is fast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Effort = Literal["quick", "default", "full"]
T = TypeVar("T")


@dataclass(frozen=True)
class LabContext:
    """Options of one lab run: the effort, the folder of trained models, and a function that logs progress."""

    effort: Effort
    models_folder: Path
    log: Callable[[str], None] = lambda message: None

    def by_effort(self, quick: T, default: T, full: T) -> T:
        """Return the value for this effort: quick takes seconds, default a few minutes, full up to half an hour."""
        return {"quick": quick, "default": default, "full": full}[self.effort]


@dataclass(frozen=True)
class LabFigure:
    """A figure with its file name, caption and alternative text."""

    name: str
    caption: str
    figure: "Figure"
    alt_text: str


@dataclass(frozen=True)
class LabTable:
    """A table of results; the first column names the rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Verdict:
    """A part of the claim, or a related claim, and whether the numbers support it."""

    claim: str
    holds: bool


@dataclass(frozen=True)
class LabResult:
    """Result of an experiment: whether the numbers support the claim, a summary, the numbers, figures and tables."""

    holds: bool
    summary: str
    numbers: Mapping[str, Any]
    figures: Sequence[LabFigure] = ()
    tables: Sequence[LabTable] = ()
    verdicts: Sequence[Verdict] = ()
    """Parts of the claim and related claims that are judged separately."""
    text: str = field(default="", repr=False)
    """Preformatted text, such as worked arithmetic."""


def conclusion(holds: bool) -> str:
    """Return the conclusion about a claim in words."""
    return "The claim is supported." if holds else "The claim is not supported."


def separate_conclusion(verdict: Verdict) -> str:
    """Return a verdict in words.

    >>> separate_conclusion(Verdict("Wide beams hurt", False))
    'Not supported: Wide beams hurt.'
    """
    return f"{'Supported' if verdict.holds else 'Not supported'}: {verdict.claim}."


class Experiment(Protocol):
    """Interface of an experiment module."""

    METHOD: str
    LIMITATIONS: str

    def run(self, context: LabContext) -> LabResult:
        """Run the experiment."""
        ...


@dataclass(frozen=True)
class Lab:
    """A lab: its name, title, claim, the source of the claim, and the module of its experiment.

    Without `module`, the experiment is the module of the same name in `regard.labs`.
    """

    name: str
    title: str
    claim: str
    source: str
    module: str = ""

    @property
    def experiment(self) -> Experiment:
        """The module of the experiment, imported on first use."""
        return cast("Experiment", import_module(self.module or f"regard.labs.{self.name.replace('-', '_')}"))
