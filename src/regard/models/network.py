"""The contract of a network. Training, decoding, looking and serving use these calls and never ask which one they hold.

B batch · S source length · T target length · C model width · V vocabulary
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.embedding import OutputProjection
from regard.nn.taps import Tap, taps_of


@dataclass(frozen=True)
class Memory:
    """What an encoder made of a batch of sentences."""

    states: Tensor  # (B, S, C), zero at pads
    mask: Tensor | None = None  # (B, S) True at tokens that are not pads; None: all of them

    def select(self, rows: Tensor) -> Self:
        """The memory of these rows, in this order; a row may come several times, as beams do."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return replace(self, states=self.states.index_select(0, rows), mask=mask)


class Cache(Protocol):
    """What a decoder remembers between steps."""

    length: int

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """The cache of these rows, in this order; `sentences` are those of the memory, where they are not the same."""
        ...

    def reorder(self, rows: Tensor) -> Self:
        """The cache of these rows, each of which stays with the sentence of the memory that it has."""
        ...


class Network(nn.Module):
    """A network that encodes, decodes, or both.

    `decode` without a cache reads the whole target in parallel, as in training; with one, only new tokens, as in
    inference. A cached step equals the uncached result, and a batch equals its rows one by one. (Only a decoder without
    its look-ahead mask differs: a cached step cannot see what is not there yet.) A cache belongs to the memory that it
    was first used with.
    """

    encodes = False  # whether `encode` gives a memory
    decodes = False  # whether `decode` predicts tokens; it takes a memory if the network also encodes

    def encode(self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        """ids (B, S) -> memory. `facts` are further tensors (B, S) about the tokens, by name.

        `segments` tells which text each is of; `depth`, `preorder` and `last_descendant` where its word is in a parse.
        """
        raise InputError(f"{type(self).__name__} has no encoder.")

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """ids (B, T) -> hidden states (B, T, C), each the last word on the token that follows.

        A memory may have fewer rows: then the rows of one sentence, equally many for each, stand together.
        The fact `documents` (B, T) numbers documents that share a row without seeing each other.
        """
        raise InputError(f"{type(self).__name__} has no decoder.")

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (…, C) -> logits (…, V). Give it only the states whose prediction is wanted."""
        raise InputError(f"{type(self).__name__} predicts no tokens.")

    def new_cache(self) -> Cache:
        """An empty cache for `decode`."""
        raise InputError(f"{type(self).__name__} has no decoder.")

    @property
    def alignment_tap(self) -> Tap | None:
        """The tap with the weights (B, H, T, S) by which a target's tokens look at the source's; None: it has none."""
        return None

    @property
    def taps(self) -> dict[str, Tap]:
        """Every point where a number can be read or replaced, by name."""
        return taps_of(self)


class EncoderDecoderNetwork(Network):
    """What every encoder-decoder network has: both stacks, and the way from hidden states to logits."""

    encodes = decodes = True
    output: OutputProjection

    def logits(self, hidden: Tensor) -> Tensor:
        return self.output(hidden)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        source_features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Teacher forcing: source (B, S), target (B, T) shifted right -> logits (B, T, V)."""
        return self.logits(self.decode(target, self.encode(source, source_mask, source_features), mask=target_mask))


class DecoderNetwork(Network):
    """What every language model has: a decoder, and the way from hidden states to logits."""

    decodes = True
    output: OutputProjection

    def logits(self, hidden: Tensor) -> Tensor:
        return self.output(hidden)

    def forward(self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """ids (B, T) -> logits (B, T, V)."""
        return self.logits(self.decode(ids, mask=mask, features=features))


class EncoderNetwork(Network):
    """What every network has that only reads: a vector per token, one for the whole text, and what they tell."""

    encodes = True
    pooling: nn.Module
    head: nn.Module | None  # what predicts from the vectors, if anything does

    @abstractmethod
    def encode(self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        """ids (B, S) -> memory."""

    def pool(self, memory: Memory) -> Tensor:
        """One vector per text (B, C)."""
        return self.pooling(memory.states, memory.mask)

    def logits(self, hidden: Tensor) -> Tensor:
        """Vectors (…, C) of tokens, or of texts where the head is for classes -> logits of what the head predicts."""
        if self.head is None:
            return super().logits(hidden)
        return self.head(hidden)

    def forward(self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """ids (B, S) -> one vector per text (B, C)."""
        return self.pool(self.encode(ids, mask, features))
