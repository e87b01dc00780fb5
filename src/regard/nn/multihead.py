"""Multi-head attention (§3.2.2): projections, heads and cache around one kernel.

    MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O,   head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

Self-attention makes queries, keys and values in one fused projection; cross-attention takes the queries from the
decoder and makes keys and values of the encoder's output, once. With a `Layout` that packs, the projections run on
real tokens only, and only the kernel sees the padded rectangle.

B batch · T queries · S keys · H heads · D width of a query or key · E width of a value · C model width
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from regard.nn.attention import AttentionKernel
from regard.nn.cache import KeyValueCache
from regard.nn.cpu.heads import into_heads, out_of_heads
from regard.nn.layout import Layout, Tokens
from regard.nn.positions import Positions
from regard.nn.taps import Tap


class MultiHeadAttention(nn.Module):
    """What self- and cross-attention share: taps on q, k and v, the kernel, and the way out of the heads."""

    def __init__(
        self, width: int, heads: int, kernel: AttentionKernel, *, key_width: int | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        self.heads = heads
        self.value_width = width // heads
        self.key_width = key_width or self.value_width
        self.q = Tap()
        self.k = Tap()
        self.v = Tap()
        self.kernel = kernel
        self.head_outputs = Tap()
        self.concatenation = Tap()
        self.output = nn.Linear(heads * self.value_width, width, bias=bias)

    def flops(self, keys: int) -> int:
        """Floating-point operations per query inside the heads, where it meets so many keys."""
        return self.kernel.flops(keys, self.heads * self.key_width, self.heads * self.value_width)

    def _split(self, projected: Tensor, tokens: Tokens, sizes: Sequence[int]) -> list[Tensor]:
        """Projections (…, H·(D + …)) side by side -> each as heads (B, H, T, D)."""
        if len({*sizes}) == 1:
            return list(into_heads(projected, tokens, self.heads, len(sizes)))
        parts = projected.split(list(sizes), dim=-1)
        return [into_heads(part, tokens, self.heads)[0] for part in parts]

    def _join(self, out: Tensor, layout: Layout) -> Tensor:
        joined = out_of_heads(self.head_outputs(out), layout.queries)  # (B, H, T, E) -> (…, H·E)
        return self.output(self.concatenation(joined))


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values all come from the same tokens."""

    def __init__(
        self,
        width: int,
        heads: int,
        kernel: AttentionKernel,
        positions: Positions,
        *,
        key_width: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(width, heads, kernel, key_width=key_width, bias=bias)
        self.positions = positions.for_layer(heads, self.key_width, self.value_width, kernel.scale)
        self.sizes = [heads * self.key_width, heads * self.key_width, heads * self.value_width]
        self.query_key_value = nn.Linear(width, sum(self.sizes), bias=bias)

    def forward(self, x: Tensor, layout: Layout, cache: KeyValueCache | None = None) -> Tensor:
        """x (…, C) -> (…, C). With a cache, x is the new tokens only, and the keys are all so far."""
        q, k, v = self._split(self.query_key_value(x), layout.queries, self.sizes)
        q = self.q(self.positions.rotate(q, layout.queries))
        k = self.k(self.positions.rotate(k, layout.queries))
        v = self.v(v)
        if cache is not None:
            k, v = cache.append(k, v, self.kernel.past if layout.mask.key_mask is None else None)
        bias = self.positions.bias(q, layout)
        mix = partial(self.positions.mix, layout=layout) if self.positions.mixes else None
        return self._join(self.kernel(q, k, v, layout, bias, mix), layout)

    def flops(self, keys: int) -> int:
        return super().flops(keys) + self.positions.flops()


class CrossAttention(MultiHeadAttention):
    """Queries come from the decoder, keys and values from the encoder's output."""

    def __init__(
        self, width: int, heads: int, kernel: AttentionKernel, *, key_width: int | None = None, bias: bool = False
    ) -> None:
        super().__init__(width, heads, kernel, key_width=key_width, bias=bias)
        self.sizes = [heads * self.key_width, heads * self.value_width]
        self.query = nn.Linear(width, heads * self.key_width, bias=bias)
        self.key_value = nn.Linear(width, sum(self.sizes), bias=bias)

    def forward(self, x: Tensor, memory: Tensor, layout: Layout, cache: KeyValueCache | None = None) -> Tensor:
        """x (…, C), memory (…, C) -> (…, C). With a cache, the memory's keys and values are computed once.

        Several rows of the target may look at one sentence of the memory, K each: to the kernel, they are queries.
        """
        q = self.q(into_heads(self.query(x), layout.queries, self.heads)[0])
        if cache is not None and cache.keys is not None and cache.values is not None:
            k, v = cache.keys, cache.values
        else:
            k, v = self._split(self.key_value(memory), layout.keys, self.sizes)
            if cache is not None:
                k, v = cache.append(k, v)
        rows = len(q) // len(k)
        out = self.kernel(_side_by_side(q, rows), self.k(k), self.v(v), layout)
        return self._join(_one_by_one(out, rows), layout)


def _side_by_side(q: Tensor, rows: int) -> Tensor:
    """(B·K, H, T, D) -> (B, H, K·T, D)"""
    return q if rows == 1 else q.unflatten(0, (-1, rows)).transpose(1, 2).flatten(2, 3)


def _one_by_one(out: Tensor, rows: int) -> Tensor:
    """(B, H, K·T, E) -> (B·K, H, T, E)"""
    return out if rows == 1 else out.unflatten(2, (rows, -1)).transpose(1, 2).flatten(0, 1)
