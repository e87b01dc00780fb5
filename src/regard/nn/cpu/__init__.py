"""Fast paths for CPUs.

The rest of `nn` is written in plain PyTorch. On a CPU the modules of this package replace some of it, because they are
several times faster there; tests prove that both give the same numbers:

    attention       short attention as plain matrix products, sparse attention a few blocks at a time
    functional      dropout masks from random bytes; tokens into heads and back by one gather, which skips padding too
    decode_step     one cached step of a decoder, with weights copied to the order in which few rows read them fastest
    recurrent_step  one step of a recurrent decoder, without the kernels that are made for sequences
    row_batch       one step for rows of different lengths, each with the numbers that it has alone
    row_cache       their keys and values
    losses          cross entropy with the logits in chunks, and gradients computed in the forward pass

Stacks also leave padding out of position-wise layers (`Packing` in layout.py) where the fast paths are on.

`enabled` is the one dispatch. On any other device the plain formulas run: `F.scaled_dot_product_attention` and
`F.dropout`; padding is not packed, so position-wise layers compute it too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_ON = ContextVar("cpu_fast_paths", default=True)


def enabled(device: torch.device) -> bool:
    """Return whether the fast paths are used for tensors on this device; elsewhere the plain formulas run.

    `torch.compile` gets the plain formulas on CPUs too.
    """
    return device.type == "cpu" and not torch.compiler.is_compiling() and _ON.get()


@contextmanager
def disabled() -> Iterator[None]:
    """Run the plain code on CPUs as well, as other devices do."""
    token = _ON.set(False)
    try:
        yield
    finally:
        _ON.reset(token)
