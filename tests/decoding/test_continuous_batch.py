"""Each text in a running batch is the one that it would be alone, whatever other rows join and leave."""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from family import DECODERS, RECURRENT, VOCABULARY
from random_models import random_network
from regard.api import generation
from regard.decoding import continuous_batch, prefix_cache, row_decoders
from regard.decoding.continuous_batch import ContinuousBatch, RequestRows, Row
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.prefix_cache import PrefixCache
from regard.decoding.results import SampledToken
from regard.decoding.row_decoders import CohortDecoder
from regard.decoding.sampling import Sampler
from regard.models import Network
from regard.nn.cpu import row_cache
from searches import TOKENS

PLAIN, LEARNED = "decoder-only", "decoder-only, learned positions"
KINDS = [PLAIN, LEARNED, "decoder-only, multi-query, rotary", "decoder-only, window", "recurrent language model, LSTM"]
WINDOW = 12


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "MIN_CAPACITY", 4)
    monkeypatch.setattr(prefix_cache, "BLOCK_TOKENS", 4)
    monkeypatch.setattr(continuous_batch, "BLOCK_TOKENS", 4)


@cache
def network_of(kind: str, seed: int = 0) -> Network:
    return random_network(DECODERS[kind], seed)


def new_batch(*kinds: str, rows: int = 3, window: int | None = WINDOW, stored: int | None = None) -> ContinuousBatch:
    networks = [network_of(kind, seed) for seed, kind in enumerate(kinds)]
    prefixes = None if stored is None else PrefixCache(stored)
    return ContinuousBatch(networks, TOKENS, max_rows=rows, window=window, prefix_cache=prefixes)


def join(batch: ContinuousBatch, sampling: SamplingOptions, *prompts: Sequence[int], samples: int = 1) -> RequestRows:
    group = RequestRows(sampling, TOKENS)
    rows = [(prompt, sample) for prompt in prompts for sample in range(samples)]
    batch.add(group, [prompt for prompt, _ in rows], [sample for _, sample in rows])
    return group


def short(length: int = 8, **settings: Any) -> SamplingOptions:
    constraints = {name: settings.pop(name) for name in ("min_tokens", "logits_processors") if name in settings}
    return SamplingOptions(constraints=OutputConstraints(max_tokens=length, **constraints), **settings)


def finish(batch: ContinuousBatch) -> list[tuple[Row, SampledToken]]:
    sampled = []
    while batch.running or batch.waiting:
        sampled += batch.step()
    return sampled


def texts_of(group: RequestRows) -> list[list[int]]:
    return [row.text[row.prompt_length :] for row in group.rows]


def random_request(numbers: random.Random) -> tuple[SamplingOptions, list[list[int]], int]:
    """Return options, prompts and the number of samples."""
    prompts = [[numbers.randrange(4, VOCABULARY) for _ in range(numbers.randrange(1, 18))]]
    prompts += [[numbers.randrange(4, VOCABULARY)] for _ in range(numbers.choice([0, 0, 1]))]
    filters: dict[str, Any] = numbers.choice([{}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}])
    sampling = short(
        numbers.randrange(1, 14),
        temperature=numbers.choice([0.0, 1.0, 0.7]),
        repetition_penalty=numbers.choice([1.0, 1.5]),
        seed=numbers.randrange(5),
        top_logprobs=numbers.choice([None, 0, 2]),
        min_tokens=numbers.choice([0, 0, 1]),
        **filters,
    )
    return sampling, prompts, numbers.choice([1, 1, 2, 4])


@settings(max_examples=12)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**20), rows=st.integers(1, 5), stored=st.booleans())
def test_every_text_is_the_one_that_it_would_be_alone(kind: str, seed: int, rows: int, stored: bool) -> None:
    numbers = random.Random(seed)
    requests = [random_request(numbers) for _ in range(7)]
    batch = new_batch(kind, rows=rows, stored=10**6 if stored else None)
    groups: list[RequestRows] = []
    tokens: dict[Row, list[SampledToken]] = {}
    closed: set[Row] = set()
    while len(groups) < len(requests) or batch.running or batch.waiting:
        while len(groups) < len(requests) and numbers.random() < 0.3:
            sampling, prompts, samples = requests[len(groups)]
            groups.append(join(batch, sampling, *prompts, samples=samples))
        for row, token in batch.step():
            assert row.is_active or row not in closed
            tokens.setdefault(row, []).append(token)
        assert batch.running <= rows
        active = [row for group in groups for row in group.rows if row.is_active]
        if active and numbers.random() < 0.1:
            row = numbers.choice(active)
            batch.close([row])
            closed.add(row)
    for group, (sampling, prompts, samples) in zip(groups, requests, strict=True):
        for place, row in enumerate(group.rows):
            alone = new_batch(kind, rows=1, stored=10**6 if stored else None)
            single = RequestRows(sampling, TOKENS)
            alone.add(single, [prompts[place // samples]], [place % samples])
            expected = [token for _, token in finish(alone)]
            found = tokens.get(row, [])
            assert [token.token for token in found] == [token.token for token in expected][: len(found)]
            assert row in closed or len(found) == len(expected)
            for one, other in zip(found, expected, strict=False):
                assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
                assert [candidate.token for candidate in one.candidates] == [
                    candidate.token for candidate in other.candidates
                ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_texts_are_those_of_the_sampler(kind: str, temperature: float) -> None:
    sampling = short(20, temperature=temperature, seed=3)
    prompts = [[5, 6, 7], [8], list(range(4, 20))]
    batch = new_batch(kind, rows=4)
    group = join(batch, sampling, *prompts, samples=2)
    finish(batch)
    for row, text in zip(group.rows, texts_of(group), strict=True):
        sampler = Sampler(
            [network_of(kind)], [row.text[: row.prompt_length]], [row.number % 2], TOKENS, sampling, WINDOW
        )
        while sampler.active:
            sampler.step()
        assert text == sampler.generated(0)
        assert (row.dropped > 0) == bool(sampler.truncated)


def test_the_reference_decoder_gives_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def texts() -> list[list[int]]:
        batch = new_batch(LEARNED, PLAIN, rows=3)
        groups = [join(batch, short(10, temperature=0.8), [5, 6, n], samples=2) for n in (7, 8)]
        batch.step()
        batch.close([groups[0].rows[1]])
        finish(batch)
        return [text for group in groups for text in texts_of(group)]

    fast = texts()
    monkeypatch.setattr(continuous_batch, "new_row_decoder", lambda _: CohortDecoder())
    assert texts() == fast
    assert isinstance(row_decoders.new_row_decoder([network_of(next(iter(RECURRENT)))]), CohortDecoder)


def test_rows_start_in_the_order_in_which_they_came() -> None:
    batch = new_batch(PLAIN, rows=2)
    groups = [join(batch, short(3 + n, temperature=0.0, min_tokens=3 + n), [5 + n]) for n in range(5)]
    started: list[Row] = []
    for row, _ in finish(batch):
        if row not in started:
            started.append(row)
            waiting = sum(group.rows[0] not in started for group in groups)
            assert batch.waiting <= waiting
    assert started == [group.rows[0] for group in groups]
    assert [len(text) for group in groups for text in texts_of(group)] == [3, 4, 5, 6, 7]


def test_a_long_prompt_does_not_stop_the_others() -> None:
    batch = new_batch(PLAIN, window=None)
    running = join(batch, short(40, temperature=0.0, min_tokens=40), [5])
    batch.step()
    long = join(batch, short(5), [5, 6] * 10)  # five blocks
    for step in range(5):
        sampled = batch.step()
        assert [row for row, _ in sampled][:1] == running.rows
        assert len(sampled) == (2 if step == 4 else 1)
    assert len(texts_of(long)[0]) == 1


def test_a_row_that_is_closed_makes_room() -> None:
    batch = new_batch(PLAIN, rows=1)
    first, second, third = (join(batch, short(30, min_tokens=30), [5]) for _ in range(3))
    batch.step()
    assert (batch.running, batch.waiting) == (1, 2)
    batch.close(second.rows)  # it was waiting
    assert (batch.running, batch.waiting) == (1, 1)
    batch.close(first.rows)
    batch.close(first.rows)  # again
    assert (batch.running, batch.waiting) == (0, 1)
    assert {row for row, _ in batch.step()} == set(third.rows)
    assert not first.is_active
    assert not second.is_active


def test_prompts_that_begin_alike_are_read_once() -> None:
    batch = new_batch(PLAIN, window=None, stored=10**6)
    prompt = [*range(4, 14)]
    first = join(batch, short(2), prompt, samples=3)
    finish(batch)
    again = join(batch, short(2), prompt, [*prompt, 5])
    finish(batch)
    assert [row.cached_tokens for row in [*first.rows, *again.rows]] == [0, 0, 0, 8, 8]


def test_an_error_of_a_processor_ends_its_request_alone() -> None:
    def fail(logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        if generated.size(1) == 4:
            raise ValueError("no")

    batch = new_batch(PLAIN)
    good = join(batch, short(8, temperature=0.0, min_tokens=8), [5])
    bad = join(batch, short(8, logits_processors=(fail,)), [6, 7], samples=2)
    finish(batch)
    assert str(bad.error) == "no"
    assert [len(text) for text in texts_of(bad)] == [2, 2]
    assert good.error is None
    assert [len(text) for text in texts_of(good)] == [8]


def test_processors_know_which_row_of_a_request_they_change() -> None:
    seen: set[tuple[int, int]] = set()

    def record(logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        seen.add((int(sentences), int(generated[0, 0])))

    batch = new_batch(PLAIN)
    join(batch, short(2, logits_processors=(record,)), [5, 9], [6, 9])
    finish(batch)
    assert seen == {(0, 5), (1, 6)}


def test_a_batch_keeps_no_tensors_of_rows_that_have_left() -> None:
    batch = new_batch(PLAIN)
    group = join(batch, short(4), [5, 6])
    finish(batch)
    assert group.rows[0].reader is None
    assert not batch._decoder.rows
    (decoder,) = batch._decoder._batches  # type: ignore[attr-defined]
    assert not decoder._groups
    assert torch.is_inference_mode_enabled() is False


def test_the_python_api_generates_in_a_batch(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MAX_BATCH_ROWS", 3)
    sizes: list[int] = []
    step = ContinuousBatch.step

    def record(batch: ContinuousBatch) -> Any:
        sampled = step(batch)
        sizes.append(batch.running)
        return sampled

    monkeypatch.setattr(ContinuousBatch, "step", record)
    model = regard.load(writer)
    prompts = ["w5 w6", "w7", "", "w8 w9 w10 w11", "w12"]
    options: dict[str, Any] = {"max_tokens": 12, "top_k": 6, "seed": 2, "engine": "torch"}
    texts = model.generate(prompts, **options)
    assert max(sizes) == 3
    assert texts == [model.generate(prompt, **options) for prompt in prompts]
    steps = len(sizes)
    assert model.generate("w5 w6", lookup=3, **options) == texts[0]  # with steps of its own
    assert len(sizes) == steps
