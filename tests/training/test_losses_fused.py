"""Piece by piece, the loss and its gradients are those of all logits at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn.embedding import OutputProjection
from regard.nn.taps import open_taps
from regard.training import losses_fused
from regard.training.losses import Loss, smoothed_cross_entropy
from regard.training.losses_fused import fused_cross_entropy


def layer(seed: int, vocabulary: int, width: int, bias: bool) -> OutputProjection:
    torch.manual_seed(seed)
    made = OutputProjection(nn.Parameter(torch.randn(vocabulary, width, dtype=torch.float64)), bias).double()
    if made.bias is not None:
        nn.init.normal_(made.bias)
    return made


def gradients(loss: Loss, hidden: Tensor, output: OutputProjection) -> list[Tensor]:
    inputs = [hidden, *output.parameters()]
    return list(torch.autograd.grad(loss.loss * 0.25, inputs))


@settings(deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 20),
    vocabulary=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    bias=st.booleans(),
    piece=st.integers(1, 100),
)
def test_pieces_of_any_size_give_the_loss_of_the_whole(
    seed: int, rows: int, vocabulary: int, smoothing: float, bias: bool, piece: int
) -> None:
    output = layer(seed, vocabulary, 5, bias)
    hidden = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows,))
    wanted = smoothed_cross_entropy(output(hidden), targets, smoothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses_fused, "CHUNK_LOGITS", piece)
        found = fused_cross_entropy(hidden, output, targets, smoothing)
    torch.testing.assert_close(found.loss, wanted.loss)
    torch.testing.assert_close(found.cross_entropy, wanted.cross_entropy)
    assert found.targets == wanted.targets
    assert not found.cross_entropy.requires_grad
    for mine, theirs in zip(gradients(found, hidden, output), gradients(wanted, hidden, output), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_matrix_that_is_also_the_embedding_gets_both_gradients() -> None:
    output, ids, targets = layer(1, 7, 5, bias=False), torch.tensor([1, 2, 3]), torch.tensor([2, 3, 4])
    losses = (
        fused_cross_entropy(output.weight[ids].tanh(), output, targets, 0.1),
        smoothed_cross_entropy(output(output.weight[ids].tanh()), targets, 0.1),
    )
    (mine,), (theirs,) = (torch.autograd.grad(loss.loss, output.weight) for loss in losses)
    torch.testing.assert_close(mine, theirs)


def test_nothing_is_kept_where_no_gradient_is_wanted_and_open_taps_see_all_logits() -> None:
    output, hidden, targets = layer(2, 7, 5, bias=True), torch.randn(3, 5, dtype=torch.float64), torch.tensor([0, 1, 2])
    with torch.no_grad():
        assert not fused_cross_entropy(hidden, output, targets).loss.requires_grad
    with open_taps(output) as seen:
        fused_cross_entropy(hidden, output, targets)
    assert seen["logits"].shape == (3, 7)
