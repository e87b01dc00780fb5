"""Speculative decoding: the same text as without drafts, in fewer steps of the network."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from family import DECODERS, make
from regard.config import Config, DecoderOnlyConfig, TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.sampling import Sampler, sample_by_inverse_cdf
from regard.decoding.speculative import LookupRow, LookupSampler, PromptLookup
from regard.errors import ConfigError, InputError
from regard.models import Network, build, save
from searches import TOKENS

NAMES = [
    "decoder-only",
    "decoder-only, learned positions",
    "decoder-only, window",
    "decoder-only, multi-query, rotary",
    "decoder-only, relative per head",
]
NETWORKS: dict[str, Network] = {}


def network_of(name: str) -> Network:
    if name not in NETWORKS:
        NETWORKS[name] = make(DECODERS[name])
    return NETWORKS[name]


def short(length: int, lookup: int = 0, **options: Any) -> SamplingOptions:
    return SamplingOptions(constraints=OutputConstraints(max_tokens=length), lookup=lookup, **options)


def plain_texts(name: str, prompts: list[list[int]], sampling: SamplingOptions, window: int | None) -> list[list[int]]:
    sampler = Sampler([network_of(name)], prompts, list(range(len(prompts))), TOKENS, sampling, window)
    while sampler.active:
        sampler.step()
    return [sampler.generated(row) for row in range(len(prompts))]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(
    prompts=st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=9), min_size=1, max_size=3),
    lookup=st.integers(1, 6),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.0, 0.3, 1.0]),
    window=st.sampled_from([None, 7]),
)
def test_texts_are_those_without_drafts(
    name: str, prompts: list[list[int]], lookup: int, seed: int, temperature: float, window: int | None
) -> None:
    options: dict[str, Any] = {"temperature": temperature, "seed": seed, "top_k": 6, "repetition_penalty": 1.1}
    sampling = short(14, lookup, **options)
    rows = [LookupRow([network_of(name)], prompt, n, TOKENS, sampling, window) for n, prompt in enumerate(prompts)]
    session, texts = LookupSampler(rows), [[] for _ in prompts]  # type: ignore[var-annotated]
    while session.active:
        for token in session.step():
            texts[token.row].append(token.token)
    assert texts == plain_texts(name, prompts, short(14, **options), window)
    assert texts == [row.generated(0) for row in rows]


def test_text_that_repeats_itself_takes_fewer_steps() -> None:
    network = network_of("decoder-only")
    prompt = [5, 6]
    sampling = SamplingOptions(temperature=0.0, constraints=OutputConstraints(60, 60), lookup=8)  # ends in a loop
    row = LookupRow([network], prompt, 0, TOKENS, sampling)
    count = 0
    while row.active:
        count += len(row.step())
    assert count == 60
    assert row.network_steps < 40


@settings(max_examples=40)
@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=30), count=st.integers(1, 5), split=st.integers(1, 30))
def test_a_draft_follows_the_last_occurrence_of_the_longest_ngram(text: list[int], count: int, split: int) -> None:
    lookup = PromptLookup(max_ngram=3)
    lookup.draft(text[:split], count)
    expected: list[int] = []
    for size in (3, 2, 1):
        starts = [n + size for n in range(len(text) - size) if text[n : n + size] == text[-size:]]
        if starts and size <= len(text):
            expected = text[starts[-1] : starts[-1] + count]
            break
    assert lookup.draft(text, count) == expected


def test_following_a_draft_that_was_sampled_is_the_rejection_rule() -> None:
    """P(t) = p(d)·[t = d] + (1 − p(d)) · (p without d, renormalized) is p, and so is the share of draws that give t."""
    p = torch.tensor([0.1, 0.45, 0.05, 0.4], dtype=torch.double)
    for drafted in range(4):
        q = torch.zeros(4, dtype=torch.double)
        q[drafted] = 1
        accepted = torch.minimum(torch.ones(()), p / q.clamp(min=1e-300)) * q
        residual = (p - q).clamp(min=0)
        torch.testing.assert_close(accepted + (1 - accepted.sum()) * residual / residual.sum(), p)
    draws = (torch.arange(2000, dtype=torch.double) + 0.5) / 2000
    counts = Counter(sample_by_inverse_cdf(p.expand(2000, 4), draws).tolist())
    assert [counts[token] / 2000 for token in range(4)] == pytest.approx(p.tolist(), abs=1e-3)


@pytest.mark.slow
def test_two_tokens_have_their_exact_joint_distribution() -> None:
    network, prompt, draws = network_of("decoder-only"), [5, 6, 5], 400
    hidden = [TOKENS.pad, TOKENS.start]
    first = network(torch.tensor([prompt]))[0, -1].detach()
    first[hidden] = -math.inf
    exact = {}
    for token, share in enumerate(first.div(0.5).softmax(-1).tolist()):
        second = network(torch.tensor([[*prompt, token]]))[0, -1].detach()
        second[hidden] = -math.inf
        for other, part in enumerate(second.div(0.5).softmax(-1).tolist()):
            exact[token, other] = 0.0 if token == TOKENS.end else share * part
    counts: Counter[tuple[int, ...]] = Counter()
    for stream in range(draws):
        row = LookupRow([network], prompt, stream, TOKENS, short(2, 3, temperature=0.5))
        while row.active:
            row.step()
        counts[tuple(row.generated(0))] += 1
    for pair, share in exact.items():
        assert abs(counts[pair] / draws - share) < 0.08  # more than 3 standard deviations of any share


def test_what_cannot_be_drafted_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"lookup is 17; it should be 0 \(no drafts\) to 16"):
        SamplingOptions(lookup=17)
    recurrent = make(DECODERS["recurrent language model, GRU"])
    with pytest.raises(InputError, match="lookup = 0"):
        LookupRow([recurrent], [5, 6, 5, 6], 0, TOKENS, short(20, 3))


def test_the_keyword_changes_no_text_and_needs_torch(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["one two three four five"] * 5, TokenizerConfig(), 300)
    settings = DecoderOnlyConfig(vocab_size=len(tokenizer), width=16, layers=1, heads=2, feed_forward=32)
    config = Config(model=settings)
    save(tmp_path / "gpt", build(settings), config, extra_files={"tokenizer.json": tokenizer.to_json()})
    model = regard.load(tmp_path / "gpt")
    arguments: dict[str, Any] = {"max_tokens": 30, "seed": 3, "temperature": 0.5}
    prompts = ["one two three one two", "five"]
    assert model.generate(prompts, lookup=4, **arguments) == model.generate(prompts, **arguments)
    first = model.generate(prompts[0], engine="torch", **arguments)
    stop = first[8:10]
    assert model.generate(prompts[0], lookup=4, stop=[stop], **arguments) == first[: first.index(stop)]
    with pytest.raises(ConfigError, match="the engine ctranslate2 cannot be used because lookup is set"):
        model.generate("one", lookup=2, engine="ctranslate2")
