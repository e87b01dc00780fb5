"""Preferences: a language model learns which of two answers is better, by direct preference optimization (DPO)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.config import Config, CorpusConfig
from regard.data.batching import DataPosition, Ids
from regard.data.conversation_batches import PreferenceBatches
from regard.data.corpus_scan import CorpusStats, ReportProgress
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.errors import ConfigError
from regard.evaluation.likelihood import ProgressCallback
from regard.tasks.chat import chat_context, chat_settings, check_chat_start
from regard.tasks.common import check_text_data, device_of
from regard.tasks.language_modeling import LanguageModelingTask
from regard.training.automatic_settings import AutomaticSetting, UserSettings
from regard.training.task import (
    ALL_WORK,
    Check,
    Evaluation,
    EvaluationOptions,
    NetworkTask,
    TrainedModel,
    ValidationResult,
)

if TYPE_CHECKING:
    from regard.models.network import Network
    from regard.training.batches import LazyBatch
    from regard.training.chat_objectives import PreferenceObjective, PreferenceTokens


LEARNING_RATE, LEARNING_RATE_FACTOR = "training.schedule.learning_rate", 0.1


class PreferenceTask(LanguageModelingTask):
    """Fine-tune a language model on preference pairs."""

    name = "dpo"
    title = "chat model"
    help = "a chat model, from pairs of a better and a worse answer and a language model (--from)"
    noun = "language model"
    suggested_for = None
    chooses_size = False
    uses_chat_template = True
    metrics = ("loss", "accuracy", "margin")
    evaluation_options = frozenset[str]()
    model: ClassVar = {"kind": "decoder-only"}
    builtin_splits: ClassVar = {}
    unsupported_options = ("--mix",)

    def check(self, config: Config) -> None:
        """The data are preference pairs, and training starts from a model with a tokenizer."""
        check_text_data(config, "a chat model")
        check_chat_start(config, self.name)
        if config.training.rdrop or config.data.train.weights or config.data.mix.has_files:
            key = "training.rdrop" if config.training.rdrop else "data.train.weights and data.mix"
            raise ConfigError(f"regard train {self.name}: {key} cannot be used for preference pairs; leave it out.")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the preference pairs once."""
        from regard.data.conversations import preference_stats

        return preference_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this amount of text; the learning rate is lower than for conversations."""
        settings = chat_settings(stats, user)
        return [_lowered(setting) if setting.key == LEARNING_RATE else setting for setting in settings]

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the preference pairs."""
        from regard.data.conversations import prepare_preferences

        return prepare_preferences(folder, key, config, chat_context(config) + 1, report)

    def prepared_settings(self, config: Config, prepared: PreparedData) -> dict[str, Any]:
        """The context length that was trained on, which a model folder keeps."""
        return {"data": {"context_length": chat_context(config)}}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Preference pairs are measured in training only, where there is a reference."""
        return NetworkTask.evaluate(self, model, corpus, options, invalid, count)

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundPreferences":  # type: ignore[override]
        """Bind the task to preference pairs and a network."""
        return BoundPreferences(config, prepared, network)


class BoundPreferences:
    """Batches, objective and validation of a model that learns from preferences."""

    unit = "pairs"
    share = ALL_WORK

    def __init__(self, config: Config, prepared: PreparedData, network: "Network") -> None:
        from regard.models.summary import FlopCounter

        self.config = config
        self.network = network
        self.tokenizer = prepared.tokenizer
        self._valid, self._test = prepared.valid, prepared.test
        self._source = self._batches_of(prepared.train)
        self._flops = FlopCounter(network)

    def _batches_of(self, split: PreparedSplit) -> PreferenceBatches:
        chosen, rejected, *learned = split.store.columns
        columns = (chosen, rejected, learned[0], learned[1])
        training = self.config.training
        return PreferenceBatches(columns, training.batch_tokens, self.config.tokens, training.seed)

    @cached_property
    def reference(self) -> "Network | None":
        """The model that training starts from; None if it is the network itself, without its LoRA matrices."""
        if self.network.adapter is not None:
            return None
        from regard.models.folder import load_merged

        assert self.config.training.start_from is not None
        return load_merged(self.config.training.start_from).network.requires_grad_(False)

    def objective(self) -> "PreferenceObjective":
        """Prefer the chosen answers."""
        from regard.training.chat_objectives import PreferenceObjective

        return PreferenceObjective(self.network, self.config.training.dpo.beta, self.reference)

    def batches(self, position: DataPosition) -> "Iterator[tuple[DataPosition, LazyBatch[PreferenceTokens]]]":
        """Pairs in random order."""
        for after, pairs in self._source.iterate(position):
            yield after, self._lazy_batch(pairs)

    def _lazy_batch(self, pairs: Ids) -> "LazyBatch[PreferenceTokens]":
        import torch

        from regard.training.batches import LazyBatch

        lengths = torch.from_numpy(self._source.lengths[pairs])

        def gather(rank: int, world_size: int) -> "PreferenceTokens":
            return _tensors(self._source, pairs, rank, world_size)

        return LazyBatch(len(pairs), len(pairs), [lengths], gather)

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return len(self._source.plan(0))

    def flops(self, batch: "LazyBatch[PreferenceTokens]") -> float:
        """Forward and backward pass of both answers, and the forward pass of the reference."""
        return 2 * self._flops.training_flops(batch.lengths[0]) * 4 / 3

    def describe(self, position: DataPosition, batch: "LazyBatch[PreferenceTokens]") -> str:
        """The size of a batch, and the start of its first conversation."""
        ids = batch.shard(0, 1).target
        start = self.tokenizer.decode(ids[0, :20].tolist())
        return f"epoch {position.epoch + 1}, batch {position.batch}: {len(ids) // 2} pairs, the first {start!r}…"

    def validate(self, check: Check) -> ValidationResult:
        """Loss, accuracy and rewards of the validation pairs."""
        return self._measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same of the test pairs."""
        return self._measure(self._test, check) if self._test is not None else None

    def _measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        import torch

        objective, source, device = self.objective(), self._batches_of(split), device_of(self.network)
        totals: dict[str, float] = {}
        with torch.no_grad():
            for pairs in self.share.own(source.plan(None)):
                check()
                sums = objective.rewards(_tensors(source, pairs).to(device)).sums()
                totals = {name: totals.get(name, 0.0) + value for name, value in sums.items()}
        names = ("loss", "accuracy", "margin", "chosen_reward", "rejected_reward")
        summed = self.share.total([totals.get(name, 0.0) for name in names])
        return ValidationResult({name: total / len(split.store) for name, total in zip(names, summed, strict=True)})


def _lowered(setting: AutomaticSetting) -> AutomaticSetting:
    value = float(f"{LEARNING_RATE_FACTOR * float(setting.value):.1e}")
    return replace(setting, value=value, reason="a tenth of that for conversations: rewards grow fast")


def _tensors(source: PreferenceBatches, pairs: Ids, rank: int = 0, world_size: int = 1) -> "PreferenceTokens":
    import torch

    from regard.training.chat_objectives import PreferenceTokens

    batch = source.batch(pairs, rank, world_size)
    return PreferenceTokens(
        torch.from_numpy(batch.ids),
        torch.from_numpy(batch.labels),
        torch.from_numpy(batch.mask),
        torch.from_numpy(batch.learned),
    )
