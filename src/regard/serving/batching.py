"""Requests share the work: texts that wait at the same time are translated, or read, together.

Nothing waits while a worker is free. While all are busy, what arrives piles up, and becomes the next batch; after a
batch that was shared, the next one waits a few milliseconds for those who have just been answered to ask again, as long
as another worker has something to do or there is none. Only texts with the same wish go together, the oldest first, so
that nothing starves; a batch holds about `budget` tokens.

All of this lives on the event loop; only `carry_out` runs in threads.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Generic, TypeVar

from regard.serving.errors import ApiError
from regard.serving.metrics import Metrics

GRACE = 0.003  # seconds that a batch waits for company, under load only
CHARACTERS = 4  # of a token, roughly
Text = TypeVar("Text")  # a text, a pair of them, or the words of a sentence
Wish = TypeVar("Wish")  # what is to be done with it; those that are equal go together
Found = TypeVar("Found")


def search_cost(text: str, wish: Any) -> int:
    """Roughly how many tokens a search follows, in all hypotheses."""
    return int(max(len(text) // CHARACTERS + 1, wish.search.bounds.shortest) * wish.search.width)


@dataclass(frozen=True)
class BatchResult(Generic[Found]):
    """What was found for the texts of a request, and how that came about."""

    answers: list[Found]
    waited: float
    """Seconds until work on the last of its texts began."""
    worked: float
    """Seconds that the batch with the last of its texts took."""
    together: int
    """Texts in that batch, those of others included."""

    @property
    def timings(self) -> dict[str, float]:
        """As answers tell them."""
        return {
            "waited_ms": round(1000 * self.waited, 2),
            "worked_ms": round(1000 * self.worked, 2),
            "together": self.together,
        }


@dataclass(eq=False)
class _Request(Generic[Wish, Found]):
    wish: Wish
    answer: "asyncio.Future[BatchResult[Found]]"
    found: dict[int, Found]
    missing: int
    arrived: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True)
class _Text(Generic[Text, Wish, Found]):
    """One text of a request, and its place in it."""

    request: _Request[Wish, Found]
    place: int
    text: Text
    cost: int


class Batcher(Generic[Text, Wish, Found]):
    """Collects the texts of requests, and hands them in batches to `workers` threads."""

    def __init__(
        self,
        name: str,
        carry_out: Callable[[Sequence[Text], Wish], list[Found]],
        metrics: Metrics,
        *,
        cost: Callable[[Any, Any], int] = search_cost,
        workers: int = 2,
        queue: int,
        budget: int,
    ) -> None:
        self._name = name
        self._carry_out = carry_out
        self._metrics = metrics
        self._cost_of = cost
        self._workers = workers
        self._queue = queue
        self._budget = budget
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=f"batches-{name}")
        self._waiting: dict[Wish, deque[_Text[Text, Wish, Found]]] = {}
        self._requests = 0  # that wait, or are worked on
        self._cost = 0  # of what waits
        self._speed = 0.0  # cost a second, as of late
        self._running = 0
        self._shared = False  # whether the last batch was
        self._timer: asyncio.TimerHandle | None = None
        metrics.waiting.ask(lambda: self._requests, model=name)

    @property
    def full(self) -> bool:
        """Whether the next request would be refused."""
        return self._requests >= self._queue

    def submit(self, texts: Sequence[Text], wish: Wish) -> "asyncio.Future[BatchResult[Found]]":
        """What will be found for texts; whoever no longer wants it cancels it."""
        if self.full:
            self._metrics.refused.add(model=self._name)
            raise self._later()
        answer: asyncio.Future[BatchResult[Found]] = asyncio.get_running_loop().create_future()
        request = _Request(wish, answer, {}, len(texts))
        if not texts:
            request.answer.set_result(BatchResult([], 0.0, 0.0, 0))
            return request.answer
        self._requests += 1
        request.answer.add_done_callback(self._leave)
        line = self._waiting.setdefault(wish, deque())
        for place, text in enumerate(texts):
            cost = self._cost_of(text, wish)
            line.append(_Text(request, place, text, cost))
            self._cost += cost
        self._begin()
        return request.answer

    async def close(self) -> None:
        """Finish what was accepted, and end the threads."""
        while self._requests:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(self._pool.shutdown)

    def _leave(self, answer: "asyncio.Future[BatchResult[Found]]") -> None:
        self._requests -= 1
        if answer.cancelled():
            self._metrics.cancelled.add(model=self._name)

    def _later(self) -> ApiError:
        seconds = min(60, max(1, math.ceil(self._cost / self._speed))) if self._speed else 1
        return ApiError(
            429,
            f"Slowdown: {self._queue:,} requests are waiting already; try again in {seconds} s.",
            code="rate_limit_exceeded",
            headers={"retry-after": str(seconds)},
        )

    def _begin(self) -> None:
        """Start batches while a worker is free; under load, after a moment."""
        while self._waiting and self._running < self._workers:
            if self._shared and self._cost < self._budget and (self._running or self._workers == 1):
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(GRACE, self._begin_now)
                return
            self._begin_one()

    def _begin_now(self) -> None:
        self._timer, self._shared = None, False
        self._begin()

    def _begin_one(self) -> None:
        batch = self._next()
        if not batch:
            return
        self._running += 1
        self._pool.submit(self._work, batch, asyncio.get_running_loop())

    def _next(self) -> list[_Text[Text, Wish, Found]]:
        """The oldest text that someone still waits for, and those with the same wish behind it."""
        wish = min(self._waiting, key=lambda wish: self._waiting[wish][0].request.arrived)
        line, batch, cost = self._waiting[wish], list[_Text[Text, Wish, Found]](), 0
        while line and (not batch or cost + line[0].cost <= self._budget):
            text = line.popleft()
            self._cost -= text.cost
            if not text.request.answer.done():
                batch.append(text)
                cost += text.cost
        if not line:
            del self._waiting[wish]
        return batch

    def _work(self, batch: list[_Text[Text, Wish, Found]], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: carry out a batch; where it fails, each request alone, so that only the culprit's does."""
        began = time.perf_counter()
        found: list[Found | Exception] = []
        try:
            found += self._carry_out([text.text for text in batch], batch[0].request.wish)
        except Exception as error:
            requests = {id(text.request): text.request for text in batch}
            if len(requests) == 1:
                found = [error] * len(batch)
            else:
                alone = {key: self._alone(batch, request) for key, request in requests.items()}
                found = [next(alone[id(text.request)]) for text in batch]
        loop.call_soon_threadsafe(self._finish, batch, _Outcome(found, began, time.perf_counter()))

    def _alone(
        self, batch: list[_Text[Text, Wish, Found]], request: _Request[Wish, Found]
    ) -> Iterator[Found | Exception]:
        texts = [text.text for text in batch if text.request is request]
        try:
            return iter(self._carry_out(texts, request.wish))
        except Exception as error:
            return repeat(error)

    def _finish(self, batch: list[_Text[Text, Wish, Found]], outcome: "_Outcome[Found]") -> None:
        self._running -= 1
        self._shared = len({id(text.request) for text in batch}) > 1
        worked = outcome.ended - outcome.began
        speed = sum(text.cost for text in batch) / max(worked, 1e-6)
        self._speed = speed if not self._speed else 0.8 * self._speed + 0.2 * speed
        self._metrics.batches.add(len(batch), model=self._name)
        self._metrics.texts.add(len(batch), model=self._name)
        for text, found in zip(batch, outcome.found, strict=True):
            request = text.request
            if request.answer.done():
                continue
            if isinstance(found, Exception):
                request.answer.set_exception(found)
                continue
            request.found[text.place] = found
            request.missing -= 1
            if not request.missing:
                answers = [request.found[place] for place in range(len(request.found))]
                request.answer.set_result(BatchResult(answers, outcome.began - request.arrived, worked, len(batch)))
        self._begin()


@dataclass(frozen=True)
class _Outcome(Generic[Found]):
    found: list[Found | Exception]
    began: float
    ended: float
