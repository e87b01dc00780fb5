"""Request batching: texts that are queued at the same time are processed together.

A request starts at once while a worker is idle. While all workers are busy, arriving texts queue up and form the next
batch. After a batch with texts of several requests, the next batch waits a few milliseconds, so that clients that have
just received a response can join it; with several workers only while another one is busy. Only texts with equal jobs
share a batch, the oldest first, so that no request starves. A batch has about `max_cost` tokens.

Everything runs on the event loop; only `process` runs in threads.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Generic, TypeVar

from regard.decoding.options import TranslationOptions
from regard.serving.errors import ApiError, queue_full_error
from regard.serving.metrics import Metrics

BATCH_WAIT_SECONDS = 0.003  # how long a batch waits for more texts, under load only
ESTIMATED_CHARACTERS_PER_TOKEN = 4  # approximately
MAX_RETRY_SECONDS = 60
Text = TypeVar("Text")  # a text, a pair of texts, or the words of a sentence
Job = TypeVar("Job")  # options of the work; texts with equal jobs share batches
Output = TypeVar("Output")


def search_cost(text: str, options: TranslationOptions) -> int:
    """Return the approximate number of tokens that a beam search follows, over all hypotheses."""
    tokens = max(len(text) // ESTIMATED_CHARACTERS_PER_TOKEN + 1, options.search.constraints.min_tokens)
    return tokens * options.search.beam


@dataclass(frozen=True)
class BatchResult(Generic[Output]):
    """Outputs for the texts of a request, and how long they took."""

    outputs: list[Output]
    queue_seconds: float
    """Seconds until the batch with the last text of the request started."""
    compute_seconds: float
    """Seconds that this batch took."""
    batch_size: int
    """Texts in this batch, including those of other requests."""

    @property
    def timings(self) -> dict[str, float]:
        """Fields of `schemas.Timings`."""
        return {
            "queue_ms": round(1000 * self.queue_seconds, 2),
            "compute_ms": round(1000 * self.compute_seconds, 2),
            "batch_size": self.batch_size,
        }


@dataclass(eq=False)
class _QueuedRequest(Generic[Job, Output]):
    job: Job
    result: "asyncio.Future[BatchResult[Output]]"
    outputs: dict[int, Output]  # by the index of the text
    missing: int
    arrived: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True)
class _QueuedText(Generic[Text, Job, Output]):
    request: _QueuedRequest[Job, Output]
    index: int
    text: Text
    cost: int


@dataclass(frozen=True)
class _ProcessedBatch(Generic[Output]):
    outputs: list[Output | Exception]
    start: float
    end: float


class Batcher(Generic[Text, Job, Output]):
    """Queue of the texts of all requests to a model, processed in batches by `workers` threads."""

    def __init__(
        self,
        name: str,
        process: Callable[[Sequence[Text], Job], list[Output]],
        metrics: Metrics,
        *,
        cost: Callable[[Text, Job], int],
        workers: int = 2,
        max_queue: int,
        max_cost: int,
    ) -> None:
        self._process = process
        self._metrics = metrics.of_model(name)
        self._cost_of = cost
        self._workers = workers
        self._max_queue = max_queue
        self._max_cost = max_cost
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"batches-{name}")
        self._queues: dict[Job, deque[_QueuedText[Text, Job, Output]]] = {}
        self._requests = 0  # queued or running
        self._cost = 0  # of the queued texts
        self._cost_per_second = 0.0  # moving average
        self._running = 0  # batches
        self._last_was_shared = False  # whether the last batch had texts of several requests
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether the next request would be rejected."""
        return self._requests >= self._max_queue

    def submit(self, texts: Sequence[Text], job: Job) -> "asyncio.Future[BatchResult[Output]]":
        """Queue the texts of a request; cancelling the future drops those that have not started."""
        if self.is_full:
            self._metrics.rejected.inc()
            raise self._queue_full()
        result: asyncio.Future[BatchResult[Output]] = asyncio.get_running_loop().create_future()
        request = _QueuedRequest(job, result, {}, len(texts))
        if not texts:
            result.set_result(BatchResult([], 0.0, 0.0, 0))
            return result
        self._requests += 1
        self._metrics.queued.inc()
        result.add_done_callback(self._leave)
        queue = self._queues.setdefault(job, deque())
        for index, text in enumerate(texts):
            cost = self._cost_of(text, job)
            queue.append(_QueuedText(request, index, text, cost))
            self._cost += cost
        self._start_batches()
        return result

    async def close(self) -> None:
        """Finish the accepted requests and stop the threads."""
        while self._requests:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(self._threads.shutdown)

    def _leave(self, result: "asyncio.Future[BatchResult[Output]]") -> None:
        self._requests -= 1
        self._metrics.queued.dec()
        if result.cancelled():
            self._metrics.cancelled.inc()

    def _queue_full(self) -> ApiError:
        seconds = math.ceil(self._cost / self._cost_per_second) if self._cost_per_second else 1
        return queue_full_error(self._max_queue, min(MAX_RETRY_SECONDS, max(1, seconds)))

    def _start_batches(self) -> None:
        """Start batches while workers are idle; under load, wait a moment for more texts."""
        while self._queues and self._running < self._workers:
            is_under_load = self._last_was_shared and (self._running or self._workers == 1)
            if is_under_load and self._cost < self._max_cost:
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(BATCH_WAIT_SECONDS, self._start_after_wait)
                return
            self._start_batch()

    def _start_after_wait(self) -> None:
        self._timer, self._last_was_shared = None, False
        self._start_batches()

    def _start_batch(self) -> None:
        batch = self._next_batch()
        if not batch:
            return
        self._running += 1
        self._threads.submit(self._run, batch, asyncio.get_running_loop())

    def _next_batch(self) -> list[_QueuedText[Text, Job, Output]]:
        """Take the oldest text and the following ones with the same job; skip those of cancelled requests."""
        job, queue = min(self._queues.items(), key=lambda item: item[1][0].request.arrived)
        batch: list[_QueuedText[Text, Job, Output]] = []
        cost = 0
        while queue and (not batch or cost + queue[0].cost <= self._max_cost):
            text = queue.popleft()
            self._cost -= text.cost
            if not text.request.result.done():
                batch.append(text)
                cost += text.cost
        if not queue:
            del self._queues[job]
        return batch

    def _run(self, batch: list[_QueuedText[Text, Job, Output]], loop: asyncio.AbstractEventLoop) -> None:
        """Process a batch, in a thread. If it fails, process each request alone, so that only the cause fails."""
        start = time.perf_counter()
        outputs: list[Output | Exception] = []
        try:
            outputs += self._process([text.text for text in batch], batch[0].request.job)
        except Exception as error:
            requests = {id(text.request): text.request for text in batch}
            if len(requests) == 1:
                outputs = [error] * len(batch)
            else:
                by_request = {key: self._run_alone(batch, request) for key, request in requests.items()}
                outputs = [next(by_request[id(text.request)]) for text in batch]
        processed = _ProcessedBatch(outputs, start, time.perf_counter())
        loop.call_soon_threadsafe(self._finish, batch, processed)

    def _run_alone(
        self, batch: list[_QueuedText[Text, Job, Output]], request: _QueuedRequest[Job, Output]
    ) -> Iterator[Output | Exception]:
        texts = [text.text for text in batch if text.request is request]
        try:
            return iter(self._process(texts, request.job))
        except Exception as error:
            return repeat(error)

    def _finish(self, batch: list[_QueuedText[Text, Job, Output]], processed: _ProcessedBatch[Output]) -> None:
        self._running -= 1
        self._last_was_shared = len({id(text.request) for text in batch}) > 1
        seconds = processed.end - processed.start
        speed = sum(text.cost for text in batch) / max(seconds, 1e-6)
        self._cost_per_second = speed if not self._cost_per_second else 0.8 * self._cost_per_second + 0.2 * speed
        self._metrics.batch_texts.observe(len(batch))
        self._metrics.texts.inc(len(batch))
        for text, output in zip(batch, processed.outputs, strict=True):
            request = text.request
            if request.result.done():
                continue
            if isinstance(output, Exception):
                request.result.set_exception(output)
                continue
            request.outputs[text.index] = output
            request.missing -= 1
            if not request.missing:
                outputs = [request.outputs[index] for index in range(len(request.outputs))]
                waited = processed.start - request.arrived
                request.result.set_result(BatchResult(outputs, waited, seconds, len(batch)))
        self._start_batches()
