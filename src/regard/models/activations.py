"""The activations by the names that settings have for them."""

from collections.abc import Callable
from functools import partial

from torch import nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}
