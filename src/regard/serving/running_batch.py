"""The thread that generates the texts of all requests to a language model in one running batch.

Requests join and leave at any token (see `regard.decoding.continuous_batch`). After each step, the thread hands all new
text to the event loop in one call. A model that is loaded again gets a batch of its own; the texts that have started
finish in that of the old model.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from regard.decoding.results import TextChunk
from regard.serving.metrics import ModelMetrics

if TYPE_CHECKING:  # they import torch, which a server for CTranslate2 models does without
    from regard.api import Model
    from regard.decoding.batch_request import BatchRequest
    from regard.decoding.continuous_batch import ContinuousBatch, RequestRows
    from regard.serving.loaded_models import LoadedModel

log = logging.getLogger(__name__)


def compute_with(threads: int) -> None:
    """Set how many threads PyTorch uses in the calling thread; fewer than it has at first stay for all of its life.

    Threads that start later get the number that was set last in any thread, so that the old one is set again.
    """
    import torch

    before = torch.get_num_threads()
    if threads < before:
        torch.set_num_threads(threads)
        restoring = threading.Thread(target=torch.set_num_threads, args=(before,))
        restoring.start()
        restoring.join()


class FairLock:
    """A lock that threads get in the order in which they ask for it.

    A thread that takes a `threading.Lock` again as soon as it has released it leaves others no chance.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._changing:
            if not self._held:
                self._held = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        with self._changing:
            if self._waiting:
                self._waiting.popleft().set()  # it stays held, by the next thread
            else:
                self._held = False


class BatchedTexts:
    """The chunks of a request: generated alone by iterating, or in the batch of a `BatchThread`."""

    def __init__(self, loaded: "LoadedModel", request: "BatchRequest") -> None:
        self.model = loaded.model
        self.request = request
        self._loaded = loaded

    def __iter__(self) -> Iterator[TextChunk]:
        """Generate in a batch of its own."""
        with self._loaded.locked("torch"):
            chunks = self.request.generate(self.model.new_batch(len(self.request.texts.rows)))
        while True:
            with self._loaded.locked("torch"):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk


Receive = Callable[[TextChunk | Exception | None], None]
"""Receives the chunks of a request; at the end None, or an error."""


@dataclass(frozen=True, eq=False)
class BatchJob:
    """A request in the batch, and who waits for its text."""

    texts: BatchedTexts
    stopped: threading.Event
    """Set when the client does not wait any longer."""
    receive: Receive
    """Called in the event loop."""
    loop: asyncio.AbstractEventLoop

    @property
    def request(self) -> "BatchRequest":
        """The request."""
        return self.texts.request


class BatchThread:
    """Runs the batches of a served language model; the thread starts with the first request.

    Args:
        loaded: The model.
        metrics: Its metrics.
        max_rows: Texts that are generated at a time.
    """

    def __init__(self, loaded: "LoadedModel", metrics: ModelMetrics, max_rows: int) -> None:
        self.max_rows = max_rows
        self._loaded = loaded
        self._metrics = metrics
        self._changed = threading.Condition()
        self._new: list[BatchJob] = []
        self._is_closing = False
        self._thread: threading.Thread | None = None
        # of the thread
        self._jobs: dict[RequestRows, BatchJob] = {}
        self._events: list[tuple[BatchJob, TextChunk | Exception | None]] = []  # of the step
        self._batches: list[tuple[Model, ContinuousBatch]] = []  # each has rows

    def submit(self, job: BatchJob) -> None:
        """Let a request join the batch; may be called from any thread."""
        with self._changed:
            self._new.append(job)
            if self._thread is None:
                name = f"batch-{self._loaded.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Finish the accepted requests and stop the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while self._work():
            pass

    def _work(self) -> bool:
        """Wait for requests, take one step, and send its text; return whether the thread continues."""
        with self._changed:
            while not (self._new or self._jobs or self._is_closing):
                self._changed.wait()
            new, self._new = self._new, []
        if not new and not self._jobs:
            return False
        for job in new:
            self._start(job)
        try:
            self._step()
        except Exception as error:  # all requests share the step that failed
            log.exception("the batch of %s failed", self._loaded.name)
            for job in list(self._jobs.values()):
                self._end(job, error)
            self._batches = []
        self._send_text()
        self._metrics.running_texts.set(sum(batch.running for _, batch in self._batches))
        self._metrics.waiting_texts.set(sum(batch.waiting for _, batch in self._batches))
        return True

    def _start(self, job: BatchJob) -> None:
        try:
            self._jobs[job.request.group] = job
            job.request.join(self._batch_of(job.texts.model))
        except Exception as error:
            self._end(job, error)

    def _batch_of(self, model: "Model") -> "ContinuousBatch":
        for known, batch in self._batches:
            if known is model:
                return batch
        with self._loaded.locked("torch"):  # a network that is being traced has no batch
            batch = model.new_batch(self.max_rows)
        if self._thread is threading.current_thread():
            compute_with(batch.threads)
        self._batches.append((model, batch))
        return batch

    def _step(self) -> None:
        """Take one step of each batch, and collect its text."""
        for job in [job for job in self._jobs.values() if job.stopped.is_set()]:
            job.request.leave(self._batch_of(job.texts.model))
            self._end(job, None)
        for _, batch in self._batches:
            with self._loaded.locked("torch"):
                sampled = batch.step()
            self._metrics.generated_tokens.inc(len(sampled))
            for row, token in sampled:
                job = self._jobs[row.group]
                self._events += [(job, chunk) for chunk in job.request.accept(batch, row, token)]
        for job in [job for job in self._jobs.values() if not job.request.group.is_active]:
            self._end(job, job.request.group.error)
        self._batches = [(model, batch) for model, batch in self._batches if batch.running or batch.waiting]

    def _end(self, job: BatchJob, error: Exception | None) -> None:
        del self._jobs[job.request.group]
        self._events.append((job, error))

    def _send_text(self) -> None:
        """Send the text of a step: one call for each event loop, which is mostly one."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[BatchJob, TextChunk | Exception | None]]] = {}
        for event in self._events:
            by_loop.setdefault(event[0].loop, []).append(event)
        self._events = []
        for loop, events in by_loop.items():
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_receive_all, events)


def _receive_all(events: Sequence[tuple[BatchJob, TextChunk | Exception | None]]) -> None:
    for job, chunk in events:
        job.receive(chunk)
