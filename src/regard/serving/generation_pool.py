"""Where texts are gone on with: a few at a time, each in a thread that hands over what it writes, part by part."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from regard.decoding.results import TextChunk
from regard.serving.errors import ApiError
from regard.serving.metrics import Metrics

Write = Callable[[], Iterator[TextChunk]]
"""Goes on with prompts, and gives out parts."""


class GenerationPool:
    """Lets `seats` requests write at a time; up to `queue` more wait."""

    def __init__(self, name: str, metrics: Metrics, *, seats: int, queue: int) -> None:
        self._name = name
        self._metrics = metrics
        self._queue = queue + seats
        self._requests = 0
        self._pool = ThreadPoolExecutor(seats, thread_name_prefix=f"write-{name}")
        metrics.waiting.ask(lambda: self._requests, model=name)

    @property
    def full(self) -> bool:
        """Whether the next request would be refused."""
        return self._requests >= self._queue

    async def write(self, write: Write, texts: int) -> AsyncIterator[TextChunk]:
        """Parts of so many texts as they are written. Whoever stops reading, or is cancelled, stops the writing too."""
        if self.full:
            self._metrics.refused.add(model=self._name)
            sentence = f"Slowdown: {self._queue:,} requests are waiting already; try again in 1 s."
            raise ApiError(429, sentence, code="rate_limit_exceeded", headers={"retry-after": "1"})
        self._requests += 1
        writing = _Writing(asyncio.get_running_loop())
        done = self._pool.submit(writing.run, write)
        done.add_done_callback(lambda _: writing.loop.call_soon_threadsafe(self._leave))
        try:
            while (part := await writing.parts.get()) is not None:
                if isinstance(part, Exception):
                    raise part
                yield part
            self._metrics.texts.add(texts, model=self._name)
        except BaseException:
            self._metrics.cancelled.add(model=self._name)
            raise
        finally:
            writing.stopped.set()
            done.cancel()  # if its turn has not come

    async def close(self) -> None:
        """Finish what was accepted, and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)

    def _leave(self) -> None:
        self._requests -= 1


class _Writing:
    """What a thread writes, and a loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.parts: asyncio.Queue[TextChunk | Exception | None] = asyncio.Queue()
        self.stopped = threading.Event()

    def run(self, begin: Write) -> None:
        """In a thread: write until the end, or until nobody reads any more."""
        try:
            parts = begin()
            for part in parts:
                if self.stopped.is_set():
                    break
                self._give(part)
            if hasattr(parts, "close"):
                parts.close()
            self._give(None)
        except Exception as error:
            self._give(error)

    def _give(self, part: TextChunk | Exception | None) -> None:
        self.loop.call_soon_threadsafe(self.parts.put_nowait, part)
