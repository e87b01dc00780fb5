"""Sequential operations, FLOPs, tensor memory and times are measured correctly."""

import pytest
import torch

from regard.config import DecoderOnlyConfig, EncoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.labs.measurements import TensorMemory, best_times, flop_counter, longest_chain
from regard.labs.steps import sequential_operations
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps

LENGTH, WIDTH = 256, 16  # long enough for the fused kernel
FLOATS_PER_KB = 250


def test_longest_chain_is_not_limited_by_the_recursion_depth() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + x
    assert longest_chain(y) == 5000


def test_longest_chain_takes_the_longer_of_two_paths() -> None:
    x = torch.ones(1, requires_grad=True)
    assert longest_chain(x.exp() * x.exp().exp().exp()) == 4


def test_longest_chain_without_gradient_is_zero() -> None:
    assert longest_chain(torch.ones(1) + 1) == 0


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        (RecurrentLanguageModelConfig(vocab_size=8, width=8, layers=1, cell="rnn"), 3),  # product, sum, tanh
        (RecurrentLanguageModelConfig(vocab_size=8, width=8, layers=1, cell="lstm"), 8),
        (DecoderOnlyConfig(vocab_size=8, width=8, layers=1, heads=2, feed_forward=8), 0),
    ],
)
def test_sequential_operations_grow_with_length_only_in_recurrent_networks(config: ModelConfig, per_token: int) -> None:
    network = build(config)
    short, long = (sequential_operations(network, torch.zeros(1, length, dtype=torch.long)) for length in (5, 15))
    assert long - short == 10 * per_token


def flops(network: Network) -> int:
    ids = torch.zeros(2, LENGTH, dtype=torch.long)
    with flop_counter() as counter:
        (network.encode(ids).states if network.encodes else network.decode(ids)).sum().backward()
    return int(counter.get_total_flops())


def test_flops_of_a_product_and_its_two_gradients() -> None:
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(3, 5, requires_grad=True)
    with flop_counter() as counter:
        (x @ y).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * (2 * 3 * 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "recomputed"),
    [
        (EncoderOnlyConfig(vocab_size=4, width=WIDTH, layers=1, heads=2, feed_forward=0, dropout=0.0), LENGTH * WIDTH),
        (RecurrentLanguageModelConfig(vocab_size=4, width=WIDTH, layers=1, cell="lstm", dropout=0.0), 0),
    ],
)
def test_flops_of_fused_kernels_equal_those_of_separate_steps_plus_recomputed_scores(
    config: ModelConfig, recomputed: int
) -> None:
    network = build(config)
    fused = flops(network)
    with open_taps(network):
        separate = flops(network)
    assert fused - 2 * 2 * LENGTH * recomputed == pytest.approx(separate, rel=0.02)  # the first step needs no gradient


def test_best_times_runs_each_function_once_per_round_in_turns() -> None:
    calls: list[str] = []
    seconds = best_times([lambda: calls.append("first"), lambda: calls.append("second")], rounds=3)
    assert calls == ["first", "second"] * 3
    assert len(seconds) == 2
    assert min(seconds) >= 0


def test_freed_memory_is_not_counted() -> None:
    with TensorMemory() as memory:
        for _ in range(10):
            torch.ones(FLOATS_PER_KB)
    assert (memory.current, memory.peak) == (0, 1000)


def test_views_and_in_place_operations_need_no_memory() -> None:
    before = torch.ones(FLOATS_PER_KB)
    with TensorMemory() as memory:
        view = before.view(10, -1)[0]
        before.add_(1)
    assert memory.peak == 0
    assert view[0] == 2


def test_memory_of_the_backward_pass_is_counted() -> None:
    x = torch.ones(FLOATS_PER_KB, requires_grad=True)
    forward, both = TensorMemory(), TensorMemory()
    with forward:
        x.exp()
    with both:
        x.exp().sum().backward()
    assert forward.peak == 1000
    assert both.current == 1000  # the gradient
    assert both.peak >= 2000  # and the output of exp, saved for it


def test_tensors_saved_for_the_backward_pass_are_counted() -> None:
    x = torch.ones(FLOATS_PER_KB, requires_grad=True)
    with TensorMemory() as memory:
        y = x.exp().exp().exp()
        assert memory.current == 3000
        y.sum().backward()
