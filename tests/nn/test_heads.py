"""Into heads and out of them: the one gather equals padding, splitting and transposing, forward and backward."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.cpu.heads import gather_heads, scatter_heads
from regard.nn.layout import Packing, Tokens

WIDTH = 3


@st.composite
def tokens(draw: st.DrawFn) -> tuple[Tokens, Tensor]:
    """Tokens that are packed or not, and which are real (B, T)."""
    batch, length = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    index = torch.arange(length)[None]
    if draw(st.booleans()):
        return Tokens(index), torch.ones(batch, length, dtype=torch.bool)
    mask = torch.rand(batch, length, generator=generator) < 0.6
    mask[0, 0] = True
    return Tokens(index, packing=Packing.of(mask)), mask


def reference(x: Tensor, among: Tokens, heads: int, parts: int) -> tuple[Tensor, ...]:
    return tuple(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in among.pad(x).chunk(parts, dim=-1))


@given(tokens(), st.integers(1, 3), st.integers(1, 3))
def test_into_heads_equals_pad_split_transpose(drawn: tuple[Tokens, Tensor], heads: int, parts: int) -> None:
    among, mask = drawn
    shape = (int(mask.sum()),) if among.packing is not None else tuple(mask.shape)
    x = torch.randn(*shape, parts * heads * WIDTH, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(parts, len(mask), heads, mask.size(1), WIDTH, dtype=torch.float64) * mask[:, None, :, None]
    got, wanted = (torch.stack(way(x, among, heads, parts)) for way in (gather_heads, reference))
    assert torch.equal(got * mask[:, None, :, None], wanted * mask[:, None, :, None])
    gradients = [torch.autograd.grad((way * weight).sum(), x)[0] for way in (got, wanted)]
    assert torch.equal(*gradients)


@given(tokens(), st.integers(1, 3))
def test_out_of_heads_equals_transpose_join_pack(drawn: tuple[Tokens, Tensor], heads: int) -> None:
    among, mask = drawn
    x = torch.randn(len(mask), heads, mask.size(1), WIDTH, dtype=torch.float64, requires_grad=True)
    got, wanted = scatter_heads(x, among), among.pack(x.transpose(1, 2).flatten(2))
    assert torch.equal(got, wanted)
    weight = torch.randn_like(got)
    gradients = [torch.autograd.grad((way * weight).sum(), x)[0] for way in (got, wanted)]
    assert torch.equal(*gradients)  # and so zero at pads
