"""How a batch of sequences is laid out in its tensors: padding, positions, and which query may attend to which key.

Sequences of different length are padded to a rectangle. Padding takes part in nothing: attention gives it no weight
(`AttentionMask`), positions do not count it (`Tokens.position_ids`), and position-wise layers may skip it (`Packing`).
It may be anywhere in a row; a sequence gives the same numbers whatever it is padded with, and where.

Where the padding is decides shapes and branches, which are Python's. Reading a mask back from a GPU would stop the
program until the GPU has caught up, so batches have a copy of each mask on the CPU (`PaddingMask`). Everything that
Python must know is computed from that copy.

B batch · T queries · S keys · N tokens without padding
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError


def causal_mask(queries: int, keys: int | None = None, device: torch.device | None = None) -> Tensor:
    """Return the look-ahead mask (T, S): True where a query may attend, at its own position and before (§3.2.3).

    The queries are the last of the keys, so the mask also serves new tokens after cached ones.

    >>> causal_mask(3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    >>> causal_mask(1, 3).int()
    tensor([[1, 1, 1]], dtype=torch.int32)
    """
    keys = queries if keys is None else keys
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


@dataclass(frozen=True)
class PaddingMask:
    """A padding mask with a copy on the CPU, which can be read without waiting for a GPU."""

    tokens: Tensor  # (B, T) True at tokens, False at padding; on the device of the network
    host: Tensor  # the same on the CPU

    @classmethod
    def of(cls, mask: Tensor, host: Tensor | None = None) -> "PaddingMask":
        """Return a mask and its copy; without one, it is copied now, for which the program waits."""
        return cls(mask, mask.cpu() if host is None else host)

    @cached_property
    def is_full(self) -> bool:
        """Whether there is no padding."""
        return bool(self.host.all())

    @cached_property
    def slots(self) -> Tensor:
        """(N,) places of the tokens among the B·T, on the device of the network."""
        return copied_to(self.tokens.device, self.host.flatten().nonzero().squeeze(1))


def copied_to(device: torch.device, host: Tensor) -> Tensor:
    """Return a tensor of the CPU on another device; the program does not wait until a GPU has it."""
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


class Features(dict[str, Tensor]):
    """Tensors (B, T) about tokens, by name, with a copy of each on the CPU."""

    def __init__(self, features: Mapping[str, Tensor], host: Mapping[str, Tensor]) -> None:
        super().__init__(features)
        self.host = host


def host_feature(features: Mapping[str, Tensor], name: str) -> Tensor:
    """Return a feature on the CPU; the program waits for it only if the mapping has no copies."""
    return features.host[name] if isinstance(features, Features) else features[name].cpu()


Mask = Tensor | PaddingMask | None
"""A padding mask (B, T), True at tokens; None: no padding."""


def find_padding(mask: Mask, shape: torch.Size) -> PaddingMask | None:
    """Return the padding of tokens (B, T), None if there is none; raise `InputError` if the mask does not fit them.

    >>> find_padding(torch.tensor([[True, True]]), torch.Size([1, 2])) is None
    True
    """
    if mask is None:
        return None
    check_mask(mask.tokens if isinstance(mask, PaddingMask) else mask, shape)
    padding = mask if isinstance(mask, PaddingMask) else PaddingMask.of(mask)
    return None if padding.is_full else padding


def check_mask(mask: Tensor | None, shape: torch.Size) -> None:
    """Raise `InputError` if the dtype or shape of a mask does not fit tokens (B, T)."""
    if mask is not None and (mask.dtype != torch.bool or mask.shape != shape):
        raise InputError(
            f"The padding mask is {mask.dtype} of shape {tuple(mask.shape)}; for these tokens it should be torch.bool "
            f"of shape {tuple(shape)}, True at tokens and False at padding."
        )


@dataclass(frozen=True)
class AttentionMask:
    """Which query may attend to which key, in the form that each kernel needs."""

    queries: int
    keys: int
    key_mask: Tensor | None = None  # (B, S) True at tokens, False at padding; None: no padding
    causal: bool = False
    documents: Tensor | None = None  # (B, S) number of each token's document; None: one document per row
    device: torch.device | None = None
    host_mask: Tensor | None = None  # a copy of `key_mask` on the CPU, if there is one

    @cached_property
    def padding(self) -> PaddingMask | None:
        """The padding of the keys; None: no padding."""
        return None if self.key_mask is None else PaddingMask.of(self.key_mask, self.host_mask)

    @cached_property
    def allowed(self) -> Tensor | None:
        """True where a query may attend, broadcastable to (B, H, T, S); None if nothing is masked."""
        allowed = None if self.key_mask is None else self.key_mask[:, None, None, :]
        if self.causal and self.queries > 1:  # a single query is the newest token: all keys are behind it
            behind = causal_mask(self.queries, self.keys, self.device)
            allowed = behind if allowed is None else allowed & behind
        if self.documents is not None:
            same = self.documents[:, None, :, None] == self.documents[:, None, None, :]
            allowed = same if allowed is None else allowed & same
        return allowed

    @cached_property
    def fully_masked(self) -> Tensor | None:
        """True at queries that may attend to no key, broadcastable to (B, H, T, 1); None if there are none."""
        if self.allowed is None:
            return None
        fully_masked = ~self.allowed.any(-1, keepdim=True)
        return fully_masked if bool(fully_masked.any()) else None

    @cached_property
    def additive(self) -> Tensor | None:
        """The mask as numbers to add to scores, 0 or −∞; None if nothing is masked.

        Fully masked rows are left at 0, so that their softmax is defined; kernels set them to zero afterwards.
        """
        if self.allowed is None:
            return None
        open_ = self.allowed if self.fully_masked is None else self.allowed | self.fully_masked
        return torch.zeros(open_.shape, device=open_.device).masked_fill_(~open_, -math.inf)

    @property
    def is_square_causal(self) -> bool:
        """Whether this is a square look-ahead mask and nothing else, which fused kernels have built in."""
        if self.causal and self.key_mask is None and self.documents is None and self.queries == self.keys:
            return True
        return self.causal and self.hides_padding

    @cached_property
    def hides_padding(self) -> bool:
        """Whether a look-ahead mask alone keeps tokens from attending to padding, because it comes last in each row.

        Then GPUs can use kernels without another mask (FlashAttention); outputs at padding are arbitrary there.
        """
        if self.documents is not None or self.queries != self.keys or self.host_mask is None or self._on_cpu:
            return False
        return not bool((self.host_mask[:, 1:] & ~self.host_mask[:, :-1]).any())

    @property
    def _on_cpu(self) -> bool:
        return self.device is None or self.device.type == "cpu"


@dataclass(frozen=True)
class Packing:
    """Moves between a padded batch (B, T, …) and its N tokens in one row (N, …)."""

    slots: Tensor  # (N,) places of the tokens among the B·T
    batch: int
    length: int

    @classmethod
    def of(cls, mask: PaddingMask) -> "Packing":
        """Return the packing of the tokens of a mask (B, T)."""
        return cls(mask.slots, *mask.tokens.shape)

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, …) -> (N, …)"""
        return x.flatten(0, 1).index_select(0, self.slots)

    def pad(self, x: Tensor) -> Tensor:
        """(N, …) -> (B, T, …), zero at padding"""
        padded = x.new_zeros(self.batch * self.length, *x.shape[1:])
        return padded.index_copy_(0, self.slots, x).unflatten(0, (self.batch, self.length))


@dataclass(frozen=True)
class Tokens:
    """The tokens on one side of attention: queries or keys."""

    position_ids: Tensor  # (B, T), or (1, T) if all rows agree: how many tokens come before each, padding not counted
    features: Mapping[str, Tensor] = field(default_factory=dict)  # (B, T) each, by name: for position schemes
    packing: Packing | None = None
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # derived values, computed once
    limit: int | None = None  # `position_ids` are below it; None: not known

    @property
    def max_length(self) -> int:
        """A number that no position reaches; if `limit` is not known, it is read from the positions."""
        return int(self.position_ids.max()) + 1 if self.limit is None else self.limit

    def pack(self, x: Tensor) -> Tensor:
        """Remove padding from x (B, T, …), if the tokens are packed."""
        return x if self.packing is None else self.packing.pack(x)

    def pad(self, x: Tensor) -> Tensor:
        """Undo `pack`."""
        return x if self.packing is None else self.packing.pad(x)


@dataclass(frozen=True)
class Layout:
    """What an attention layer must know about its tokens besides their vectors."""

    queries: Tokens
    keys: Tokens
    mask: AttentionMask
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # derived values, computed once

    @cached_property
    def distance(self) -> Tensor:
        """Position of each key minus position of each query: (B, 1, T, S), or (1, 1, T, S) if all rows agree."""
        return self.keys.position_ids[:, None, None, :] - self.queries.position_ids[:, None, :, None]

    def precompute(self) -> None:
        """Compute what is otherwise computed when it is first used, which compiled code cannot do."""
        _ = self.distance, self.mask.allowed, self.mask.padding, self.mask.hides_padding

    def cross(self, memory: Tensor, mask: Mask, *, pack: bool = True) -> "Layout":
        """Return the layout of cross-attention: the same queries attend to the tokens of a memory (B, S, C)."""
        padding, length = find_padding(mask, memory.shape[:2]), memory.size(1)
        packing = Packing.of(padding) if pack and padding is not None else None
        keys = Tokens(torch.arange(length, device=memory.device)[None], packing=packing, limit=length)
        key_mask, host_mask = (None, None) if padding is None else (padding.tokens, padding.host)
        mask_of_keys = AttentionMask(self.mask.queries, length, key_mask, device=memory.device, host_mask=host_mask)
        return Layout(self.queries, keys, mask_of_keys)


def make_layout(
    ids: Tensor,
    mask: Mask = None,
    *,
    before: int = 0,
    past_mask: Tensor | None = None,
    causal: bool = False,
    pack: bool = True,
    features: Mapping[str, Tensor] | None = None,
) -> Layout:
    """Return the layout of self-attention for new tokens `ids` (B, T) after `before` cached ones.

    `mask` (B, T) and `past_mask` (B, before) are True at tokens, False at padding; None: no padding. With `pack`,
    padding is left out of everything but attention itself. The feature `document_ids` (B, T) numbers documents that
    share a row: each has positions of its own and does not attend to the others.
    """
    batch, new = ids.shape
    if before and features:
        raise NotImplementedError("token features are not kept in a cache")
    if new == 0:
        raise InputError("There are no tokens: a sequence has at least its end token.")
    total, device = before + new, ids.device
    padding = find_padding(mask, ids.shape)
    features = features or {}
    documents = features.get("document_ids")
    if padding is None and past_mask is None and documents is None:
        positions = torch.arange(total, device=device)[None]
        queries = Tokens(positions[:, before:], features, limit=total)
        return Layout(
            queries, Tokens(positions, features, limit=total), AttentionMask(new, total, None, causal, None, device)
        )
    new_mask = padding.tokens if padding is not None else torch.ones_like(ids, dtype=torch.bool)
    old_mask = past_mask if past_mask is not None else new_mask.new_ones(batch, before)
    whole_mask = torch.cat([old_mask, new_mask], dim=1)  # (B, before + T)
    positions = (whole_mask.cumsum(1) - 1).clamp(min=0)
    if documents is not None:
        starts = documents != documents.roll(1, 1)
        positions = positions - positions.where(starts, 0).cummax(1).values  # counted from the document's first token
    packing = Packing.of(padding) if pack and padding is not None else None
    queries = Tokens(positions[:, before:], features, packing, limit=total)
    keys = Tokens(positions, features, limit=total)
    key_mask = whole_mask if padding is not None or past_mask is not None else None
    host_mask = padding.host if padding is not None and not before else None
    return Layout(queries, keys, AttentionMask(new, total, key_mask, causal, documents, device, host_mask))
