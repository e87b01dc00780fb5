"""Requests that share the work get what they would have got alone, in time, and nobody is forgotten."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.options import OutputConstraints, SearchOptions, TranslationOptions
from regard.decoding.results import Translation
from regard.serving import batching
from regard.serving.batching import Batcher as AnyBatcher
from regard.serving.batching import BatchResult as AnyDone
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel
from regard.serving.metrics import Metrics

Batcher = AnyBatcher[str, TranslationOptions, Translation]
BatchResult = AnyDone[Translation]
FOREVER = 1e6  # seconds
GREEDY, BEAM = TranslationOptions(SearchOptions(width=1)), TranslationOptions(SearchOptions(width=4))


class Shouting:
    """Translates into capitals, and keeps what it was given; it works only while its gate is open."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[str], TranslationOptions]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts: Sequence[str], wish: TranslationOptions) -> list[Translation]:
        self.batches.append((list(texts), wish))
        assert self.gate.wait(20)
        if "bad" in texts:
            raise ValueError("bad")
        return [Translation(text, text.upper(), []) for text in texts]


def batcher(carry_out: Any, *, workers: int = 1, queue: int = 100, budget: int = 10_000) -> Batcher:
    return Batcher("model", carry_out, Metrics(), workers=workers, queue=queue, budget=budget)


def texts(done: BatchResult) -> list[str]:
    return [translation.text for translation in done.answers]


def test_a_lone_request_is_begun_at_once() -> None:
    shouting = Shouting()

    async def scene() -> BatchResult:
        return await batcher(shouting).submit(["a", "b"], GREEDY)

    done = asyncio.run(scene())
    assert texts(done) == ["A", "B"]
    assert done.together == 2
    assert shouting.batches == [(["a", "b"], GREEDY)]


def test_what_arrives_while_all_are_busy_is_translated_together() -> None:
    shouting = Shouting()
    shouting.gate.clear()

    async def scene() -> list[BatchResult]:
        one = batcher(shouting)
        waiting = [one.submit([text], GREEDY) for text in "abcde"]
        shouting.gate.set()
        return await asyncio.gather(*waiting)

    found = asyncio.run(scene())
    assert [texts(done) for done in found] == [["A"], ["B"], ["C"], ["D"], ["E"]]
    assert [batch for batch, _ in shouting.batches] == [["a"], ["b", "c", "d", "e"]]
    assert [done.together for done in found] == [1, 4, 4, 4, 4]


class TestGrace:
    """A few milliseconds are waited where the last batch was shared, and nowhere else."""

    def test_a_shared_batch_is_followed_by_one_that_waits_for_company(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batching, "GRACE", FOREVER)
        shouting = Shouting()
        shouting.gate.clear()

        async def scene() -> list[BatchResult]:
            one = batcher(shouting, budget=10)
            waiting = [one.submit([text], GREEDY) for text in "abc"]
            shouting.gate.set()
            await asyncio.gather(*waiting)
            waiting = [one.submit(["d"], GREEDY)]
            assert one._running == 0, "it waits, though the worker is free"
            waiting.append(one.submit(["e" * 36], GREEDY))  # 1 token and 10 of them: more company would not fit
            return await asyncio.gather(*waiting)

        found = asyncio.run(scene())
        assert [texts(done) for done in found] == [["D"], ["E" * 36]]
        assert [batch for batch, _ in shouting.batches] == [["a"], ["b", "c"], ["d"], ["e" * 36]]

    def test_of_several_workers_another_one_must_be_busy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batching, "GRACE", FOREVER)
        shouting = Shouting()
        shouting.gate.clear()

        async def scene() -> list[BatchResult]:
            one = batcher(shouting, workers=2)
            one._shared = True
            waiting = [one.submit(["a"], GREEDY)]
            assert one._running == 1, "all were free, so it is begun at once"
            waiting.append(one.submit(["b"], GREEDY))
            assert one._running == 1, "it waits for company"
            shouting.gate.set()
            return await asyncio.gather(*waiting)

        assert [texts(done) for done in asyncio.run(scene())] == [["A"], ["B"]]

    def test_who_waits_alone_does_not_wait_for_long(self) -> None:
        shouting = Shouting()
        shouting.gate.clear()

        async def scene() -> BatchResult:
            one = batcher(shouting)
            waiting = [one.submit([text], GREEDY) for text in "abc"]
            shouting.gate.set()
            await asyncio.gather(*waiting)
            return await one.submit(["d"], GREEDY)

        assert texts(asyncio.run(scene())) == ["D"]

    def test_without_load_nobody_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batching, "GRACE", FOREVER)
        shouting = Shouting()

        async def scene() -> None:
            one = batcher(shouting)
            for text in "abc":
                waiting = one.submit([text, text], GREEDY)
                assert one._running == 1
                await waiting

        asyncio.run(scene())
        assert [batch for batch, _ in shouting.batches] == [["a", "a"], ["b", "b"], ["c", "c"]]


def test_only_equal_wishes_go_together_and_the_oldest_goes_first() -> None:
    shouting = Shouting()
    shouting.gate.clear()

    async def scene() -> None:
        one = batcher(shouting)
        asked = [("a", GREEDY), ("b", BEAM), ("c", GREEDY), ("d", BEAM)]
        waiting = [one.submit([text], wish) for text, wish in asked]
        shouting.gate.set()
        await asyncio.gather(*waiting)

    asyncio.run(scene())
    assert shouting.batches == [(["a"], GREEDY), (["b", "d"], BEAM), (["c"], GREEDY)]


def test_a_batch_holds_about_its_budget_and_at_least_one_text() -> None:
    shouting = Shouting()

    async def scene() -> BatchResult:
        # by the rough count a token has four characters: these are 2, 2, 2, 26 and 2 tokens
        return await batcher(shouting, budget=4).submit(["aaaa", "bbbb", "cccc", "d" * 100, "eeee"], GREEDY)

    assert texts(asyncio.run(scene())) == ["AAAA", "BBBB", "CCCC", "D" * 100, "EEEE"]
    assert [batch for batch, _ in shouting.batches] == [["aaaa", "bbbb"], ["cccc"], ["d" * 100], ["eeee"]]


def test_no_texts_are_answered_with_none() -> None:
    async def scene() -> BatchResult:
        return await batcher(Shouting()).submit([], GREEDY)

    assert texts(asyncio.run(scene())) == []


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    shouting = Shouting()
    shouting.gate.clear()

    async def scene() -> ApiError:
        one = batcher(shouting, queue=2)
        waiting = [one.submit([text], GREEDY) for text in "ab"]
        assert one.full
        with pytest.raises(ApiError) as refusal:
            one.submit(["c"], GREEDY)
        shouting.gate.set()
        await asyncio.gather(*waiting)
        one.submit([], GREEDY)  # there is room again
        return refusal.value

    refusal = asyncio.run(scene())
    assert (refusal.status, refusal.headers) == (429, {"retry-after": "1"})
    assert refusal.sentence == "Slowdown: 2 requests are waiting already; try again in 1 s."


def test_what_nobody_waits_for_any_more_is_not_translated() -> None:
    shouting = Shouting()
    shouting.gate.clear()

    async def scene() -> None:
        one = batcher(shouting, queue=3)
        first, gone, last = (one.submit([text], GREEDY) for text in "abc")
        gone.cancel()
        await asyncio.sleep(0)  # for the loop to tell
        assert not one.full
        shouting.gate.set()
        assert texts(await last) == ["C"]
        assert texts(await first) == ["A"]
        await one.close()

    asyncio.run(scene())
    assert [batch for batch, _ in shouting.batches] == [["a"], ["c"]]


def test_one_bad_request_fails_alone() -> None:
    shouting = Shouting()
    shouting.gate.clear()

    async def scene() -> list[Any]:
        one = batcher(shouting)
        waiting = [one.submit(list(group), GREEDY) for group in (["a"], ["b", "c"], ["d", "bad"], ["e"])]
        shouting.gate.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    first, second, bad, last = asyncio.run(scene())
    assert [texts(first), texts(second), texts(last)] == [["A"], ["B", "C"], ["E"]]
    assert isinstance(bad, ValueError)


def test_closing_finishes_what_was_accepted() -> None:
    shouting = Shouting()
    shouting.gate.clear()

    async def scene() -> BatchResult:
        one = batcher(shouting)
        waiting = [one.submit([text], GREEDY) for text in "abc"]
        closing = asyncio.ensure_future(one.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        shouting.gate.set()
        await closing
        return waiting[-1].result()

    assert texts(asyncio.run(scene())) == ["C"]


WORDS = st.lists(st.integers(4, 28).map("w{}".format), min_size=0, max_size=7).map(" ".join)
WISHES = st.sampled_from([GREEDY, BEAM, TranslationOptions(SearchOptions(width=3, hypotheses=2), scored=True)])
REQUESTS = st.lists(st.tuples(st.lists(WORDS, max_size=4), WISHES), min_size=1, max_size=8)


@settings(max_examples=20)
@given(requests=REQUESTS, budget=st.integers(1, 200), workers=st.integers(1, 2))
def test_a_batched_answer_equals_the_solo_answer(
    models: list[LoadedModel], requests: list[tuple[list[str], TranslationOptions]], budget: int, workers: int
) -> None:
    model = models[0]

    async def scene() -> list[BatchResult]:
        one = batcher(model.translate, budget=budget, workers=workers)
        found = await asyncio.gather(*(one.submit(texts, wish) for texts, wish in requests))
        await one.close()
        return found

    for (asked, wish), done in zip(requests, asyncio.run(scene()), strict=True):
        solo = [model.translate([text], wish)[0] for text in asked]
        assert texts(done) == [one.text for one in solo]
        for ours, alone in zip(done.answers, solo, strict=True):
            for mine, single in zip(ours.sentences, alone.sentences, strict=True):
                assert [one.tokens for one in mine.alternatives] == [one.tokens for one in single.alternatives]
                assert [one.score for one in mine.alternatives] == pytest.approx(
                    [one.score for one in single.alternatives], abs=1e-4
                )


def test_who_wants_long_answers_to_short_texts_is_not_taken_for_modest() -> None:
    shouting = Shouting()

    async def scene() -> BatchResult:
        return await batcher(shouting, budget=100).submit(
            ["a", "b"], TranslationOptions(SearchOptions(1, bounds=OutputConstraints(shortest=60)))
        )

    assert texts(asyncio.run(scene())) == ["A", "B"]
    assert [batch for batch, _ in shouting.batches] == [["a"], ["b"]]
