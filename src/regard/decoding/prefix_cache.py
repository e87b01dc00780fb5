"""Keys and values of the beginnings of prompts, which later prompts reuse: turns of a chat, other requests.

Prompts are processed in blocks of 64 tokens from their beginning, and a block is stored under all tokens up to its end.
A prompt takes the stored blocks that it begins with, and computes the rest. As every block is computed from the same
blocks in tensors of the same shape, whether or not these were stored, the numbers are the same in both cases. Tokens
that were generated one by one are therefore not stored: the next turn computes them as a part of its prompt.

The blocks that were used longest ago are dropped when there are more than `max_bytes`.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.decoding.incremental import IncrementalDecoder
from regard.models.network import Network

BLOCK_TOKENS = 64
LayerBlock = tuple[Tensor, Tensor]
"""Keys and values of the tokens of a block in one layer (1, G, T, D)."""
Block = list[list[LayerBlock]]
"""The layers of each network."""


class PrefixCache:
    """Blocks of prompts by their tokens; it may be used from several threads.

    Args:
        max_bytes: Limit of the memory of all blocks.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        """Memory of all blocks."""
        self._blocks: OrderedDict[tuple[int, ...], Block] = OrderedDict()  # the last used at the end
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def encode(self, networks: Sequence[Network], ids: Sequence[int]) -> tuple[IncrementalDecoder, Tensor, int]:
        """Return a decoder that has read a prompt, the logits (1, V) after it, and how many tokens were stored."""
        prompt = PromptReader(networks, ids, self)
        while not prompt.is_read:
            prompt.read_block()
        return prompt.decoder, prompt.logits, prompt.reused

    def find(self, ids: Sequence[int]) -> list[Block]:
        """Return the stored blocks that a prompt begins with; its last token is always computed, for the logits."""
        with self._lock:
            found = list(self._prefixes(ids))
            for prefix in reversed(found):  # the first block last, so that it stays longest
                self._blocks.move_to_end(prefix)
            return [self._blocks[prefix] for prefix in found]

    def _prefixes(self, ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
        for end in range(BLOCK_TOKENS, len(ids), BLOCK_TOKENS):
            prefix = tuple(ids[:end])
            if prefix not in self._blocks:
                return
            yield prefix

    def store(self, prefix: tuple[int, ...], decoder: IncrementalDecoder) -> None:
        """Store the last block of a decoder that has read a beginning of a prompt."""
        block = decoder.last_tokens(BLOCK_TOKENS)
        if block is None:  # a recurrent network has no keys and values
            return
        with self._lock:
            if prefix in self._blocks:
                return
            self._blocks[prefix] = block
            self.num_bytes += _size(block)
            for end in range(len(prefix) - BLOCK_TOKENS, 0, -BLOCK_TOKENS):
                if prefix[:end] in self._blocks:
                    self._blocks.move_to_end(prefix[:end])  # the first block stays longest
            while self.num_bytes > self.max_bytes:
                self.num_bytes -= _size(self._blocks.popitem(last=False)[1])


class PromptReader:
    """Feeds a prompt to a decoder block by block, so that other work can be done in between.

    Args:
        networks: One network, or several that share a vocabulary.
        ids: The prompt.
        stored: Where blocks are found and stored; None: all are computed.
    """

    def __init__(self, networks: Sequence[Network], ids: Sequence[int], stored: PrefixCache | None = None) -> None:
        self.logits = torch.empty(0)
        """The logits (1, V) after the prompt, once it is read."""
        self.reused = 0
        """Tokens that were not computed."""
        self._networks = networks
        self._ids = ids
        self._stored = stored
        self._position = 0
        self._decoder: IncrementalDecoder | None = None

    @property
    def is_read(self) -> bool:
        """Whether the whole prompt has been read."""
        return self._position == len(self._ids)

    @property
    def decoder(self) -> IncrementalDecoder:
        """The decoder, which has read the prompt up to a block; stored blocks are looked up on first use."""
        if self._decoder is None:
            self._decoder = IncrementalDecoder(self._networks)
            blocks = self._stored.find(self._ids) if self._stored is not None else []
            if blocks:
                self._decoder.restore(blocks)
            self.reused = self._position = len(blocks) * BLOCK_TOKENS
        return self._decoder

    @torch.inference_mode()
    def read_block(self) -> int:
        """Feed the next block, and return how many tokens it has."""
        decoder = self.decoder
        new = self._ids[self._position : self._position + BLOCK_TOKENS]
        self.logits = decoder.step(torch.tensor([new], device=decoder.device))
        self._position += len(new)
        if self._stored is not None and len(new) == BLOCK_TOKENS:
            self._stored.store(tuple(self._ids[: self._position]), decoder)
        return len(new)


def _size(block: Block) -> int:
    return sum(part.nbytes for layers in block for layer in layers for part in layer)
