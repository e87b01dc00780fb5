"""A Transformer stack (§3.1): embedding, then one block after the other. Encoders and decoders are both stacks.

B batch · S source length · T tokens · C model width
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from torch import Tensor, nn

from regard.errors import InputError
from regard.nn import cpu
from regard.nn.block import Block
from regard.nn.cache import DecoderCache
from regard.nn.embedding import TokenEmbedding
from regard.nn.exposed import ExposedModule, Matrix, Point, child_matrices, child_points, points_of, tap_point, under
from regard.nn.layout import make_layout
from regard.nn.taps import Tap


class Stack(ExposedModule):
    """Blocks on top of an embedding; a pre-norm stack ends with a `norm` of its own."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[Block],
        norm: nn.Module | None = None,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.states = Tap("token", "unit", description="output of the stack")
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
        """ids (B, T) -> hidden states (B, T, C), zero at padding.

        `mask` (B, T) is True at tokens, False at padding; `memory` (B, S, C) is the input of cross-attention;
        `features` are (B, T) tensors by name. With a cache, `ids` are the new tokens only. There may be several
        consecutive rows of ids for each row of the memory, as for beams. While a tap is open, padding is computed too,
        so that the values at taps have the shape of the batch.
        """
        if ids.dim() != 2 or (memory is not None and len(ids) % len(memory)):
            rows = "" if memory is None else f" and a memory of {len(memory)} rows"
            raise InputError(f"The ids have shape {tuple(ids.shape)}{rows}; they should be (rows, length).")
        pack = cpu.enabled(ids.device) and cache is None and not self._watched()
        layout = make_layout(
            ids,
            mask,
            before=cache.length if cache is not None else 0,
            past_mask=cache.mask if cache is not None else None,
            causal=self.causal,
            pack=pack,
            features=features,
        )
        cross_layout = None
        if memory is not None:
            cross_layout = layout.cross(memory, memory_mask, pack=pack)
            memory = cross_layout.keys.pack(memory)
        x = self.embedding(ids, layout.queries)
        for number, layer in enumerate(self.layers):
            x = layer(x, layout, memory, cross_layout, cache.layers[number] if cache is not None else None)
        x = self.states(x if self.norm is None else self.norm(x))
        if cache is not None:
            cache.advance(ids, mask)
        if layout.queries.packing is not None:
            return layout.queries.pad(x)
        return x if mask is None else x.masked_fill(~mask[..., None], 0.0)

    @property
    def last_norm(self) -> nn.Module:
        """The last normalization that the states pass."""
        return self.norm if self.norm is not None else cast(Block, self.layers[-1]).last_norm

    @property
    def parts(self) -> list[tuple[str, list[nn.Module]]]:
        """Kinds of modules, each with all modules of the kind: the embedding, every sub-layer, the norms."""
        children = [dict(layer.named_children()) for layer in self.layers]
        sublayers = [name for name in children[0] if not name.endswith("_residual")]
        norms = [part for layer in children for name, part in layer.items() if name.endswith("_residual")]
        final = [self.norm] if self.norm is not None else []
        return [
            ("embedding", [self.embedding]),
            *((name.replace("_", "-"), [layer[name] for layer in children]) for name in sublayers),
            ("normalization", [*norms, *final]),
        ]

    def bypassable_layers(self, number: int) -> list[nn.Module]:
        """Return the modules of a layer that can be replaced by the identity; blocks are ablated at their sums."""
        return []

    def points(self) -> Iterator[Point]:
        yield from self.embedding.points()
        yield from child_points(self.layers)
        if self.norm is not None:
            yield from under("norm", points_of(self.norm))
        yield tap_point("states", self.states)

    def matrices(self) -> Iterator[Matrix]:
        yield from self.embedding.matrices()
        yield from child_matrices(self.layers)

    def _watched(self) -> bool:
        if self._taps is None:  # collecting them takes longer than a step of a small network
            self._taps = [part for part in self.modules() if isinstance(part, Tap)]
        return any(tap.is_open for tap in self._taps)
