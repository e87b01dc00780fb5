"""The comparisons by word and by position distinguish permutation equivariance from invariance."""

import torch

from regard.labs.order import ORDERS, output_change


def test_equivariant_outputs_change_by_position_only() -> None:
    by_word = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    change = output_change(by_word[ORDERS])
    assert change["by_word"] == 0
    assert change["by_position"] > 0.5


def test_invariant_outputs_change_by_word_only() -> None:
    by_position = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    change = output_change(by_position.expand(len(ORDERS), -1, -1))
    assert change["by_position"] == 0
    assert change["by_word"] > 0.5
