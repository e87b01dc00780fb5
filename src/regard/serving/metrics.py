"""Prometheus metrics of the server."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from regard.decoding.results import Generation
from regard.serving.workers import METRICS_FOLDER

REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
disable_created_metrics()  # type: ignore[no-untyped-call]  # a creation time for every series doubles their number


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of the queue of one model."""

    batch_texts: Histogram
    texts: Counter
    rejected: Counter
    cancelled: Counter
    queued: Gauge
    prompt_tokens: Counter
    cached_tokens: Counter
    generated_tokens: Counter
    running_texts: Gauge
    waiting_texts: Gauge


class Metrics:
    """Counters, histograms and gauges of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
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
        self.prompt_tokens = Counter(
            "regard_prompt_tokens", "Tokens of the prompts of language models.", ["model"], registry=self.registry
        )
        self.cached_tokens = Counter(
            "regard_cached_prompt_tokens",
            "Tokens of prompts that were not computed, because an earlier prompt began with them.",
            ["model"],
            registry=self.registry,
        )
        self.generated_tokens = Counter(
            "regard_generated_tokens",
            "Tokens that running batches of language models generated.",
            ["model"],
            registry=self.registry,
        )
        self.running_texts = Gauge(
            "regard_running_texts",
            "Texts in the running batch of a language model.",
            ["model"],
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.waiting_texts = Gauge(
            "regard_waiting_texts",
            "Texts that wait for a place in the running batch of a language model.",
            ["model"],
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.queued = Gauge(
            "regard_queued_requests",
            "Requests that are queued or processed.",
            ["model"],
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    # prometheus_client takes long to find the series of labels, so each is looked up once

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        series = self._requests.get((route, status))
        if series is None:
            series = self.requests.labels(route, str(status)), self.request_seconds.labels(route)
            self._requests[route, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def of_model(self, name: str) -> ModelMetrics:
        """Return the metrics of a model's queue."""
        return ModelMetrics(
            self.batch_texts.labels(name),
            self.texts.labels(name),
            self.rejected.labels(name),
            self.cancelled.labels(name),
            self.queued.labels(name),
            self.prompt_tokens.labels(name),
            self.cached_tokens.labels(name),
            self.generated_tokens.labels(name),
            self.running_texts.labels(name),
            self.waiting_texts.labels(name),
        )

    def count_prompts(self, name: str, generations: Iterable[Generation]) -> None:
        """Count the tokens of the prompts of a request."""
        model = self.of_model(name)
        for generation in generations:
            if generation.sample == 0:
                model.prompt_tokens.inc(generation.prompt_tokens)
                model.cached_tokens.inc(generation.cached_tokens)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format; with several workers, the sums over them."""
        if METRICS_FOLDER not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
