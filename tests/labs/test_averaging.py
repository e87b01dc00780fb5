"""The measures of the lab of averaging, and its task."""

import torch

from regard.labs.averaging import EVEN, KINDS, ODD, Layers, bend, parity, spread


def test_a_network_is_linear_only_while_its_attention_weights_are_held() -> None:
    assert bend(KINDS["attention alone"]) < 1e-12
    assert bend(KINDS["attention alone"], hold=False) > 0.01


def test_tokens_draw_together_without_residual_connections() -> None:
    first, *_, last = spread(Layers(feed_forward=False, residual=False), layers=3, seed=0)
    assert first > 0.9
    assert last < 1e-3


def test_parity_is_that_of_the_bits_of_the_number() -> None:
    alone, beside = parity(companion=False), parity(companion=True)
    assert alone.labels[:, 0].tolist() == [ODD if n.bit_count() % 2 else EVEN for n in range(8)]
    assert alone.targets == beside.targets == 8
    assert torch.equal(beside.inputs[:, 1], alone.inputs[:, 0])
