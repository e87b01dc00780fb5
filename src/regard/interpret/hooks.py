"""Hooks that act in one thread only: looking into a network must not touch what others compute with it meanwhile."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

Seen = Callable[[Tensor, Any], Any]
"""Given what went into a module and what came out; what it returns, if anything, replaces the latter.

That is a tensor, but of a recurrent layer, which gives its state with it.
"""


@contextmanager
def hooked(pairs: Sequence[tuple[nn.Module, Seen]]) -> Iterator[None]:
    """While it lasts, each module shows what passes it; only to, and only for, the thread that asked."""
    here = threading.get_ident()

    def hook(see: Seen) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
        return lambda _module, inputs, output: see(inputs[0], output) if threading.get_ident() == here else None

    handles = [module.register_forward_hook(hook(see)) for module, see in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
