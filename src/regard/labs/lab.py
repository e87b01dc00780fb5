"""What a lab is: a claim and where it comes from, an experiment that could refute it, and what came out.

The experiment is a module of its own that says what it does (`DONE`) and what it does not show (`LIMITS`), and has a
`run`. It is imported when it runs, so that a list of labs appears at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Effort = Literal["quick", "usual", "full"]
T = TypeVar("T")


@dataclass(frozen=True)
class Bench:
    """Where an experiment runs: how much effort it may make, where trained models are kept, and who is told."""

    effort: Effort
    models: Path
    say: Callable[[str], None] = lambda sentence: None

    def pick(self, quick: T, usual: T, full: T) -> T:
        """One of three sizes, by effort: seconds, a few minutes at most, or as long as a better picture takes."""
        return {"quick": quick, "usual": usual, "full": full}[self.effort]


@dataclass(frozen=True)
class Drawing:
    """A figure with a name for its files, a title, and what it shows for those who cannot see it."""

    name: str
    title: str
    figure: "Figure"
    shows: str


@dataclass(frozen=True)
class Table:
    """Numbers in rows; the first column names them."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Outcome:
    """What came out: whether the numbers support the claim, a few sentences made of them, and the numbers."""

    holds: bool
    said: str
    numbers: Mapping[str, Any]
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    board: str = field(default="", repr=False)
    """What is best read in a fixed width, such as arithmetic."""


def verdict(holds: bool) -> str:
    """Whether a claim holds, as a sentence."""
    return "It holds here." if holds else "It does not come out here."


class Experiment(Protocol):
    """What a lab's module has."""

    DONE: str
    LIMITS: str

    def run(self, bench: Bench) -> Outcome:
        """Do it."""
        ...


@dataclass(frozen=True)
class Lab:
    """A lab by name: what is claimed, and who claims it."""

    name: str
    title: str
    claim: str
    source: str

    @property
    def experiment(self) -> Experiment:
        """The module that does it."""
        return cast("Experiment", import_module(f"regard.labs.{self.name.replace('-', '_')}"))
