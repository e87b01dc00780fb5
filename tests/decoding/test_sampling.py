"""Sampling: draws follow the network's distribution, and every text goes on as it would alone."""

import math
from collections import Counter
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from family import DECODERS, make
from regard.decoding.logits_processors import RepetitionPenalty
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.sampling import Sampler, filter_logits, sample_by_inverse_cdf
from regard.errors import ConfigError
from searches import TOKENS

LEARNED = "decoder-only, learned positions"


def written(
    prompts: list[list[int]],
    sampling: SamplingOptions,
    *,
    name: str = "decoder-only",
    streams: list[int] | None = None,
    window: int | None = None,
) -> list[list[int]]:
    writer = Sampler([make(DECODERS[name])], prompts, streams or [0] * len(prompts), TOKENS, sampling, window)
    while writer.active:
        writer.step()
    return [writer.generated(row) for row in range(len(prompts))]


def short(length: int = 8, **settings: Any) -> SamplingOptions:
    return SamplingOptions(constraints=OutputConstraints(max_tokens=length), **settings)


def test_draws_follow_the_networks_distribution() -> None:
    prompt, draws = [5, 6, 7], 2000
    logits = make(DECODERS["decoder-only"])(torch.tensor([prompt]))[0, -1].detach()
    logits[[TOKENS.pad, TOKENS.start]] = -math.inf
    found = Counter(ids[0] for ids in written([prompt] * draws, short(1), streams=list(range(draws))))
    wanted = logits.softmax(-1).tolist()
    assert max(abs(found[token] / draws - share) for token, share in enumerate(wanted)) < 0.04


def test_a_temperature_of_zero_takes_the_most_probable_token() -> None:
    (cold,) = written([[5, 6]], short(temperature=0.0))
    text = [5, 6]
    for token in cold:
        logits = make(DECODERS["decoder-only"])(torch.tensor([text]))[0, -1]
        logits[[TOKENS.pad, TOKENS.start]] = -math.inf
        assert token == int(logits.argmax())
        text.append(token)


def test_a_seed_repeats_and_streams_differ() -> None:
    prompts = [[5, 6]] * 3
    first = written(prompts, short(12, seed=1), streams=[0, 1, 2])
    assert first == written(prompts, short(12, seed=1), streams=[0, 1, 2])
    assert first != written(prompts, short(12, seed=2), streams=[0, 1, 2])
    assert len({tuple(ids) for ids in first}) == 3


@pytest.mark.slow
@settings(max_examples=15)
@given(
    prompts=st.lists(st.lists(st.integers(4, 20), min_size=1, max_size=9), min_size=2, max_size=4),
    name=st.sampled_from(["decoder-only", LEARNED, "recurrent language model, LSTM"]),
    window=st.sampled_from([None, 6]),
)
def test_prompts_of_unequal_length_go_on_as_each_does_alone(
    prompts: list[list[int]], name: str, window: int | None
) -> None:
    sampling = short(10, temperature=0.7, repetition_penalty=1.3, no_repeat_ngram=3)
    together = written(prompts, sampling, name=name, window=window)
    assert together == [written([prompt], sampling, name=name, window=window)[0] for prompt in prompts]


def test_a_text_that_outgrows_the_window_loses_its_beginning_and_says_so() -> None:
    network = make(DECODERS[LEARNED])  # 40 positions
    prompts = [list(range(4, 20)) * 2, [5]]
    sampling = SamplingOptions(temperature=0.0, constraints=OutputConstraints(min_tokens=30, max_tokens=30))
    writer = Sampler([network], prompts, [0, 0], TOKENS, sampling, 40)
    while writer.active:
        for row, token, *_ in writer.step():
            assert token != TOKENS.pad
            if row == 0 and len(writer.generated(0)) == 9:  # 41 tokens: the last one was drawn after a window of 40
                assert writer.truncated == {0}
    assert writer.truncated == {0}
    text = [*prompts[0], *writer.generated(0)]
    logits = network(torch.tensor([text[11:41]]))[0, -1]  # three quarters of the window are kept
    logits[[TOKENS.pad, TOKENS.start]] = -math.inf
    assert text[41] == int(logits.argmax())


def left_by_definition(logits: list[float], top_k: int | None, top_p: float | None, min_p: float | None) -> set[int]:
    """One filter after the other, on what is left."""
    left = sorted(range(len(logits)), key=lambda n: -logits[n])[: top_k or len(logits)]
    if top_p is not None and top_p < 1:
        total = sum(math.exp(logits[n]) for n in left)
        sums = list(accumulate((math.exp(logits[n]) / total for n in left), initial=0.0))
        left = [n for n, before in zip(left, sums, strict=False) if before < top_p]
    if min_p is not None:
        left = [n for n in left if math.exp(logits[n] - logits[left[0]]) >= min_p]
    return set(left)


@settings(max_examples=60)
@given(
    logits=st.lists(st.integers(-20, 20), min_size=4, max_size=12, unique=True),
    top_k=st.none() | st.integers(1, 12),
    top_p=st.none() | st.sampled_from([0.123, 0.456, 0.789, 0.9, 1.0]),
    min_p=st.none() | st.sampled_from([0.0123, 0.0456, 0.345]),
)
def test_filters_leave_what_their_definitions_say(
    logits: list[int], top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    values = [number / 3.3 for number in logits]
    found = filter_logits(
        torch.tensor([values], dtype=torch.double), SamplingOptions(top_k=top_k, top_p=top_p, min_p=min_p)
    )[0]
    left = {n for n, value in enumerate(found.tolist()) if value > -math.inf}
    assert left == left_by_definition(values, top_k, top_p, min_p)


@settings(max_examples=50)
@given(
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda some: sum(some) > 0.1),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_a_token_without_probability_is_never_drawn(weights: list[float], draw: float) -> None:
    shares = torch.tensor([weights], dtype=torch.float32)
    (token,) = sample_by_inverse_cdf(shares / shares.sum(), torch.tensor([draw], dtype=torch.double)).tolist()
    assert weights[token] > 0


def test_no_sequence_comes_twice() -> None:
    for size in (1, 2, 3):
        (ids,) = written([[5, 6, 5]], short(14, temperature=0.0, no_repeat_ngram=size))
        text = [5, 6, 5, *ids]
        runs = [tuple(text[n : n + size]) for n in range(len(text) - size + 1)]
        assert len(runs) == len(set(runs)) or (size == 1 and len(set(runs)) == len(runs) - 1)  # the prompt's own 5 5


def test_a_repetition_penalty_makes_what_was_written_less_probable() -> None:
    plain, penalised = (written([[5, 6]], short(20, temperature=0.0, repetition_penalty=p))[0] for p in (1.0, 5.0))
    assert len(set(penalised)) > len(set(plain))


def test_lengths_and_forbidden_words_are_kept() -> None:
    sampling = SamplingOptions(
        constraints=OutputConstraints(min_tokens=6, max_tokens=9, suppressed_sequences=((7,), (8, 9)))
    )
    for ids in written([[5, 6]] * 40, sampling, streams=list(range(40))):
        assert 6 <= len([token for token in ids if token != TOKENS.end]) <= 9
        assert 7 not in ids
        assert (8, 9) not in pairwise(ids)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"temperature": -1.0}, "temperature is -1.0; it should be 0 to 100."),
        ({"top_k": 0}, "top_k is 0; it should be 1 or more."),
        ({"top_p": 0.0}, "top_p is 0.0; it should be greater than 0 and at most 1."),
        ({"min_p": 1.5}, "min_p is 1.5; it should be greater than 0 and at most 1."),
        (
            {"repetition_penalty": 0.0},
            "repetition_penalty is 0.0; it should be 0.01 to 100, where 1 means none.",
        ),
        ({"no_repeat_ngram": 0}, "no_repeat_ngram is 0; it should be 1 or more."),
    ],
)
def test_sampling_that_makes_no_sense_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        SamplingOptions(**wrong)
    assert str(error.value) == sentence


def test_a_repetition_penalty_lowers_positive_and_negative_logits() -> None:
    logits = torch.tensor([[2.0, -2.0, 0.5, -0.5]])
    RepetitionPenalty(2.0)(logits, torch.tensor([[0, 1, 0]]), torch.tensor([0]))
    assert logits.tolist() == [[1.0, -4.0, 0.5, -0.5]]


def test_top_p_keeps_the_token_that_reaches_it_and_none_after() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.double).log()
    for top_p, count in ((0.5, 1), (0.500001, 2), (0.75, 2), (0.76, 3), (1e-9, 1)):
        assert int(filter_logits(logits, SamplingOptions(top_p=top_p)).isfinite().sum()) == count


def test_a_draw_next_to_one_takes_the_last_possible_token() -> None:
    probabilities = torch.tensor([[0.1, 0.3, 0.6, 0.0, 0.0]]).repeat(2, 1)
    largest = torch.tensor([1 - 2**-53, 1.0], dtype=torch.double)  # rounding may even make it 1
    assert sample_by_inverse_cdf(probabilities, largest).tolist() == [2, 2]


def test_rows_of_a_batch_draw_from_their_own_streams() -> None:
    together = written([[5, 6], [5, 6]], short(12, seed=3), streams=[4, 9])
    assert together == [written([[5, 6]], short(12, seed=3), streams=[stream])[0] for stream in (4, 9)]
    assert together[0] != together[1]
