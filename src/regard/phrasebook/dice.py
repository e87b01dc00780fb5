"""Draws that come out the same on every machine and in every version of Python."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A linear congruential generator, with the constants of Knuth's MMIX; its high bits are random enough for us.

    >>> dice = Dice(seed=1)
    >>> [dice.below(6) for _ in range(8)]
    [2, 3, 3, 2, 4, 3, 3, 0]
    """

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) * n >> 31

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each as likely; repeat one to make it likelier."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True so many times in a hundred."""
        return self.below(100) < percent
