"""The two-position task has the right labels, and the difference of heads is half the L1 distance."""

import pytest
import torch

from regard.labs.heads import LENGTH, OFFSETS, SYMBOLS, head_difference, two_position_task
from regard.labs.trials import FIRST_SYMBOL


def test_labels_combine_the_symbols_at_both_offsets_in_order() -> None:
    near, far = OFFSETS
    batch = next(two_position_task(batch=5, seed=1))
    inputs, labels = batch.inputs - FIRST_SYMBOL, batch.labels - FIRST_SYMBOL
    for position in range(far, LENGTH):
        assert torch.equal(labels[:, position], inputs[:, position - near] * SYMBOLS + inputs[:, position - far])
    assert batch.label_mask.sum(1).tolist() == [LENGTH - far] * 5


def test_head_difference_is_half_the_mean_l1_distance() -> None:
    same, other = torch.eye(4), torch.eye(4).roll(1, 0)
    assert head_difference(torch.stack([same, same]), 0) == 0
    assert head_difference(torch.stack([same, other]), 0) == 1
    assert head_difference(torch.stack([same, same, other]), 0) == pytest.approx(1 / 2)
    assert head_difference(torch.stack([same, (same + other) / 2]), 0) == pytest.approx(1 / 2)
