"""Traces that clients look into: a few are kept, by an id that says what was asked, so that asking again finds them.

One thread does all of it: a trace is looked into by one request at a time, and translating goes on beside it.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TypeVar

from regard.decoding.options import (
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
    SearchOptions,
    TranslationOptions,
)
from regard.interpret.decode import DEFAULT_LENGTH, TracedModel
from regard.interpret.trace import Trace, look
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel

Found = TypeVar("Found")


@dataclass(frozen=True)
class TraceRequest:
    """What makes one trace another than the next."""

    model: str
    text: str
    target: str | None
    beam: int
    length_penalty: float
    longest: int | None

    @property
    def id(self) -> str:
        """The same for the same question, so that a link to a trace outlives it."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class StoredTrace:
    """A trace, and whose it is."""

    model: LoadedModel
    trace: Trace


class TraceStore:
    """At most `most` traces; up to `queue` requests wait."""

    def __init__(self, most: int, queue: int) -> None:
        self._most = most
        self._queue = queue
        self._kept: OrderedDict[str, StoredTrace] = OrderedDict()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="look")
        self._requests = 0

    def make(
        self, question: TraceRequest, model: LoadedModel, what: Callable[[Trace], Found]
    ) -> "asyncio.Future[Found]":
        """Something about the trace that answers a question, which may be kept from before."""
        return self._in_turn(lambda: self._made(question, model, what))

    def ask(self, id_: str, what: Callable[[Trace], Found]) -> "asyncio.Future[Found]":
        """Something about a trace that is kept."""
        return self._in_turn(lambda: self._asked(id_, what))

    async def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        await asyncio.to_thread(self._pool.shutdown)

    def _in_turn(self, work: Callable[[], Found]) -> "asyncio.Future[Found]":
        if self._requests >= self._queue:
            sentence = f"Slowdown: {self._queue:,} requests are waiting already; try again in 1 s."
            raise ApiError(429, sentence, headers={"retry-after": "1"})
        loop, done = asyncio.get_running_loop(), self._pool.submit(work)
        self._requests += 1
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        return asyncio.wrap_future(done)

    def _leave(self) -> None:
        self._requests -= 1

    def _made(self, question: TraceRequest, model: LoadedModel, what: Callable[[Trace], Found]) -> Found:
        if question.id not in self._kept:
            with model.torch:
                self._kept[question.id] = StoredTrace(model, _looked(question, model))
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return self._asked(question.id, what)

    def _asked(self, id_: str, what: Callable[[Trace], Found]) -> Found:
        if id_ not in self._kept:
            raise ApiError(404, f"The trace {id_[:24]!r} is not kept here; ask /v1/look for it again.")
        self._kept.move_to_end(id_)
        kept = self._kept[id_]
        with kept.model.torch:
            return what(kept.trace)


def _looked(question: TraceRequest, served: LoadedModel) -> Trace:
    """Decode and keep the way to every number; the trace is called as the model is here, not by its folder."""
    model = served.model
    subject = TracedModel(model.network, model.config, model.tokenizer, model.target_tokenizer, served.name)
    wish: TranslationOptions | GenerationOptions | None
    if served.encodes:
        wish = None
    elif served.translates:
        bounds = OutputConstraints(1, question.longest)  # as `translate` does: an answer is never empty
        wish = TranslationOptions(SearchOptions(question.beam, question.length_penalty, bounds=bounds))
    else:
        wish = GenerationOptions(
            SamplingOptions(temperature=0, bounds=OutputConstraints(longest=question.longest or DEFAULT_LENGTH))
        )
    return look(subject, question.text, wish, question.target)
