"""ALiBi: slopes and biases are those of the paper."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from family import Batch, batches
from regard.nn import AlibiPositions, make_layout
from regard.nn.positions import alibi_slopes


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [n / 2 for n in range(1, 17)]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_are_those_of_the_paper(heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(heads) == pytest.approx([2**-exponent for exponent in exponents])


@given(heads=st.integers(1, 100))
def test_slopes_are_those_of_bloom(heads: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]  # bias at position 1
    torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), theirs)
    assert len(set(alibi_slopes(heads))) == heads


@given(batch=batches(), heads=st.integers(1, 9), causal=st.booleans())
def test_the_bias_is_the_slope_times_the_distance_without_padding(batch: Batch, heads: int, causal: bool) -> None:
    ids, mask = batch.target, batch.target_mask
    rows, length = ids.shape
    layout = make_layout(ids, mask, causal=causal)
    scheme = AlibiPositions().for_layer(heads, key_width=2, value_width=2, scale=0.7)
    bias = scheme.bias(torch.zeros(rows, heads, length, 2, dtype=torch.float64), layout)
    assert bias is not None
    bias = bias.expand(rows, heads, length, length)
    for row in range(rows):
        places = mask[row].nonzero().flatten().tolist()
        for i, query in enumerate(places):
            for j, key in enumerate(places):
                expected = [-slope * abs(i - j) for slope in alibi_slopes(heads)]
                assert bias[row, :, query, key].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_bias_is_computed_once_for_all_layers() -> None:
    layout, q = make_layout(torch.zeros(1, 5).long()), torch.zeros(1, 2, 5, 3)
    first, second = (AlibiPositions().for_layer(2, 3, 3, 1.0) for _ in range(2))
    assert first.bias(q, layout) is second.bias(q, layout)
