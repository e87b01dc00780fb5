"""Incremental decoding: next-token logits of one network or of an ensemble, with their caches.

Searches and sampling use nothing else of a network, so that each of them works with every network and ensemble.

R rows (K per sentence) · B sentences · T new tokens · S source length · V vocabulary
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
    """Decodes targets token by token.

    Args:
        networks: One network, or several that share a vocabulary.
        source: The source tokens (B, S); None for language models.
        mask: The token mask of the source (B, S).
        features: Features of the source tokens, for networks that need parses.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        source: Tensor | None = None,
        mask: Tensor | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._networks = networks
        self._memories: list[Memory | None] = [
            None if source is None else network.encode(source, mask, features) for network in networks
        ]
        self.caches: list[Cache] = [network.new_cache() for network in networks]

    def step(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Feed new tokens (R, T) and return the logits (R, V) after the last of them.

        For an ensemble, the logits are the log of the mean probability.
        """
        logits = [
            network.next_logits(ids, memory, cache, mask).float()
            for network, memory, cache in zip(self._networks, self._memories, self.caches, strict=True)
        ]
        return mean_logits(logits)

    def step_all(self, ids: Tensor) -> Tensor:
        """Feed new tokens (R, T) and return the logits (R, T, V) after each of them."""
        return mean_logits(
            [
                network.all_logits(ids, memory, cache).float()
                for network, memory, cache in zip(self._networks, self._memories, self.caches, strict=True)
            ]
        )

    def last_tokens(self, count: int) -> list[list[tuple[Tensor, Tensor]]] | None:
        """Return a copy of the keys and values of the last tokens, by network and layer; None if one has none."""
        parts = [cache.last_tokens(count) for cache in self.caches]
        known = [part for part in parts if part is not None]
        return known if len(known) == len(parts) else None

    def restore(self, blocks: Sequence[Sequence[Sequence[tuple[Tensor, Tensor]]]]) -> None:
        """Begin with tokens whose keys and values `last_tokens` returned, in blocks."""
        for n, cache in enumerate(self.caches):
            cache.restore([block[n] for block in blocks])

    def drop_last(self, count: int) -> None:
        """Forget the last tokens of all rows."""
        for cache in self.caches:
            cache.drop_last(count)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return next(self._networks[0].parameters()).device

    def repeated(self, count: int) -> "IncrementalDecoder":
        """Return a copy of a language model's decoder with its one row `count` times."""
        copy = IncrementalDecoder(self._networks)
        rows = torch.zeros(count, dtype=torch.long, device=self.device)
        copy.caches = [cache.reorder(rows) for cache in self.caches]
        return copy

    def reorder(self, rows: Tensor) -> None:
        """Replace the rows by these, each of which stays with its sentence."""
        self.caches = [cache.reorder(rows) for cache in self.caches]

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Keep only these rows and these sentences."""
        self._memories = [None if memory is None else memory.select(sentences) for memory in self._memories]
        self.caches = [cache.select(rows, sentences) for cache in self.caches]

    @contextmanager
    def record_attention(self) -> Iterator["AttentionRecorder"]:
        """Record the attention to the source while the context is open: the mean over heads and networks."""
        taps = [tap for network in self._networks if (tap := network.alignment_tap) is not None]
        if not taps:
            raise InputError("This network has no attention to a source, so there is no alignment.")
        recorder = AttentionRecorder()
        hooks = [tap.register_forward_hook(recorder.record) for tap in taps]
        try:
            yield recorder
        finally:
            for hook in hooks:
                hook.remove()


def mean_logits(logits: list[Tensor]) -> Tensor:
    """Return the log of the mean probability (…, V) of several networks; the logits themselves of one."""
    if len(logits) == 1:
        return logits[0]
    return torch.stack([row.log_softmax(-1) for row in logits]).logsumexp(0) - math.log(len(logits))


class AttentionRecorder:
    """The attention weights at the networks' alignment taps in one step."""

    def __init__(self) -> None:
        self._weights: list[Tensor] = []

    def record(self, _tap: Tap, _arguments: tuple[Tensor, ...], weights: Tensor) -> None:
        """Add the weights of one network (B, H, K, S)."""
        self._weights.append(weights.detach().float().mean(1))

    def take(self) -> Tensor:
        """Return the weights of the last step (R, S) and clear them."""
        weights = torch.stack(self._weights).mean(0).flatten(0, 1)
        self._weights.clear()
        return weights
