"""Tasks: everything that differs between training a translator, a language model, a classifier and so on.

A `Task` is a stateless definition, registered by the name that `regard train` calls it by. The trainer knows only the
`BoundTask` that a `NetworkTask` makes for prepared data and a network: batches, an objective and validation.

This module and the definitions of the built-in tasks import no torch, so that names, defaults and help are available
at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, cast

from regard.config import Config, ConfigSource, CorpusConfig, EncoderConfig, unchecked_value, validate_sources
from regard.config.tasks import TaskInfo, sized_tasks
from regard.errors import ConfigError
from regard.evaluation.likelihood import ScoringModel
from regard.registry import TASK_REGISTRY, Registry

if TYPE_CHECKING:
    from pathlib import Path

    from regard.data.batching import DataPosition
    from regard.data.corpus_scan import CorpusStats, ReportProgress
    from regard.data.lines import InvalidLines
    from regard.data.preparation import PreparedData
    from regard.decoding.encoder_inference import TextEncoder
    from regard.decoding.options import TranslationOptions
    from regard.decoding.translator import Translator
    from regard.evaluation.likelihood import ProgressCallback
    from regard.models.network import Network
    from regard.registry import EngineName, Precision
    from regard.training.automatic_settings import AutomaticSetting, UserSettings
    from regard.training.batches import Batch
    from regard.training.display import ProgressDisplay, Sample
    from regard.training.losses import Objective
    from regard.training.run import Callback, Run
    from regard.training.setup import TrainRequest

    BatchT = TypeVar("BatchT", bound=Batch)
else:
    BatchT = TypeVar("BatchT")

T = TypeVar("T")
Ability = Literal["translate", "generate", "classify", "tag", "fill", "embed"]
Check = Callable[[], None]  # called between pieces of long work; raises to interrupt it
OutputRow = Mapping[str, str | float]


@dataclass(frozen=True)
class ValidationResult:
    """Scores of a network on validation or test data."""

    scores: dict[str, float]
    samples: "Sequence[Sample]" = ()
    signatures: Mapping[str, str] = field(default_factory=dict)  # of sacrebleu
    outputs: Mapping[str, Sequence[OutputRow]] = field(default_factory=dict)  # the best, the worst and random outputs
    confusion: Mapping[str, Any] = field(default_factory=dict)  # labels, and how often each was predicted for each
    majority: Mapping[str, float] = field(default_factory=dict)  # scores of predicting the most frequent label
    search: str = ""  # how texts were decoded, in words


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of `regard evaluate`; None where the user set nothing."""

    beam: int | None = None
    length_penalty: float | None = None
    engine: str | None = None
    precision: str | None = None
    output: Callable[[str], None] | None = None  # called with each translation
    bleu_tokenizer: str | None = None
    references: str | None = None
    context_length: int | None = None
    tag_column: int | None = None
    split_sentences: bool | None = None

    def set_by_user(self) -> list[str]:
        """The names of the options that the user set."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]


class EvaluationScores(Protocol):
    """Scores of `regard evaluate`."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `scores` by name, and counts such as `sentences` or `tokens`."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """The result of `regard evaluate`: settings that were used, and the scores."""

    settings: Mapping[str, Any]
    result: EvaluationScores


class TrainedModel(ScoringModel, Protocol):
    """A loaded model, such as `regard.load` returns."""

    @property
    def folder(self) -> "Path":
        """Its model folder."""
        ...

    @property
    def network(self) -> "Network":
        """Its network."""
        ...

    @property
    def text_encoder(self) -> "TextEncoder":
        """Its text encoder."""
        ...

    def translator(
        self, options: "TranslationOptions", *, engine: "EngineName" = "auto", precision: "Precision" = "int8"
    ) -> "Translator":
        """Its translator."""
        ...


class WorkShare(Protocol):
    """The part of a validation that this process computes. A `ProcessGroup` is one.

    All processes must call `total` and `merge` equally often, and get the same results.
    """

    @property
    def rank(self) -> int:
        """The number of this process."""
        ...

    def own(self, items: Iterable[T]) -> Iterator[T]:
        """The items that this process works on."""
        ...

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of the values of all processes."""
        ...

    def merge(self, results: Sequence[T]) -> list[T]:
        """The results of all processes for their `own` items, in the order of all items; JSON values."""
        ...


class AllWork:
    """The share of a process that computes a validation alone."""

    rank = 0

    def own(self, items: Iterable[T]) -> Iterator[T]:
        """All items."""
        return iter(items)

    def total(self, values: Sequence[float]) -> list[float]:
        """The values."""
        return list(values)

    def merge(self, results: Sequence[T]) -> list[T]:
        """The results."""
        return list(results)


ALL_WORK: WorkShare = AllWork()


class BoundTask(Protocol[BatchT]):
    """A task bound to prepared data and a network.

    With several processes, the trainer sets the attribute `share` of tasks that have one (`ALL_WORK` by default) while
    it calls `validate` in all of them. A task without it computes all in every process. A task that decodes texts may
    have the attribute `validation_search`: how `validate` decodes them, in words.
    """

    unit: str  # what the loss is averaged over: tokens or labels
    network: "Network"

    def objective(self) -> "Objective[Any]":
        """The module that maps a batch to its loss."""
        ...

    def batches(self, position: "DataPosition") -> "Iterator[tuple[DataPosition, BatchT]]":
        """Endless batches from a position on, each with the position that follows it."""
        ...

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of an epoch, at least approximately."""
        ...

    def flops(self, batch: BatchT) -> float:
        """Floating-point operations of the forward and backward pass of a batch, without padding."""
        ...

    def describe(self, position: "DataPosition", batch: BatchT) -> str:
        """The examples of a batch in a few words, for the message about a diverged loss."""
        ...

    def validate(self, check: Check) -> ValidationResult:
        """Measure the network on the validation data."""
        ...

    def test(self, check: Check) -> ValidationResult | None:
        """Measure the network on the test data, if there is any."""
        ...


@contextmanager
def shared_work(task: BoundTask[Any], share: WorkShare) -> Iterator[None]:
    """Let processes compute a validation together, each its share, if the task can."""
    if hasattr(task, "share"):
        task.share = share
    try:
        yield
    finally:
        if hasattr(task, "share"):
            task.share = ALL_WORK


class Task(TaskInfo, ABC):
    """Something that `regard train NAME` trains."""

    def default_settings(self) -> dict[str, Any]:
        """Settings that the name stands for; presets, files and options override them."""
        return {}

    @abstractmethod
    def train(
        self, request: "TrainRequest", display: "ProgressDisplay | None" = None, callbacks: "Sequence[Callback]" = ()
    ) -> "Run":
        """Train, and write everything to a folder."""


class NetworkTask(Task):
    """A task that trains a network with the `Trainer`."""

    model: ClassVar[Mapping[str, Any]]
    """Settings of the network that is trained unless the user sets another."""
    data_options: ClassVar[str] = "--data"
    """Options of `regard train` that name the training data, for messages."""
    builtin_splits: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Validation and test sets of built-in corpora, by the name of the training set."""
    noun: ClassVar[str]
    """A trained model in messages, such as `translator`."""
    evaluation_options: ClassVar[frozenset[str]] = frozenset()
    """Options of `regard evaluate` that apply, by their names in `EvaluationOptions`."""

    def default_settings(self) -> dict[str, Any]:
        """The network, and the name of the task where it does not follow from the network."""
        settings: dict[str, Any] = {"model": dict(self.model)}
        if validate_sources([ConfigSource("", settings)]).task != self.name:
            settings["training"] = {"task": self.name}
        return settings

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """What a trained model can be used for, the purpose it was trained for first."""
        return ()

    @abstractmethod
    def check(self, config: Config) -> None:
        """Raise a ConfigError for data or settings that this task cannot use."""

    @abstractmethod
    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: "ReportProgress") -> "CorpusStats":
        """Read a corpus once: its size, and an error for lines that cannot be used."""

    @abstractmethod
    def automatic_settings(self, stats: "CorpusStats", user: "UserSettings") -> "list[AutomaticSetting]":
        """Settings that suit the amount of data, for what the user left open."""

    def sized(
        self, stats: "CorpusStats", user: "UserSettings", size: str | None, measure: "Callable[[UserSettings], float]"
    ) -> "UserSettings":
        """The user's settings with what follows from `--size` and from the time that training may take.

        `measure` returns the seconds per token of the network that `automatic_settings` choose for some user's
        settings. Without a rule for the size of its network, a task has the number of steps fitted to the time only.
        """
        if size is not None:
            raise ConfigError(
                f"--size {size}: is for regard train {' or '.join(sized_tasks())}; for regard train {self.name}, "
                "set model.width and model.layers, or choose a preset."
            )
        return user

    @abstractmethod
    def prepare(self, folder: "Path", key: str, config: Config, report: "ReportProgress") -> "PreparedData":
        """Train or load the tokenizer and write token stores to a folder."""

    def data_warnings(self, config: Config, prepared: "PreparedData") -> list[str]:
        """Messages about data that look wrong, which are shown before training."""
        return []

    def prepared_settings(self, config: Config, prepared: "PreparedData") -> dict[str, Any]:
        """Settings that only the prepared data decide, by table."""
        return {}

    @abstractmethod
    def bind(self, config: Config, prepared: "PreparedData", network: "Network") -> BoundTask[Any]:
        """Bind the task to prepared data and a network."""

    def model_files(self, bound: BoundTask[Any], check: Check) -> dict[str, str]:
        """Further files of a finished model, by name; the network of `bound` has its weights."""
        return {}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: "InvalidLines",
        count: "ProgressCallback",
    ) -> Evaluation:
        """Measure a trained model on new data."""
        raise ConfigError(f"{model.folder}: models of regard train {self.name} cannot be evaluated.")

    def train(
        self, request: "TrainRequest", display: "ProgressDisplay | None" = None, callbacks: "Sequence[Callback]" = ()
    ) -> "Run":
        """Train a network, or resume its training, and write the run folder."""
        from regard.training.runner import run_training

        return run_training(request, display, callbacks)


TASKS = cast(Registry[type[Task]], TASK_REGISTRY)
"""Task classes by name. Packages add their own by the entry-point group `regard.tasks`."""


def get_task(name: str) -> Task:
    """The task of this name."""
    return TASKS[name]()


def task_of(config: Config) -> NetworkTask:
    """The task that a config trains its network for."""
    if not config.task:
        raise ConfigError(
            f"model.kind = {config.model.kind!r} without a model.head predicts nothing, so it cannot be trained; "
            "set model.head to 'tokens', 'classes' or 'tags'."
        )
    task = get_task(config.task)
    if not isinstance(task, NetworkTask):
        raise ConfigError(f"training.task = {config.task!r} trains no network; use regard train {config.task}.")
    return task


def task_in_sources(sources: Sequence[ConfigSource]) -> NetworkTask | None:
    """The task that config sources name, whatever else may be wrong with them; None if they name none."""
    model = {key: value for key in ("kind", "head") if (value := unchecked_value(sources, f"model.{key}")) is not None}
    training = {"task": unchecked_value(sources, "training.task")}
    values = {"model": model, "training": {key: value for key, value in training.items() if value is not None}}
    try:
        return task_of(validate_sources([ConfigSource("", values)]))
    except ConfigError:
        return None


def check_task(config: Config, name: str) -> None:
    """Raise a ConfigError if `regard train NAME` would train something else, because of settings or a start model."""
    if config.task == name:
        return
    head = f" with model.head = {config.model.head.kind!r}" if isinstance(config.model, EncoderConfig) else ""
    remedy = "use other settings" if config.training.start_from is None else "start from another model"
    raise ConfigError(
        f"regard train {name}: model.kind = {config.model.kind!r}{head} is for regard train {config.task}; "
        f"use that, or {remedy}."
    )


def abilities(config: Config) -> tuple[Ability, ...]:
    """What a model can be used for, the purpose it was trained for first.

    >>> from regard.config import ClassHeadConfig, EncoderOnlyConfig
    >>> abilities(Config(model=EncoderOnlyConfig(vocab_size=300, head=ClassHeadConfig(labels=("bad", "good")))))
    ('classify', 'embed')
    """
    if config.task:
        return task_of(config).abilities(config)
    return ("embed",) if isinstance(config.model, EncoderConfig) else ()
