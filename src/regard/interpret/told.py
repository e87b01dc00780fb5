"""Attention that is told where to look: its weights replaced, and the rest of the network none the wiser.

What it is told holds for every query, as far as that may look: a decoder never sees what it has not yet written.

B rows · H heads · T queries · S keys
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.errors import InputError

To = Literal["even"] | int | tuple[float, ...]
"""`even`: shared among all keys that may be looked at; a number: all on this key; several: a weight for each key."""

TOLERANCE = 1e-3  # by which weights may miss one, as people write few digits


def read_to(written: str) -> To | None:
    """What is written so; None: nothing that attention could be told.

    >>> read_to("even"), read_to("2"), read_to("0.5,0.25,0.25"), read_to("1,")
    ('even', 2, (0.5, 0.25, 0.25), (1.0,))
    """
    if written == "even":
        return "even"
    try:
        return tuple(map(float, written.removesuffix(",").split(","))) if "," in written else int(written)
    except ValueError:
        return None


def show_to(to: To) -> str:
    """As it is written; a single weight has a comma behind it, or it would be the number of a key.

    >>> show_to((0.5, 0.25, 0.25)), show_to((1.0,)), show_to(1)
    ('0.5,0.25,0.25', '1,', '1')
    """
    if not isinstance(to, tuple):
        return str(to)
    return ",".join(f"{one:g}" for one in to) + ("," if len(to) == 1 else "")


def check_to(what: str, to: To, keys: int) -> None:
    """Whether there are such keys; `what` names the change in the sentence that refuses others."""
    if isinstance(to, int) and not 0 <= to < keys:
        raise InputError(f"{what}: there is no key {to}; the keys are 0 to {keys - 1}, {keys} in all.")
    if not isinstance(to, tuple):
        return
    if len(to) != keys:
        raise InputError(f"{what}: has {len(to)} weights, and there are {keys} keys; give a weight for each.")
    if not all(math.isfinite(one) and one >= 0 for one in to) or abs(sum(to) - 1) > TOLERANCE:
        raise InputError(
            f"{what}: are no weights; those of attention are 0 or more and add up to 1, and these add up to "
            f"{sum(to):g}."
        )


class Told:
    """What one head, or all of an attention, is told: it notes where queries may look, then replaces the weights.

    An attention that masks nothing has nothing to note: every key may be looked at.
    """

    def __init__(self, to: To, head: int | None) -> None:
        self.to = to
        self.heads = slice(None) if head is None else slice(head, head + 1)
        self.allowed: Tensor | None = None  # (B, H, T, S) of the weights that come next

    def note(self, _given: Tensor, masked: Tensor) -> None:
        """Where masked scores (B, H, T, S) are more than −∞; a weight of 0 may also be one that is too small."""
        self.allowed = masked > -math.inf

    def replace(self, _given: Tensor, weights: Tensor) -> Tensor:
        """Weights (B, H, T, S) as they were told."""
        part = weights[:, self.heads]
        wanted = _wanted(self.to, part).expand_as(part)
        if self.allowed is not None:
            wanted = wanted * self.allowed[:, self.heads]
        total = wanted.sum(-1, keepdim=True)
        replaced = weights.clone()
        replaced[:, self.heads] = torch.where(total > 0, wanted / total, part)  # none of it is there yet: as it was
        return replaced


def _wanted(to: To, weights: Tensor) -> Tensor:
    """What each key should get (S,), whether it may be looked at or not."""
    keys = weights.size(-1)
    if isinstance(to, str):
        return weights.new_ones(keys)
    shares: Sequence[float] = to if isinstance(to, tuple) else [0.0] * to + [1.0]
    wanted = weights.new_zeros(max(keys, len(shares)))
    wanted[: len(shares)] = weights.new_tensor(shares)
    return wanted[:keys]
