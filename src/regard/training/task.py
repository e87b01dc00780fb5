"""A task: everything that differs between training a translator, a language model and whatever comes after them.

The loop knows a task only by this contract: batches to learn from, an objective, and a way to measure the network.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from regard.config import Config, CorpusConfig
from regard.data.batching import DataPosition
from regard.data.preparation import PreparedData
from regard.data.stats import CorpusStats, ReportProgress
from regard.models.network import Network
from regard.training.automatic_settings import AutomaticSetting, UserSettings
from regard.training.display import Sample
from regard.training.objectives import Batch, Objective

Check = Callable[[], None]  # called between the pieces of long work; may raise to stop it


@dataclass(frozen=True)
class ValidationResult:
    """What validation found."""

    scores: dict[str, float]
    samples: Sequence[Sample] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)
    ranked: Mapping[str, Sequence[Mapping[str, str | float]]] = field(default_factory=dict)  # best, worst, random
    confusion: Mapping[str, Any] = field(default_factory=dict)  # labels, and how often each was taken for each


B = TypeVar("B", bound=Batch)


class BoundTask(Protocol[B]):
    """One kind of training, on batches of its own kind."""

    name: str
    unit: str  # what the loss is a mean over: tokens or labels
    network: Network

    def objective(self) -> Objective[Any]:
        """The module from a batch to its loss."""
        ...

    def batches(self, place: DataPosition) -> Iterator[tuple[DataPosition, B]]:
        """Batches from a place on, without end, each with the place that follows it."""
        ...

    @property
    def batches_per_epoch(self) -> int:
        """How many batches a pass over the data has, or about as many."""
        ...

    def flops(self, batch: B) -> float:
        """Floating-point operations of the network for a batch, forward and backward, its pads not counted."""
        ...

    def describe(self, place: DataPosition, batch: B) -> str:
        """Which examples a batch holds, for a person who looks for the one that did harm."""
        ...

    def validate(self, check: Check) -> ValidationResult:
        """Measure the network on the validation data."""
        ...

    def test(self, check: Check) -> ValidationResult | None:
        """Measure the network on the test data, if there is any."""
        ...


class Task(Protocol):
    """How a task comes about: look at the data, prepare it, and set to work."""

    name: str

    def check(self, config: Config) -> None:
        """Complain about data that this kind cannot use."""
        ...

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read a corpus once, to see how much it is and that all of it can be used."""
        ...

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit the data, and what the user said."""
        ...

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Make tokenizer and stores."""
        ...

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> BoundTask[Any]:
        """The task itself."""
        ...
