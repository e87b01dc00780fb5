"""The prepared step of a decoder equals the plain code, for every network, and steps aside where it must."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from family import DECODERS, RECURRENT, TOLERANCE, VOCABULARY, Batch, batches, make
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig
from regard.models import Network, build
from regard.models.network import Memory
from regard.nn import DecoderCache, cpu
from regard.nn.cpu import decode_step as prepared
from regard.nn.cpu.decode_step import DecodeStep, FewRowsLinear, decode_step
from regard.nn.cpu.recurrent_step import RecurrentStep
from regard.nn.recurrent_stack import RecurrentCache, RecurrentStack
from regard.nn.taps import open_taps

NETWORKS: dict[str, Network] = {}
TRANSFORMERS = sorted(DECODERS.keys() - RECURRENT.keys())


def network_of(name: str) -> Network:
    if name not in NETWORKS:
        NETWORKS[name] = make(DECODERS[name])
    return NETWORKS[name]


def memory_of(network: Network, batch: Batch) -> Memory | None:
    return network.encode(batch.source, batch.source_mask, batch.features) if network.encodes else None


def all_steps(network: Network, batch: Batch, steps: Tensor, rows: Tensor) -> list[Tensor]:
    """Feed the target as a prompt, repeat and mix up the rows, and return the logits of further steps (n, R)."""
    memory, cache = memory_of(network, batch), network.new_cache()
    outputs = [network.next_logits(batch.target, memory, cache, batch.target_mask)]
    cache = cache.reorder(rows)
    outputs += [network.next_logits(ids[:, None], memory, cache) for ids in steps]
    if not isinstance(cache, RecurrentCache):
        cache.drop_last(len(steps))  # and the same tokens again, all at once
        outputs.append(network.all_logits(steps.T, memory, cache))
        torch.testing.assert_close(outputs[-1], torch.stack(outputs[1:-1], 1), atol=TOLERANCE, rtol=TOLERANCE)
    return outputs


def is_prepared(network: Network) -> bool:
    decoder = network.get_submodule("decoder")
    return isinstance(getattr(decoder, "prepared_step", None), DecodeStep)


@pytest.mark.parametrize("name", sorted(DECODERS))
@settings(max_examples=4)
@given(batch=batches(), seed=st.integers(0, 2**31), beams=st.integers(1, 3), count=st.integers(1, 5))
@torch.inference_mode()
def test_steps_equal_the_plain_code(name: str, batch: Batch, seed: int, beams: int, count: int) -> None:
    network, generator = network_of(name), torch.Generator().manual_seed(seed)
    size = len(batch.target)
    steps = torch.randint(0, VOCABULARY, (count, size * beams), generator=generator)
    rows = torch.arange(size).repeat_interleave(beams)
    if not network.encodes:
        rows = rows[torch.randperm(len(rows), generator=generator)]
    fast = all_steps(network, batch, steps, rows)
    with cpu.disabled():
        plain = all_steps(network, batch, steps, rows)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, atol=TOLERANCE, rtol=TOLERANCE)
    assert is_prepared(network) == (name in TRANSFORMERS)
    assert isinstance(network.get_submodule("decoder").prepared_step, RecurrentStep) == (name in RECURRENT)


@pytest.mark.parametrize("name", ["recurrent encoder-decoder, Bahdanau", "recurrent language model, LSTM"])
def test_recurrent_steps_are_prepared_again_and_step_aside(name: str) -> None:
    network = make(DECODERS[name])
    decoder, ids = network.get_submodule("decoder"), torch.tensor([[5]])
    assert isinstance(decoder, RecurrentStack)
    memory = network.encode(torch.tensor([[4, 5, 6]])) if network.encodes else None

    def second_logits() -> Tensor:
        cache = network.new_cache()
        with torch.inference_mode():
            network.next_logits(ids, memory, cache)
            return network.next_logits(ids, memory, cache)

    before, first_step = second_logits(), decoder.prepared_step
    second_logits()
    assert decoder.prepared_step is first_step
    with torch.no_grad():
        next(decoder.layers.parameters()).mul_(0.5)
    after = second_logits()
    assert decoder.prepared_step is not first_step
    with cpu.disabled():
        torch.testing.assert_close(after, second_logits(), atol=TOLERANCE, rtol=TOLERANCE)
    assert not torch.allclose(before, after)
    seen: list[str] = []
    hook = decoder.states.register_forward_hook(lambda *_: seen.append("states"))
    second_logits()
    hook.remove()
    assert len(seen) == 2
    assert copy.deepcopy(network).get_submodule("decoder").prepared_step is None
    cache = network.new_cache()
    network.next_logits(ids, memory, cache)
    assert network.next_logits(ids, memory, cache).requires_grad  # the plain code, where gradients are needed


@pytest.mark.parametrize("name", TRANSFORMERS)
@torch.inference_mode()
def test_the_first_token_needs_no_prompt(name: str) -> None:
    network = network_of(name)
    source = torch.tensor([[4, 5, 6]])
    batch = Batch(source, torch.ones_like(source).bool(), source[:, :1], torch.ones(1, 1).bool())
    memory = memory_of(network, batch)
    cache = network.new_cache()
    stepwise = [network.next_logits(torch.tensor([[token]]), memory, cache) for token in (2, 7, 8)]
    hidden = network.decode(torch.tensor([[2, 7, 8]]), memory)
    torch.testing.assert_close(torch.stack(stepwise, 1), network.logits(hidden), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("rows", [1, 2, 5, 70])
@pytest.mark.parametrize("bias", [False, True])
def test_copied_weights_give_the_same_product(rows: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(prepared, "MIN_COPIED", 0)
    linear = torch.nn.Linear(48, 33, bias=bias)
    product, x = FewRowsLinear.of(linear), torch.randn(rows, 48)
    with torch.inference_mode():
        for _ in range(2):  # makes the copy, and uses it
            torch.testing.assert_close(product(x), linear(x), atol=1e-5, rtol=1e-5)


def one_step(network: Network) -> Tensor:
    cache = network.new_cache()
    return network.next_logits(torch.tensor([[5]]), None, cache)


def test_changed_weights_are_noticed_at_the_next_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MIN_COPIED", 0)
    torch.manual_seed(0)
    network = build(DecoderOnlyConfig(vocab_size=20, width=8, heads=2, layers=1, feed_forward=16)).eval()
    ids, outputs = torch.tensor([[5]]), []

    def nothing() -> None:
        pass

    def change_in_place() -> None:
        for parameter in network.parameters():
            parameter.mul_(1.5)

    def replace_a_layer() -> None:
        network.get_submodule("decoder.layers.0.feed_forward").output = torch.nn.Linear(16, 8)

    with torch.no_grad():
        for change in (nothing, change_in_place, replace_a_layer):
            change()
            with torch.inference_mode():
                outputs.append(one_step(network))
            torch.testing.assert_close(outputs[-1], network(ids)[:, -1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[1], outputs[2])


@torch.inference_mode()
def test_hooks_are_called() -> None:
    network = network_of("decoder-only")
    plain = one_step(network)
    with open_taps(network, "decoder.layers.0.attention.q") as values:
        torch.testing.assert_close(one_step(network), plain, atol=TOLERANCE, rtol=0)
    assert values["decoder.layers.0.attention.q"].shape == (1, 4, 1, 4)
    linear = network.get_submodule("decoder.layers.0.feed_forward.inner")
    hook = linear.register_forward_hook(lambda _module, _arguments, x: x * 2)
    assert not torch.allclose(one_step(network), plain)
    hook.remove()
    torch.testing.assert_close(one_step(network), plain, atol=TOLERANCE, rtol=0)


def test_training_and_gradients_use_the_plain_code() -> None:
    network = make(DECODERS["decoder-only"])
    loss = one_step(network).sum()
    loss.backward()
    assert network.get_submodule("decoder.layers.0.attention.output").weight.grad is not None
    with torch.inference_mode():
        network.train()
        one_step(network)
    assert not is_prepared(network)


@torch.inference_mode()
def test_unknown_layers_use_the_plain_code() -> None:
    class OtherLinear(torch.nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * 2

    network = build(EncoderDecoderConfig(vocab_size=20, width=8, heads=2, layers=1, feed_forward=16)).eval()
    other = OtherLinear(8, 8)
    network.get_submodule("decoder.layers.0.attention").output = other
    memory, ids = network.encode(torch.tensor([[4, 5]])), torch.tensor([[2]])
    logits = network.next_logits(ids, memory, network.new_cache())
    torch.testing.assert_close(logits, network.logits(network.decode(ids, memory))[:, -1])
    cache = network.new_cache()
    assert isinstance(cache, DecoderCache)
    assert decode_step(network.get_submodule("decoder"), network.output, ids, cache, memory.states) is None  # type: ignore[arg-type]
    assert cache.length == 0


@torch.inference_mode()
def test_a_copy_of_a_network_has_a_step_of_its_own() -> None:
    network = network_of("decoder-only")
    logits = one_step(network)
    other = copy.deepcopy(network)
    assert not is_prepared(other)
    torch.testing.assert_close(one_step(other), logits, atol=TOLERANCE, rtol=0)
