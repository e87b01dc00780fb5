"""The longest chain of operations is the longest, and as long as the text where one step needs the one before it."""

import pytest
import torch

from regard.config import DecoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.labs.gauges import longest_chain
from regard.labs.steps import dependent
from regard.models import build


def test_a_chain_as_deep_as_a_long_text_is_counted() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + x
    assert longest_chain(y) == 5000


def test_the_longer_of_two_ways_counts() -> None:
    x = torch.ones(1, requires_grad=True)
    assert longest_chain(x.exp() * x.exp().exp().exp()) == 4


def test_what_needs_nothing_has_no_chain() -> None:
    assert longest_chain(torch.ones(1) + 1) == 0


@pytest.mark.parametrize(
    ("settings", "per_token"),
    [
        (RecurrentLanguageModelConfig(vocab_size=8, width=8, layers=1, cell="rnn"), 3),  # product, sum, tanh
        (RecurrentLanguageModelConfig(vocab_size=8, width=8, layers=1, cell="lstm"), 8),
        (DecoderOnlyConfig(vocab_size=8, width=8, layers=1, heads=2, feed_forward=8), 0),
    ],
)
def test_a_token_more_is_a_step_more_in_a_recurrent_network_only(settings: ModelConfig, per_token: int) -> None:
    network = build(settings)
    short, long = (dependent(network, torch.zeros(1, length, dtype=torch.long)) for length in (5, 15))
    assert long - short == 10 * per_token
