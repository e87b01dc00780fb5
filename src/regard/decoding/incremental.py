"""What comes next: one network, or several that vote, with all that they remember of the text so far.

Decoding asks nothing else of a network, so that every search serves every network, alone or in an ensemble.

R rows (K for each sentence) · B sentences · T new tokens · S source length · V vocabulary
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.errors import InputError
from regard.models.network import Cache, Memory, Network
from regard.nn.taps import Tap


class IncrementalDecoder:
    """Reads a target token by token. Without a source (B, S), there is nothing to translate; `facts` are about it."""

    def __init__(
        self,
        networks: Sequence[Network],
        source: Tensor | None = None,
        real: Tensor | None = None,
        facts: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._networks = networks
        self._memories: list[Memory | None] = [
            None if source is None else network.encode(source, real, facts) for network in networks
        ]
        self._caches: list[Cache] = [network.new_cache() for network in networks]

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """Read new tokens (R, T), and give the logits (R, V) of what follows the last of them.

        Those of several networks are the logarithm of their mean probability.
        """
        found = [
            network.logits(network.decode(ids, memory, cache, real)[:, -1]).float()
            for network, memory, cache in zip(self._networks, self._memories, self._caches, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        return torch.stack([logits.log_softmax(-1) for logits in found]).logsumexp(0) - math.log(len(found))

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, each of which stays with its sentence."""
        self._caches = [cache.reorder(rows) for cache in self._caches]

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Go on with these rows and these sentences only."""
        self._memories = [None if memory is None else memory.select(sentences) for memory in self._memories]
        self._caches = [cache.select(rows, sentences) for cache in self._caches]

    @contextmanager
    def watched(self) -> Iterator["AttentionRecorder"]:
        """While it lasts, what each token looks at is kept: the mean over heads, and over networks."""
        taps = [tap for network in self._networks if (tap := network.alignment_tap) is not None]
        if not taps:
            raise InputError("This network looks at no source, so there is nothing to align.")
        attention = AttentionRecorder()
        hooks = [tap.register_forward_hook(attention.keep) for tap in taps]
        try:
            yield attention
        finally:
            for hook in hooks:
                hook.remove()


class AttentionRecorder:
    """The weights that passed the networks' alignment taps in one step."""

    def __init__(self) -> None:
        self._seen: list[Tensor] = []

    def keep(self, _tap: Tap, _arguments: tuple[Tensor, ...], weights: Tensor) -> None:
        """Take in one network's weights (B, H, K, S)."""
        self._seen.append(weights.detach().float().mean(1))

    def take(self) -> Tensor:
        """The weights of the step just made (R, S)."""
        weights = torch.stack(self._seen).mean(0).flatten(0, 1)
        self._seen.clear()
        return weights
