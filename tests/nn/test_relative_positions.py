"""Relative positions equal equations (3) and (4) of Shaw et al. 2018."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from family import Batch, batches
from regard.nn import FullAttention, Layout, Positions, RelativePositions, make_layout, open_taps
from regard.nn.positions import RelativeVectors

HEADS, KEY, VALUE, SCALE = 2, 3, 5, 0.4


def reference(q: Tensor, k: Tensor, v: Tensor, layout: Layout, vectors: RelativeVectors) -> Tensor:
    """Compute e_ij = q_i · (k_j + a^K_ij), z_i = Σ w_ij (v_j + a^V_ij), a vector for each pair of tokens."""
    rows = layout.distance[:, 0].clamp(-vectors.max_distance, vectors.max_distance) + vectors.max_distance  # (B, T, S)
    keys, values = (
        torch.stack([table[rows] for table in tables.expand(HEADS, -1, -1)], dim=1)  # (B, H, T, S, D)
        for tables in (vectors.keys, vectors.values)
    )
    scores = torch.einsum("bhtd,bhtsd->bhts", q, k[:, :, None] + keys) * SCALE
    if layout.mask.allowed is not None:
        scores = scores.masked_fill(~layout.mask.allowed, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhts,bhtsd->bhtd", weights, v[:, :, None] + values)


def with_hooks(q: Tensor, k: Tensor, v: Tensor, layout: Layout, vectors: Positions) -> Tensor:
    out: Tensor = FullAttention(SCALE)(
        q, k, v, layout, vectors.bias(q, layout), lambda weights: vectors.mix(weights, layout)
    )
    return out


def vectors_of(max_distance: int, per_head: bool) -> RelativeVectors:
    torch.manual_seed(0)
    vectors = RelativePositions(max_distance, per_head).for_layer(HEADS, KEY, VALUE, SCALE).double()
    assert isinstance(vectors, RelativeVectors)
    return vectors


def qkv(rows: int, length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(rows, HEADS, length, width, dtype=torch.float64, generator=generator).requires_grad_()
        for width in (KEY, KEY, VALUE)
    ]


@given(batch=batches(), max_distance=st.integers(1, 9), per_head=st.booleans(), causal=st.booleans())
def test_hooks_equal_the_formula_and_its_gradients(
    batch: Batch, max_distance: int, per_head: bool, causal: bool
) -> None:
    vectors = vectors_of(max_distance, per_head)
    layout = make_layout(batch.target, batch.target_mask, causal=causal)
    inputs = qkv(*batch.target.shape)
    learned = [*inputs, *vectors.parameters()]

    def run(compute: Callable[..., Tensor]) -> list[Tensor]:
        out = compute(*inputs, layout, vectors).where(batch.target_mask[:, None, :, None], 0.0)
        return [out, *torch.autograd.grad(out.sin().sum(), learned)]

    for fast, plain in zip(run(with_hooks), run(reference), strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("per_head", "shape"), [(False, (9,)), (True, (HEADS, 9))])
def test_heads_share_vectors_or_have_their_own(per_head: bool, shape: tuple[int, ...]) -> None:
    vectors = vectors_of(4, per_head)
    assert vectors.keys.shape == (*shape, KEY)
    assert vectors.values.shape == (*shape, VALUE)


def test_distances_are_clipped() -> None:
    layout = make_layout(torch.zeros(1, 8).long())
    bias = vectors_of(2, per_head=False).bias(torch.ones(1, HEADS, 8, KEY, dtype=torch.float64), layout)
    assert bias is not None
    after = bias[0, 0, 0].tolist()  # of the first query
    assert len(set(after)) == 3
    assert len(set(after[2:])) == 1
    assert bias[0, 0, 7, 0] != bias[0, 0, 0, 7]  # both sides are clipped separately


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


def test_no_tensor_has_a_vector_for_each_pair_of_tokens() -> None:
    length = 40
    vectors, inputs = vectors_of(4, per_head=True), qkv(1, length)
    layout = make_layout(torch.zeros(1, length).long(), causal=True)
    with Largest() as largest:  # type: ignore[no-untyped-call]
        with_hooks(inputs[0], inputs[1], inputs[2], layout, vectors).sum().backward()
    assert largest.numbers == HEADS * length * length


def test_taps_include_the_position_bias() -> None:
    inputs, layout, vectors = qkv(1, 4), make_layout(torch.zeros(1, 4).long()), vectors_of(2, per_head=False)
    kernel = FullAttention(SCALE)
    with open_taps(kernel) as values:
        kernel(*inputs, layout, vectors.bias(inputs[0], layout), lambda weights: vectors.mix(weights, layout))
    bias = vectors.bias(inputs[0], layout)
    assert bias is not None
    torch.testing.assert_close(values["scaled"], values["scores"] * SCALE + bias)


@pytest.mark.parametrize("per_head", [False, True])
def test_vectors_start_with_the_scale_of_their_width(per_head: bool) -> None:
    vectors = RelativeVectors(500, per_head, HEADS, key_width=16, value_width=64, scale=SCALE)
    assert vectors.keys.std().item() == pytest.approx(1 / 4, rel=0.05)
    assert vectors.values.std().item() == pytest.approx(1 / 8, rel=0.05)
