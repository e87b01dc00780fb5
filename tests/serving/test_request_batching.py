"""Batched requests get the outputs that they would get alone, in order, and none is lost."""

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.options import OutputConstraints, SearchOptions, TranslationOptions
from regard.decoding.results import TextChunk, Translation
from regard.serving import batching
from regard.serving.batching import Batcher, BatchResult, search_cost
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel
from regard.serving.metrics import Metrics
from regard.serving.streaming import GenerationPool

TextBatcher = Batcher[str, TranslationOptions, Translation]
TextResult = BatchResult[Translation]
FOREVER = 1e6  # seconds
GREEDY, BEAM = TranslationOptions(SearchOptions(1)), TranslationOptions(SearchOptions(4))


class Uppercase:
    """Translator into upper case that records its batches and works only while its gate is open."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[str], TranslationOptions]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts: Sequence[str], options: TranslationOptions) -> list[Translation]:
        self.batches.append((list(texts), options))
        assert self.gate.wait(20)
        if "bad" in texts:
            raise ValueError("bad")
        return [Translation(text, text.upper(), []) for text in texts]


@pytest.fixture
def uppercase() -> Uppercase:
    return Uppercase()


@pytest.fixture
def blocked(uppercase: Uppercase) -> Uppercase:
    uppercase.gate.clear()
    return uppercase


def make_batcher(process: Any, *, workers: int = 1, max_queue: int = 100, max_cost: int = 10_000) -> TextBatcher:
    return Batcher(
        "model", process, Metrics(), cost=search_cost, workers=workers, max_queue=max_queue, max_cost=max_cost
    )


def texts(result: TextResult) -> list[str]:
    return [translation.text for translation in result.outputs]


def test_a_single_request_starts_at_once(uppercase: Uppercase) -> None:
    async def scene() -> TextResult:
        return await make_batcher(uppercase).submit(["a", "b"], GREEDY)

    result = asyncio.run(scene())
    assert texts(result) == ["A", "B"]
    assert result.batch_size == 2
    assert uppercase.batches == [(["a", "b"], GREEDY)]


def test_requests_that_arrive_while_workers_are_busy_share_a_batch(blocked: Uppercase) -> None:
    async def scene() -> list[TextResult]:
        batcher = make_batcher(blocked)
        futures = [batcher.submit([text], GREEDY) for text in "abcde"]
        blocked.gate.set()
        return await asyncio.gather(*futures)

    results = asyncio.run(scene())
    assert [texts(result) for result in results] == [["A"], ["B"], ["C"], ["D"], ["E"]]
    assert [batch for batch, _ in blocked.batches] == [["a"], ["b", "c", "d", "e"]]
    assert [result.batch_size for result in results] == [1, 4, 4, 4, 4]


class TestBatchWait:
    """A batch waits a few milliseconds after a shared batch, and at no other time."""

    def test_the_batch_after_a_shared_one_waits_for_more_texts(
        self, blocked: Uppercase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batching, "BATCH_WAIT_SECONDS", FOREVER)

        async def scene() -> list[TextResult]:
            batcher = make_batcher(blocked, max_cost=10)
            futures = [batcher.submit([text], GREEDY) for text in "abc"]
            blocked.gate.set()
            await asyncio.gather(*futures)
            futures = [batcher.submit(["d"], GREEDY)]
            assert batcher._running == 0, "it waits, although the worker is idle"
            futures.append(batcher.submit(["e" * 36], GREEDY))  # 1 and 10 tokens: the batch is full
            return await asyncio.gather(*futures)

        results = asyncio.run(scene())
        assert [texts(result) for result in results] == [["D"], ["E" * 36]]
        assert [batch for batch, _ in blocked.batches] == [["a"], ["b", "c"], ["d"], ["e" * 36]]

    def test_with_several_workers_another_one_must_be_busy(
        self, blocked: Uppercase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batching, "BATCH_WAIT_SECONDS", FOREVER)

        async def scene() -> list[TextResult]:
            batcher = make_batcher(blocked, workers=2)
            batcher._last_was_shared = True
            futures = [batcher.submit(["a"], GREEDY)]
            assert batcher._running == 1, "all workers were idle, so it starts at once"
            futures.append(batcher.submit(["b"], GREEDY))
            assert batcher._running == 1, "it waits for more texts"
            blocked.gate.set()
            return await asyncio.gather(*futures)

        assert [texts(result) for result in asyncio.run(scene())] == [["A"], ["B"]]

    def test_the_wait_ends_without_more_texts(self, blocked: Uppercase) -> None:
        async def scene() -> TextResult:
            batcher = make_batcher(blocked)
            futures = [batcher.submit([text], GREEDY) for text in "abc"]
            blocked.gate.set()
            await asyncio.gather(*futures)
            return await batcher.submit(["d"], GREEDY)

        assert texts(asyncio.run(scene())) == ["D"]

    def test_without_load_no_batch_waits(self, uppercase: Uppercase, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batching, "BATCH_WAIT_SECONDS", FOREVER)

        async def scene() -> None:
            batcher = make_batcher(uppercase)
            for text in "abc":
                future = batcher.submit([text, text], GREEDY)
                assert batcher._running == 1
                await future

        asyncio.run(scene())
        assert [batch for batch, _ in uppercase.batches] == [["a", "a"], ["b", "b"], ["c", "c"]]


def test_only_equal_jobs_share_a_batch_and_the_oldest_is_first(blocked: Uppercase) -> None:
    async def scene() -> None:
        batcher = make_batcher(blocked)
        requests = [("a", GREEDY), ("b", BEAM), ("c", GREEDY), ("d", BEAM)]
        futures = [batcher.submit([text], options) for text, options in requests]
        blocked.gate.set()
        await asyncio.gather(*futures)

    asyncio.run(scene())
    assert blocked.batches == [(["a"], GREEDY), (["b", "d"], BEAM), (["c"], GREEDY)]


def test_a_batch_has_about_its_maximum_cost_and_at_least_one_text(uppercase: Uppercase) -> None:
    async def scene() -> TextResult:
        # with four characters per token, these are 2, 2, 2, 26 and 2 tokens
        batcher = make_batcher(uppercase, max_cost=4)
        return await batcher.submit(["aaaa", "bbbb", "cccc", "d" * 100, "eeee"], GREEDY)

    assert texts(asyncio.run(scene())) == ["AAAA", "BBBB", "CCCC", "D" * 100, "EEEE"]
    assert [batch for batch, _ in uppercase.batches] == [["aaaa", "bbbb"], ["cccc"], ["d" * 100], ["eeee"]]


def test_a_minimum_length_counts_as_cost(uppercase: Uppercase) -> None:
    options = TranslationOptions(SearchOptions(1, constraints=OutputConstraints(60)))

    async def scene() -> TextResult:
        return await make_batcher(uppercase, max_cost=100).submit(["a", "b"], options)

    assert texts(asyncio.run(scene())) == ["A", "B"]
    assert [batch for batch, _ in uppercase.batches] == [["a"], ["b"]]


def test_no_texts_have_no_outputs(uppercase: Uppercase) -> None:
    async def scene() -> TextResult:
        return await make_batcher(uppercase).submit([], GREEDY)

    assert texts(asyncio.run(scene())) == []


def test_a_full_queue_rejects_requests_and_says_when_to_retry(blocked: Uppercase) -> None:
    async def scene() -> ApiError:
        batcher = make_batcher(blocked, max_queue=2)
        futures = [batcher.submit([text], GREEDY) for text in "ab"]
        assert batcher.is_full
        with pytest.raises(ApiError) as rejected:
            batcher.submit(["c"], GREEDY)
        blocked.gate.set()
        await asyncio.gather(*futures)
        batcher.submit([], GREEDY)  # the queue is empty again
        return rejected.value

    error = asyncio.run(scene())
    assert (error.status_code, error.headers) == (429, {"retry-after": "1"})
    assert error.message == "Slowdown: 2 requests are already queued; retry in 1 s."


def test_the_time_to_retry_follows_from_a_moving_average_of_the_speed(
    blocked: Uppercase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seconds = 0.0, chain([1.0, 4.0], repeat(0.0))

    def process(texts: Sequence[str], options: TranslationOptions) -> list[Translation]:
        nonlocal now
        now += next(seconds)
        return blocked(texts, options)

    cost = search_cost("word", GREEDY)
    monkeypatch.setattr("regard.serving.batching.time.perf_counter", lambda: now)

    async def scene() -> ApiError:
        batcher = make_batcher(process, max_queue=4)
        blocked.gate.set()
        for _ in range(2):
            await batcher.submit(["word"], GREEDY)
        blocked.gate.clear()
        futures = [batcher.submit(["word"], GREEDY) for _ in range(4)]
        with pytest.raises(ApiError) as rejected:
            batcher.submit(["word"], GREEDY)
        blocked.gate.set()
        await asyncio.gather(*futures)
        return rejected.value

    error = asyncio.run(scene())
    speed = 0.8 * cost / 1.0 + 0.2 * cost / 4.0
    assert error.headers == {"retry-after": str(math.ceil(3 * cost / speed))} == {"retry-after": "4"}


def test_cancelled_requests_are_not_processed(blocked: Uppercase) -> None:
    async def scene() -> None:
        batcher = make_batcher(blocked, max_queue=3)
        first, cancelled, last = (batcher.submit([text], GREEDY) for text in "abc")
        cancelled.cancel()
        await asyncio.sleep(0)  # so that callbacks run
        assert not batcher.is_full
        blocked.gate.set()
        assert texts(await last) == ["C"]
        assert texts(await first) == ["A"]
        await batcher.close()

    asyncio.run(scene())
    assert [batch for batch, _ in blocked.batches] == [["a"], ["c"]]


def test_only_the_request_that_causes_an_error_fails(blocked: Uppercase) -> None:
    async def scene() -> list[Any]:
        batcher = make_batcher(blocked)
        futures = [batcher.submit(list(group), GREEDY) for group in (["a"], ["b", "c"], ["d", "bad"], ["e"])]
        blocked.gate.set()
        return await asyncio.gather(*futures, return_exceptions=True)

    first, second, bad, last = asyncio.run(scene())
    assert [texts(first), texts(second), texts(last)] == [["A"], ["B", "C"], ["E"]]
    assert isinstance(bad, ValueError)


def test_a_generation_that_is_closed_before_it_starts_is_never_run() -> None:
    started = list[str]()
    gate = threading.Event()

    def generate(name: str) -> Iterator[TextChunk]:
        started.append(name)
        assert gate.wait(20)
        yield TextChunk(0, name)

    async def scene() -> None:
        pool = GenerationPool("model", Metrics(), workers=1, max_queue=1)
        first, second = (pool.stream(partial(generate, name), 1) for name in ("first", "second"))
        running = [asyncio.ensure_future(anext(stream)) for stream in (first, second)]
        while not started:
            await asyncio.sleep(0.01)
        running[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await running[1]
        gate.set()
        assert (await running[0]).text == "first"
        await first.aclose()  # type: ignore[attr-defined]  # of a generator
        await pool.close()
        await asyncio.sleep(0)
        assert not pool.is_full

    asyncio.run(scene())
    assert started == ["first"]


def test_closing_finishes_accepted_requests(blocked: Uppercase) -> None:
    async def scene() -> TextResult:
        batcher = make_batcher(blocked)
        futures = [batcher.submit([text], GREEDY) for text in "abc"]
        closing = asyncio.ensure_future(batcher.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        blocked.gate.set()
        await closing
        return futures[-1].result()

    assert texts(asyncio.run(scene())) == ["C"]


TEXTS = st.lists(st.integers(4, 28).map("w{}".format), min_size=0, max_size=7).map(" ".join)
OPTIONS = st.sampled_from([GREEDY, BEAM, TranslationOptions(SearchOptions(3, n_best=2), token_scores=True)])
REQUESTS = st.lists(st.tuples(st.lists(TEXTS, max_size=4), OPTIONS), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=20)
@given(requests=REQUESTS, max_cost=st.integers(1, 200), workers=st.integers(1, 2))
def test_a_batched_output_equals_the_single_one(
    loaded_models: list[LoadedModel],
    requests: list[tuple[list[str], TranslationOptions]],
    max_cost: int,
    workers: int,
) -> None:
    model = loaded_models[0]

    async def scene() -> list[TextResult]:
        batcher = make_batcher(model.translate, max_cost=max_cost, workers=workers)
        results = await asyncio.gather(*(batcher.submit(texts, options) for texts, options in requests))
        await batcher.close()
        return results

    for (request_texts, options), result in zip(requests, asyncio.run(scene()), strict=True):
        expected = [model.translate([text], options)[0] for text in request_texts]
        assert texts(result) == [translation.text for translation in expected]
        for batched, single in zip(result.outputs, expected, strict=True):
            for batched_sentence, single_sentence in zip(batched.sentences, single.sentences, strict=True):
                pairs = list(zip(batched_sentence.alternatives, single_sentence.alternatives, strict=True))
                for ours, theirs in pairs:
                    assert ours.tokens == theirs.tokens
                    assert ours.score == pytest.approx(theirs.score, abs=1e-4)
