"""A stack (§3.1): embed the tokens, then one layer after the other. Encoders and decoders are both stacks.

B batch · S source length · T tokens · C model width
"""

from collections.abc import Mapping, Sequence
from typing import cast

from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.block import Block
from regard.nn.cache import DecoderCache
from regard.nn.embedding import TokenEmbedding
from regard.nn.layout import make_layout
from regard.nn.taps import Tap


class Stack(nn.Module):
    """`norm` ends a pre-norm stack, whose sums are never normalised otherwise."""

    def __init__(
        self, embedding: TokenEmbedding, layers: Sequence[Block], norm: nn.Module | None = None, *, causal: bool = False
    ) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.states = Tap()
        self._taps: list[Tap] | None = None

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """ids (B, T) -> hidden states (B, T, C), zero at pads.

        `real` (B, T) is True at tokens that are not pads; `memory` (B, S, C) is what cross-attention looks at; `facts`
        are (B, T) tensors by name. With a cache, `ids` are the new tokens only. While a tap is open, pads are computed
        too, so that what passes the taps keeps the batch's shape. There may be several rows of ids for each of the
        memory, standing together, as beams do.
        """
        if ids.dim() != 2 or (memory is not None and len(ids) % len(memory)):
            rows = "" if memory is None else f" and a memory of {len(memory)} rows"
            raise InputError(f"The ids have shape {tuple(ids.shape)}{rows}; they should be (rows, length).")
        pack = cache is None and not self._watched()
        layout = make_layout(
            ids,
            mask,
            before=cache.length if cache is not None else 0,
            past_mask=cache.mask if cache is not None else None,
            causal=self.causal,
            pack=pack,
            features=features,
        )
        across = None
        if memory is not None:
            across = layout.across(memory, memory_mask, pack=pack)
            memory = across.keys.pack(memory)
        x = self.embedding(ids, layout.queries)
        for number, layer in enumerate(self.layers):
            x = layer(x, layout, memory, across, cache.layers[number] if cache is not None else None)
        x = self.states(x if self.norm is None else self.norm(x))
        if cache is not None:
            cache.advance(ids, mask)
        if layout.queries.packing is not None:
            return layout.queries.pad(x)
        return x if mask is None else x.masked_fill(~mask[..., None], 0.0)

    @property
    def last_norm(self) -> nn.Module:
        """What the states have passed through last."""
        return self.norm if self.norm is not None else cast(Block, self.layers[-1]).last_norm

    def _watched(self) -> bool:
        if self._taps is None:  # looking for them takes longer than a small step
            self._taps = [part for part in self.modules() if isinstance(part, Tap)]
        return any(tap.is_open for tap in self._taps)
