"""Numbers on their way out of a trace: a piece of a tensor with its labels, never more than can be looked at."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError

MOST = 65_536  # numbers in one answer
Span = tuple[int, int]


@dataclass(frozen=True)
class Numbers:
    """A piece of a tensor. `shape` is that of the whole, `spans` say which part of each axis is here."""

    address: str
    what: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    spans: tuple[Span, ...]
    labels: tuple[list[str] | None, ...]  # of each axis, of what is here; None: numbers say it all
    values: NDArray[np.floating[Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinities: −∞ (masked) becomes null, and what is not a number the text "nan"."""
        return {
            "address": self.address,
            "what": self.what,
            "axes": list(self.axes),
            "shape": list(self.shape),
            "spans": [list(span) for span in self.spans],
            "labels": list(self.labels),
            "values": plain(self.values.tolist()),
        }


def plain(value: Any) -> Any:
    """Nested lists of numbers as JSON can hold them.

    >>> plain([1.5, -math.inf])
    [1.5, None]
    """
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else None if value < 0 else "inf"
    return value


def spans(
    address: str, axes: Sequence[str], shape: Sequence[int], rows: Span | None, columns: Span | None, most: int
) -> tuple[Span, ...]:
    """Which part of each axis to give: all, unless rows (the last but one axis) or columns (the last) are asked for."""
    found = [(0, size) for size in shape]
    asked = {"columns": (len(shape) - 1, columns), "rows": (len(shape) - 2, rows)}
    if len(shape) == 1 and not axes[0].startswith(("unit", "vocabulary")):  # one number for each token: rows
        asked = {"columns": (-1, columns), "rows": (0, rows)}
    for name, (axis, span) in asked.items():
        if span is None:
            continue
        if axis < 0:
            raise InputError(f"{address}: has no {name}; its axes are {', '.join(axes)}.")
        start, stop = span
        if not 0 <= start < stop <= shape[axis]:
            raise InputError(f"{address}: has {name} 0 to {shape[axis]}, so {start} to {stop} is no part of them.")
        found[axis] = (start, stop)
    count = math.prod(stop - start for start, stop in found)
    if count > most:
        sizes = " × ".join(f"{stop - start}" for start, stop in found)
        raise InputError(
            f"{address}: is {sizes} = {count:,} numbers, and {most:,} are the most that are given at once: "
            "ask for one head, one step, or fewer rows or columns."
        )
    return tuple(found)
