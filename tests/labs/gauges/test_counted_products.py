"""Products are counted as they are asked for; of fused kernels as many as the same layers need step by step."""

import pytest
import torch

from regard.config import EncoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.labs.gauges import best_times, flop_counter
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps

LENGTH, WIDTH = 256, 16  # long enough for the fused kernel


def operations(network: Network) -> int:
    ids = torch.zeros(2, LENGTH, dtype=torch.long)
    with flop_counter() as counted:
        (network.encode(ids).states if network.encodes else network.decode(ids)).sum().backward()
    return int(counted.get_total_flops())


def test_a_product_and_its_gradients_are_three_products() -> None:
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(3, 5, requires_grad=True)
    with flop_counter() as counted:
        (x @ y).sum().backward()
    assert counted.get_total_flops() == 3 * 2 * (2 * 3 * 5)


@pytest.mark.parametrize(
    ("settings", "again"),
    [
        (EncoderOnlyConfig(vocab_size=4, width=WIDTH, layers=1, heads=2, feed_forward=0, dropout=0.0), LENGTH * WIDTH),
        (RecurrentLanguageModelConfig(vocab_size=4, width=WIDTH, layers=1, cell="lstm", dropout=0.0), 0),
    ],
)
def test_a_fused_kernel_does_what_its_steps_do_and_attention_its_scores_once_more(
    settings: ModelConfig, again: int
) -> None:
    network = build(settings)
    fused = operations(network)
    with open_taps(network):
        plain = operations(network)
    assert fused - 2 * 2 * LENGTH * again == pytest.approx(plain, rel=0.02)  # the first step needs no gradient


def test_those_who_take_turns_go_equally_often() -> None:
    gone: list[str] = []
    seconds = best_times([lambda: gone.append("one"), lambda: gone.append("other")], rounds=3)
    assert gone == ["one", "other"] * 3
    assert len(seconds) == 2
    assert min(seconds) >= 0
