"""Numbers that may be very small or very large, as one writes them by hand."""

import math
from collections.abc import Sequence

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def magnitude(value: float) -> str:
    """Two digits or so while the number can be read, and then a power of ten.

    >>> [magnitude(value) for value in (0.517, 5, 286.6, 1000, 65_536, 3.2e-7, 1e-12, 1e9)]
    ['0.52', '5', '287', '1,000', '65,536', '3×10⁻⁷', '10⁻¹²', '10⁹']
    >>> magnitude(-12.3), magnitude(math.nan)
    ('−12', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    if value < 0:
        return f"−{magnitude(-value)}"
    if not _is_readable(value):
        return _power(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def magnitudes(values: Sequence[float]) -> list[str]:
    """Numbers that stand beside each other, all in one notation.

    >>> magnitudes([0.01, 1, 100])
    ['0.01', '1', '100']
    >>> magnitudes([1, 1000, 10_000_000])
    ['1', '10³', '10⁷']
    """
    if all(_is_readable(value) for value in values):
        return [magnitude(value) for value in values]
    return ["1" if value == 1 else _power(value) for value in values]


def _is_readable(value: float) -> bool:
    return value == 0 or 1e-3 <= value < 1e6


def _power(value: float) -> str:
    digit, exponent = f"{value:.0e}".split("e")
    power = "10" + str(int(exponent)).translate(RAISED)
    return power if digit == "1" else f"{digit}×{power}"
