"""Floating-point operations in matrix products, counted as they are asked for.

A multiplication and an addition are two. PyTorch's counter knows plain products. Two kernels do several products at
once, and it learns here what they are, by the shapes of what they are given, as it knows it of kernels for other
machines. A test holds them against the same layers computed step by step.

B texts · H heads · T queries · S keys · D head width · R sequences · L steps · I width of the input · W of the state
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = Sequence[int]


def counted_products() -> FlopCounterMode:
    """A counter of what is done while it lasts, backward passes included: `get_total_flops` tells.

    >>> with counted_products() as count:
    ...     product = torch.ones(2, 3) @ torch.ones(3, 5)
    >>> count.get_total_flops()
    60
    """
    aten: Any = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: _attention,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
            aten.mkldnn_rnn_layer: _recurrence,
            aten.mkldnn_rnn_layer_backward: _recurrence_backward,
        },
    )


def _attention(query: Shape, key: Shape, value: Shape, *_: object, **__: object) -> int:
    """Scores and weighted sums: query (B, H, T, D), key and value (B, H, S, D)."""
    return 2 * 2 * math.prod(query) * key[-2]


def _attention_backward(_: Shape, query: Shape, key: Shape, value: Shape, *__: object, **___: object) -> int:
    """The scores once more, which were not kept, and the gradients of queries, keys, values and weights."""
    return 5 * 2 * math.prod(query) * key[-2]


def _recurrence(x: Shape, x_weight: Shape, h_weight: Shape, *_: object, **__: object) -> int:
    """Every step meets both matrices: x (L, R, I), x_weight (G·W, I), h_weight (G·W, W)."""
    steps, sequences, _width = x
    return 2 * steps * sequences * (math.prod(x_weight) + math.prod(h_weight))


def _recurrence_backward(x: Shape, x_weight: Shape, h_weight: Shape, *_: object, **__: object) -> int:
    """Of each product the gradients of both factors."""
    return 2 * _recurrence(x, x_weight, h_weight)
