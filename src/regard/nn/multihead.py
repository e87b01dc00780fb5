"""Multi-head attention (§3.2.2): projections, heads and cache around one kernel.

    MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O,   head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

Self-attention computes queries, keys and values in one fused projection; cross-attention takes queries from the decoder
and keys and values from the encoder's output, which it projects once. With grouped-query attention (Ainslie et al.
2023) there are fewer key and value heads than query heads, and consecutive query heads share one. If the layout packs
its tokens, the projections skip padding, and only the kernel sees the padded rectangle.

B batch · T queries · S keys · H query heads · G key and value heads · D width of a query or key · E width of a value
C model width
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from regard.nn.attention import AttentionKernel
from regard.nn.cache import KeyValueCache
from regard.nn.functional import at_least_float32, merge_heads, split_heads
from regard.nn.layout import Layout, Tokens
from regard.nn.lora import linear_weight
from regard.nn.positions import Positions, Shared
from regard.nn.taps import ExposedModule, Matrix, MatrixProduct, Point, Tap, bias_name, linear_matrices, tap_point


class MultiHeadAttention(ExposedModule):
    """Base of self- and cross-attention: taps on q, k and v, the kernel, and the output projection."""

    _heads: tuple[int, ...]  # of each fused projection

    def __init__(
        self,
        width: int,
        heads: int,
        kernel: AttentionKernel,
        *,
        kv_heads: int | None = None,
        value_width: int | None = None,
        key_width: int | None = None,
        bias: bool = False,
        output_bias: bool | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads or heads
        self.value_width = value_width or width // heads
        self.key_width = key_width or self.value_width
        shared = "" if self.kv_heads == heads else f", shared by {heads // self.kv_heads} heads"
        queries, keys = "x · W_q: queries", f"W_k: keys{shared}"
        self.query_norm = qk_norm(self.key_width) if qk_norm is not None else None
        self.key_norm = qk_norm(self.key_width) if qk_norm is not None else None
        self.q_projected: Tap | None = None
        self.k_projected: Tap | None = None
        if qk_norm is not None:
            self.q_projected = Tap("head", "token", "unit", description=queries)
            self.k_projected = Tap("head", "key", "unit", description=keys)
            queries, keys = "queries, normalized", f"keys, normalized{shared}"
        self.q = Tap("head", "token", "unit", description=queries)
        self.k = Tap("head", "key", "unit", description=keys)
        self.v = Tap("head", "key", "unit", description=f"W_v: values{shared}")
        self.kernel = kernel
        self.head_outputs = Tap("head", "token", "unit", description="weights · v")
        self.concatenation = Tap("token", "unit", description="outputs of all heads, concatenated")
        self.output = nn.Linear(heads * self.value_width, width, bias=bias if output_bias is None else output_bias)

    @property
    def output_product(self) -> MatrixProduct:
        """The factors of what the layer returns."""
        return MatrixProduct("concatenation", "W_o", bias_name(self.output, "o"))

    @property
    def fused_projections(self) -> dict[str, list[int]]:
        """The linear layers that compute several projections at once, by name, with the width of each projection."""
        raise NotImplementedError

    def keep_heads(self, rank: int, parts: int, shared: Shared) -> None:
        """Compute one of `parts` equal shares of the heads; the rows of the projections must be divided likewise.

        `shared` marks parameters that all processes use, each for its heads.
        """
        self.heads //= parts
        self.kv_heads //= parts
        self._heads = tuple(heads // parts for heads in self._heads)

    def flops(self, keys: int) -> int:
        """Return the floating-point operations per query inside the heads, with this many keys."""
        return self.kernel.flops(keys, self.heads, self.kv_heads, self.key_width, self.value_width)

    def _split(self, projected: Tensor, tokens: Tokens, heads: Sequence[int], widths: Sequence[int]) -> list[Tensor]:
        """Split concatenated projections (…, H·D + …) into one tensor (B, H, T, D) for each."""
        if len({*heads}) == len({*widths}) == 1:
            return list(split_heads(projected, tokens, heads[0], len(heads)))
        parts = projected.split([count * width for count, width in zip(heads, widths, strict=True)], dim=-1)
        return [split_heads(part, tokens, count)[0] for part, count in zip(parts, heads, strict=True)]

    def normed_queries(self, q: Tensor) -> Tensor:
        """Return RMSNorm(q) of queries (B, H, T, D), or q itself without `qk_norm`."""
        if self.query_norm is None or self.q_projected is None:
            return q
        normed: Tensor = self.query_norm(at_least_float32(self.q_projected(q)))
        return normed.to(q.dtype)

    def normed_keys(self, k: Tensor) -> Tensor:
        """Return RMSNorm(k) of keys (B, G, S, D), or k itself without `qk_norm`."""
        if self.key_norm is None or self.k_projected is None:
            return k
        normed: Tensor = self.key_norm(at_least_float32(self.k_projected(k)))
        return normed.to(k.dtype)

    def _join(self, out: Tensor, layout: Layout) -> Tensor:
        joined = merge_heads(self.head_outputs(out), layout.queries)  # (B, H, T, E) -> (…, H·E)
        return self.output(self.concatenation(joined))

    def _points(self, query: nn.Linear, key_value: nn.Linear, keys_from: str, positions: Positions) -> Iterator[Point]:
        repeat = self._repeat if self.kv_heads != self.heads else None
        b_q, b_k, b_v = bias_name(query, "q"), bias_name(key_value, "k"), bias_name(key_value, "v")
        yield Point("input", ("token", "unit"), "x: input of the query projection", query, "input")
        q_product, k_product = MatrixProduct("input", "W_q", b_q), MatrixProduct(keys_from, "W_k", b_k)
        if self.q_projected is not None and self.k_projected is not None:
            yield tap_point("q_projected", self.q_projected, q_product)
            yield tap_point("k_projected", self.k_projected, k_product, repeat)
            yield tap_point("q", self.q)
            yield tap_point("k", self.k, None, repeat)
        else:
            yield tap_point("q", self.q, q_product)
            yield tap_point("k", self.k, k_product, repeat)
        yield tap_point("v", self.v, MatrixProduct(keys_from, "W_v", b_v), repeat)
        for point in self.kernel.points():
            biased = point.name == "scaled" and positions.biases
            yield _with(point, " + bias of the positions") if biased else point
        outputs = tap_point("head_outputs", self.head_outputs, self.kernel.output_product)
        yield _with(outputs, " + values of the positions") if positions.mixes else outputs
        yield tap_point("concatenation", self.concatenation)

    def _repeat(self, x: Tensor) -> Tensor:
        """Show key or value heads (G, …) once for each query head (H, …)."""
        return x.repeat_interleave(self.heads // self.kv_heads, dim=0)

    def _matrices(self, linear: nn.Linear, letters: str) -> Iterator[Matrix]:
        """Yield the projections that one linear layer fuses, with W (C, D) for each query head."""
        start = 0
        for letter in letters:
            heads = self.heads if letter == "q" else self.kv_heads
            size = heads * (self.value_width if letter == "v" else self.key_width)
            rows = slice(start, start + size)
            weight, bias = self._of_heads(linear, "weight", rows, heads), self._of_heads(linear, "bias", rows, heads)
            yield Matrix(f"W_{letter}", ("head", "unit", "unit"), weight, self.heads)
            if linear.bias is not None:
                yield Matrix(f"b_{letter}", ("head", "unit"), bias, self.heads, "bias")
            start += size

    def _of_heads(self, linear: nn.Linear, name: str, rows: slice, heads: int) -> Callable[[], Tensor]:
        def take() -> Tensor:
            parameter: Tensor = linear_weight(linear) if name == "weight" else getattr(linear, name)
            per_head = parameter[rows].unflatten(0, (heads, -1))  # (H·D, C) -> (H, D, C)
            per_head = per_head.mT if per_head.dim() == 3 else per_head
            return per_head if heads == self.heads else self._repeat(per_head)

        return take


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values all come from the same tokens."""

    def __init__(
        self,
        width: int,
        heads: int,
        kernel: AttentionKernel,
        positions: Positions,
        *,
        kv_heads: int | None = None,
        value_width: int | None = None,
        key_width: int | None = None,
        bias: bool = False,
        output_bias: bool | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__(
            width,
            heads,
            kernel,
            kv_heads=kv_heads,
            value_width=value_width,
            key_width=key_width,
            bias=bias,
            output_bias=output_bias,
            qk_norm=qk_norm,
        )
        self.positions = positions.for_layer(heads, self.key_width, self.value_width, kernel.scale)
        self._heads = (heads, self.kv_heads, self.kv_heads)
        self._widths = (self.key_width, self.key_width, self.value_width)
        self.sizes = [count * size for count, size in zip(self._heads, self._widths, strict=True)]
        self.query_key_value = nn.Linear(width, sum(self.sizes), bias=bias)

    def forward(self, x: Tensor, layout: Layout, cache: KeyValueCache | None = None) -> Tensor:
        """x (…, C) -> (…, C). With a cache, x are the new tokens only, and the keys are all tokens so far."""
        q, k, v = self._split(self.query_key_value(x), layout.queries, self._heads, self._widths)
        q = self.q(self.positions.rotate(self.normed_queries(q), layout.queries))  # (B, H, T, D)
        k = self.k(self.positions.rotate(self.normed_keys(k), layout.queries))  # (B, G, T, D)
        v = self.v(v)
        if cache is not None:
            k, v = cache.append(k, v, self.kernel.max_past if layout.mask.key_mask is None else None)
        bias = self.positions.bias(q, layout)
        mix = partial(self.positions.mix, layout=layout) if self.positions.mixes else None
        return self._join(self.kernel(q, k, v, layout, bias, mix), layout)

    def keep_heads(self, rank: int, parts: int, shared: Shared) -> None:
        super().keep_heads(rank, parts, shared)
        self.positions.keep_heads(rank, parts, shared)

    def prepare(self, x: Tensor, layout: Layout) -> None:
        """Compute what layers share and keep it in the layout, ahead of compiled blocks; x are states (B, T, C)."""
        self.positions.prepare(x, layout)
        self.kernel.prepare(layout, in_pairs=self.positions.biases or self.positions.mixes)

    @property
    def fused_projections(self) -> dict[str, list[int]]:
        return {"query_key_value": self.sizes}

    def flops(self, keys: int) -> int:
        return super().flops(keys) + self.positions.flops()

    def points(self) -> Iterator[Point]:
        yield from self._points(self.query_key_value, self.query_key_value, "input", self.positions)
        yield from self.positions.points()

    def matrices(self) -> Iterator[Matrix]:
        yield from self._matrices(self.query_key_value, "qkv")
        yield from linear_matrices(self.output, "o")
        yield from self.positions.matrices()


class CrossAttention(MultiHeadAttention):
    """Queries come from the decoder, keys and values from the encoder's output."""

    def __init__(
        self,
        width: int,
        heads: int,
        kernel: AttentionKernel,
        *,
        kv_heads: int | None = None,
        value_width: int | None = None,
        key_width: int | None = None,
        bias: bool = False,
        output_bias: bool | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__(
            width,
            heads,
            kernel,
            kv_heads=kv_heads,
            value_width=value_width,
            key_width=key_width,
            bias=bias,
            output_bias=output_bias,
            qk_norm=qk_norm,
        )
        self._heads, self._widths = (self.kv_heads,) * 2, (self.key_width, self.value_width)
        self.sizes = [self.kv_heads * size for size in self._widths]
        self.query = nn.Linear(width, heads * self.key_width, bias=bias)
        self.key_value = nn.Linear(width, sum(self.sizes), bias=bias)

    def forward(self, x: Tensor, memory: Tensor, layout: Layout, cache: KeyValueCache | None = None) -> Tensor:
        """x (…, C), memory (…, C) -> (…, C). With a cache, keys and values of the memory are computed once.

        There may be several target rows for each row of the memory (beams): the kernel sees them as more queries.
        """
        q = self.q(self.normed_queries(split_heads(self.query(x), layout.queries, self.heads)[0]))
        k, v = self.memory_heads(memory, layout, cache)
        beams = len(q) // len(k)
        out = self.kernel(_beams_to_queries(q, beams), self.k(k), self.v(v), layout)
        return self._join(_queries_to_beams(out, beams), layout)

    def memory_heads(self, memory: Tensor, layout: Layout, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        """memory (…, C) -> its keys (B, G, S, D) and values (B, G, S, E), which a cache keeps."""
        if cache is not None and cache.keys is not None and cache.values is not None:
            return cache.keys, cache.values
        k, v = self._split(self.key_value(memory), layout.keys, self._heads, self._widths)
        k = self.normed_keys(k)
        return (k, v) if cache is None else cache.append(k, v)

    @property
    def fused_projections(self) -> dict[str, list[int]]:
        return {"key_value": self.sizes}

    def points(self) -> Iterator[Point]:
        for point in self._points(self.query, self.key_value, "/encoder.states", Positions()):
            yield replace(point, axes=tuple("memory" if axis == "key" else axis for axis in point.axes))

    def matrices(self) -> Iterator[Matrix]:
        yield from self._matrices(self.query, "q")
        yield from self._matrices(self.key_value, "kv")
        yield from linear_matrices(self.output, "o")


def _with(point: Point, description: str) -> Point:
    return replace(point, description=point.description + description)


def _beams_to_queries(q: Tensor, beams: int) -> Tensor:
    """(B·K, H, T, D) -> (B, H, K·T, D)"""
    return q if beams == 1 else q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)


def _queries_to_beams(out: Tensor, beams: int) -> Tensor:
    """(B, H, K·T, E) -> (B·K, H, T, E)"""
    return out if beams == 1 else out.unflatten(2, (beams, -1)).transpose(1, 2).flatten(0, 1)
