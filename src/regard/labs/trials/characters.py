"""A text by characters, in pieces to read: for experiments on language models that fit into minutes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from regard.config.tokenizer import TokenizerConfig
from regard.data.readers.builtin import builtin_documents
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.labs.trials.fitting import Asked


@dataclass(frozen=True)
class Characters:
    """The ids of two texts, one to learn from and one held out."""

    tokenizer: Tokenizer
    train: Tensor  # (L,)
    held_out: Tensor

    @property
    def vocabulary(self) -> int:
        """Characters, and special tokens."""
        return len(self.tokenizer)

    def batches(self, length: int, batch: int, seed: int) -> Iterator[Asked]:
        """Pieces from random places of the text to learn from; every character of them is to be predicted."""
        random = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(self.train) - length, (batch,), generator=random)
            yield pieces(self.train, starts, length)

    def test(self, length: int, batch: int) -> Asked:
        """Pieces of the held-out text, evenly spread."""
        return pieces(self.held_out, torch.linspace(0, len(self.held_out) - length - 1, batch).long(), length)


def pieces(text: Tensor, starts: Tensor, length: int) -> Asked:
    """Pieces of a text from these places on, and what follows each of their characters."""
    found = text[starts[:, None] + torch.arange(length + 1)]  # (B, T + 1)
    return Asked(found[:, :-1], found[:, 1:], torch.ones_like(found[:, 1:], dtype=torch.bool))


def python_docs(most: int) -> Characters:
    """At most so many characters of the documentation that Python carries, and its held-out part."""
    train, held_out = (
        "".join(chain.from_iterable(builtin_documents(name)))
        for name in ("builtin:python-docs", "builtin:python-docs-dev")
    )
    tokenizer = train_tokenizer([train, held_out], TokenizerConfig(kind="character"))
    return Characters(tokenizer, *(torch.tensor(tokenizer.encode(text[:most])) for text in (train, held_out)))
