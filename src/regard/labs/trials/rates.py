"""The learning rate that suits a network: found on some texts, while others say how good the network is with it.

The best of several numbers is better than what it measures; a number that had no part in the choice is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Tried:
    """How often a trained network is right on the texts that choose a rate, and on those that are reported."""

    choosing: float
    reported: float


@dataclass(frozen=True)
class Chosen:
    """The best rate, and how often each seed's network is right with it."""

    rate: float
    reported: list[float]


def best_rate(tried: Mapping[float, Sequence[Tried]]) -> Chosen:
    """From what each seed came to at each rate, the rate with the highest mean; the first of equals.

    >>> best_rate({1e-3: [Tried(0.5, 0.9), Tried(0.5, 0.9)], 1e-2: [Tried(1.0, 0.7), Tried(0.6, 0.6)]})
    Chosen(rate=0.01, reported=[0.7, 0.6])
    """
    rate = max(tried, key=lambda rate: fmean(one.choosing for one in tried[rate]))
    return Chosen(rate, [one.reported for one in tried[rate]])
