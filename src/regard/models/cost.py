"""What a batch costs a network: floating-point operations in matrix products, for its real tokens only.

As in `anatomy`, a multiplication and an addition are two, and the backward pass costs twice the forward pass.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regard.models.network import Network
from regard.nn import CrossAttention, Output
from regard.nn.multihead import MultiHeadAttention
from regard.nn.source_attention import SourceAttention
from regard.nn.two_way_readout import TwoWayReadout


class Cost:
    """Counts a network's parts once, and then any batch quickly."""

    def __init__(self, network: Network, *, apart_from: nn.Module | None = None) -> None:
        """`apart_from`: a part of the network that is not used."""
        attentions = [(name, part) for name, part in network.named_modules() if isinstance(part, MultiHeadAttention)]
        cross = [part for _, part in attentions if isinstance(part, CrossAttention)]
        encoder = dict(network.named_children()).get("encoder") if network.encodes else None
        reading = _matrices(encoder.modules()) if encoder is not None else 0
        looking = [part for part in network.modules() if isinstance(part, SourceAttention)]
        keys = [key for part in looking if isinstance(key := getattr(part.score, "key", None), nn.Linear)]
        on_memory = _matrices([*(part.key_value for part in cross), *keys])
        self._per_source = reading + on_memory
        unused = _matrices(apart_from.modules()) if apart_from is not None else 0
        self._per_target = _matrices(network.modules()) - reading - on_memory - unused
        self._reading = [part for name, part in attentions if encoder is not None and name.startswith("encoder.")]
        self._crossing = cross
        self._looking = looking
        self._writing = [part for _, part in attentions if part not in self._reading and part not in cross]

    def training(self, targets: Tensor, sources: Tensor | None = None) -> float:
        """Forward and backward for sentences of these lengths (B,)."""
        written, targets = float(targets.sum()), targets.double()
        flops = written * self._per_target + written * _attention(self._writing, _mean(targets, targets))
        if sources is not None:
            read, sources = float(sources.sum()), sources.double()
            flops += read * self._per_source + read * _attention(self._reading, _mean(sources, sources))
            met = _mean(sources, targets)
            flops += written * _attention(self._crossing, met)
            flops += written * sum(part.flops(met) for part in self._looking)
        return 3 * flops


def _matrices(parts: Iterable[nn.Module]) -> int:
    """Two for each entry of each matrix that a token's vector meets."""
    kinds = nn.Linear | Output | nn.RNNBase | TwoWayReadout  # the last uses its projection, counted already, again
    weights = [weight for part in parts if isinstance(part, kinds) for weight in part.parameters()]
    return sum(2 * weight.numel() for weight in weights if weight.dim() == 2)


def _attention(attentions: Iterable[MultiHeadAttention], keys: int) -> int:
    return sum(part.flops(keys) for part in attentions)


def _mean(keys: Tensor, weights: Tensor) -> int:
    """How many keys a query meets on average, where each sentence has as many queries as its weight."""
    return int(torch.round((keys * weights).sum() / weights.sum()))
