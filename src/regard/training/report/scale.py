"""Axes: from values to places, and round numbers to label them with."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps `low` to 0 and `high` to 1, evenly or by logarithm."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies between the ends."""
        if self.logarithmic:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, most: int = 5) -> Scale:
    """An even scale that ends at round numbers and has at most about `most` of them.

    >>> linear(0.2, 9.3).ticks
    (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    """
    if high - low < 1e-100:  # a constant has a place in the middle
        low, high = (low - abs(low) / 10, high + abs(high) / 10) if abs(low) > 1e-99 else (0.0, 1.0)
    gap = _round_gap(low, high, most)
    first, last = math.floor(low / gap + 1e-9), math.ceil(high / gap - 1e-9)
    ticks = tuple(_exact(index, gap) for index in range(first, max(last, first + 1) + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def steps(last: int, most: int = 5) -> Scale:
    """The scale of steps, from none to the last one exactly, with round numbers between."""
    gap = max(1.0, _round_gap(0, max(1, last), most))
    return Scale(0, max(1, last), tuple(gap * index for index in range(int(max(1, last) / gap + 1e-9) + 1)))


def logarithmic(low: float, high: float) -> Scale:
    """A scale of equal factors, with ticks at powers of ten and, the fewer those are, at more numbers between.

    >>> logarithmic(1.1, 9.5).ticks
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
    >>> logarithmic(0.3, 40).ticks
    (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    """
    low, high = low / 1.1, high * 1.1
    decades = math.log10(high) - math.log10(low)
    factors = (1, 1.5, 2, 3, 5, 7) if decades < 1.5 else (1, 2, 5) if decades < 3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    powers = powers[:: max(1, len(powers) // 6)]
    ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
    return Scale(low, high, tuple(tick for tick in ticks if low <= tick <= high), logarithmic=True)


def _round_gap(low: float, high: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most `most` of them reach from low to high."""
    wanted = max((high - low) / most, 1e-3 * max(abs(low), abs(high)))
    power = float(f"1e{math.floor(math.log10(wanted))}")
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted * (1 - 1e-9))


def _exact(index: int, gap: float) -> float:
    return float(f"{index * gap:.12g}")  # 3 × 0.1 is 0.3, not 0.30000000000000004
