"""Transformer blocks and stacks (§3.1): sub-layers, a block of them, and an embedding with blocks on top.

Each sub-layer has a residual connection, dropout and normalization (§5.4). Encoders and decoders are both stacks.

B batch · S source length · T tokens · C model width
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.errors import InputError
from regard.nn import cpu
from regard.nn.cache import DecoderCache, LayerCache
from regard.nn.embedding import TokenEmbedding
from regard.nn.experts import MixtureOfExperts
from regard.nn.functional import Dropout
from regard.nn.layout import Layout, Mask, find_padding, make_layout
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.taps import (
    ExposedModule,
    Matrix,
    MatrixProduct,
    Point,
    Tap,
    child_matrices,
    child_points,
    points_of,
    tap_point,
    under,
)

Sublayer = Callable[[Tensor], Tensor]


class Residual(ExposedModule):
    """Residual connection, dropout and normalization around a sub-layer; `connected=False` drops the connection."""

    def __init__(self, norm: nn.Module, dropout: float, connected: bool = True) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.connected = connected
        self.added = Tap("token", "unit", description="output of the sub-layer")
        self.sum = Tap("token", "unit", description="x + Sublayer(x)" if connected else "Sublayer(x)")
        self.normed = Tap("token", "unit", description="output of the normalization")

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.dropout(self.added(y))
        return self.sum(x + y if self.connected else y)

    def forward(self, x: Tensor, sublayer: Sublayer, source: Tensor | None = None) -> Tensor:
        """Return x + Sublayer(source); `source` is x unless given."""
        raise NotImplementedError

    def points(self) -> Iterator[Point]:
        yield tap_point("added", self.added)
        yield tap_point("sum", self.sum)
        yield from points_of(self.norm)
        yield tap_point("normed", self.normed)


class PostNorm(Residual):
    """LayerNorm(x + Sublayer(x)): the paper's order."""

    def forward(self, x: Tensor, sublayer: Sublayer, source: Tensor | None = None) -> Tensor:
        return self.normed(self.norm(self._add(x, sublayer(x if source is None else source))))


class PreNorm(Residual):
    """x + Sublayer(LayerNorm(x)): the residual stream is never normalized, and training needs no warm-up."""

    def forward(self, x: Tensor, sublayer: Sublayer, source: Tensor | None = None) -> Tensor:
        return self._add(x, sublayer(self.normed(self.norm(x if source is None else source))))


class SandwichNorm(PreNorm):
    """x + LayerNorm(Sublayer(LayerNorm(x))): what is added has a bounded size too (Ding et al. 2021, Gemma 2)."""

    def __init__(self, norm: nn.Module, output_norm: nn.Module, dropout: float, connected: bool = True) -> None:
        super().__init__(norm, dropout, connected)
        self.output_norm = output_norm
        self.output_normed = Tap("token", "unit", description="output of the sub-layer, normalized")

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.added(y).to(x.dtype)  # autocast computes sub-layers, but not norms, in bfloat16
        y = self.dropout(self.output_normed(self.output_norm(y)))
        return self.sum(x + y if self.connected else y)

    def points(self) -> Iterator[Point]:
        yield tap_point("added", self.added)
        yield from under("output", points_of(self.output_norm))
        yield tap_point("output_normed", self.output_normed)
        yield from (point for point in super().points() if point.name != "added")


class Block(ExposedModule):
    """One layer: self-attention, then cross-attention if there is a memory, then feed-forward.

    Layers of encoders, decoders and language models differ only in the arguments. In a `parallel` layer all sub-layers
    read its input, and their outputs are added: x + Attention(x) + FFN(x) (Wang & Komatsuzaki 2021).
    """

    def __init__(
        self,
        attention: SelfAttention,
        cross_attention: CrossAttention | None,
        feed_forward: nn.Module | None,
        residual: Callable[[], Residual],
        *,
        parallel: bool = False,
    ) -> None:
        super().__init__()
        self.parallel = parallel
        self.attention = attention
        self.attention_residual = residual()
        self.cross_attention = cross_attention
        self.cross_attention_residual = residual() if cross_attention is not None else None
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual() if feed_forward is not None else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        cross_layout: Layout | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x (…, C) -> (…, C); `memory` (…, C) and `cross_layout` are for cross-attention."""
        own, cross = (cache.own, cache.cross) if cache is not None else (None, None)
        source = x if self.parallel else None
        x = self.attention_residual(x, lambda x: self.attention(x, layout, own))
        if self.cross_attention_residual is not None:
            attend = self.cross_attention
            x = self.cross_attention_residual(x, lambda x: attend(x, memory, cross_layout, cross), source)  # type: ignore[misc]
        if self.feed_forward_residual is not None:
            x = self.feed_forward_residual(x, self._transform(layout), source)
        return x

    def _transform(self, layout: Layout) -> Sublayer:
        """The feed-forward layer; experts also read the layout."""
        layer = cast(nn.Module, self.feed_forward)
        return partial(layer, layout=layout) if getattr(type(layer), "needs_layout", False) else layer

    @property
    def last_norm(self) -> nn.Module:
        """The norm of the last sub-layer."""
        return (self.feed_forward_residual or self.cross_attention_residual or self.attention_residual).norm

    def points(self) -> Iterator[Point]:
        products = {
            f"{name}_residual.added": product.under(name)
            for name, child in self.named_children()
            if isinstance(product := getattr(child, "output_product", None), MatrixProduct)
        }
        for name, child in self.named_children():
            for point in under(name, points_of(child)):
                yield replace(point, product=products[point.name]) if point.name in products else point


class Stack(ExposedModule):
    """Blocks on top of an embedding; a pre-norm stack ends with a `norm` of its own.

    In training, its blocks may be compiled (`compile_options`, of `torch.compile`), and only their inputs may be kept
    for the backward pass, which then computes each block again (`gradient_checkpointing`).
    """

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
        self.gradient_checkpointing = False
        self.compile_options: Mapping[str, Any] | None = None
        self._compiled: list[Callable[..., Tensor]] | None = None
        self._taps: list[Tap] | None = None
        self.prepared_step: object = None
        """The `DecodeStep` of a decoder, made on first use."""
        self.prepared_rows: object = None
        """The `RowStep` of a language model, made on first use."""

    def forward(
        self,
        ids: Tensor,
        mask: Mask = None,
        *,
        memory: Tensor | None = None,
        memory_mask: Mask = None,
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
        watched = self._watched()
        layers = self._layers(compiled=self.training and cache is None and not watched)
        pack = cpu.enabled(ids.device) and cache is None and not watched and layers is not self._compiled
        padding = find_padding(mask, ids.shape)
        layout = make_layout(
            ids,
            padding,
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
        if layers is self._compiled:
            self._prepare(x, layout, cross_layout)
        for number, layer in enumerate(layers):
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, layout, memory, cross_layout, use_reentrant=False)
            else:
                x = layer(x, layout, memory, cross_layout, cache.layers[number] if cache is not None else None)
        x = self.states(x if self.norm is None else self.norm(x))
        if cache is not None:
            cache.advance(ids, None if padding is None else padding.tokens)
        if layout.queries.packing is not None:
            return layout.queries.pad(x)
        return x if padding is None else x.masked_fill(~padding.tokens[..., None], 0.0)

    def _layers(self, *, compiled: bool) -> Iterable[Callable[..., Tensor]]:
        if not compiled or self.compile_options is None:
            return self.layers
        if self._compiled is None:
            for part in self.layers.modules():
                if isinstance(part, MixtureOfExperts):
                    part.leave_graphs()
            self._compiled = [torch.compile(layer, **self.compile_options) for layer in self.layers]
        return self._compiled

    def _prepare(self, x: Tensor, layout: Layout, cross_layout: Layout | None) -> None:
        """Compute what blocks otherwise compute once and keep, which compiled ones cannot do."""
        for stack_layout in (layout, cross_layout):
            if stack_layout is not None:
                stack_layout.precompute()
        for layer in self.layers:
            cast(Block, layer).attention.prepare(x, layout)

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
