"""Taps: identity modules at named steps of a computation, where values can be read or replaced.

An ordinary PyTorch forward hook on a tap reads the value, or replaces it by returning another. Traces, head ablation
and patching all work this way; there is no second model for display.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from regard.errors import InputError


class Tap(nn.Module):
    """Identity module. It is open while a hook is registered on it; a closed tap costs one `if`.

    `axes` name the dimensions of the value after the batch dimension, and `description` says what it is; a tap with
    axes is shown by traces (see `exposed.py`).

    >>> import torch
    >>> tap = Tap()
    >>> hook = tap.register_forward_hook(lambda module, arguments, x: x * 0)
    >>> tap(torch.ones(2))
    tensor([0., 0.])
    >>> hook.remove()
    >>> tap(torch.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, *axes: str, description: str = "") -> None:
        super().__init__()
        self.axes = axes
        self.description = description

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if self.is_open else x

    def forward(self, x: Tensor) -> Tensor:
        return x

    @property
    def is_open(self) -> bool:
        return bool(self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks)


def taps_of(module: nn.Module) -> dict[str, Tap]:
    """Return every tap below a module, by its name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, Tap)}


@contextmanager
def open_taps(module: nn.Module, *names: str) -> Iterator[dict[str, Tensor]]:
    """Record the values at the named taps (by default all taps) while the context is open.

    The yielded dict holds the last value of each tap, detached.
    """
    taps = taps_of(module)
    unknown = [name for name in names if name not in taps]
    if unknown:
        raise InputError(f"There is no tap {unknown[0]!r}; network.taps lists all taps.")
    record: dict[str, Tensor] = {}

    def keep(name: str, tap: Tap):  # type: ignore[no-untyped-def]  # torch's RemovableHandle has no public name
        return tap.register_forward_hook(lambda _module, _arguments, x: record.__setitem__(name, x.detach()))

    hooks = [keep(name, taps[name]) for name in names or taps]
    try:
        yield record
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def record_taps(module: nn.Module, *names: str) -> Iterator[dict[str, list[Tensor]]]:
    """Record all values at the named taps, in order: a recurrent layer passes its taps at every step."""
    record: dict[str, list[Tensor]] = {}
    with open_taps(module, *names):
        taps = taps_of(module)
        hooks = [
            taps[name].register_forward_hook(
                lambda _module, _arguments, x, name=name: record.setdefault(name, []).append(x.detach())
            )
            for name in names or taps
        ]
        try:
            yield record
        finally:
            for hook in hooks:
                hook.remove()
