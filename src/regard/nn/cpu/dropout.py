"""Dropout with masks of random bytes, at about a tenth of the cost of PyTorch's masks on a CPU.

`F.dropout` draws a random number for every element. Here eight elements share one 64-bit number: each is dropped if its
byte is less than 256·p. The rate is thereby rounded to 256ths (0.1 becomes 26/256 = 0.1016), and kept elements are
scaled by the rounded rate, so that the expectation stays exact.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

BYTE_LEVELS = 256  # values of a byte
RATE_TOLERANCE = 0.05  # largest error of a rounded rate, relative to p and to 1 − p: 0.02 may be rounded, 0.01 may not


def byte_dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout in training; rates too near 0 or 1 for a byte use `F.dropout`."""
    dropped = round(BYTE_LEVELS * p)
    error = abs(dropped / BYTE_LEVELS - p)
    if error >= RATE_TOLERANCE * min(p, 1 - p):  # also true for p = 1, which leaves nothing to scale
        return F.dropout(x, p)
    return x * keep_mask(x, dropped)


def keep_mask(x: Tensor, dropped: int) -> Tensor:
    """Return a random mask with the shape and dtype of x: 0 in `dropped` of 256 cases, else 256 / (256 − dropped)."""
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64)
    words.random_(-(2**63), None)  # all 64 bits: without arguments, `random_` never sets the sign bit
    kept = words.view(torch.uint8).ge_(dropped)  # in place, as bytes: a comparison to bools is 20 times slower
    return kept[: x.numel()].view(x.shape).to(x.dtype).mul_(BYTE_LEVELS / (BYTE_LEVELS - dropped))
