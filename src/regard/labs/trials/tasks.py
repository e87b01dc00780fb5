"""Tasks made as they are needed, for experiments on what a network can learn at all."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.labs.trials.fitting import Asked

MARK = 3  # what stands between what is given and what is asked
FIRST = 4  # the first id that is not a special token


def copying(symbols: int, length: int, batch: int, seed: int) -> Iterator[Asked]:
    """Read `length` symbols and a mark, then write them again: attention has to look a fixed way back.

    Only what is written counts. A network for it has symbols + FIRST tokens.
    """
    random = torch.Generator().manual_seed(seed)
    while True:
        given = torch.randint(FIRST, FIRST + symbols, (batch, length), generator=random)
        yield _written_after_the_mark(given, given)


def recalling(symbols: int, distance: int, batch: int, seed: int) -> Iterator[Asked]:
    """Read a symbol, `distance` others that do not matter, and a mark; then write the first: memory over a distance.

    The others are drawn from the same symbols, so that only the place tells them apart.
    """
    random = torch.Generator().manual_seed(seed)
    while True:
        given = torch.randint(FIRST, FIRST + symbols, (batch, 1 + distance), generator=random)
        yield _written_after_the_mark(given, given[:, :1])


def echoing(symbols: int, back: int, length: int, batch: int, seed: int) -> Iterator[Asked]:
    """Read symbols, and at each write the one that stood `back` places before it: a place by itself, at any length.

    Nothing but position tells which one that is.
    """
    random = torch.Generator().manual_seed(seed)
    while True:
        given = torch.randint(FIRST, FIRST + symbols, (batch, length), generator=random)
        asked = torch.ones(batch, length, dtype=torch.bool)
        asked[:, :back] = False
        yield Asked(given, given.roll(back, 1), asked)


def _written_after_the_mark(given: Tensor, wanted: Tensor) -> Asked:
    """A language model's batch: read all of it, be asked for `wanted` alone."""
    mark = torch.full((len(given), 1), MARK)
    text = torch.cat([given, mark, wanted], dim=1)  # (B, T + 1)
    asked = torch.zeros(len(given), text.size(1) - 1, dtype=torch.bool)
    asked[:, given.size(1) :] = True
    return Asked(text[:, :-1], text[:, 1:], asked)
