"""Batches of conversations and of preference pairs, from their token stores.

Whole conversations are packed into rows of the context length without attending to each other, as separate documents
of language models are. A conversation of n tokens has n − 1 positions: each token but the last predicts the next one.

B rows · T their length · P pairs
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from regard.config import SpecialTokensConfig
from regard.data.batching import DATA_START, DataPosition, Ids, Mask
from regard.data.language_batches import LanguageBatch, PackedBatches, TokenStream
from regard.data.store import TokenColumn


@dataclass(frozen=True)
class ChatStream(TokenStream):
    """All conversations, one after the other; their first and last tokens come from the template."""

    @cached_property
    def ends(self) -> Ids:
        """Where the positions of each conversation end."""
        return self.column.ends - np.arange(1, len(self.column.ends) + 1)

    def read(self, start: int, end: int) -> tuple[Ids, Ids]:
        """Return the ids and labels of a span of one conversation."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        tokens = self.column.ids[start + first : end + first + 1].astype(np.int64)
        return tokens[:-1], tokens[1:]


@dataclass(frozen=True)
class ChatBatch:
    """Packed conversations."""

    tokens: LanguageBatch
    learned: Mask  # (B, T) True where an assistant writes the next token


@dataclass(frozen=True)
class ConversationBatches(PackedBatches):
    """Conversations, packed into rows; `learned` is the column with 1 at the tokens of assistants."""

    learned: TokenColumn | None = None

    @cached_property
    def stream(self) -> TokenStream:
        """The conversations that rows are packed from."""
        return ChatStream(self.column, self.special)

    def chats(self, spans: Ids, rank: int = 0, world_size: int = 1) -> ChatBatch:
        """Return the batch of some rows of conversations."""
        assert self.learned is not None
        batch = self.batch(spans, rank, world_size)
        marks = ChatStream(self.learned, self.special).batch(spans, separate=True, rank=rank, world_size=world_size)
        learned = (marks.labels == 1) & (marks.document_ids != 0)  # padding is no part of any conversation
        return ChatBatch(batch, learned)


@dataclass(frozen=True)
class PreferenceBatch:
    """Both conversations of preference pairs: all chosen ones, then all rejected ones."""

    ids: Ids  # (2P, T)
    labels: Ids  # (2P, T) the token after each
    mask: Mask  # (2P, T) True at tokens
    learned: Mask  # (2P, T) True where the next token is of the answer


@dataclass(frozen=True)
class PreferenceBatches:
    """Batches of preference pairs in random order, of at most `max_tokens` with padding."""

    columns: tuple[TokenColumn, TokenColumn, TokenColumn, TokenColumn]
    max_tokens: int
    special: SpecialTokensConfig
    seed: int = 0

    @cached_property
    def lengths(self) -> Ids:
        """Positions of the longer conversation of each pair."""
        chosen, rejected, *_ = self.columns
        return np.maximum(chosen.lengths, rejected.lengths) - 1

    def plan(self, epoch: int | None) -> list[Ids]:
        """Return the pairs of each batch of an epoch; None: in order."""
        count = len(self.lengths)
        order = np.arange(count) if epoch is None else np.random.default_rng([self.seed, epoch]).permutation(count)
        batches: list[list[int]] = []
        longest = 0
        for pair in order.tolist():
            longest = max(longest, int(self.lengths[pair]))
            if batches and 2 * longest * (len(batches[-1]) + 1) <= self.max_tokens:
                batches[-1].append(pair)
            else:
                batches.append([pair])
                longest = int(self.lengths[pair])
        return [np.array(batch) for batch in batches]

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, Ids]]:
        """Yield the pairs of batches from a position on without end, each with the position after it."""
        while True:
            for pairs in self.plan(position.epoch)[position.batch :]:
                position = replace(position, batch=position.batch + 1)
                yield position, pairs
            position = DataPosition(position.epoch + 1)

    def batch(self, pairs: Ids, rank: int = 0, world_size: int = 1) -> PreferenceBatch:
        """Return a batch, or the pairs of it that one of several processes takes."""
        width = int(self.lengths[pairs].max())
        pairs = pairs[rank::world_size]
        shape = (2 * len(pairs), width)
        ids, labels = (np.full(shape, self.special.pad, np.int64) for _ in range(2))
        mask, learned = (np.zeros(shape, np.bool_) for _ in range(2))
        for side in (0, 1):
            for row, pair in enumerate(pairs.tolist(), start=side * len(pairs)):
                tokens = self.columns[side][pair].astype(np.int64)
                length = len(tokens) - 1
                ids[row, :length], labels[row, :length] = tokens[:-1], tokens[1:]
                mask[row, :length] = True
                learned[row, :length] = self.columns[side + 2][pair][1:] == 1
        return PreferenceBatch(ids, labels, mask, learned)
