"""Memory is counted while it is held, in backward passes too, and once, whoever looks at it."""

import torch

from regard.labs.gauges import TensorMemory

KILO = 250  # numbers in a thousand bytes


def test_what_is_freed_no_longer_counts() -> None:
    with TensorMemory() as memory:
        for _ in range(10):
            torch.ones(KILO)
    assert (memory.current, memory.peak) == (0, 1000)


def test_views_and_changes_in_place_hold_nothing_more() -> None:
    before = torch.ones(KILO)
    with TensorMemory() as memory:
        kept = before.view(10, -1)[0]
        before.add_(1)
    assert memory.peak == 0
    assert kept[0] == 2


def test_what_the_backward_pass_makes_counts() -> None:
    x = torch.ones(KILO, requires_grad=True)
    forward, both = TensorMemory(), TensorMemory()
    with forward:
        x.exp()
    with both:
        x.exp().sum().backward()
    assert forward.peak == 1000
    assert both.current == 1000  # the gradient
    assert both.peak >= 2000  # and what exp saved for it


def test_what_is_saved_for_the_backward_pass_stays_held() -> None:
    x = torch.ones(KILO, requires_grad=True)
    with TensorMemory() as memory:
        y = x.exp().exp().exp()
        assert memory.current == 3000
        y.sum().backward()
