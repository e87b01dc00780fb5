"""Cheaper kernels are full attention under a mask, or the formula of their paper."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import InputError
from regard.nn import (
    AlibiPositions,
    BigBirdAttention,
    FullAttention,
    Layout,
    LengthProjection,
    LinformerAttention,
    Positions,
    RelativePositions,
    RotaryPositions,
    SelfAttention,
    WindowAttention,
    attend,
    make_layout,
    open_taps,
)
from regard.nn.bigbird import BigBirdPattern, block_plan
from regard.nn.sparse import ExplicitMask, SparseAttention

TOLERANCE = 1e-9
ROWS, HEADS, WIDTH, VALUES = 3, 2, 4, 5


def vectors(length: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(ROWS, HEADS, length, width) for width in (WIDTH, WIDTH, VALUES)]
    return [torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


def pads(length: int, kind: str, seed: int) -> Tensor | None:
    """None, pads at the end, or anywhere; the first token of each row is real, the last row is full."""
    generator = torch.Generator().manual_seed(seed + 1)
    if kind == "none":
        return None
    if kind == "end":
        mask = torch.arange(length) < torch.randint(1, length + 1, (ROWS, 1), generator=generator)
    else:
        mask = torch.rand(ROWS, length, generator=generator) < 0.7
    mask[:, 0] = True
    mask[-1] = True
    return mask


def by_hand(mask: Tensor | None, length: int, sees: Callable[[int, int, int], bool]) -> Tensor:
    """Who may look where (B, 1, T, S), token by token: `sees(i, j, n)` for the i-th and j-th real tokens of n."""
    mask = torch.ones(ROWS, length, dtype=torch.bool) if mask is None else mask
    allowed = torch.zeros(ROWS, 1, length, length, dtype=torch.bool)
    for row in range(ROWS):
        places = mask[row].nonzero().squeeze(1).tolist()
        for i, query in enumerate(places):
            for j, key in enumerate(places):
                allowed[row, 0, query, key] = sees(i, j, len(places))
    return allowed


def agrees_with_dense(
    kernel: SparseAttention, qkv: list[Tensor], layout: Layout, allowed: Tensor, mask: Tensor | None
) -> None:
    """Outputs and gradients of the blocks, and of what runs under open taps, are those of `attend` under the mask."""
    at_real = torch.ones(ROWS, 1, 1, 1, dtype=torch.bool) if mask is None else mask[:, None, :, None]
    q, k, v = qkv
    expected, weights = attend(q, k, v, allowed, scale=kernel.scale)
    wanted = torch.autograd.grad((expected * at_real).sin().sum(), qkv)
    for watched in (False, True):
        if watched:
            with open_taps(kernel) as seen:
                out = kernel(*qkv, layout)
            found = (seen["weights"] - weights).masked_select(at_real)
            assert found.abs().max() < TOLERANCE
        else:
            out = kernel(*qkv, layout)
        assert ((out - expected) * at_real).abs().max() < TOLERANCE
        gradients = torch.autograd.grad((out * at_real).sin().sum(), qkv)
        for gradient, want in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient, want, atol=TOLERANCE, rtol=0)


@given(
    length=st.integers(1, 40),
    reach=st.integers(1, 6),
    causal=st.booleans(),
    padding=st.sampled_from(["none", "end", "anywhere"]),
    seed=st.integers(0, 2**16),
)
def test_a_window_equals_full_attention_under_its_mask(
    length: int, reach: int, causal: bool, padding: str, seed: int
) -> None:
    kernel, mask, qkv = WindowAttention(0.5, reach), pads(length, padding, seed), vectors(length, seed)
    kernel.block = reach + seed % 2  # as small as can be, so that short sentences have many
    layout = make_layout(torch.zeros(ROWS, length), mask, causal=causal)
    allowed = by_hand(mask, length, lambda i, j, n: abs(i - j) <= reach and not (causal and j > i))
    agrees_with_dense(kernel, qkv, layout, allowed, mask)


@given(length=st.integers(8, 30), reach=st.integers(1, 3), padding=st.booleans(), seed=st.integers(0, 2**16))
def test_a_window_does_not_reach_into_another_document(length: int, reach: int, padding: bool, seed: int) -> None:
    kernel, qkv = WindowAttention(0.5, reach), vectors(length, seed)
    kernel.block = reach
    mask = pads(length, "anywhere" if padding else "none", seed)
    documents = (torch.arange(length) // 5).expand(ROWS, -1)
    layout = make_layout(torch.zeros(ROWS, length), mask, causal=True, features={"document_ids": documents})
    every = torch.ones(ROWS, length, dtype=torch.bool) if mask is None else mask
    number = every.cumsum(1)[:, None, :, None]
    behind = number - number.mT
    allowed = (behind >= 0) & (behind <= reach) & every[:, None, None] & every[:, None, :, None]
    allowed &= (documents[:, :, None] == documents[:, None])[:, None]
    agrees_with_dense(kernel, qkv, layout, allowed, mask)


@given(
    length=st.integers(1, 40),
    block=st.integers(1, 4),
    window=st.sampled_from([1, 3]),
    globals_=st.integers(0, 3),
    random=st.integers(0, 2),
    padding=st.sampled_from(["none", "end", "anywhere"]),
    seed=st.integers(0, 2**16),
)
def test_bigbird_equals_full_attention_under_its_mask(
    length: int, block: int, window: int, globals_: int, random: int, padding: str, seed: int
) -> None:
    pattern = BigBirdPattern(window, globals_, random, seed)
    kernel, mask, qkv = BigBirdAttention(0.5, block, pattern), pads(length, padding, seed), vectors(length, seed)
    layout = make_layout(torch.zeros(ROWS, length), mask)
    allowed = by_hand(mask, length, lambda i, j, n: j // block in block_plan(pattern, -(-n // block))[i // block])
    agrees_with_dense(kernel, qkv, layout, allowed, mask)


@given(
    blocks=st.integers(1, 40),
    window=st.sampled_from([1, 3, 5]),
    globals_=st.integers(0, 4),
    random=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_the_plan_has_window_global_and_random_blocks(
    blocks: int, window: int, globals_: int, random: int, seed: int
) -> None:
    rows = block_plan(BigBirdPattern(window, globals_, random, seed), blocks)
    everywhere = {block for block in range(blocks) if all(block in row for row in rows)}
    sees_all = [block for block, row in enumerate(rows) if len(row) == blocks]
    assert len(everywhere) >= min(globals_, blocks)
    assert len(sees_all) >= min(globals_, blocks)
    for block, row in enumerate(rows):
        near = {other for other in range(blocks) if abs(other - block) <= window // 2}
        assert near <= {*row}
        if len(row) < blocks:
            from_ends = {*range(globals_ - globals_ // 2), *range(blocks - globals_ // 2, blocks)}
            assert len({*row} - near - from_ends) == random


def test_the_plan_follows_from_seed_and_length() -> None:
    assert block_plan(BigBirdPattern(1, 1, 1, 7), 8) == block_plan(BigBirdPattern(1, 1, 1, 7), 8)
    assert block_plan(BigBirdPattern(1, 1, 1, 7), 8) != block_plan(BigBirdPattern(1, 1, 1, 8), 8)
    assert [row[-1] for row in block_plan(BigBirdPattern(1, 0, 1, 0), 6)] == [
        4,
        5,
        2,
        4,
        4,
        5,
    ]  # and is the same everywhere


@given(
    length=st.integers(1, 12),
    mixtures=st.integers(1, 4),
    per_head=st.booleans(),
    padding=st.sampled_from(["none", "end", "anywhere"]),
    seed=st.integers(0, 2**16),
)
def test_linformer_is_its_formula(length: int, mixtures: int, per_head: bool, padding: str, seed: int) -> None:
    torch.manual_seed(seed)
    e, f = (LengthProjection(mixtures, 12, HEADS if per_head else None).double() for _ in range(2))
    kernel, mask = LinformerAttention(0.5, e, f), pads(length, padding, seed)
    q, k, v = vectors(length, seed)
    out = kernel(q, k, v, make_layout(torch.zeros(ROWS, length), mask))
    for row in range(ROWS):
        kept = slice(None) if mask is None else mask[row]
        for head in range(HEADS):
            ours = [w.weight[head] if per_head else w.weight for w in (e, f)]  # (K, n)
            n = k[row, head, kept].size(0)
            keys, values = ours[0][:, :n] @ k[row, head, kept], ours[1][:, :n] @ v[row, head, kept]
            expected = (q[row, head, kept] @ keys.mT * 0.5).softmax(-1) @ values
            assert (out[row, head, kept] - expected).abs().max() < TOLERANCE


def test_a_longer_text_than_linformer_has_learned_gets_a_sentence() -> None:
    kernel, x = LinformerAttention(0.5, LengthProjection(2, 4), LengthProjection(2, 4)), torch.randn(1, 2, 5, 4)
    with pytest.raises(InputError) as raised:
        kernel(x, x, x, make_layout(torch.zeros(1, 5)))
    assert str(raised.value) == (
        "The input is 5 tokens long, but this network's Linformer attention has a limit of 4: "
        "shorten the input, or train with model.attention.max_length = 5."
    )
    kernel(x, x, x, make_layout(torch.zeros(1, 5), torch.arange(5)[None] < 4))  # pads do not count


def test_linformer_has_no_distances() -> None:
    kernel, x = LinformerAttention(0.5, LengthProjection(2, 4), LengthProjection(2, 4)), torch.randn(1, 2, 3, 4)
    with pytest.raises(InputError) as raised:
        kernel(x, x, x, make_layout(torch.zeros(1, 3)), torch.zeros(1, 1, 3, 3))
    assert str(raised.value) == (
        "Linformer attends to mixtures of tokens, which have no distance: set model.positions to sinusoidal, learned, "
        "rotary or none, or model.attention to another kind."
    )


@pytest.mark.parametrize("way", [{"causal": True}, {"features": {"document_ids": torch.zeros(1, 3)}}])
def test_what_reads_whole_texts_reads_one_in_a_row_and_not_in_a_decoder(way: dict[str, object]) -> None:
    x, layout = torch.randn(1, 2, 3, 4), make_layout(torch.zeros(1, 3), **way)  # type: ignore[arg-type]
    with pytest.raises(InputError) as raised:
        LinformerAttention(0.5, LengthProjection(2, 4), LengthProjection(2, 4))(x, x, x, layout)
    assert str(raised.value) == (
        "Linformer attention mixes whole rows: it needs one text per row and cannot be used in a decoder."
    )
    for block in (1, 64):
        with pytest.raises(InputError) as raised:
            BigBirdAttention(0.5, block, BigBirdPattern(1, 0, 0, 0))(x, x, x, layout)
        assert str(raised.value) == (
            "BigBird attention works on whole rows: it needs one text per row and cannot be used in a decoder."
        )


@pytest.mark.parametrize("kernel", [WindowAttention(0.5, 2), BigBirdAttention(0.5, 2, BigBirdPattern(1, 1, 1, 0))])
def test_what_positions_add_to_each_pair_is_added(kernel: SparseAttention) -> None:
    q, k, v = vectors(20, 0)
    if isinstance(kernel, WindowAttention):
        kernel.block = 2
    layout, bias, table = (
        make_layout(torch.zeros(ROWS, 20)),
        torch.randn(1, HEADS, 20, 20).double(),
        torch.randn(20, VALUES),
    )
    scores = (q @ k.mT * 0.5 + bias).masked_fill(~kernel.pattern_mask(layout), -torch.inf)
    weights = scores.softmax(-1)
    out = kernel(q, k, v, layout, bias, lambda weights: weights @ table.double())
    torch.testing.assert_close(out, weights @ v + weights @ table.double())


SCHEMES: list[Positions] = [
    Positions(),
    RotaryPositions(),
    RotaryPositions(halves=True),
    AlibiPositions(),
    RelativePositions(max_distance=3),
    RelativePositions(max_distance=2, per_head=True),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@given(length=st.integers(1, 30), padding=st.sampled_from(["none", "end", "anywhere"]), seed=st.integers(0, 2**16))
def test_under_every_position_scheme_a_sparse_layer_equals_a_full_one_under_the_same_mask(
    scheme: Positions, causal: bool, length: int, padding: str, seed: int
) -> None:
    torch.manual_seed(seed)
    window, bird = WindowAttention(0.5, 2), BigBirdAttention(0.5, 2, BigBirdPattern(1, 1, 1, seed))
    window.block = 2
    mask = pads(length, padding, seed)
    at_real = torch.ones(ROWS, length, dtype=torch.bool) if mask is None else mask
    x = torch.randn(ROWS, length, 2 * HEADS * WIDTH).double()
    kernels: list[SparseAttention] = [window] if causal else [window, bird]
    for kernel in kernels:
        sparse = SelfAttention(2 * HEADS * WIDTH, HEADS, kernel, scheme).double()
        full = SelfAttention(2 * HEADS * WIDTH, HEADS, FullAttention(0.5), scheme).double()
        full.load_state_dict(sparse.state_dict())
        layout = make_layout(torch.zeros(ROWS, length), mask, causal=causal, pack=False)
        pairs = kernel.pattern_mask(layout)
        pairs = pairs if layout.mask.allowed is None else pairs & layout.mask.allowed
        same = replace(layout, mask=ExplicitMask(length, length, pairs=pairs))
        torch.testing.assert_close(sparse(x, layout)[at_real], full(x, same)[at_real], atol=TOLERANCE, rtol=0)


@given(length=st.integers(1, 12), halves=st.booleans(), seed=st.integers(0, 2**16))
def test_a_linformer_with_rotary_positions_mixes_the_scores_of_turned_tokens(
    length: int, halves: bool, seed: int
) -> None:
    """So that shifting all tokens alike changes no score."""
    torch.manual_seed(seed)
    e, rotary = LengthProjection(3, 12).double(), RotaryPositions(halves=halves)
    kernel, (q, k, v) = LinformerAttention(0.5, e, e), vectors(length, seed)
    layout = make_layout(torch.zeros(ROWS, length))
    turned = [rotary.rotate(x, layout.keys) for x in (q, k)]
    with open_taps(kernel) as seen:
        kernel(*turned, v, layout)
    scores = turned[0] @ turned[1].mT  # of each pair of tokens, which depend on their distance
    torch.testing.assert_close(seen["scores"], scores @ e.weight[:, :length].mT, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kept", [20, 9])
def test_a_cached_step_gets_what_positions_add_even_where_old_keys_are_gone(kept: int) -> None:
    kernel, (q, k, v) = WindowAttention(0.5, 4), vectors(20, 0)
    bias, table = torch.randn(1, HEADS, 20, 20).double(), torch.randn(20, VALUES).double()
    whole = kernel(q, k, v, make_layout(torch.zeros(ROWS, 20), causal=True), bias, lambda weights: weights @ table)
    new = make_layout(torch.zeros(ROWS, 3), before=17, causal=True)
    last = slice(20 - kept, None)
    step = kernel(q[:, :, 17:], k[:, :, last], v[:, :, last], new, bias[:, :, 17:], lambda weights: weights @ table)
    torch.testing.assert_close(step, whole[:, :, 17:])


@pytest.mark.parametrize("length", [40, 200])
def test_dropped_weights_are_on_average_kept(length: int) -> None:
    kernels: list[SparseAttention] = [
        WindowAttention(0.1, 3, dropout=0.25),
        BigBirdAttention(0.1, 4, BigBirdPattern(3, 2, 1, 0), dropout=0.25),
    ]
    torch.manual_seed(0)
    q, v = torch.randn(1, 1, length, 4), torch.ones(1, 1, length, 4)
    for kernel in kernels:
        out = torch.stack([kernel(q, q, v, make_layout(torch.zeros(1, length))) for _ in range(200)])
        assert out.std() > 0.05
        assert abs(out.mean() - 1) < 0.02
        assert (kernel.eval()(q, q, v, make_layout(torch.zeros(1, length))) - 1).abs().max() < 1e-5


@given(length=st.integers(1, 40), padding=st.sampled_from(["none", "end", "anywhere"]), seed=st.integers(0, 2**16))
def test_the_way_that_can_drop_weights_agrees_where_it_drops_none(length: int, padding: str, seed: int) -> None:
    mask, (q, k, v) = pads(length, padding, seed), vectors(length, seed)
    at_real = torch.ones(ROWS, 1, 1, 1, dtype=torch.bool) if mask is None else mask[:, None, :, None]
    window, bird = WindowAttention(0.5, 3), BigBirdAttention(0.5, 2, BigBirdPattern(3, 2, 1, seed))
    window.block = 3
    layout = make_layout(torch.zeros(ROWS, length), mask)
    for kernel in (window, bird):
        usual = kernel(q, k, v, layout)
        kernel.dropout = 1e-9  # none of so few
        torch.testing.assert_close(kernel(q, k, v, layout) * at_real, usual * at_real, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kernel", [WindowAttention(0.5, 16), BigBirdAttention(0.5, 16, BigBirdPattern(3, 2, 1, 0))])
def test_no_tensor_has_an_entry_for_each_pair(kernel: SparseAttention) -> None:
    length, largest = 4096, 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = function(*arguments, **(keywords or {}))
            largest = max(largest, out.numel() if isinstance(out, Tensor) else 0)
            return out

    x = torch.randn(1, 1, length, 4)
    with Largest():  # type: ignore[no-untyped-call]
        kernel(x, x, x, make_layout(torch.zeros(1, length)))
    assert largest < length * length / 8


def test_flops_are_those_of_the_pairs_that_meet() -> None:
    assert WindowAttention(0.5, 3).flops(100, 2, 1, 2, 3) == 2 * 7 * 10
    assert WindowAttention(0.5, 3).flops(5, 2, 1, 2, 3) == 2 * 5 * 10
    bird = BigBirdAttention(0.5, 10, BigBirdPattern(3, 2, 1, 0))
    assert bird.flops(20, 2, 2, 2, 3) == 2 * 20 * 10
    assert bird.flops(100, 2, 2, 2, 3) == 2 * 68 * 10  # 8 blocks meet 6 of 10, and 2 meet all
    linformer = LinformerAttention(0.5, LengthProjection(3, 9), LengthProjection(3, 9))
    assert linformer.flops(100, 2, 2, 2, 3) == 2 * 2 * 3 * 10
    assert linformer.flops(100, 2, 1, 2, 3) == 2 * 3 * 10 + 2 * 3 * 5  # mixing grouped heads costs half
