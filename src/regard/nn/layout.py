"""How a batch of sentences lies in its tensors: which tokens are real, where each stands, who may look where.

Sentences of unequal length fill a rectangle only with pads. Pads take no part in anything: attention gives them no
weight (`Mask`), positions do not count them (`Tokens.index`), and position-wise layers need not even compute them
(`Packing`). Pads may stand anywhere: a sentence gives the same numbers whatever it is padded with, and where.

B batch · T tokens that ask (queries) · S tokens that answer (keys) · N real tokens in the batch
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
    """The look-ahead mask (T, S): True where a query may look, at its own position and before (§3.2.3).

    The queries are the last of the keys, so that it also serves new tokens after cached ones.

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
class Mask:
    """Who may look where, in a form that each kernel can use in its own way; `allowed` spells it out."""

    queries: int
    keys: int
    key_mask: Tensor | None = None  # (B, S) True at real keys; None: all are
    causal: bool = False
    documents: Tensor | None = None  # (B, S) which document each token is of; None: all are of one
    device: torch.device | None = None

    @cached_property
    def allowed(self) -> Tensor | None:
        """True where a query may look, broadcastable to (B, H, T, S); None where every query may look everywhere."""
        allowed = None if self.key_mask is None else self.key_mask[:, None, None, :]
        if self.causal and self.queries > 1:  # a single query is the newest token: nothing is ahead of it
            behind = causal_mask(self.queries, self.keys, self.device)
            allowed = behind if allowed is None else allowed & behind
        if self.documents is not None:
            same = self.documents[:, None, :, None] == self.documents[:, None, None, :]
            allowed = same if allowed is None else allowed & same
        return allowed

    @cached_property
    def nowhere(self) -> Tensor | None:
        """True at a query that may look nowhere, broadcastable to (B, H, T, 1); None where there is no such query."""
        if self.allowed is None:
            return None
        nowhere = ~self.allowed.any(-1, keepdim=True)
        return nowhere if bool(nowhere.any()) else None

    @cached_property
    def added(self) -> Tensor | None:
        """The mask as numbers to add to the scores: 0 where a query may look, −∞ where not; None where there is none.

        A row that may look nowhere is left at 0, so that softmax has something to share; `nowhere` tells which.
        """
        if self.allowed is None:
            return None
        looks = self.allowed if self.nowhere is None else self.allowed | self.nowhere
        return torch.zeros(looks.shape, device=looks.device).masked_fill_(~looks, -math.inf)

    @property
    def only_causal(self) -> bool:
        """Whether the look-ahead mask is all there is, and square: what fused kernels know without being shown it."""
        return self.causal and self.key_mask is None and self.documents is None and self.queries == self.keys


@dataclass(frozen=True)
class Packing:
    """Moves between a padded batch (B, T, …) and its N real tokens in a row (N, …)."""

    slots: Tensor  # (N,) where the real tokens stand among the B·T
    batch: int
    length: int

    @classmethod
    def of(cls, mask: Tensor) -> "Packing":
        return cls(mask.flatten().nonzero().squeeze(1), *mask.shape)

    def pack(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, self.slots)

    def pad(self, x: Tensor) -> Tensor:
        padded = x.new_zeros(self.batch * self.length, *x.shape[1:])
        return padded.index_copy_(0, self.slots, x).unflatten(0, (self.batch, self.length))


@dataclass(frozen=True)
class Tokens:
    """The tokens on one side of an attention."""

    index: Tensor  # (B, T), or (1, T) where all rows agree: how many real tokens stand before each one
    features: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # what else a position scheme may want to know, by name
    packing: Packing | None = None
    plans: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what follows, computed once

    def pack(self, x: Tensor) -> Tensor:
        return x if self.packing is None else self.packing.pack(x)

    def pad(self, x: Tensor) -> Tensor:
        return x if self.packing is None else self.packing.pad(x)


@dataclass(frozen=True)
class Layout:
    """Everything an attention must know of its tokens besides their vectors."""

    queries: Tokens
    keys: Tokens
    mask: Mask
    plans: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what follows, computed once

    @cached_property
    def distance(self) -> Tensor:
        """How far after each query each key stands, in real tokens: (B, 1, T, S), or (1, 1, T, S) for all rows."""
        return self.keys.index[:, None, None, :] - self.queries.index[:, None, :, None]

    def across(self, memory: Tensor, mask: Tensor | None, *, pack: bool = True) -> "Layout":
        """The layout of cross-attention: the same queries look at the tokens of a memory (B, S, C)."""
        mask = none_if_full(check_mask(mask, memory.shape[:2]))
        length = memory.size(1)
        packing = Packing.of(mask) if pack and mask is not None else None
        keys = Tokens(torch.arange(length, device=memory.device)[None], packing=packing)
        return Layout(self.queries, keys, Mask(self.mask.queries, length, mask, device=memory.device))


def check_mask(mask: Tensor | None, shape: torch.Size) -> Tensor | None:
    """A padding mask, if it is one for tokens of this shape (B, T)."""
    if mask is not None and (mask.dtype != torch.bool or mask.shape != shape):
        raise InputError(
            f"The padding mask is {mask.dtype} of shape {tuple(mask.shape)}; for these tokens it should be torch.bool "
            f"of shape {tuple(shape)}, True at tokens that are not pads."
        )
    return mask


def none_if_full(mask: Tensor | None) -> Tensor | None:
    """A padding mask that hides nothing is no mask."""
    return None if mask is None or bool(mask.all()) else mask


def make_layout(
    ids: Tensor,
    mask: Tensor | None = None,
    *,
    before: int = 0,
    past_mask: Tensor | None = None,
    causal: bool = False,
    pack: bool = True,
    features: Mapping[str, Tensor] | None = None,
) -> Layout:
    """The layout of self-attention for new tokens `ids` (B, T) after `before` cached ones.

    `real` (B, T) and `past_mask` (B, before) are True at tokens that are not pads; None means all of them. With
    `pack`, pads are left out of everything but attention itself. The fact `documents` (B, T) numbers the documents that
    share a row: each has positions of its own, and sees nothing of the others.
    """
    batch, new = ids.shape
    if before and features:
        raise NotImplementedError("facts about tokens are not kept in a cache")
    if new == 0:
        raise InputError("There are no tokens to read: a sentence has at least its end token.")
    total, device = before + new, ids.device
    mask = none_if_full(check_mask(mask, ids.shape))
    features = features or {}
    documents = features.get("document_ids")
    if mask is None and past_mask is None and documents is None:
        index = torch.arange(total, device=device)[None]
        return Layout(
            Tokens(index[:, before:], features),
            Tokens(index, features),
            Mask(new, total, None, causal, None, device),
        )
    now = mask if mask is not None else torch.ones_like(ids, dtype=torch.bool)
    then = past_mask if past_mask is not None else now.new_ones(batch, before)
    every = torch.cat([then, now], dim=1)  # (B, before + T)
    index = (every.cumsum(1) - 1).clamp(min=0)
    if documents is not None:
        begins = documents != documents.roll(1, 1)
        index = index - index.where(begins, 0).cummax(1).values  # counted from where its document begins
    packing = Packing.of(now) if pack and mask is not None else None
    queries = Tokens(index[:, before:], features, packing)
    hidden = every if mask is not None or past_mask is not None else None
    return Layout(queries, Tokens(index, features), Mask(new, total, hidden, causal, documents, device))
