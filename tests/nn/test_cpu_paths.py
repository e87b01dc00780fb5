"""The CPU paths for heads and for block-sparse attention equal the plain code, forward and backward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn import attend, cpu
from regard.nn.cpu.attention import blockwise_attention
from regard.nn.cpu.functional import gather_heads, scatter_heads
from regard.nn.functional import merge_heads, split_heads
from regard.nn.layout import Packing, PaddingMask, Tokens

HEAD_WIDTH = 3
BATCH, HEADS, BLOCK = 2, 2, 3


def test_the_switch_turns_fast_paths_off_for_cpus_only() -> None:
    assert cpu.enabled(torch.device("cpu"))
    assert not cpu.enabled(torch.device("meta"))
    with cpu.disabled():
        assert not cpu.enabled(torch.device("cpu"))
    assert cpu.enabled(torch.device("cpu"))


@st.composite
def tokens_with_masks(draw: st.DrawFn) -> tuple[Tokens, Tensor]:
    """Tokens that are packed or not, and their mask (B, T)."""
    batch, length = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    positions = torch.arange(length)[None]
    if draw(st.booleans()):
        return Tokens(positions), torch.ones(batch, length, dtype=torch.bool)
    mask = torch.rand(batch, length, generator=generator) < 0.6
    mask[0, 0] = True
    return Tokens(positions, packing=Packing.of(PaddingMask.of(mask))), mask


@given(tokens_with_masks(), st.integers(1, 3), st.integers(1, 3))
def test_gather_heads_equals_split_heads(drawn: tuple[Tokens, Tensor], heads: int, parts: int) -> None:
    tokens, mask = drawn
    shape = (int(mask.sum()),) if tokens.packing is not None else tuple(mask.shape)
    x = torch.randn(*shape, parts * heads * HEAD_WIDTH, dtype=torch.float64, requires_grad=True)
    at_tokens = mask[:, None, :, None]
    weight = torch.randn(parts, len(mask), heads, mask.size(1), HEAD_WIDTH, dtype=torch.float64) * at_tokens
    fast = torch.stack(gather_heads(x, tokens, heads, parts))
    with cpu.disabled():
        plain = torch.stack(split_heads(x, tokens, heads, parts))
    assert torch.equal(fast * at_tokens, plain * at_tokens)
    gradients = [torch.autograd.grad((out * weight).sum(), x)[0] for out in (fast, plain)]
    assert torch.equal(*gradients)


@given(tokens_with_masks(), st.integers(1, 3))
def test_scatter_heads_equals_merge_heads(drawn: tuple[Tokens, Tensor], heads: int) -> None:
    tokens, mask = drawn
    x = torch.randn(len(mask), heads, mask.size(1), HEAD_WIDTH, dtype=torch.float64, requires_grad=True)
    fast = scatter_heads(x, tokens)
    with cpu.disabled():
        plain = merge_heads(x, tokens)
    assert torch.equal(fast, plain)
    weight = torch.randn_like(fast)
    gradients = [torch.autograd.grad((out * weight).sum(), x)[0] for out in (fast, plain)]
    assert torch.equal(*gradients)  # zero at padding


@given(
    blocks=st.integers(1, 5),
    keys=st.integers(1, 5),
    chunk_scores=st.integers(1, 400),
    padded=st.booleans(),
    data=st.data(),
)
def test_chunks_of_blocks_equal_attention_under_a_mask(
    blocks: int, keys: int, chunk_scores: int, padded: bool, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**16)))
    rows = [data.draw(st.lists(st.integers(0, keys - 1), min_size=1, unique=True)) for _ in range(blocks)]
    shapes = [(BATCH, HEADS, count, BLOCK, width) for count, width in ((blocks, 4), (keys, 4), (keys, 5))]
    q, k, v = (torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes)
    lengths = torch.randint(0, keys * BLOCK + 1, (BATCH,))  # 0: all queries are fully masked

    def hidden(_: slice, seen: Tensor) -> Tensor | None:
        place = (seen[..., None] * BLOCK + torch.arange(BLOCK)).flatten(1)
        return (place >= lengths[:, None, None])[:, None, :, None] if padded else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.nn.cpu.attention.CHUNK_SCORES", chunk_scores)
        out = blockwise_attention(q, k, v, rows, hidden, 0.5)
        gradients = torch.autograd.grad(out.sin().sum(), (q, k, v))
    allowed = torch.zeros(BATCH, 1, blocks * BLOCK, keys * BLOCK, dtype=torch.bool)
    for block, row in enumerate(rows):
        for other in row:
            allowed[:, :, block * BLOCK : (block + 1) * BLOCK, other * BLOCK : (other + 1) * BLOCK] = True
    if padded:
        allowed &= (torch.arange(keys * BLOCK) < lengths[:, None])[:, None, None]
    expected, _ = attend(q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3), allowed, scale=0.5)
    expected_gradients = torch.autograd.grad(expected.sin().sum(), (q, k, v))
    torch.testing.assert_close(out.flatten(2, 3), expected, atol=1e-12, rtol=0)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_tiny_and_huge_scores_give_finite_outputs(size: float) -> None:
    q = torch.randn(1, 1, 4, 8, 4) * size
    out = blockwise_attention(q, q, torch.ones_like(q), [[0, 1], [1], [2, 3], [0, 3]], lambda _, seen: None, 1.0)
    torch.testing.assert_close(out, torch.ones_like(out))
