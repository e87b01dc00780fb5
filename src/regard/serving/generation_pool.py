"""Thread pool that streams generated text to the event loop, with a bounded queue."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from regard.decoding.results import TextChunk
from regard.serving.errors import queue_full_error
from regard.serving.metrics import Metrics

Generate = Callable[[], Iterator[TextChunk]]
"""Function that generates text, chunk by chunk; it runs in a thread."""


class GenerationPool:
    """Runs `workers` requests at a time; up to `max_queue` more wait."""

    def __init__(self, name: str, metrics: Metrics, *, workers: int, max_queue: int) -> None:
        self._name = name
        self._metrics = metrics
        self._max_requests = max_queue + workers
        self._requests = 0  # queued or running
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"generate-{name}")
        metrics.queued.labels(name).set_function(lambda: self._requests)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be rejected."""
        return self._requests >= self._max_requests

    async def stream(self, generate: Generate, texts: int) -> AsyncIterator[TextChunk]:
        """Yield the chunks of `texts` texts as they are generated; closing the iterator stops the generation."""
        if self.is_full:
            self._metrics.rejected.labels(self._name).inc()
            raise queue_full_error(self._max_requests)
        self._requests += 1
        queue = _ChunkQueue(asyncio.get_running_loop())
        future = self._threads.submit(queue.run, generate)
        future.add_done_callback(lambda _: queue.loop.call_soon_threadsafe(self._leave))
        try:
            while (chunk := await queue.chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
            self._metrics.texts.labels(self._name).inc(texts)
        except BaseException:
            self._metrics.cancelled.labels(self._name).inc()
            raise
        finally:
            queue.stopped.set()
            future.cancel()  # if it has not started

    async def close(self) -> None:
        """Finish the accepted requests and stop the threads."""
        await asyncio.to_thread(self._threads.shutdown)

    def _leave(self) -> None:
        self._requests -= 1


class _ChunkQueue:
    """Queue between the thread that generates and the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.chunks: asyncio.Queue[TextChunk | Exception | None] = asyncio.Queue()
        self.stopped = threading.Event()

    def run(self, generate: Generate) -> None:
        """Generate until the end, or until the reader stops; runs in a thread."""
        try:
            chunks = generate()
            for chunk in chunks:
                if self.stopped.is_set():
                    break
                self._put(chunk)
            if hasattr(chunks, "close"):
                chunks.close()
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, chunk: TextChunk | Exception | None) -> None:
        self.loop.call_soon_threadsafe(self.chunks.put_nowait, chunk)
