"""Numbers that may be very small or very large, as one writes them by hand."""

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def magnitude(value: float) -> str:
    """Two digits or so while the number can be read, and then a power of ten.

    >>> [magnitude(value) for value in (0.517, 5, 286.6, 1000, 65_536, 3.2e-7, 1e-12, 1e9)]
    ['0.52', '5', '287', '1,000', '65,536', '3×10⁻⁷', '10⁻¹²', '10⁹']
    """
    if 10 <= value < 1e6:
        return f"{value:,.0f}"
    if value == 0 or 1e-3 <= value < 10:
        return f"{value:.2g}"
    digit, exponent = f"{value:.0e}".split("e")
    power = "10" + str(int(exponent)).translate(RAISED)
    return power if digit == "1" else f"{digit}×{power}"
