"""The common part of classification and tagging: data checks, automatic settings, batches, and all predictions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.config import Config, EncoderOnlyConfig
from regard.config.errors import did_you_mean
from regard.data.batching import BatchSampler, DataPosition, EpochSampler, Ids
from regard.data.corpus_scan import CorpusStats
from regard.data.encoder_batches import EncoderBatch
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenStore
from regard.data.tokenizer import Tokenizer, unknown_note
from regard.errors import ConfigError
from regard.tasks.common import device_of
from regard.training.automatic_settings import (
    AutomaticSetting,
    NetworkSize,
    RunLength,
    UserSettings,
    choose_size,
    length_settings,
    network_settings,
    token_count,
    validation_split,
    vocab_setting,
)
from regard.training.task import Check, NetworkTask, ValidationResult

if TYPE_CHECKING:
    from regard.models.network import Network
    from regard.training.batches import LabelBatch, LazyBatch
    from regard.training.losses import LabelObjective

LABELING_BATCH = 1024  # examples per forward pass of an evaluation

LABELING_SIZES = [
    NetworkSize(100_000, "a small encoder", 128, 2, 4, 256, 0.2),
    NetworkSize(1_000_000, "a medium encoder", 256, 4, 4, 1024, 0.1),
    NetworkSize(math.inf, "a larger encoder", 512, 6, 8, 2048, 0.1),
]


class LabelingTask(NetworkTask):
    """Train a network to predict labels."""

    metrics = ("loss", "accuracy", "macro_f1")
    supports_freezing = True
    examples = "texts"

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this number of labeled examples."""
        tokenizer = user.tokenizer or "bpe"
        tokens = token_count(stats.characters, tokenizer)
        if user.fine_tuning:
            epochs = min(10, max(3, 300_000 / max(1, stats.examples)))
            settings = [
                AutomaticSetting("training.schedule.learning_rate", 1e-4, "keeps most of what was learned before"),
                *length_settings(tokens, RunLength(epochs, min_steps=200, max_epochs=epochs), user),
            ]
        else:
            size = choose_size(LABELING_SIZES, stats.examples)
            settings = [
                *network_settings(size, f"{stats.examples:,} {self.examples}: {size.name}", user),
                AutomaticSetting("model.activation", "gelu", "as BERT"),
                AutomaticSetting("model.norm_order", "pre", "trains without a long warmup"),
                vocab_setting(stats.characters, tokenizer),
                AutomaticSetting("training.schedule.learning_rate", 5e-4, "stable for small encoders"),
                *length_settings(tokens, RunLength(min(20, max(3, 2_000_000 / max(1, stats.examples)))), user),
            ]
        return [
            *settings,
            *validation_split(stats.examples, self.examples, user, max_fraction=0.1),
            AutomaticSetting("training.label_smoothing", 0.0, "keeps the probabilities calibrated"),
            AutomaticSetting("training.max_grad_norm", 1.0, "as BERT"),
            AutomaticSetting("training.optimizer.kind", "adamw", "as BERT"),
            AutomaticSetting("training.schedule.kind", "cosine", "decays to zero, so that the last steps are small"),
        ]


def class_weights(
    labels: Sequence[str], counts: NDArray[np.int64], balanced: bool, explicit: Mapping[str, float]
) -> list[float] | None:
    """The weight of each label in the loss; None if all are 1.

    Balanced weights are N / (L·n) for a label that n of all N examples have, so that their mean over the examples is 1.

    >>> class_weights(["ham", "spam"], np.array([90, 10]), True, {"spam": 2.0})
    [0.5555555555555556, 10.0]
    """
    for label in explicit:
        if label not in labels:
            shown = ", ".join(map(repr, labels[:10])) + (", …" if len(labels) > 10 else "")
            raise ConfigError(
                f"training.class_weights: {label!r} is not a label of the data{did_you_mean(label, labels)}; "
                f"the labels are {shown}."
            )
    if not balanced and not explicit:
        return None
    weights = [explicit.get(label, 1.0) for label in labels]
    if balanced:
        occurring = np.count_nonzero(counts)  # a label without examples has no loss
        weights = [
            weight * float(counts.sum() / (occurring * max(1, count)))
            for weight, count in zip(weights, counts, strict=True)
        ]
    return weights


@dataclass(frozen=True)
class LabelPredictions:
    """Labels of all examples of a store, in order: one per text, or one per word."""

    labels: list[NDArray[np.int64]]
    predicted: list[NDArray[np.int64]]
    predicted_probability: list[NDArray[np.float64]]
    label_probability: list[NDArray[np.float64]]
    loss: float  # nats per label


class BoundLabeling(ABC):
    """Batches, objective and validation of a network that predicts labels."""

    unit = "labels"
    per_word = False  # whether words have labels, rather than texts
    label_offset = 0  # of the second column of the store, which has label numbers

    def __init__(self, config: Config, prepared: PreparedData, network: "Network") -> None:
        from regard.models.network import EncoderNetwork
        from regard.models.summary import FlopCounter

        assert isinstance(network, EncoderNetwork)
        self.config = config
        self.network: Network = network
        self._encoder = network
        if self.per_word:  # pooling gets no gradient, and distributed processes would wait for one
            network.pooling.requires_grad_(False)
        self.tokenizer = prepared.tokenizer
        self.labels = prepared.labels
        self._segments = config.model.segments if isinstance(config.model, EncoderOnlyConfig) else 0
        self._valid, self._test = prepared.valid, prepared.test
        self._store = prepared.train.store
        weights = prepared.train.weights(config.data.train)
        training = config.training
        self._sampler = EpochSampler(self._store.columns[:1], training.batch_tokens, training.seed, weights=weights)
        self._flops = FlopCounter(network)

    def objective(self) -> "LabelObjective":
        """Predict labels."""
        from regard.training.losses import LabelObjective

        training = self.config.training
        weights = class_weights(self.labels, self.label_counts(), training.balance_classes, training.class_weights)
        return LabelObjective(self._encoder, training.label_smoothing, per_word=self.per_word, class_weights=weights)

    def label_counts(self) -> NDArray[np.int64]:
        """How often each label occurs in the training data (L,); only counted if classes are balanced."""
        if not self.config.training.balance_classes:
            return np.zeros(len(self.labels), np.int64)
        column, _ = self._store.columns[1].gather(np.arange(len(self._store)))
        return np.bincount(column, minlength=len(self.labels) + self.label_offset)[self.label_offset :]

    def batches(self, position: DataPosition) -> "Iterator[tuple[DataPosition, LazyBatch[LabelBatch]]]":
        """Texts of similar length, shuffled in each epoch."""
        for after, examples in self._sampler.iterate(position):
            yield after, self._lazy_batch(examples)

    def _lazy_batch(self, examples: Ids) -> "LazyBatch[LabelBatch]":
        from regard.training.batches import LazyBatch

        def gather(rank: int, world_size: int) -> "LabelBatch":
            return self.batch(self._store, examples, rank, world_size)

        return LazyBatch(len(examples), None if self.per_word else len(examples), (), gather)

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._sampler.batches_per_epoch

    def flops(self, batch: "LazyBatch[LabelBatch]") -> float:
        """Forward and backward pass, without padding; with a frozen encoder the forward pass, a third of it."""
        rows = batch.rows_read
        both = self._flops.training_flops(rows.labeled.sum(1), rows.lengths) * batch.examples / rows.examples
        return both / 3 if self.config.training.freeze_encoder else both

    def describe(self, position: DataPosition, batch: "LazyBatch[LabelBatch]") -> str:
        """The size of a batch, and its first text."""
        return self._describe(position, batch.shard(0, 1))

    def _describe(self, position: DataPosition, batch: "LabelBatch") -> str:
        first = self.tokenizer.decode(batch.ids[0][batch.mask[0]].tolist())
        return (
            f"epoch {position.epoch + 1}, batch {position.batch}: {len(batch.ids)} texts of up to "
            f"{batch.ids.size(1)} tokens, the first {first!r}"
        )

    def validate(self, check: Check) -> ValidationResult:
        """Measure on the validation data."""
        return self.measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """Measure on the test data."""
        return self.measure(self._test, check) if self._test is not None else None

    @abstractmethod
    def batch(self, store: TokenStore, examples: Ids, rank: int = 0, world_size: int = 1) -> "LabelBatch":
        """The batch of these examples of a store, or the rows of it that one of several processes takes."""

    @abstractmethod
    def measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        """Scores, samples and confusion matrix of a split."""

    def predictions(self, store: TokenStore, check: Check) -> LabelPredictions:
        """The predictions for all examples of a store."""
        import torch

        from regard.training.batches import IGNORED_LABEL
        from regard.training.losses import LabelObjective

        objective, total, count = LabelObjective(self._encoder, 0.0, per_word=self.per_word), 0.0, 0
        device = device_of(self.network)
        rows: dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]] = {}
        for examples in self._batch_sampler(store).epoch(0):
            check()
            with torch.no_grad():
                batch = self.batch(store, examples).to(device)
                states, labels = objective.states(batch)
                p = self.network.logits(states).double().softmax(-1)  # (N, L)
                p_label = p.gather(1, labels[:, None]).squeeze(1)
                p_predicted, predicted = p.max(-1)
            total, count = total - float(p_label.clamp(min=1e-300).log().sum()), count + len(labels)
            bounds = np.cumsum((batch.labels != IGNORED_LABEL).sum(1).cpu().numpy())[:-1]
            columns = [np.split(tensor.cpu().numpy(), bounds) for tensor in (labels, predicted, p_predicted, p_label)]
            rows |= {int(n): tuple(row) for n, *row in zip(examples, *columns, strict=True)}
        in_order = zip(*(rows[n] for n in range(len(store))), strict=True)
        all_labels, all_predicted, all_p_predicted, all_p_label = (list(column) for column in in_order)
        return LabelPredictions(all_labels, all_predicted, all_p_predicted, all_p_label, total / max(1, count))

    def label_batch(self, inputs: EncoderBatch, labels: NDArray[np.int64]) -> "LabelBatch":
        """The tensors of a batch; segment ids only for networks that have segment embeddings."""
        import torch

        from regard.training.batches import LabelBatch

        features = {"segment_ids": torch.from_numpy(inputs.segment_ids)} if self._segments > 1 else None
        ids, mask = torch.from_numpy(inputs.ids), torch.from_numpy(inputs.mask)
        return LabelBatch(ids, mask, torch.from_numpy(labels), features)

    def _batch_sampler(self, store: TokenStore) -> BatchSampler:
        return BatchSampler(store.columns[0].lengths[None], self.config.training.batch_tokens)


class UnknownTokens:
    """Counts the tokens of text that a tokenizer does not know."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._unknown = self._total = 0

    def count(self, texts: Iterable[str]) -> None:
        """Count the tokens of texts."""
        if self._tokenizer.unknown_id is not None:
            for ids in self._tokenizer.encode_batch(list(texts)):
                self._unknown += self._tokenizer.num_unknown(ids)
                self._total += len(ids)

    def report(self, invalid: InvalidLines) -> None:
        """Add a note if there were any."""
        if self._unknown:
            invalid.note(unknown_note(self._unknown, self._total))


def mean_nll(p: NDArray[np.float64], true: Sequence[int]) -> float:
    """Return the mean negative log-likelihood in nats."""
    return float(-np.log(np.maximum(p[np.arange(len(true)), list(true)], 1e-300)).mean())
