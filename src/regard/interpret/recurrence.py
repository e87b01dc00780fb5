"""Recurrent layers that are off: what goes in passes on, as if the layer were not there, and leaves no state behind.

A residual connection makes a layer of a Transformer one that adds something; a recurrent layer gives what it makes of
its input, and nothing besides. So it is passed by, where what goes in is as wide as what comes out. One that looks at
the source at every step reads more than goes on, and is silent instead: zero, as a single direction is.
"""

from typing import Any

import torch
from torch import Tensor, nn

from regard.interpret.matrices import DIRECTIONS
from regard.models.network import Network
from regard.nn.bidirectional_stack import BidirectionalStack
from regard.nn.recurrent import RecurrentLayer
from regard.nn.recurrent_attention import AttendingLayer
from regard.nn.recurrent_stack import RecurrentStack


def passed_by(network: Network, stack: str, number: int) -> list[nn.Module]:
    """The recurrent layers of this number, one for each direction that walks apart; none if they cannot be passed."""
    match getattr(network, stack, None):
        case RecurrentStack() as found:
            rows = [found.layers]
        case BidirectionalStack() as found:
            rows = [getattr(found, direction) for direction in DIRECTIONS]
        case _:
            rows = []
    return [row[number] for row in rows if number < len(row) and _can_be_passed(row[number])]


def _can_be_passed(layer: nn.Module) -> bool:
    return isinstance(layer, RecurrentLayer) and not isinstance(layer, AttendingLayer)


def pass_by(given: Tensor, output: Any) -> Any:
    """What went in (R, L, W), and a state (R, W) as before the first token."""
    _, state = output
    return given, tuple(torch.zeros_like(part) for part in state)
