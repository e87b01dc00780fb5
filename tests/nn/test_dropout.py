"""Dropout has the right rate, independent elements, and the mask as its gradient."""

import math
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.cpu.functional import keep_mask
from regard.nn.functional import Dropout, dropout

COARSE = [0.001, 0.01, 0.999, 0.999999]  # rates that bytes cannot represent
FINE = [0.05, 0.1, 0.2, 0.3, 0.5, 0.9]


def zeros(p: float, *shape: int) -> Tensor:
    """Return 1 at dropped elements."""
    dropped: Tensor = Dropout(p)(torch.ones(*shape, dtype=torch.float64)) == 0
    return dropped.double()


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


@pytest.mark.parametrize("p", [0.0, 0.1, 0.999999])
def test_it_is_the_identity_in_evaluation_and_at_rate_zero(p: float) -> None:
    x = torch.randn(3, 5)
    assert Dropout(p).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_the_rate_must_be_a_probability(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Dropout(p)


@pytest.mark.parametrize("p", [*COARSE, *FINE])
def test_rate_and_mean_are_right(p: float) -> None:
    count = 2**20
    y = Dropout(p)(torch.ones(count, dtype=torch.float64))
    rate = float((y == 0).double().mean())
    rounded = p if p in COARSE else round(256 * p) / 256
    assert abs(rounded - p) <= 0.05 * min(p, 1 - p)
    assert abs(rate - rounded) < 5 * math.sqrt(rounded * (1 - rounded) / count)
    assert abs(float(y.mean()) - 1) < 5 * math.sqrt(rounded / (1 - rounded) / count)
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rounded)))


def test_everything_is_dropped_at_rate_one() -> None:
    assert (Dropout(1.0)(torch.randn(9)) == 0).all()


@pytest.mark.parametrize(("p", "bytes_used"), [*((p, True) for p in FINE), *((p, False) for p in COARSE)])
def test_bytes_are_used_if_they_can_represent_the_rate(p: float, bytes_used: bool) -> None:
    with mock.patch.object(F, "dropout", wraps=F.dropout) as theirs:
        Dropout(p)(torch.randn(4))
    assert theirs.called is not bytes_used


def test_each_byte_of_a_random_number_is_fair() -> None:
    words, p = 2**17, 26 / 256
    dropped = zeros(0.1, words, 8)
    assert ((dropped.mean(0) - p).abs() < 5 * math.sqrt(p * (1 - p) / words)).all()
    off_diagonal = torch.corrcoef(dropped.T) - torch.eye(8)
    assert off_diagonal.abs().max() < 5 / math.sqrt(words)


@pytest.mark.parametrize("shift", [1, 2, 7, 8, 9, 64, 512, 513, 5000])
def test_elements_at_any_distance_are_independent(shift: int) -> None:
    dropped = zeros(0.1, 2**19)
    assert abs(correlation(dropped[:-shift], dropped[shift:])) < 5 / math.sqrt(2**19)


def test_rows_layers_and_steps_are_independent() -> None:
    layers = [Dropout(0.5), Dropout(0.5)]
    first, second, again = (layers[i](torch.ones(1000, 64)) == 0 for i in (0, 1, 0))
    for a, b in ((first, second), (first, again), (second, again)):
        assert abs(correlation(a.double(), b.double())) < 5 / math.sqrt(64_000)
    between_rows = torch.corrcoef(first.double().T) - torch.eye(64)
    assert between_rows.abs().max() < 6 / math.sqrt(1000)


@pytest.mark.parametrize("p", [0.1, 0.001])
def test_the_same_seed_gives_the_same_mask(p: float) -> None:
    torch.manual_seed(3)
    first, second = zeros(p, 10_000), zeros(p, 10_000)
    torch.manual_seed(3)
    assert torch.equal(zeros(p, 10_000), first)
    assert not torch.equal(first, second)


@given(shape=st.lists(st.integers(0, 9), max_size=3), double=st.booleans())
def test_shape_and_dtype_are_kept(shape: list[int], double: bool) -> None:
    x = torch.ones(shape, dtype=torch.float64 if double else torch.float32)
    y = Dropout(0.5)(x)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    assert ((y == 0) | (y == 2)).all()


def test_bfloat16_stays_bfloat16() -> None:
    assert Dropout(0.1)(torch.ones(5, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_strides_do_not_matter() -> None:
    x = torch.randn(6, 7).T
    torch.manual_seed(1)
    strided = Dropout(0.3)(x)
    torch.manual_seed(1)
    torch.testing.assert_close(Dropout(0.3)(x.contiguous()), strided, rtol=0, atol=0)


def test_the_gradient_is_the_mask() -> None:
    x = torch.randn(50, 3, requires_grad=True)
    torch.manual_seed(5)
    mask = keep_mask(x, dropped=26)
    torch.manual_seed(5)
    y = Dropout(0.1)(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, mask)
    assert torch.equal(y, x * mask)
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(256 / 230).item()}


def test_gradients_of_gradients_are_right_too() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def fixed(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        return dropout(x, 0.4, training=True) ** 3

    assert torch.autograd.gradcheck(fixed, (x,))
    assert torch.autograd.gradgradcheck(fixed, (x,))


def test_other_devices_use_their_own_masks() -> None:
    assert Dropout(0.1)(torch.empty(3, 4, device="meta")).shape == (3, 4)


def test_it_is_an_nn_dropout() -> None:
    assert isinstance(Dropout(0.1), nn.Dropout)
    assert repr(Dropout(0.1)) == "Dropout(p=0.1, inplace=False)"
