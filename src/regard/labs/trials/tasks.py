"""Tasks for small experiments: synthetic sequences of symbols, and character-level language modeling.

B batch · T length · L length of a text
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from regard.config.data import TokenizerConfig
from regard.data.readers.builtin import builtin_documents
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.training.losses import Batch

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
    tokenizer = train_tokenizer([train, validation], TokenizerConfig(kind="character"))
    splits = (torch.tensor(tokenizer.encode(text[:max_characters])) for text in (train, validation))
    return CharacterCorpus(tokenizer, *splits)
