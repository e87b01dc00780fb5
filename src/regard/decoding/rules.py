"""Rules that logits must follow before a token is chosen: what is never written, not yet, or not again.

Each changes the logits (R, V) in place, given what every row has written so far (R, n), and which sentence it belongs
to (R,). What is ruled out gets −∞, so that the rest shares its probability.

R rows · n tokens written · V vocabulary
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.settings import OutputConstraints


class Rule(Protocol):
    """One rule."""

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        """Change the logits."""
        ...


@dataclass(frozen=True)
class Never:
    """These tokens are not text."""

    ids: tuple[int, ...]

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        logits[:, list(self.ids)] = -math.inf


@dataclass(frozen=True)
class NotBefore:
    """The end comes after so many tokens at the earliest."""

    end: int
    shortest: int

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) < self.shortest:
            logits[:, self.end] = -math.inf


@dataclass(frozen=True)
class NoSequence:
    """None of these sequences is ever written: once all of one but its last token stands there, that one may not."""

    sequences: tuple[tuple[int, ...], ...]

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        for *first, last in self.sequences:
            if len(first) > written.size(1):
                continue
            tail = written[:, written.size(1) - len(first) :]
            logits[(tail == tail.new_tensor(first)).all(1), last] = -math.inf


@dataclass(frozen=True)
class NoRepeat:
    """No sequence of so many tokens comes twice."""

    size: int

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) < self.size:
            return
        windows = written.unfold(1, self.size, 1)  # (R, n - size + 1, size)
        tail = written[:, written.size(1) - self.size + 1 :]
        again = (windows[:, :, :-1] == tail[:, None]).all(-1)  # where what stands at the end has stood before
        rows, places = again.nonzero(as_tuple=True)
        logits[rows, windows[rows, places, -1]] = -math.inf


@dataclass(frozen=True)
class RepetitionPenalty:
    """What was written already gets a logit divided by the penalty, or multiplied where it is negative."""

    penalty: float

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) == 0:
            return
        seen = logits.gather(1, written)
        logits.scatter_(1, written, torch.where(seen > 0, seen / self.penalty, seen * self.penalty))


class Forced:
    """Each sentence begins as it must. What is forced has probability one, and costs nothing."""

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.longest = max(map(len, prefixes), default=0)
        self._table = torch.tensor([[*prefix, *[-1] * (self.longest - len(prefix))] for prefix in prefixes])

    def __call__(self, logits: Tensor, written: Tensor, sentences: Tensor) -> None:
        if written.size(1) >= self.longest:
            return
        wanted = self._table[:, written.size(1)].to(logits.device)[sentences]
        rows = (wanted >= 0).nonzero().squeeze(1)
        logits[rows] = -math.inf
        logits[rows, wanted[rows]] = 0.0


def no_text(tokens: SpecialTokensConfig) -> Never:
    """Pads and starts are never written; a network may have one token for these and the end, though."""
    return Never(tuple({tokens.pad, tokens.start} - {tokens.end}))


def bounds_as_rules(bounds: OutputConstraints, tokens: SpecialTokensConfig) -> list[Rule]:
    """The rules of every decoding: no pads or starts, and what the bounds ask for."""
    rules: list[Rule] = [no_text(tokens)]
    if bounds.shortest:
        rules.append(NotBefore(tokens.end, bounds.shortest))
    if bounds.forbidden:
        rules.append(NoSequence(bounds.forbidden))
    return rules


def follow(rules: Sequence[Rule], logits: Tensor, written: Tensor, sentences: Tensor) -> Tensor:
    """The logits after every rule."""
    for rule in rules:
        rule(logits, written, sentences)
    return logits
