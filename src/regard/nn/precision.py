"""Matrix products in bfloat16 (mixed precision, Micikevicius et al. 2018).

bfloat16 has the range of float32 with 8 bits of its 24: enough for the factors of a product, whose sums are still taken
in float32, too few for weights and their updates. PyTorch's autocast decides for its own operations: products, and what
is made of them up to the next residual sum, are in bfloat16, all else is not. What is written by hand asks here.
"""

import torch
from torch import Tensor


def products_in(dtype: torch.dtype, device: torch.device) -> torch.autocast:
    """While it lasts, matrix products are taken in this type; in float32 also inside a context that says otherwise."""
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def product_type(x: Tensor) -> torch.dtype:
    """The type in which matrix products of x are taken here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def whole(x: Tensor) -> Tensor:
    """x with the bits of float32 at least, as sums and logarithms need them.

    >>> whole(torch.ones(1, dtype=torch.bfloat16)).dtype, whole(torch.ones(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
