"""Store of the most recent traces, by an id that is derived from the request.

One thread creates and reads all traces, one request at a time; translation continues in other threads.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from regard.decoding.options import (
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
    SearchOptions,
    TranslationOptions,
)
from regard.serving.errors import ApiError, queue_full_error
from regard.serving.loaded_models import LoadedModel

if TYPE_CHECKING:  # they import torch, which a server for CTranslate2 models does without
    from regard.interpret.decode import TracedModel
    from regard.interpret.trace import Trace

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class TraceRequest:
    """Everything that a trace depends on."""

    model: str
    text: str
    target: str | None
    beam: int
    length_penalty: float
    max_tokens: int | None
    special_tokens: bool = False

    @property
    def id(self) -> str:
        """Id of the trace: equal requests have equal ids, so that links to a trace stay valid."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class StoredTrace:
    """Trace and the model that it belongs to."""

    model: LoadedModel
    trace: "Trace"


class TraceStore:
    """At most `max_traces` traces, least recently used first out; up to `max_queue` requests wait."""

    def __init__(self, max_traces: int, max_queue: int) -> None:
        self._max_traces = max_traces
        self._max_queue = max_queue
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traces")
        self._requests = 0

    def create(
        self, request: TraceRequest, model: LoadedModel, read: "Callable[[Trace], Answer]"
    ) -> "asyncio.Future[Answer]":
        """Create the trace of a request, unless it is stored, and read something from it."""
        return self._submit(lambda: self._create(request, model, read))

    def read(self, trace_id: str, read: "Callable[[Trace], Answer]") -> "asyncio.Future[Answer]":
        """Read something from a stored trace."""
        return self._submit(lambda: self._read(trace_id, read))

    def discard(self, model: LoadedModel) -> None:
        """Drop the traces of a model, which has been loaded again."""
        with suppress(RuntimeError):  # the store is closed
            self._thread.submit(self._discard, model)

    async def close(self) -> None:
        """Finish the accepted requests and stop the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    def _submit(self, work: Callable[[], Answer]) -> "asyncio.Future[Answer]":
        if self._requests >= self._max_queue:
            raise queue_full_error(self._max_queue)
        loop, future = asyncio.get_running_loop(), self._thread.submit(work)
        self._requests += 1
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        return asyncio.wrap_future(future)

    def _discard(self, model: LoadedModel) -> None:
        for trace_id in [trace_id for trace_id, stored in self._traces.items() if stored.model is model]:
            del self._traces[trace_id]

    def _leave(self) -> None:
        self._requests -= 1

    def _create(self, request: TraceRequest, model: LoadedModel, read: "Callable[[Trace], Answer]") -> Answer:
        if request.id not in self._traces:
            with model.torch_lock:
                self._traces[request.id] = StoredTrace(model, _trace(request, model))
            while len(self._traces) > self._max_traces:
                self._traces.popitem(last=False)
        return self._read(request.id, read)

    def _read(self, trace_id: str, read: "Callable[[Trace], Answer]") -> Answer:
        if trace_id not in self._traces:
            raise ApiError(404, f"The trace {trace_id[:24]!r} is no longer stored; request it again from /v1/look.")
        self._traces.move_to_end(trace_id)
        stored = self._traces[trace_id]
        with stored.model.torch_lock:
            return read(stored.trace)


def _trace(request: TraceRequest, loaded: LoadedModel) -> "Trace":
    """Decode a text and record the computation; the trace has the model's served name, not its folder."""
    from regard.interpret.decode import DEFAULT_LENGTH
    from regard.interpret.trace import look

    options: TranslationOptions | GenerationOptions | None
    if loaded.encodes:
        options = None
    elif loaded.translates:
        constraints = OutputConstraints(1, request.max_tokens)  # as in `translate`: an output is never empty
        options = TranslationOptions(SearchOptions(request.beam, request.length_penalty, constraints=constraints))
    else:
        constraints = OutputConstraints(max_tokens=request.max_tokens or DEFAULT_LENGTH)
        options = GenerationOptions(SamplingOptions(temperature=0, constraints=constraints))
    model = replace(traced_model(loaded), special_tokens=request.special_tokens)
    return look(model, request.text, options, request.target)


def traced_model(loaded: LoadedModel) -> "TracedModel":
    """Return what a trace needs of a model."""
    from regard.interpret.decode import TracedModel

    model = loaded.model
    return TracedModel(model.network, model.config, model.tokenizer, model.target_tokenizer, loaded.name)
