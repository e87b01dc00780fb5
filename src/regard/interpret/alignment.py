"""Which words of the source go with which of the target: cross-attention, with the head chosen by what matters.

Method. Every source token is left out in turn, and what that costs each target token is noted (`interpret.erasure`).
Every head of every layer then has an agreement: the mean, over target tokens, of the cosine between its weights and
those costs (costs below zero counted as none, the end of the source left out of both). The head that agrees most is
taken. Its weights are merged to words: summed over the tokens of a source word, averaged over those of a target word.

Attention is not explanation: a head may look where nothing depends on. So the costs themselves are given beside it.

T target tokens · S source tokens
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.erasure import erasure
from regard.interpret.words import Word

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

METHOD = (
    "the head whose weights agree most, in mean cosine, with what leaving out each source token costs each target token"
)


@dataclass(frozen=True)
class Agreement:
    """How far a head's weights say what leaving words out says, from 0 to 1."""

    point: str
    head: int
    agreement: float


@dataclass(frozen=True)
class Alignment:
    """Words of both sides, and how they go together."""

    source: list[Word]
    target: list[Word]
    chosen: Agreement
    heads: list[Agreement]
    weights: Tensor  # (target words, source words): of the chosen head
    costs: Tensor  # (target words, source words): of leaving the source word's tokens out, added up

    @property
    def pairs(self) -> list[tuple[int, int, float]]:
        """Of each target word that is not special: the source word it goes with, and its share of attention."""
        real = [n for n, word in enumerate(self.source) if not word.special]
        found = []
        for n, word in enumerate(self.target):
            if not word.special and real:
                best = max(real, key=lambda m: float(self.weights[n, m]))
                found.append((n, best, float(self.weights[n, best])))
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": METHOD,
            "chosen": vars(self.chosen),
            "heads": [vars(head) for head in self.heads],
            "source": [word.text for word in self.source],
            "target": [word.text for word in self.target],
            "pairs": [{"target": t, "source": s, "weight": weight} for t, s, weight in self.pairs],
            "weights": self.weights.tolist(),
            "costs": self.costs.tolist(),
        }


def align(trace: "Trace") -> Alignment:
    """Align source and target by the cross-attention of the head that agrees most with erasure."""
    names = [
        point.name for point in trace.points.values() if point.part == "cross_attention" and point.point == "weights"
    ]
    if not names or trace.source is None or trace.target is None:
        raise InputError("This network looks at no source, so there is nothing to align.")
    costs = erasure(trace)  # (T, S)
    heads = [
        Agreement(name, head, _agreement(weights.float().cpu(), costs))
        for name in names
        for head, weights in enumerate(trace.whole(name))
    ]
    chosen = max(heads, key=lambda head: head.agreement)
    weights = trace.whole(chosen.point)[chosen.head].float().cpu()
    source, target = trace.source.words, trace.target.words
    return Alignment(source, target, chosen, heads, _merged(weights, target, source), _added(costs, target, source))


def _agreement(weights: Tensor, costs: Tensor) -> float:
    """The mean cosine between rows of weights and of costs (T, S), the end of the source left out."""
    return float(torch.cosine_similarity(weights[:, :-1], costs[:, :-1].clamp(min=0), dim=-1).mean())


def _merged(weights: Tensor, target: list[Word], source: list[Word]) -> Tensor:
    """Summed over the tokens of a source word, averaged over those of a target word."""
    by_source = torch.stack([weights[:, list(word.tokens)].sum(1) for word in source], dim=1)
    return torch.stack([by_source[list(word.tokens)].mean(0) for word in target])


def _added(costs: Tensor, target: list[Word], source: list[Word]) -> Tensor:
    """Summed over the tokens of both: log-probabilities of a word's tokens add up."""
    by_source = torch.stack([costs[:, list(word.tokens)].sum(1) for word in source], dim=1)
    return torch.stack([by_source[list(word.tokens)].sum(0) for word in target])
