"""Trials: synthetic tasks and character-level text, short training runs on them, and the selection of a learning rate.

B batch · T length · L length of a text · N labels that count · V vocabulary
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

import torch
from torch import Tensor, nn

from regard.config import AdamConfig
from regard.config.data import TokenizerConfig
from regard.data.readers.builtin import builtin_documents
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.models.network import Network
from regard.training.batches import Batch
from regard.training.load_balancing import LoadBalancing
from regard.training.losses import Loss, smoothed_cross_entropy
from regard.training.optimizers import DivergedError, build_optimizer, update
from regard.training.schedules import cosine

LOAD_BALANCING = 0.01  # weight of the loss, for networks with experts
SEPARATOR = 3  # token between the input and the output of a task
FIRST_SYMBOL = 4  # the first id that is not a special token


@dataclass(frozen=True)
class SymbolBatch(Batch):
    """Sequences of equal length without padding, in which only some labels count."""

    inputs: Tensor  # (B, T)
    labels: Tensor  # (B, T) the token to predict at each position
    label_mask: Tensor  # (B, T) True where the label counts

    @property
    def examples(self) -> int:
        """The number of sequences."""
        return len(self.inputs)

    @property
    def targets(self) -> int:
        """The number of labels that count."""
        return int(self.label_mask.sum())


# --- synthetic tasks --------------------------------------------------------------------------------------------------


def copy_task(symbols: int, length: int, batch: int, seed: int) -> Iterator[SymbolBatch]:
    """Yield batches of `length` symbols, a separator and the same symbols again; only the copy counts.

    A network for this task has a vocabulary of symbols + FIRST_SYMBOL.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        source = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + symbols, (batch, length), generator=generator)
        yield _after_separator(source, source)


def recall_task(symbols: int, distance: int, batch: int, seed: int) -> Iterator[SymbolBatch]:
    """Yield batches of a symbol, `distance` distractors and a separator, after which the first symbol is predicted.

    The distractors are drawn from the same symbols, so that only its position identifies the first one.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        source = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + symbols, (batch, 1 + distance), generator=generator)
        yield _after_separator(source, source[:, :1])


def delayed_copy_task(symbols: int, delay: int, length: int, batch: int, seed: int) -> Iterator[SymbolBatch]:
    """Yield batches of symbols whose labels are the symbols `delay` positions earlier: a purely positional task."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        source = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + symbols, (batch, length), generator=generator)
        label_mask = torch.ones(batch, length, dtype=torch.bool)
        label_mask[:, :delay] = False
        yield SymbolBatch(source, source.roll(delay, 1), label_mask)


def _after_separator(source: Tensor, target: Tensor) -> SymbolBatch:
    """Return a language-model batch of source, separator and target, in which only the target counts."""
    separator = torch.full((len(source), 1), SEPARATOR)
    sequence = torch.cat([source, separator, target], dim=1)  # (B, T + 1)
    label_mask = torch.zeros(len(source), sequence.size(1) - 1, dtype=torch.bool)
    label_mask[:, source.size(1) :] = True
    return SymbolBatch(sequence[:, :-1], sequence[:, 1:], label_mask)


# --- characters -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CharacterCorpus:
    """Training and validation text as character ids."""

    tokenizer: Tokenizer
    train: Tensor  # (L,)
    validation: Tensor  # (L,)

    @property
    def vocab_size(self) -> int:
        """The number of characters and special tokens."""
        return len(self.tokenizer)

    def batches(self, length: int, batch: int, seed: int) -> Iterator[SymbolBatch]:
        """Yield excerpts from random positions of the training text; every next character counts."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(self.train) - length, (batch,), generator=generator)
            yield _excerpts(self.train, starts, length)

    def validation_batch(self, length: int, batch: int) -> SymbolBatch:
        """Return excerpts of the validation text, evenly spaced."""
        starts = torch.linspace(0, len(self.validation) - length - 1, batch).long()
        return _excerpts(self.validation, starts, length)


def _excerpts(text: Tensor, starts: Tensor, length: int) -> SymbolBatch:
    excerpts = text[starts[:, None] + torch.arange(length + 1)]  # (B, T + 1)
    return SymbolBatch(excerpts[:, :-1], excerpts[:, 1:], torch.ones_like(excerpts[:, 1:], dtype=torch.bool))


def python_docs(max_characters: int) -> CharacterCorpus:
    """Return the Python documentation, both splits truncated to `max_characters`."""
    train, validation = (
        "".join(chain.from_iterable(builtin_documents(name)))
        for name in ("builtin:python-docs", "builtin:python-docs-dev")
    )
    tokenizer = train_tokenizer([train, validation], TokenizerConfig(kind="character", byte_fallback=False))
    splits = (torch.tensor(tokenizer.encode(text[:max_characters])) for text in (train, validation))
    return CharacterCorpus(tokenizer, *splits)


# --- training ---------------------------------------------------------------------------------------------------------


class SymbolPrediction(nn.Module):
    """Objective of a `SymbolBatch`: cross entropy of the labels that count."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: SymbolBatch) -> Loss:
        """Return the loss of a batch, summed over the labels that count."""
        return smoothed_cross_entropy(_masked_logits(self.network, batch), batch.labels[batch.label_mask], 0.0)


@dataclass(frozen=True)
class FitResult:
    """Cross entropy in nats per target at each step, and whether training diverged."""

    losses: list[float]
    diverged: bool = False

    @property
    def final_loss(self) -> float:
        """The mean over the last tenth of the steps; infinite if training diverged.

        >>> losses = [9.0] * 18 + [1.0, 2.0]
        >>> FitResult([3.0, 2.0, 1.0]).final_loss, FitResult(losses).final_loss, FitResult([3.0], True).final_loss
        (1.0, 1.5, inf)
        """
        return math.inf if self.diverged else fmean(self.losses[-max(1, len(self.losses) // 10) :])


def fit(
    network: Network,
    batches: Iterator[Batch],
    steps: int,
    *,
    objective: nn.Module | None = None,
    learning_rate: float = 3e-3,
) -> FitResult:
    """Train with Adam, linear warmup over a tenth of the steps, cosine decay to zero and gradients clipped at 1.

    Without another objective, batches are `SymbolBatch` and their labels are learned.
    """
    objective, optimizer = objective or SymbolPrediction(network), build_optimizer(network, AdamConfig())
    balancing = LoadBalancing.of(network, LOAD_BALANCING)
    schedule, losses = cosine(learning_rate, warmup=max(1, steps // 10), steps=steps), list[float]()
    network.train()
    for step in range(1, steps + 1):
        try:
            rate, batch = schedule(step), next(batches)
            done = update(objective, optimizer, [batch], rate, max_grad_norm=1.0, balancing=balancing)
        except DivergedError:
            return FitResult(losses, diverged=True)
        losses.append(done.cross_entropy / done.targets)
    network.eval()
    return FitResult(losses)


@torch.no_grad()
def accuracy(network: Network, batch: SymbolBatch) -> float:
    """Return the fraction of labels that are the most probable token."""
    network.eval()
    correct = _masked_logits(network, batch).argmax(-1) == batch.labels[batch.label_mask]
    return float(correct.float().mean())


def _masked_logits(network: Network, batch: SymbolBatch) -> Tensor:
    return network.logits(network.decode(batch.inputs)[batch.label_mask])  # (N, V)


def count_parameters(network: nn.Module) -> int:
    """Return the number of parameters.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in network.parameters())


# --- learning rate ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialAccuracy:
    """Accuracy of a trained network on the data that select the learning rate and on the data that are reported.

    They are kept separate because the maximum over learning rates is biased on the data that selected it.
    """

    selection: float
    reported: float


@dataclass(frozen=True)
class SelectedLearningRate:
    """The best learning rate and the reported accuracy of each seed with it."""

    learning_rate: float
    reported: list[float]


def select_learning_rate(trials: Mapping[float, Sequence[TrialAccuracy]]) -> SelectedLearningRate:
    """Return the learning rate with the highest mean selection accuracy over seeds; the first of equals.

    >>> low, high = [TrialAccuracy(0.5, 0.9)] * 2, [TrialAccuracy(1.0, 0.7), TrialAccuracy(0.6, 0.6)]
    >>> select_learning_rate({1e-3: low, 1e-2: high})
    SelectedLearningRate(learning_rate=0.01, reported=[0.7, 0.6])
    """
    best = max(trials, key=lambda rate: fmean(trial.selection for trial in trials[rate]))
    return SelectedLearningRate(best, [trial.reported for trial in trials[best]])
