"""Counts and times in Prometheus's text format."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator

TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
Labels = tuple[tuple[str, str], ...]


class Counter:
    """Something that is counted, for each set of labels."""

    kind = "counter"

    def __init__(self) -> None:
        self._values: defaultdict[Labels, float] = defaultdict(float)

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Count some more."""
        self._values[tuple(labels.items())] += amount

    def lines(self, name: str) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from (f"{name}{_written(labels)} {value:g}" for labels, value in self._values.items())


class Histogram:
    """Something that is measured: how often it was at most so much, for each set of labels."""

    kind = "histogram"

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: defaultdict[Labels, float] = defaultdict(float)

    def add(self, value: float, **labels: str) -> None:
        """Measure once."""
        key = tuple(labels.items())
        counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[key] += value

    def lines(self, name: str) -> Iterator[str]:
        """As Prometheus reads it."""
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                total += count
                limit = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f"{name}_bucket{_written((*labels, ('le', limit)))} {total}"
            yield f"{name}_sum{_written(labels)} {self._sums[labels]:g}"
            yield f"{name}_count{_written(labels)} {total}"


class Gauge:
    """Something that goes up and down, and is asked for when someone looks."""

    kind = "gauge"

    def __init__(self) -> None:
        self._asked: list[tuple[Labels, Callable[[], float]]] = []

    def ask(self, value: Callable[[], float], **labels: str) -> None:
        """Where to ask for the value with these labels."""
        self._asked.append((tuple(labels.items()), value))

    def lines(self, name: str) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from (f"{name}{_written(labels)} {value():g}" for labels, value in self._asked)


class Metrics:
    """Everything that the server counts."""

    def __init__(self) -> None:
        self.requests = Counter()
        self.seconds = Histogram(SECONDS)
        self.batches = Histogram(SIZES)
        self.texts = Counter()
        self.refused = Counter()
        self.cancelled = Counter()
        self.waiting = Gauge()

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        return "".join(
            f"# HELP {name} {about}\n# TYPE {name} {metric.kind}\n"
            + "".join(f"{line}\n" for line in metric.lines(name))
            for name, about, metric in (
                ("regard_requests_total", "Requests by route and status.", self.requests),
                ("regard_request_seconds", "Seconds from a request to the end of its answer.", self.seconds),
                ("regard_batch_texts", "Texts that were translated or read together.", self.batches),
                ("regard_texts_total", "Texts that were translated, read or written.", self.texts),
                ("regard_refused_total", "Requests that met a full queue.", self.refused),
                ("regard_cancelled_total", "Requests that were given up, by client or by deadline.", self.cancelled),
                ("regard_waiting_requests", "Requests that wait for their turn.", self.waiting),
            )
        )


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
