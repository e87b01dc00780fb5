"""Prometheus metrics of the server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
disable_created_metrics()  # type: ignore[no-untyped-call]  # a creation time for every series doubles their number


class Metrics:
    """Counters, histograms and gauges of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "regard_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "regard_request_seconds",
            "Seconds from a request to the end of its response.",
            ["route"],
            registry=self.registry,
            buckets=REQUEST_SECONDS,
        )
        self.batch_texts = Histogram(
            "regard_batch_texts", "Texts per batch.", ["model"], registry=self.registry, buckets=BATCH_TEXTS
        )
        self.texts = Counter("regard_texts", "Processed texts.", ["model"], registry=self.registry)
        self.rejected = Counter(
            "regard_rejected", "Requests that found the queue full.", ["model"], registry=self.registry
        )
        self.cancelled = Counter(
            "regard_cancelled",
            "Requests that were cancelled by the client or timed out.",
            ["model"],
            registry=self.registry,
        )
        self.queued = Gauge(
            "regard_queued_requests", "Requests that are queued or processed.", ["model"], registry=self.registry
        )

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
