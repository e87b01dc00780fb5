"""What training classifiers and taggers has in common: batches by length, and a look at every prediction."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Config, EncoderOnlyConfig
from regard.data.batching import BatchSampler, DataPosition
from regard.data.pair_batches import Ids
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenStore
from regard.models.anatomy import FlopCounter
from regard.models.network import EncoderNetwork, Network
from regard.training.labels import IGNORED_LABEL, LabelBatch, PredictLabels
from regard.training.task import Check, ValidationResult


@dataclass(frozen=True)
class Predictions:
    """The labels of every example of a store, in its order: the right ones, the given ones, and how sure of both."""

    right: list[NDArray[np.int64]]
    given: list[NDArray[np.int64]]
    sure: list[NDArray[np.float64]]  # the probability of what was given
    granted: list[NDArray[np.float64]]  # the probability of what is right
    loss: float  # nats per label


class Labelling:
    """Training a network to predict labels."""

    name = ""
    unit = "labels"
    words = False  # whether there is a label for each word, rather than for each text

    def __init__(self, config: Config, prepared: PreparedData, network: Network) -> None:
        assert isinstance(network, EncoderNetwork)
        self.config = config
        self.network: Network = network
        self._reader = network
        if self.words:  # nothing is pooled; processes that train together wait for whatever can learn
            network.pooling.requires_grad_(False)
        self.tokenizer = prepared.tokenizer
        self.labels = prepared.labels
        self.segments = config.model.segments if isinstance(config.model, EncoderOnlyConfig) else 0
        self._valid, self._test = prepared.valid, prepared.test
        self._store = prepared.train.store
        self._plan = self._batches(self._store, config.training.seed)
        self._cost = FlopCounter(network)

    def objective(self) -> PredictLabels:
        """Predict labels."""
        return PredictLabels(self._reader, self.config.training.label_smoothing, words=self.words)

    def batches(self, place: DataPosition) -> Iterator[tuple[DataPosition, LabelBatch]]:
        """Texts of about equal length, shuffled each epoch."""
        for after, examples in self._plan.iterate(place):
            yield after, self.batch(self._store, examples)

    @cached_property
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""
        return len(self._plan.epoch(0))

    def flops(self, batch: LabelBatch) -> float:
        """Forward and backward, pads not counted; of a frozen network forward only, which is a third of it."""
        both = self._cost.training_flops((batch.labels != IGNORED_LABEL).sum(1), batch.lengths)
        return both / 3 if self.config.training.freeze_encoder else both

    def describe(self, place: DataPosition, batch: LabelBatch) -> str:
        """Its size, and its first text."""
        first = self.tokenizer.decode(batch.ids[0][batch.mask[0]].tolist())
        return (
            f"epoch {place.epoch + 1}, batch {place.batch}: {len(batch.ids)} texts of up to {batch.ids.size(1)} "
            f"tokens, the first {first!r}"
        )

    def validate(self, check: Check) -> ValidationResult:
        """Measure on the validation data."""
        return self.measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same on the test data."""
        return self.measure(self._test, check) if self._test is not None else None

    @abstractmethod
    def batch(self, store: TokenStore, examples: Ids) -> LabelBatch:
        """The batch of these examples of a store."""

    @abstractmethod
    def measure(self, part: PreparedSplit, check: Check) -> ValidationResult:
        """What the network makes of a part of the data."""

    @torch.no_grad()
    def predictions(self, store: TokenStore, check: Check) -> Predictions:
        """What the network predicts for every example."""
        objective, total, count = PredictLabels(self._reader, 0.0, words=self.words), 0.0, 0
        device = next(self.network.parameters()).device
        found: dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]] = {}
        for examples in self._batches(store).epoch(0):
            check()
            batch = self.batch(store, examples).to(device)
            states, right = objective.states(batch)
            p = self.network.logits(states).double().softmax(-1)  # (N, L)
            granted = p.gather(1, right[:, None]).squeeze(1)
            sure, given = p.max(-1)
            total, count = total - float(granted.clamp(min=1e-300).log().sum()), count + len(right)
            bounds = np.cumsum((batch.labels != IGNORED_LABEL).sum(1).cpu().numpy())[:-1]
            parts = [np.split(tensor.cpu().numpy(), bounds) for tensor in (right, given, sure, granted)]
            found |= {int(n): tuple(row) for n, *row in zip(examples, *parts, strict=True)}
        columns = zip(*(found[n] for n in range(len(store))), strict=True)
        rights, givens, sures, granteds = (list(column) for column in columns)
        return Predictions(rights, givens, sures, granteds, total / max(1, count))

    def _batches(self, store: TokenStore, seed: int = 0) -> BatchSampler:
        return BatchSampler(store.columns[0].lengths[None], self.config.training.batch_tokens, seed)
