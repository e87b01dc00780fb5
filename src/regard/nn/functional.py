"""Matrix products in bfloat16 (mixed precision, Micikevicius et al. 2018).

bfloat16 has the range of float32 with 8 bits of its 24: enough for the factors of a product, whose sums are still taken
in float32, too few for weights and their updates. PyTorch's autocast decides for its own operations: products, and what
is made of them up to the next residual sum, are in bfloat16, all else is not. What is written by hand asks here.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def autocast(dtype: torch.dtype, device: torch.device) -> torch.autocast:
    """While it lasts, matrix products are taken in this type; in float32 also inside a context that says otherwise."""
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The type in which matrix products of x are taken here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def at_least_float32(x: Tensor) -> Tensor:
    """x with the bits of float32 at least, as sums and logarithms need them.

    >>> at_least_float32(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


LEVELS = 256  # of a byte
TOLERANCE = 0.05  # how far, relative to p and to 1 − p, rounding may move a rate; 0.02 may be rounded, 0.01 may not


class Dropout(nn.Dropout):
    """In training, sets each element to zero with probability p and divides the others by 1 − p; else the identity.

    >>> _ = torch.manual_seed(0)
    >>> Dropout(0.5)(torch.ones(6))
    tensor([0., 2., 2., 2., 2., 0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`Dropout` as a function.

    Rates too near 0 or 1 for a byte, and devices other than the CPU, get PyTorch's own masks. Both draw from torch's
    default generator: `torch.manual_seed` makes them repeat.
    """
    if not training or p == 0.0:
        return x
    dropped = round(LEVELS * p)
    off = abs(dropped / LEVELS - p) >= TOLERANCE * min(p, 1 - p)  # and at p = 1, where no rate is left to scale by
    if off or x.device.type != "cpu":
        return F.dropout(x, p)
    return x * keep_mask(x, dropped)


def keep_mask(x: Tensor, dropped: int) -> Tensor:
    """A random mask of the shape and type of x: 0 in `dropped` of 256 cases, else 256 / (256 − dropped)."""
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64)
    words.random_(-(2**63), None)  # all 64 bits: `random_()` alone leaves out the sign, and so halves every eighth byte
    kept = words.view(torch.uint8).ge_(dropped)  # in place, as bytes: a comparison that gives bools is 20 times slower
    return kept[: x.numel()].view(x.shape).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))
