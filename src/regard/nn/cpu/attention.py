"""Short attention as plain matrix products, which on a CPU beat PyTorch's fused kernel up to `SHORT` keys.

The fused kernel for CPUs cannot drop attention weights either, so dropout always takes this path.

B batch · H heads · G key and value heads · T queries · S keys · D head width
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.cpu.dropout import byte_dropout
from regard.nn.functional import grouped_matmul
from regard.nn.layout import AttentionMask

SHORT = 64  # keys up to which plain matrix products are faster, forward and backward
LANES = 16  # floats in the widest vector register: PyTorch's softmax handles shorter rows element by element


def prefers_matmul(q: Tensor, k: Tensor, dropout: float) -> bool:
    """Return whether `matmul_attention` is the faster one: with dropout, or few keys and more than one query."""
    return bool(dropout) or (k.size(2) <= SHORT and q.size(2) > 1)


def matmul_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, *, scale: float, dropout: float
) -> Tensor:
    """Compute attention from q (B, H, T, D), k and v (B, G, S, D) as batched matrix products."""
    additive = mask.additive
    if bias is not None:
        additive = bias if additive is None else bias + additive
    scores = grouped_matmul(q, k.mT)  # (B, H, T, S)
    scores = scores * scale if additive is None else torch.add(additive.to(scores.dtype), scores, alpha=scale)
    weights = short_softmax(scores)
    if mask.fully_masked is not None:
        weights = weights.masked_fill(mask.fully_masked, 0.0)
    return grouped_matmul(byte_dropout(weights, dropout) if dropout else weights, v)


def short_softmax(scores: Tensor) -> Tensor:
    """Softmax along each row, padded to a full vector register: for a few keys up to ten times faster."""
    keys = scores.size(-1)
    if keys >= LANES:
        return scores.softmax(-1)
    return F.pad(scores, (0, LANES - keys), value=-math.inf).softmax(-1)[..., :keys]
