"""Making a long curve short without losing what a person would see in it."""

from collections.abc import Sequence

Point = tuple[int, float]  # a step and a value


def thin(points: Sequence[Point], most: int = 600) -> list[Point]:
    """At most `most` of the points: the first, the last, and the lowest and highest of every stretch between.

    So a spike of a single step stays a spike.

    >>> thin([(step, float(step == 700)) for step in range(1000)], most=6)
    [(0, 0.0), (1, 0.0), (500, 0.0), (700, 1.0), (999, 0.0)]
    """
    if len(points) <= most:
        return list(points)
    inner = points[1:-1]
    stretches = max(1, (most - 2) // 2)
    kept = [points[0]]
    for index in range(stretches):
        stretch = inner[index * len(inner) // stretches : (index + 1) * len(inner) // stretches]
        extremes = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [*kept, points[-1]]
