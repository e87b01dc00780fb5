"""Blocks that meet a few at a time: the same numbers and gradients as attention written out, however few at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn import attend
from regard.nn.cpu import blockwise
from regard.nn.cpu.blockwise import blockwise_attention

BATCH, HEADS, SIZE = 2, 2, 3


@given(
    blocks=st.integers(1, 5),
    keys=st.integers(1, 5),
    entries=st.integers(1, 400),
    padded=st.booleans(),
    data=st.data(),
)
def test_some_blocks_at_a_time_are_all_at_once(
    blocks: int, keys: int, entries: int, padded: bool, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**16)))
    rows = [data.draw(st.lists(st.integers(0, keys - 1), min_size=1, unique=True)) for _ in range(blocks)]
    shapes = [(BATCH, HEADS, count, SIZE, width) for count, width in ((blocks, 4), (keys, 4), (keys, 5))]
    q, k, v = (torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes)
    ends = torch.randint(0, keys * SIZE + 1, (BATCH,))  # 0: a text in which all queries look nowhere

    def hidden(_: slice, seen: Tensor) -> Tensor | None:
        place = (seen[..., None] * SIZE + torch.arange(SIZE)).flatten(1)
        return (place >= ends[:, None, None])[:, None, :, None] if padded else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise, "CHUNK_SCORES", entries)
        out = blockwise_attention(q, k, v, rows, hidden, 0.5)
        found = torch.autograd.grad(out.sin().sum(), (q, k, v))
    allowed = torch.zeros(BATCH, 1, blocks * SIZE, keys * SIZE, dtype=torch.bool)
    for block, row in enumerate(rows):
        for other in row:
            allowed[:, :, block * SIZE : (block + 1) * SIZE, other * SIZE : (other + 1) * SIZE] = True
    if padded:
        allowed &= (torch.arange(keys * SIZE) < ends[:, None])[:, None, None]
    expected, _ = attend(q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3), allowed, scale=0.5)
    wanted = torch.autograd.grad(expected.sin().sum(), (q, k, v))
    torch.testing.assert_close(out.flatten(2, 3), expected, atol=1e-12, rtol=0)
    for gradient, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_scores_of_any_size_give_numbers(size: float) -> None:
    q = torch.randn(1, 1, 4, 8, 4) * size
    out = blockwise_attention(q, q, torch.ones_like(q), [[0, 1], [1], [2, 3], [0, 3]], lambda _, seen: None, 1.0)
    torch.testing.assert_close(out, torch.ones_like(out))
