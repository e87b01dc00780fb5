"""Prompts that reuse stored keys and values give exactly the same logits and texts, in bounded memory."""

from functools import cache

import pytest

from family import DECODERS, RECURRENT
from random_models import random_network
from regard.config import ModelConfig, SpecialTokensConfig
from regard.decoding import prefix_cache
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.prefix_cache import PrefixCache
from regard.decoding.results import SampledToken
from regard.decoding.sampling import Sampler
from regard.models import Network

TOKENS = SpecialTokensConfig()
SAMPLING = SamplingOptions(temperature=0.8, seed=3, constraints=OutputConstraints(max_tokens=8))


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "BLOCK_TOKENS", 4)


def conversation() -> list[list[int]]:
    """Prompts, each of which begins with the one before."""
    ids = [TOKENS.start, *(4 + n * n % 15 for n in range(22))]
    return [ids[:9], ids[:17], ids]


def generated(
    model: ModelConfig, prompt: list[int], prefixes: PrefixCache | None, rows: int = 1
) -> tuple[Sampler, list[SampledToken]]:
    sampler = Sampler([network_of(model)], [prompt] * rows, list(range(rows)), TOKENS, SAMPLING, prefix_cache=prefixes)
    tokens: list[SampledToken] = []
    while sampler.active:
        tokens += sampler.step()
    return sampler, tokens


@cache
def network_of(model: ModelConfig) -> Network:
    return random_network(model)


@pytest.mark.parametrize("kind", [name for name, model in DECODERS.items() if model.generates])
def test_stored_beginnings_change_no_number(kind: str) -> None:
    stored = PrefixCache(10**9)
    for prompt in conversation():
        (with_stored, tokens), (alone, expected) = (
            generated(DECODERS[kind], prompt, prefixes, rows=2) for prefixes in (stored, PrefixCache(10**9))
        )
        assert tokens == expected  # with their log-probabilities, to the last bit
        assert alone.cached_tokens == 0
        (_, plain) = generated(DECODERS[kind], prompt, None, rows=2)
        assert [token[:2] for token in tokens] == [token[:2] for token in plain]
        reused = 0 if kind in RECURRENT else {9: 0, 17: 8, 23: 16}[len(prompt)]  # whole blocks of the prompt before
        assert with_stored.cached_tokens == reused


def test_memory_is_bounded_and_the_last_used_prompts_stay() -> None:
    model = DECODERS["decoder-only, multi-query, rotary"]
    first, second = [2, *range(4, 20)], [3, *range(4, 20)]
    probe = PrefixCache(10**9)
    probe.encode([network_of(model)], first)
    assert len(probe) == 4
    block = probe.num_bytes // 4
    stored = PrefixCache(6 * block)
    for prompt in (first, second):
        stored.encode([network_of(model)], prompt)
    assert (len(stored), stored.num_bytes) == (6, 6 * block)
    assert stored.encode([network_of(model)], second)[2] == 16
    assert stored.encode([network_of(model)], first)[2] == 8  # its last blocks went first
    assert PrefixCache(0).encode([network_of(model)], first)[2] == 0
    tiny = PrefixCache(block - 1)
    tiny.encode([network_of(model)], first)
    assert (len(tiny), tiny.num_bytes) == (0, 0)


def test_a_session_does_not_change_what_is_stored() -> None:
    model = DECODERS["decoder-only, multi-query, rotary"]
    stored, prompt = PrefixCache(10**9), [2, *range(4, 13)]
    runs = [generated(model, prompt, stored)[1] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


def test_a_prompt_longer_than_the_window_is_not_stored() -> None:
    stored = PrefixCache(10**9)
    network = network_of(DECODERS["decoder-only, multi-query, rotary"])
    sampler = Sampler([network], [[2, *range(4, 20)]], [0], TOKENS, SAMPLING, window=10, prefix_cache=stored)
    assert len(stored) == 0
    assert sampler.truncated == {0}
