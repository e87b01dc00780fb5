"""Every path of full attention equals the formula of the paper: fused kernel, CPU matmuls, step by step under taps."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.nn import AttentionMask, FullAttention, Layout, Tokens, attend, causal_mask, cpu, open_taps
from regard.nn.attention import scaled_dot_product_attention
from regard.nn.cpu.attention import SHORT, matmul_attention, short_softmax
from regard.nn.functional import grouped_matmul, repeat_heads

Case = tuple[Tensor, Tensor, Tensor, Layout]
Path = Callable[..., Tensor]
SDPA = F.scaled_dot_product_attention


def fused_attention(*args: object, **options: object) -> Tensor:
    """The plain path, as on devices other than CPUs."""
    with cpu.disabled():
        return scaled_dot_product_attention(*args, **options)  # type: ignore[arg-type]


PATHS = [matmul_attention, fused_attention]


def layout(queries: int, keys: int, mask: Tensor | None = None, is_causal: bool = False) -> Layout:
    positions = torch.arange(keys)[None]
    return Layout(Tokens(positions[:, -queries:]), Tokens(positions), AttentionMask(queries, keys, mask, is_causal))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Random queries, keys and values with any mask that a network can produce; key and value heads may be grouped."""
    batch, kv_heads, group, width, value_width = (draw(st.integers(1, n)) for n in (4, 3, 3, 4, 4))
    queries = draw(st.integers(1, 6))
    is_causal = draw(st.booleans())
    keys = queries + draw(st.integers(0, 4)) if is_causal else draw(st.integers(1, 8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    mask = torch.rand(batch, keys, generator=generator) < 0.6 if draw(st.booleans()) else None
    q, k = random(batch, kv_heads * group, queries, width), random(batch, kv_heads, keys, width)
    return q, k, random(batch, kv_heads, keys, value_width), layout(queries, keys, mask, is_causal)


def kernel_for(q: Tensor, dropout: float = 0.0) -> FullAttention:
    return FullAttention(q.size(-1) ** -0.5, dropout)


@given(case=cases())
@pytest.mark.parametrize("path", PATHS)
def test_fast_paths_equal_the_reference(path: Path, case: Case) -> None:
    q, k, v, places = case
    expected, _ = attend(q, k, v, places.mask.allowed)
    scale = q.size(-1) ** -0.5
    torch.testing.assert_close(path(q, k, v, places.mask, None, scale=scale, dropout=0.0), expected)
    torch.testing.assert_close(kernel_for(q)(q, k, v, places), expected)


@given(case=cases(), biased=st.booleans())
def test_fast_paths_have_the_gradients_of_the_reference(case: Case, biased: bool) -> None:
    *qkv, places = case
    mask = places.mask
    bias = torch.randn(qkv[0].size(1), mask.queries, mask.keys, dtype=torch.float64) if biased else None
    kernel = kernel_for(qkv[0])

    def gradients(run: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        inputs = [x.clone().requires_grad_() for x in qkv]
        return torch.autograd.grad((run(*inputs) ** 2).sum(), inputs)

    def watched(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with open_taps(kernel):
            out: Tensor = kernel(q, k, v, places, bias)
        return out

    expected = gradients(watched)
    for path in PATHS:
        actual = gradients(lambda q, k, v, path=path: path(q, k, v, mask, bias, scale=kernel.scale, dropout=0.0))
        for ours, reference in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, reference)


@given(case=cases())
def test_grouped_heads_equal_ordinary_attention_with_repeated_heads(case: Case) -> None:
    q, k, v, places = case
    repeated = repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1))
    kernel = kernel_for(q)
    expected = kernel(q, *repeated, places)
    torch.testing.assert_close(kernel(q, k, v, places), expected)
    with open_taps(kernel) as taps:
        torch.testing.assert_close(kernel(q, k, v, places), expected)
    torch.testing.assert_close(taps["scores"], q @ repeated[0].mT)
    assert torch.equal(repeated[0][:, -1], k[:, -1])


def test_repeated_heads_are_consecutive() -> None:
    x = torch.arange(2.0).view(1, 2, 1, 1)
    assert repeat_heads(x, 6).flatten().tolist() == [0, 0, 0, 1, 1, 1]
    assert repeat_heads(x, 2) is x
    assert grouped_matmul(torch.ones(1, 6, 1, 1), x).flatten().tolist() == [0, 0, 0, 1, 1, 1]


@given(rows=st.integers(1, 4), keys=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_short_softmax_equals_softmax(rows: int, keys: int, seed: int) -> None:
    scores = torch.randn(rows, keys, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 30
    torch.testing.assert_close(short_softmax(scores), scores.softmax(-1))


@given(case=cases())
def test_the_additive_mask_agrees_with_the_boolean_mask(case: Case) -> None:
    mask = case[-1].mask
    if mask.allowed is None:
        assert mask.additive is None
        assert mask.fully_masked is None
        return
    assert mask.additive is not None
    attends = mask.allowed.any(-1, keepdim=True)
    assert torch.equal((mask.additive == 0) & attends, mask.allowed)
    assert ((mask.additive == 0) | (mask.additive == -math.inf)).all()
    assert (mask.additive == 0).any(-1).all()
    assert torch.equal(attends, torch.ones_like(attends) if mask.fully_masked is None else ~mask.fully_masked)


@given(case=cases())
def test_the_step_by_step_path_equals_the_reference(case: Case) -> None:
    q, k, v, places = case
    kernel = kernel_for(q)
    with open_taps(kernel) as taps:
        out = kernel(q, k, v, places)
    expected, weights = attend(q, k, v, places.mask.allowed)
    scores = q @ repeat_heads(k, q.size(1)).mT
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(taps["weights"], weights)
    torch.testing.assert_close(taps["scores"], scores)
    torch.testing.assert_close(taps["scaled"], scores / q.size(-1) ** 0.5)


@given(case=cases(), seed=st.integers(0, 2**31))
def test_position_bias_and_mix_are_the_same_on_all_paths(case: Case, seed: int) -> None:
    q, k, v, places = case
    kernel = kernel_for(q)
    torch.manual_seed(seed)
    bias = torch.randn(q.size(1), places.mask.queries, places.mask.keys, dtype=q.dtype)
    with open_taps(kernel) as taps:
        watched = kernel(q, k, v, places, bias)
    torch.testing.assert_close(kernel(q, k, v, places, bias), watched)
    table = torch.randn(places.mask.keys, v.size(-1), dtype=q.dtype)
    mixed = kernel(q, k, v, places, bias, lambda weights: weights @ table)
    torch.testing.assert_close(mixed, watched + taps["weights"] @ table)


@pytest.mark.parametrize("watched", [False, True])
def test_a_fully_masked_query_gets_zeros_and_finite_gradients(watched: bool) -> None:
    q, k, v = (torch.randn(2, 2, 3, 4, requires_grad=True) for _ in range(3))
    places = layout(3, 3, torch.tensor([[True, True, False], [False, False, False]]))
    kernel = FullAttention(0.5)
    with open_taps(kernel) if watched else nullcontext():
        out = kernel(q, k, v, places)
    assert (out[1] == 0).all()
    assert out[0].abs().sum() > 0
    out.sum().backward()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_the_reference_gives_zeros_to_fully_masked_queries() -> None:
    x = torch.randn(1, 1, 2, 4)
    out, weights = attend(x, x, x, torch.tensor([[True, False], [False, False]]))
    assert (weights[0, 0, 1] == 0).all()
    assert (out[0, 0, 1] == 0).all()
    assert not out.isnan().any()


def test_closed_taps_use_the_fused_kernel_and_open_taps_replace_it() -> None:
    q = torch.randn(1, 2, SHORT + 1, 4)
    kernel, places = FullAttention(0.5), layout(SHORT + 1, SHORT + 1, is_causal=True)
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=SDPA) as fused:
        closed = kernel(q, q, q, places)
        assert fused.call_count == 1
        for tap in ("scores", "scaled", "masked", "weights"):
            with open_taps(kernel, tap):
                torch.testing.assert_close(kernel(q, q, q, places), closed)
        assert fused.call_count == 1
        assert torch.equal(kernel(q, q, q, places), closed)  # closed again: the same kernel, the same bits
        assert fused.call_count == 2


@pytest.mark.parametrize(
    ("keys", "dropout", "training", "fused"),
    [(SHORT, 0.0, True, 0), (SHORT + 1, 0.0, True, 1), (SHORT + 1, 0.1, True, 0), (SHORT + 1, 0.1, False, 1)],
)
def test_a_cpu_uses_matmuls_for_short_sequences_and_dropout(
    keys: int, dropout: float, training: bool, fused: int
) -> None:
    kernel, q, k = FullAttention(0.5, dropout).train(training), torch.randn(1, 2, 3, 4), torch.randn(1, 2, keys, 4)
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=SDPA) as called:
        kernel(q, k, k, layout(3, keys))
        assert called.call_count == fused
        with cpu.disabled():
            kernel(q, k, k, layout(3, keys))
        assert called.call_count == fused + 1


@pytest.mark.parametrize("path", PATHS)
def test_fast_paths_give_zeros_and_finite_gradients_to_fully_masked_queries(path: Path) -> None:
    x = torch.randn(2, 2, 3, 4, requires_grad=True)
    mask = AttentionMask(3, 3, torch.tensor([[False, True, True], [False, False, False]]), causal=True)
    out = path(x, x, x, mask, None, scale=0.5, dropout=0.0)
    assert (out[1] == 0).all()
    assert (out[0, :, 0] == 0).all()
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[1] == 0).all()


@pytest.mark.parametrize("keys", [5, 40, SHORT + 1])
@pytest.mark.parametrize("watched", [False, True])
def test_nan_of_a_diverged_network_is_not_hidden(watched: bool, keys: int) -> None:
    q, k, v = (torch.randn(1, 1, keys, 4) for _ in range(3))
    q[0, 0, 2] = math.nan
    kernel, places = FullAttention(0.5), layout(keys, keys, torch.arange(keys)[None] > 0)
    with open_taps(kernel) if watched else nullcontext():
        assert kernel(q, k, v, places)[0, 0, 2].isnan().all()
    assert attend(q, k, v, places.mask.allowed)[0][0, 0, 2].isnan().all()


def test_gradients_of_fully_masked_queries_pass_anomaly_detection() -> None:
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    kernel, places = FullAttention(0.5), layout(3, 3, torch.tensor([[False, True, True]]), is_causal=True)
    with torch.autograd.set_detect_anomaly(True), open_taps(kernel):
        kernel(x, x, x, places).sum().backward()


def test_replaced_weights_change_the_output() -> None:
    q, k, v = (torch.randn(1, 1, 3, 4) for _ in range(3))
    kernel = FullAttention(0.5)
    hook = kernel.weights.register_forward_hook(lambda _m, _a, weights: torch.full_like(weights, 1 / 3))
    torch.testing.assert_close(kernel(q, k, v, layout(3, 3)), v.mean(2, keepdim=True).expand(1, 1, 3, 4))
    hook.remove()


@pytest.mark.parametrize("watched", [False, True])
def test_attention_dropout_keeps_the_mean_and_acts_in_training_only(watched: bool) -> None:
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 400, 8)
    v = torch.ones(1, 1, 400, 1)
    kernel = FullAttention(0.1, dropout=0.25)
    queries = q.expand(1, 1, 500, 8)

    def run() -> Tensor:
        with open_taps(kernel) if watched else nullcontext():
            out: Tensor = kernel(queries, k, v, layout(500, 400))
        return out

    out = run()
    assert out.std() > 0.01
    assert abs(out.mean() - 1) < 0.01
    kernel.eval()
    torch.testing.assert_close(run(), torch.ones_like(out))


def test_the_causal_mask_aligns_new_queries_with_the_last_keys() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
