"""Dropout (§5.4) with masks of random bytes, which cost a tenth of what PyTorch's cost on a CPU.

`F.dropout` draws a random number of its own for every element. Here eight elements share one 64-bit number: each is
dropped if its byte is less than 256·p. The rate is thereby rounded to 256ths (0.1 becomes 26/256 = 0.1016), and what is
kept is scaled by the rate that is really dropped, so that the expectation stays exact.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
