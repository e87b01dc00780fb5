"""How far outputs move when words do: the two ways of comparing tell equivariance from invariance."""

import torch

from regard.labs.order import ORDERS, moved_by


def test_outputs_that_move_along_are_the_same_word_by_word_only() -> None:
    of_words = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    moved = moved_by(of_words[ORDERS])
    assert moved["by word"] == 0
    assert moved["by place"] > 0.5


def test_outputs_that_stay_are_the_same_place_by_place_only() -> None:
    of_places = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    moved = moved_by(of_places.expand(len(ORDERS), -1, -1))
    assert moved["by place"] == 0
    assert moved["by word"] > 0.5
