"""Measures and task of the lab `averaging`."""

import torch

from regard.labs.feed_forward import EVEN, LAYER_VARIANTS, ODD, LayerParts, nonlinearity, parity_batch, token_spread


def test_attention_is_linear_only_with_fixed_weights() -> None:
    assert nonlinearity(LAYER_VARIANTS["attention only"]) < 1e-12
    assert nonlinearity(LAYER_VARIANTS["attention only"], fix_weights=False) > 0.01


def test_tokens_collapse_to_their_mean_without_residual_connections() -> None:
    first, *_, last = token_spread(LayerParts(feed_forward=False, residual=False), layers=3, seed=0)
    assert first > 0.9
    assert last < 1e-3


def test_parity_labels_are_the_parity_of_the_bits() -> None:
    alone, with_context = parity_batch(with_context=False), parity_batch(with_context=True)
    assert alone.labels[:, 0].tolist() == [ODD if n.bit_count() % 2 else EVEN for n in range(8)]
    assert alone.targets == with_context.targets == 8
    assert torch.equal(with_context.inputs[:, 1], alone.inputs[:, 0])
