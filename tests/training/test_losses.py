"""Cross entropy with label smoothing: equal to the formula, and additive over batches."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.training.losses import smoothed_cross_entropy


@given(seed=st.integers(0, 2**31), rows=st.integers(1, 6), size=st.integers(2, 9), smoothing=st.floats(0, 0.9))
def test_the_loss_is_cross_entropy_with_the_smoothed_target(seed: int, rows: int, size: int, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, dtype=torch.float64, generator=generator)
    targets = torch.randint(0, size, (rows,), generator=generator)
    loss = smoothed_cross_entropy(logits, targets, smoothing)
    log_p = logits.log_softmax(-1)
    target = torch.full_like(logits, smoothing / size)
    target[torch.arange(rows), targets] += 1 - smoothing
    torch.testing.assert_close(loss.loss, -(target * log_p).sum())
    torch.testing.assert_close(loss.cross_entropy, -log_p[torch.arange(rows), targets].sum())
    assert loss.targets == rows


def test_losses_of_parts_add_up() -> None:
    logits, targets = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 5, (7,))
    whole = smoothed_cross_entropy(logits, targets, 0.1)
    parts = [smoothed_cross_entropy(logits[rows], targets[rows], 0.1) for rows in (slice(0, 2), slice(2, 7))]
    torch.testing.assert_close(parts[0].loss + parts[1].loss, whole.loss)
    assert parts[0].targets + parts[1].targets == whole.targets


def test_only_the_loss_has_a_gradient() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.tensor([0, 1, 2]), 0.1)
    assert loss.loss.requires_grad
    assert not loss.cross_entropy.requires_grad
