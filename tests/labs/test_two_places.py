"""A task of two places at once, and how far heads lie apart in where they look."""

import pytest
import torch

from regard.labs.heads import LENGTH, PLACES, SYMBOLS, elsewhere, paired
from regard.labs.trials.tasks import FIRST_SYMBOL


def test_what_is_asked_are_the_symbols_at_two_places_before_in_their_order() -> None:
    near, far = PLACES
    batch = next(paired(batch=5, seed=1))
    read, answers = batch.inputs - FIRST_SYMBOL, batch.labels - FIRST_SYMBOL
    for place in range(far, LENGTH):
        assert torch.equal(answers[:, place], read[:, place - near] * SYMBOLS + read[:, place - far])
    assert batch.label_mask.sum(1).tolist() == [LENGTH - far] * 5


def test_heads_that_look_alike_look_nowhere_else() -> None:
    same, other = torch.eye(4), torch.eye(4).roll(1, 0)
    assert elsewhere(torch.stack([same, same]), 0) == 0
    assert elsewhere(torch.stack([same, other]), 0) == 1
    assert elsewhere(torch.stack([same, same, other]), 0) == pytest.approx(1 / 2)
    assert elsewhere(torch.stack([same, (same + other) / 2]), 0) == pytest.approx(1 / 2)
