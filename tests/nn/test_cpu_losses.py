"""Losses on CPUs: computed in chunks, they and their gradients equal the formulas."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn import cpu
from regard.nn.cpu import losses as cpu_losses
from regard.nn.embedding import OutputProjection
from regard.nn.taps import open_taps
from regard.training.losses import Loss, projected_cross_entropy, projected_rdrop, smoothed_cross_entropy


def projection(seed: int, vocabulary: int, width: int, bias: bool) -> OutputProjection:
    torch.manual_seed(seed)
    output = OutputProjection(nn.Parameter(torch.randn(vocabulary, width, dtype=torch.float64)), bias).double()
    if output.bias is not None:
        nn.init.normal_(output.bias)
    return output


def gradients(loss: Loss, states: Tensor, output: OutputProjection) -> list[Tensor]:
    return list(torch.autograd.grad(loss.loss * 0.25, [states, *output.parameters()]))


@settings(deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 20),
    vocabulary=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    bias=st.booleans(),
    chunk=st.integers(1, 100),
)
def test_chunks_of_any_size_give_the_loss_of_all_logits(
    seed: int, rows: int, vocabulary: int, smoothing: float, bias: bool, chunk: int
) -> None:
    output = projection(seed, vocabulary, 5, bias)
    states = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows,))
    expected = smoothed_cross_entropy(output(states), targets, smoothing)
    with cpu.disabled():
        formula = projected_cross_entropy(states, output, targets, smoothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_losses, "CHUNK_LOGITS", chunk)
        chunked = projected_cross_entropy(states, output, targets, smoothing)
    for loss in (formula, chunked):
        torch.testing.assert_close(loss.loss, expected.loss)
        torch.testing.assert_close(loss.cross_entropy, expected.cross_entropy)
        assert loss.targets == expected.targets
        assert not loss.cross_entropy.requires_grad
        pairs = zip(gradients(loss, states, output), gradients(expected, states, output), strict=True)
        for actual, reference in pairs:
            torch.testing.assert_close(actual, reference)
        expected = smoothed_cross_entropy(output(states), targets, smoothing)


def test_rdrop_by_the_formula_equals_rdrop_in_chunks() -> None:
    output = projection(3, 7, 5, bias=True)
    first, second = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    targets = torch.tensor([0, 3, 6, 1])
    chunked = projected_rdrop(first, second, output, targets, 0.1, 2.0)
    with cpu.disabled():
        formula = projected_rdrop(first, second, output, targets, 0.1, 2.0)
    torch.testing.assert_close(chunked.loss, formula.loss)
    for actual, reference in zip(gradients(chunked, first, output), gradients(formula, first, output), strict=True):
        torch.testing.assert_close(actual, reference)


def test_a_tied_embedding_matrix_gets_both_gradients() -> None:
    output, ids, targets = projection(1, 7, 5, bias=False), torch.tensor([1, 2, 3]), torch.tensor([2, 3, 4])
    losses = (
        projected_cross_entropy(output.weight[ids].tanh(), output, targets, 0.1),
        smoothed_cross_entropy(output(output.weight[ids].tanh()), targets, 0.1),
    )
    (actual,), (reference,) = (torch.autograd.grad(loss.loss, output.weight) for loss in losses)
    torch.testing.assert_close(actual, reference)


def test_no_gradient_is_computed_without_grad_mode_and_open_taps_see_all_logits() -> None:
    output, targets = projection(2, 7, 5, bias=True), torch.tensor([0, 1, 2])
    states = torch.randn(3, 5, dtype=torch.float64)
    with torch.no_grad():
        assert not projected_cross_entropy(states, output, targets).loss.requires_grad
    with open_taps(output) as tensors:
        projected_cross_entropy(states, output, targets)
    assert tensors["logits"].shape == (3, 7)
