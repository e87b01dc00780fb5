"""Window and BigBird attention equal full attention under a mask, Linformer the formula of its paper."""

from collections.abc import Callable
from contextlib import nullcontext
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
    cpu,
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


def random_mask(length: int, kind: str, seed: int) -> Tensor | None:
    """Return a mask without padding, with padding at the end, or anywhere; the last row has none."""
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


def allowed_pairs(mask: Tensor | None, length: int, attends: Callable[[int, int, int], bool]) -> Tensor:
    """Return a mask (B, 1, T, S), token by token, from `attends(i, j, n)` for the i-th and j-th of n tokens."""
    mask = torch.ones(ROWS, length, dtype=torch.bool) if mask is None else mask
    allowed = torch.zeros(ROWS, 1, length, length, dtype=torch.bool)
    for row in range(ROWS):
        places = mask[row].nonzero().squeeze(1).tolist()
        for i, query in enumerate(places):
            for j, key in enumerate(places):
                allowed[row, 0, query, key] = attends(i, j, len(places))
    return allowed


def check_against_dense(
    kernel: SparseAttention, qkv: list[Tensor], layout: Layout, allowed: Tensor, mask: Tensor | None
) -> None:
    """Compare outputs and gradients with `attend` under the mask: in blocks, on CPUs and elsewhere, and with taps."""
    at_tokens = torch.ones(ROWS, 1, 1, 1, dtype=torch.bool) if mask is None else mask[:, None, :, None]
    q, k, v = qkv
    expected, weights = attend(q, k, v, allowed, scale=kernel.scale)
    expected_gradients = torch.autograd.grad((expected * at_tokens).sin().sum(), qkv)
    for way in ("CPU", "other devices", "taps"):
        if way == "taps":
            with open_taps(kernel) as values:
                out = kernel(*qkv, layout)
            difference = (values["weights"] - weights).masked_select(at_tokens)
            assert difference.abs().max() < TOLERANCE
        else:
            with cpu.disabled() if way == "other devices" else nullcontext():
                out = kernel(*qkv, layout)
        assert ((out - expected) * at_tokens).abs().max() < TOLERANCE
        gradients = torch.autograd.grad((out * at_tokens).sin().sum(), qkv)
        for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(gradient, expected_gradient, atol=TOLERANCE, rtol=0)


@given(
    length=st.integers(1, 40),
    window=st.integers(1, 6),
    causal=st.booleans(),
    padding=st.sampled_from(["none", "end", "anywhere"]),
    seed=st.integers(0, 2**16),
)
def test_a_window_equals_full_attention_under_its_mask(
    length: int, window: int, causal: bool, padding: str, seed: int
) -> None:
    kernel, mask, qkv = WindowAttention(0.5, window), random_mask(length, padding, seed), vectors(length, seed)
    kernel.block = window + seed % 2  # small, so that short sequences have many blocks
    layout = make_layout(torch.zeros(ROWS, length), mask, causal=causal)
    allowed = allowed_pairs(mask, length, lambda i, j, n: abs(i - j) <= window and not (causal and j > i))
    check_against_dense(kernel, qkv, layout, allowed, mask)


@given(length=st.integers(8, 30), window=st.integers(1, 3), padding=st.booleans(), seed=st.integers(0, 2**16))
def test_a_window_does_not_cross_documents(length: int, window: int, padding: bool, seed: int) -> None:
    kernel, qkv = WindowAttention(0.5, window), vectors(length, seed)
    kernel.block = window
    mask = random_mask(length, "anywhere" if padding else "none", seed)
    documents = (torch.arange(length) // 5).expand(ROWS, -1)
    layout = make_layout(torch.zeros(ROWS, length), mask, causal=True, features={"document_ids": documents})
    every = torch.ones(ROWS, length, dtype=torch.bool) if mask is None else mask
    number = every.cumsum(1)[:, None, :, None]
    behind = number - number.mT
    allowed = (behind >= 0) & (behind <= window) & every[:, None, None] & every[:, None, :, None]
    allowed &= (documents[:, :, None] == documents[:, None])[:, None]
    check_against_dense(kernel, qkv, layout, allowed, mask)


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
    kernel, mask, qkv = BigBirdAttention(0.5, block, pattern), random_mask(length, padding, seed), vectors(length, seed)
    layout = make_layout(torch.zeros(ROWS, length), mask)
    allowed = allowed_pairs(mask, length, lambda i, j, n: j // block in block_plan(pattern, -(-n // block))[i // block])
    check_against_dense(kernel, qkv, layout, allowed, mask)


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
    attended_by_all = {block for block in range(blocks) if all(block in row for row in rows)}
    attends_to_all = [block for block, row in enumerate(rows) if len(row) == blocks]
    assert len(attended_by_all) >= min(globals_, blocks)
    assert len(attends_to_all) >= min(globals_, blocks)
    for block, row in enumerate(rows):
        near = {other for other in range(blocks) if abs(other - block) <= window // 2}
        assert near <= {*row}
        if len(row) < blocks:
            from_ends = {*range(globals_ - globals_ // 2), *range(blocks - globals_ // 2, blocks)}
            assert len({*row} - near - from_ends) == random


def test_the_plan_depends_on_seed_and_length_only() -> None:
    assert block_plan(BigBirdPattern(1, 1, 1, 7), 8) == block_plan(BigBirdPattern(1, 1, 1, 7), 8)
    assert block_plan(BigBirdPattern(1, 1, 1, 7), 8) != block_plan(BigBirdPattern(1, 1, 1, 8), 8)
    last_blocks = [row[-1] for row in block_plan(BigBirdPattern(1, 0, 1, 0), 6)]
    assert last_blocks == [4, 5, 2, 4, 4, 5]  # the same on every machine


@given(
    length=st.integers(1, 12),
    mixtures=st.integers(1, 4),
    per_head=st.booleans(),
    padding=st.sampled_from(["none", "end", "anywhere"]),
    seed=st.integers(0, 2**16),
)
def test_linformer_equals_its_formula(length: int, mixtures: int, per_head: bool, padding: str, seed: int) -> None:
    torch.manual_seed(seed)
    e, f = (LengthProjection(mixtures, 12, HEADS if per_head else None).double() for _ in range(2))
    kernel, mask = LinformerAttention(0.5, e, f), random_mask(length, padding, seed)
    q, k, v = vectors(length, seed)
    out = kernel(q, k, v, make_layout(torch.zeros(ROWS, length), mask))
    for row in range(ROWS):
        kept = slice(None) if mask is None else mask[row]
        for head in range(HEADS):
            weights = [w.weight[head] if per_head else w.weight for w in (e, f)]  # (K, n)
            n = k[row, head, kept].size(0)
            keys, values = weights[0][:, :n] @ k[row, head, kept], weights[1][:, :n] @ v[row, head, kept]
            expected = (q[row, head, kept] @ keys.mT * 0.5).softmax(-1) @ values
            assert (out[row, head, kept] - expected).abs().max() < TOLERANCE


def test_linformer_rejects_longer_inputs_than_it_was_trained_for() -> None:
    kernel, x = LinformerAttention(0.5, LengthProjection(2, 4), LengthProjection(2, 4)), torch.randn(1, 2, 5, 4)
    with pytest.raises(InputError) as raised:
        kernel(x, x, x, make_layout(torch.zeros(1, 5)))
    assert str(raised.value) == (
        "The input is 5 tokens long, but this network's Linformer attention has a limit of 4: "
        "shorten the input, or train with model.attention.max_length = 5."
    )
    kernel(x, x, x, make_layout(torch.zeros(1, 5), torch.arange(5)[None] < 4))  # padding does not count


def test_linformer_rejects_a_position_bias() -> None:
    kernel, x = LinformerAttention(0.5, LengthProjection(2, 4), LengthProjection(2, 4)), torch.randn(1, 2, 3, 4)
    with pytest.raises(InputError) as raised:
        kernel(x, x, x, make_layout(torch.zeros(1, 3)), torch.zeros(1, 1, 3, 3))
    assert str(raised.value) == (
        "Linformer attends to mixtures of tokens, which have no distance: set model.positions to sinusoidal, learned, "
        "rotary or none, or model.attention to another kind."
    )


@pytest.mark.parametrize("options", [{"causal": True}, {"features": {"document_ids": torch.zeros(1, 3)}}])
def test_kernels_on_whole_rows_reject_decoders_and_packed_documents(options: dict[str, object]) -> None:
    x, layout = torch.randn(1, 2, 3, 4), make_layout(torch.zeros(1, 3), **options)  # type: ignore[arg-type]
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
def test_position_bias_and_mix_are_added(kernel: SparseAttention) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@given(length=st.integers(1, 30), padding=st.sampled_from(["none", "end", "anywhere"]), seed=st.integers(0, 2**16))
def test_a_sparse_layer_equals_a_full_one_under_the_same_mask_for_every_position_scheme(
    scheme: Positions, causal: bool, length: int, padding: str, seed: int
) -> None:
    torch.manual_seed(seed)
    window, bigbird = WindowAttention(0.5, 2), BigBirdAttention(0.5, 2, BigBirdPattern(1, 1, 1, seed))
    window.block = 2
    mask = random_mask(length, padding, seed)
    at_tokens = torch.ones(ROWS, length, dtype=torch.bool) if mask is None else mask
    x = torch.randn(ROWS, length, 2 * HEADS * WIDTH).double()
    kernels: list[SparseAttention] = [window] if causal else [window, bigbird]
    for kernel in kernels:
        sparse = SelfAttention(2 * HEADS * WIDTH, HEADS, kernel, scheme).double()
        full = SelfAttention(2 * HEADS * WIDTH, HEADS, FullAttention(0.5), scheme).double()
        full.load_state_dict(sparse.state_dict())
        layout = make_layout(torch.zeros(ROWS, length), mask, causal=causal, pack=False)
        pairs = kernel.pattern_mask(layout)
        pairs = pairs if layout.mask.allowed is None else pairs & layout.mask.allowed
        same = replace(layout, mask=ExplicitMask(length, length, pairs=pairs))
        torch.testing.assert_close(sparse(x, layout)[at_tokens], full(x, same)[at_tokens], atol=TOLERANCE, rtol=0)


@given(length=st.integers(1, 12), halves=st.booleans(), seed=st.integers(0, 2**16))
def test_linformer_with_rotary_positions_mixes_the_scores_of_rotated_tokens(
    length: int, halves: bool, seed: int
) -> None:
    """So shifting all tokens changes no score."""
    torch.manual_seed(seed)
    e, rotary = LengthProjection(3, 12).double(), RotaryPositions(halves=halves)
    kernel, (q, k, v) = LinformerAttention(0.5, e, e), vectors(length, seed)
    layout = make_layout(torch.zeros(ROWS, length))
    rotated = [rotary.rotate(x, layout.keys) for x in (q, k)]
    with open_taps(kernel) as values:
        kernel(*rotated, v, layout)
    scores = rotated[0] @ rotated[1].mT  # depend on the distance of the tokens
    torch.testing.assert_close(values["scores"], scores @ e.weight[:, :length].mT, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kept", [20, 9])
def test_a_cached_step_adds_bias_and_mix_although_old_keys_are_dropped(kept: int) -> None:
    kernel, (q, k, v) = WindowAttention(0.5, 4), vectors(20, 0)
    bias, table = torch.randn(1, HEADS, 20, 20).double(), torch.randn(20, VALUES).double()
    whole = kernel(q, k, v, make_layout(torch.zeros(ROWS, 20), causal=True), bias, lambda weights: weights @ table)
    new = make_layout(torch.zeros(ROWS, 3), before=17, causal=True)
    last = slice(20 - kept, None)
    step = kernel(q[:, :, 17:], k[:, :, last], v[:, :, last], new, bias[:, :, 17:], lambda weights: weights @ table)
    torch.testing.assert_close(step, whole[:, :, 17:])


@pytest.mark.parametrize("length", [40, 200])
def test_attention_dropout_keeps_the_mean(length: int) -> None:
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
def test_the_path_with_dropout_equals_the_other_at_a_tiny_rate(length: int, padding: str, seed: int) -> None:
    mask, (q, k, v) = random_mask(length, padding, seed), vectors(length, seed)
    at_tokens = torch.ones(ROWS, 1, 1, 1, dtype=torch.bool) if mask is None else mask[:, None, :, None]
    window, bigbird = WindowAttention(0.5, 3), BigBirdAttention(0.5, 2, BigBirdPattern(3, 2, 1, seed))
    window.block = 3
    layout = make_layout(torch.zeros(ROWS, length), mask)
    for kernel in (window, bigbird):
        without = kernel(q, k, v, layout)
        kernel.dropout = 1e-9  # drops nothing in practice
        torch.testing.assert_close(kernel(q, k, v, layout) * at_tokens, without * at_tokens, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kernel", [WindowAttention(0.5, 16), BigBirdAttention(0.5, 16, BigBirdPattern(3, 2, 1, 0))])
def test_no_tensor_grows_with_the_square_of_the_length(kernel: SparseAttention) -> None:
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


def test_flops_count_the_pairs_of_the_pattern() -> None:
    assert WindowAttention(0.5, 3).flops(100, 2, 1, 2, 3) == 2 * 7 * 10
    assert WindowAttention(0.5, 3).flops(5, 2, 1, 2, 3) == 2 * 5 * 10
    bigbird = BigBirdAttention(0.5, 10, BigBirdPattern(3, 2, 1, 0))
    assert bigbird.flops(20, 2, 2, 2, 3) == 2 * 20 * 10
    assert bigbird.flops(100, 2, 2, 2, 3) == 2 * 68 * 10  # 8 blocks attend to 6 of 10, and 2 to all
    linformer = LinformerAttention(0.5, LengthProjection(3, 9), LengthProjection(3, 9))
    assert linformer.flops(100, 2, 2, 2, 3) == 2 * 2 * 3 * 10
    assert linformer.flops(100, 2, 1, 2, 3) == 2 * 3 * 10 + 2 * 3 * 5  # mixing grouped heads costs half
