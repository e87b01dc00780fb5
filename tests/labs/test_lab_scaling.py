"""The gradient of the softmax with respect to the query equals that of autograd, including the scaling."""

import math

import pytest
import torch

from regard.labs.scaling import KEYS, SoftmaxStats, batch_stats, softmax_stats


@pytest.mark.parametrize("scale", [1.0, 1 / math.sqrt(6)])
def test_gradient_norm_equals_autograd(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    query, keys = (torch.randn(*shape, generator=generator) for shape in ((1, 6), (1, KEYS, 6)))
    jacobian = torch.autograd.functional.jacobian(lambda q: (scale * keys[0] @ q).softmax(-1), query[0])
    assert float(batch_stats(query, keys, scale).gradient) == pytest.approx(float(jacobian.norm()), rel=1e-4)


def test_scaling_reduces_the_gradient_of_narrow_keys_and_increases_that_of_wide_ones() -> None:
    narrow, wide = softmax_stats(4, 128), softmax_stats(1024, 128)
    assert narrow[False].median > 1.5 * narrow[True].median
    assert wide[False].median < 0.1 * wide[True].median


def test_fractions_of_the_gradient() -> None:
    stats = SoftmaxStats(torch.zeros(4), torch.tensor([1.0, 1.0, 2.0, 4.0]))
    assert stats.top_quarter_fraction == 0.5
    assert stats.fraction_below(2.0) == 0.5
