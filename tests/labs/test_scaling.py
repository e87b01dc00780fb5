"""The gradient of softmax by a query is the one that autograd finds, the division included."""

import math

import pytest
import torch

from regard.labs.scaling import KEYS, Softmax, softmax_of, softmax_over


@pytest.mark.parametrize("scale", [1.0, 1 / math.sqrt(6)])
def test_the_gradient_by_the_query_is_autograds(scale: float) -> None:
    random = torch.Generator().manual_seed(0)
    query, keys = (torch.randn(*shape, generator=random) for shape in ((1, 6), (1, KEYS, 6)))
    one = torch.autograd.functional.jacobian(lambda q: (scale * keys[0] @ q).softmax(-1), query[0])
    assert float(softmax_over(query, keys, scale).gradient) == pytest.approx(float(one.norm()), rel=1e-4)


def test_short_keys_get_more_gradient_without_the_division_and_long_ones_less() -> None:
    short, long = softmax_of(4, 128), softmax_of(1024, 128)
    assert short[False].median > 1.5 * short[True].median
    assert long[False].median < 0.1 * long[True].median


def test_shares_of_the_gradient() -> None:
    one = Softmax(torch.zeros(4), torch.tensor([1.0, 1.0, 2.0, 4.0]))
    assert one.of_the_upper_quarter == 0.5
    assert one.below(2.0) == 0.5
