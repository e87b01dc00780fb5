"""Rows that join and leave a batch have the logits of the whole network for each of them alone."""

import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from family import DECODERS, VOCABULARY, make
from random_models import random_network
from regard.config import AlibiPositionsConfig, DecoderOnlyConfig, RotaryPositionsConfig
from regard.models import Network
from regard.models.network import NetworkRows
from regard.nn import cpu
from regard.nn.cpu import row_batch, row_cache
from regard.nn.cpu.row_batch import RowsLinear, RowStep
from regard.nn.cpu.row_cache import capacity_for
from regard.nn.lora import add_lora, linear_layers
from regard.nn.taps import Tap

LANGUAGE_MODELS = [name for name, config in DECODERS.items() if isinstance(config, DecoderOnlyConfig)]
ON_X86 = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


@pytest.fixture(autouse=True)
def _small_capacities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "MIN_CAPACITY", 4)


def new_batch(network: Network) -> NetworkRows:
    batch = network.new_row_batch()
    assert batch is not None
    return batch


def join(batch: NetworkRows, network: Network, row: int, prompt: list[int]) -> None:
    cache = network.new_cache()
    with torch.inference_mode():
        network.next_logits(torch.tensor([prompt]), None, cache)
    batch.add(row, cache)


@settings(max_examples=15)
@given(name=st.sampled_from(LANGUAGE_MODELS), seed=st.integers(0, 2**20))
def test_rows_that_come_and_go_have_their_own_logits(name: str, seed: int) -> None:
    network, numbers = make(DECODERS[name]), random.Random(seed)
    batch, texts = new_batch(network), dict[int, list[int]]()
    for step in range(10):
        if not texts or (len(texts) < 5 and numbers.random() < 0.5):
            texts[step] = [numbers.randrange(VOCABULARY) for _ in range(numbers.randrange(1, 12))]
            join(batch, network, step, texts[step])
        tokens = [numbers.randrange(VOCABULARY) for _ in batch.rows]
        order = list(batch.rows)
        assert sorted(order) == sorted(texts)
        logits = batch.step(tokens)
        for row, token, found in zip(order, tokens, logits, strict=True):
            texts[row].append(token)
            with torch.no_grad():
                expected = network(torch.tensor([texts[row]]))[0, -1]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        leaving = [row for row in texts if numbers.random() < 0.15]
        batch.remove(leaving)
        texts = {row: text for row, text in texts.items() if row not in leaving}


@pytest.mark.skipif(not ON_X86, reason="the last bits of a row may depend on the others with other libraries")
@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "gelu-tanh"},
        {"activation": "swiglu", "norm": "rms", "kv_heads": 1, "positions": RotaryPositionsConfig()},
        {"positions": AlibiPositionsConfig()},
        {"feed_forward": 96, "experts": 3, "experts_per_token": 2},
        {},  # with LoRA
    ],
)
def test_the_numbers_of_a_row_are_the_same_in_every_batch(changes: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 32, "layers": 2, "heads": 2, "feed_forward": 64}
    network, numbers = random_network(DecoderOnlyConfig(**sizes | changes)), random.Random(1)
    if not changes:
        add_lora(network, linear_layers(network), rank=4, alpha=8)
        for name, parameter in network.named_parameters():
            if "lora" in name:
                torch.nn.init.normal_(parameter)
    prompts = [[numbers.randrange(VOCABULARY) for _ in range(1 + 3 * row % 11)] for row in range(9)]
    tokens = [[numbers.randrange(VOCABULARY) for _ in range(6)] for _ in prompts]
    alone = []
    for prompt, row_tokens in zip(prompts, tokens, strict=True):
        batch = new_batch(network)
        join(batch, network, 0, prompt)
        alone.append([batch.step([token])[0] for token in row_tokens])
    batch = new_batch(network)
    for row, prompt in enumerate(prompts):
        join(batch, network, row, prompt)
    for step in range(6):
        order = list(batch.rows)
        logits = batch.step([tokens[row][step] for row in order])
        for row, found in zip(order, logits, strict=True):
            assert torch.equal(found, alone[row][step])


def test_small_steps_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(DecoderOnlyConfig(vocab_size=VOCABULARY, width=32, layers=1, heads=2, feed_forward=64))
    threads: list[int] = []
    run = RowStep.run

    def record(*arguments: Any) -> Tensor:
        threads.append(torch.get_num_threads())
        return run(*arguments)

    monkeypatch.setattr(RowStep, "run", record)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        logits = []
        for work in (2**30, 0):  # one thread, and two
            monkeypatch.setattr(row_batch, "PARALLEL_WORK", work)
            batch = new_batch(network)
            for row in range(4):
                join(batch, network, row, [5, 6, row])
            logits.append(batch.step([5] * 4))
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 2]
    torch.testing.assert_close(*logits, rtol=0, atol=0 if ON_X86 else 1e-5)


@pytest.mark.skipif(not ON_X86, reason="the last bits of a row may depend on the others with other libraries")
@pytest.mark.parametrize("shape", [(32, 96), (1536, 64), (50, 77)])
def test_a_product_has_the_same_rows_for_any_number_of_them(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    linear = RowsLinear.of(torch.nn.Linear(*shape))
    x = torch.randn(70, shape[0])
    with torch.inference_mode():
        pairs = torch.cat([linear(x[n : n + 2])[:1] for n in range(69)])
        for rows in (1, 2, 3, 7, 16, 33, 64, 69):
            assert torch.equal(linear(x[:rows]), pairs[:rows])


def test_keys_and_values_are_moved_when_they_are_full() -> None:
    network = make(DECODERS["decoder-only"])
    batch = new_batch(network)
    join(batch, network, 7, [1, 2, 3])
    capacities = []
    for token in range(10):
        capacities.append([group.capacity for group in batch._ordered])  # type: ignore[attr-defined]
        batch.step([token])
    assert capacities == [[4], [6], [6], [8], [8], [12], [12], [12], [12], [16]]


def test_capacities_grow_by_a_third_to_a_half() -> None:
    capacities = sorted({capacity_for(length) for length in range(1, 500)})
    assert capacities[0] == 4
    assert all(4 * small <= 3 * large <= 4.5 * small for small, large in pairwise(capacities))


def test_networks_that_cannot_have_rows_say_so() -> None:
    assert make(DECODERS["recurrent language model, LSTM"]).new_row_batch() is None
    assert make(DECODERS["encoder-decoder"]).new_row_batch() is None
    network = make(DECODERS["decoder-only"])
    assert network.train().new_row_batch() is None
    network.eval()
    with cpu.disabled():
        assert network.new_row_batch() is None
    tap = next(part for part in network.modules() if isinstance(part, Tap))
    hook = tap.register_forward_hook(lambda *_: None)
    assert network.new_row_batch() is None
    hook.remove()
    assert network.new_row_batch() is not None


def test_a_batch_has_the_weights_of_the_network_as_it_is_now() -> None:
    network = make(DECODERS["decoder-only"])
    assert network.new_row_batch() is not None
    with torch.no_grad():
        next(network.parameters()).mul_(-2)
    batch = new_batch(network)
    join(batch, network, 0, [1, 2])
    with torch.no_grad():
        expected = network(torch.tensor([[1, 2, 5]]))[:, -1]
    torch.testing.assert_close(batch.step([5]), expected, rtol=0, atol=1e-9)
