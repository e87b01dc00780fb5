"""Waiting for results while the client is connected, streams that can be peeked at, and the pool for generated text."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

from starlette.requests import Request

from regard.decoding.results import TextChunk
from regard.serving.errors import ApiError, queue_full_error
from regard.serving.limits import ClientDisconnectedError
from regard.serving.metrics import Metrics
from regard.serving.running_batch import BatchedTexts, BatchJob, BatchThread

Result = TypeVar("Result")
Item = TypeVar("Item")
DISCONNECT_WATCH_SECONDS = 0.25  # most results are there by then; watching the connection costs more than waiting
Generate = Callable[[], Iterable[TextChunk]]
"""Function that returns the chunks of text to generate; it runs in a thread, and so may they."""


async def wait_for_result(
    request: Request, result: Awaitable[Result], timeout: float, total_timeout: float | None = None
) -> Result:
    """Await a result; cancel it when the client disconnects or the timeout passes.

    The request's body must have been read. `total_timeout` is the timeout in the error message, if a part of it has
    already passed.
    """
    work = asyncio.ensure_future(result)
    quick = min(timeout, DISCONNECT_WATCH_SECONDS)
    try:
        await _wait_briefly(work, quick)
        if not work.done():
            await _wait_while_connected(request, work, timeout - quick)
        if work.done():
            return work.result()
        raise timeout_error(timeout if total_timeout is None else total_timeout)
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))


async def _wait_briefly(work: "asyncio.Future[Result]", timeout: float) -> None:
    """Wait until the work is done or the timeout passes: `asyncio.wait` for one future, in half the time."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(timeout, wake)
    work.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        work.remove_done_callback(wake)


async def _wait_while_connected(request: Request, work: "asyncio.Future[Result]", timeout: float) -> None:
    """Wait until the work is done or the timeout passes; raise an error if the client disconnects."""
    disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((work, disconnect), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done() and not work.done():
            raise ClientDisconnectedError
    finally:
        disconnect.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def timeout_error(seconds: float) -> ApiError:
    """Return the error of a request that timed out."""
    return ApiError(504, f"The request timed out after {seconds:g} s; send less text, or retry later.")


class PeekableStream(Generic[Item]):
    """Asynchronous stream whose first item can be awaited before the response starts."""

    def __init__(self, items: AsyncIterator[Item]) -> None:
        self._items = items
        self._peeked: list[Item] = []

    async def peek(self) -> None:
        """Wait for the first item, which stays in the stream."""
        async for item in self._items:
            self._peeked.append(item)
            return

    async def drain(self) -> None:
        """Wait for the last item and discard all of them."""
        async for _ in self._items:
            pass

    async def until(self, deadline: float) -> AsyncIterator[Item]:
        """Iterate until a time of the monotonic clock; then raise the timeout error."""
        start = time.monotonic()
        while self._peeked:
            yield self._peeked.pop(0)
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    item = await anext(self._items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise timeout_error(deadline - start) from None
            yield item

    async def close(self) -> None:
        """Close the stream and its producer."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


# --- generation -------------------------------------------------------------------------------------------------------


class GenerationPool:
    """Streams generated text to the event loop, with a bounded queue.

    Threads start up to `workers` requests at a time. What they return is generated in the same thread, or, if it can
    join others, in the batch of the model. Up to `max_queue` more requests wait.
    """

    def __init__(
        self, name: str, metrics: Metrics, *, workers: int, max_queue: int, batch: BatchThread | None = None
    ) -> None:
        self._metrics = metrics.of_model(name)
        self._max_requests = max_queue + max(workers, batch.max_rows if batch is not None else 0)
        self._requests = 0  # queued or running
        self._batch = batch
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"generate-{name}")

    @property
    def is_full(self) -> bool:
        """Whether the next request would be rejected."""
        return self._requests >= self._max_requests

    async def stream(self, generate: Generate, texts: int) -> AsyncIterator[TextChunk]:
        """Yield the chunks of `texts` texts as they are generated; closing the iterator stops the generation."""
        if self.is_full:
            self._metrics.rejected.inc()
            raise queue_full_error(self._max_requests)
        self._requests += 1
        self._metrics.queued.inc()
        queue = ChunkQueue(asyncio.get_running_loop())
        future = self._threads.submit(self._run, queue, generate)
        future.add_done_callback(partial(self._after_thread, queue))
        try:
            while (chunk := await queue.chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
            self._metrics.texts.inc(texts)
        except BaseException:
            self._metrics.cancelled.inc()
            raise
        finally:
            queue.stopped.set()
            future.cancel()  # if it has not started

    async def close(self) -> None:
        """Finish the accepted requests and stop the threads."""
        await asyncio.to_thread(self._threads.shutdown)
        if self._batch is not None:
            await asyncio.to_thread(self._batch.close)

    def _run(self, queue: "ChunkQueue", generate: Generate) -> None:
        """Generate until the end, or until the reader stops, or let the request join the batch; runs in a thread."""
        try:
            chunks = generate()
            if self._batch is not None and isinstance(chunks, BatchedTexts):
                queue.is_in_batch = True
                self._batch.submit(BatchJob(chunks, queue.stopped, partial(self._receive, queue), queue.loop))
                return
            for chunk in chunks:
                if queue.stopped.is_set():
                    break
                queue.send(chunk)
            if hasattr(chunks, "close"):
                chunks.close()
            queue.send(None)
        except Exception as error:
            queue.send(error)

    def _receive(self, queue: "ChunkQueue", chunk: TextChunk | Exception | None) -> None:
        """Receive a chunk from the batch, or its end; runs in the event loop."""
        queue.chunks.put_nowait(chunk)
        if not isinstance(chunk, TextChunk):
            self._leave()

    def _after_thread(self, queue: "ChunkQueue", _: object) -> None:
        if not queue.is_in_batch:
            queue.loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._requests -= 1
        self._metrics.queued.dec()


class ChunkQueue:
    """Queue between the thread that generates and the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.chunks: asyncio.Queue[TextChunk | Exception | None] = asyncio.Queue()
        """Chunks; at the end None, or an error."""
        self.stopped = threading.Event()
        """Set when the request is over."""
        self.is_in_batch = False

    def send(self, chunk: TextChunk | Exception | None) -> None:
        """Put a chunk into the queue, from another thread."""
        self.loop.call_soon_threadsafe(self.chunks.put_nowait, chunk)
