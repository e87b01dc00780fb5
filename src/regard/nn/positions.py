"""Positions (§3.5): how the order of tokens reaches a network whose attention is independent of order.

A position scheme has four hooks, each of which does nothing unless the scheme overrides it:

    embed    adds or appends to the embeddings  sinusoidal, learned, syntax
    rotate   rotates queries and keys           rotary
    bias     adds to the scaled scores          relative, ALiBi, buckets, syntax
    mix      adds to the outputs of the heads   relative, syntax

`embed` is called once per stack; the others are called in each self-attention layer, on the object that `for_layer`
returned for it, which may have parameters of its own. `Tokens` has the position of each token and any features that the
network was given; a `Layout` has queries, keys and the distances between them.

Each scheme is one class, with its formula in the docstring; `rotary.py` has the one that rotates, and `syntax.py` the
one that needs dependency trees. A scheme of another package is registered under a name (`regard.positions` entry
points).

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · C model width
"""

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.functional import matmul_dtype, random_normal
from regard.nn.layout import Layout, Tokens
from regard.nn.taps import ExposedModule, Matrix, Point, Tap, tap_point

Shared = Callable[[Tensor], Tensor]
"""Returns a parameter that several processes use for different heads, so that their gradients of it are summed."""


class Positions(ExposedModule):
    """Base of all schemes, and itself the scheme "none": every hook does nothing."""

    biases = False  # whether `bias` adds to the scaled scores
    mixes = False  # whether `mix` is called; it needs the attention weights, which fused kernels do not store
    appended_width = 0  # units that `embed` appends to the embeddings

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return embeddings (B, T, C) with positions added to them, or appended to embeddings that are narrower."""
        return x

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> "Positions":
        """Return the object for the other hooks in one self-attention layer, whose scores are multiplied by `scale`."""
        return Positions()

    def in_windows(self) -> "Positions":
        """Return the scheme for layers with sliding windows."""
        return self

    def keep_heads(self, rank: int, parts: int, shared: Shared) -> None:
        """Compute the heads of one of `parts` processes; `shared` marks parameters that all of them use."""

    def prepare(self, x: Tensor, layout: Layout) -> None:
        """Compute what the other hooks of all layers share and keep it in the layout; x are states (B, T, C).

        It is called ahead of compiled blocks only, which cannot keep anything themselves.
        """

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return queries or keys (B, H, T, D), rotated by their positions."""
        return x

    def bias(self, q: Tensor, layout: Layout) -> Tensor | None:
        """Return what to add to the scaled scores (B, H, T, S)."""
        return None

    def mix(self, weights: Tensor, layout: Layout) -> Tensor:
        """Return what to add to the heads' outputs (B, H, T, D), given the weights (B, H, T, S); called if `mixes`."""
        raise NotImplementedError

    def flops(self) -> int:
        """Return the floating-point operations per query in matrix products of one layer's hooks."""
        return 0


class VectorPositions(Positions):
    """Base of schemes with one vector per position, which is added to the embedding or, as an option, appended to it.

    Appended vectors have some of the model's units, and embeddings the rest.
    """

    def __init__(self, width: int, concatenate: bool = False) -> None:
        super().__init__()
        self.width = width
        self.appended_width = width if concatenate else 0
        self.vectors = Tap("token", "unit", description="vector of each position")

    def vectors_at(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return the vector of each token's position (B or 1, T, width), with type and device of the embeddings."""
        raise NotImplementedError

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        vectors = self.vectors(self.vectors_at(x, tokens))
        if not self.appended_width:
            return x + vectors
        return torch.cat([x, vectors.expand(*x.shape[:-1], -1)], dim=-1)

    def points(self) -> Iterator[Point]:
        yield tap_point("positions", self.vectors)


class SinusoidalPositions(VectorPositions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/C)), PE(pos, 2i+1) = cos(pos / 10000^(2i/C)), for any length.

    With `halves` all sines come first, then all cosines, as in Marian.
    """

    def __init__(self, width: int, halves: bool = False, concatenate: bool = False) -> None:
        super().__init__(width, concatenate)
        self.halves = halves
        self._table = torch.empty(0, width)  # grows with the longest input; not saved

    def vectors_at(self, x: Tensor, tokens: Tokens) -> Tensor:
        longest = tokens.max_length
        if len(self._table) < longest or self._table.device != x.device or self._table.dtype != x.dtype:
            length = len(self._table) if longest <= len(self._table) else max(64, 2 * longest)
            self._table = sinusoidal_table(length, self.width, self.halves).to(x)
        return self._table[tokens.position_ids]


def sinusoidal_table(length: int, width: int, halves: bool = False) -> Tensor:
    """Return the table of sinusoidal positions (length, width), in double precision.

    >>> sinusoidal_table(2, 4).float()
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
    frequency = torch.exp(-math.log(10_000) * torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)
    angle = position * frequency  # (length, ⌈width / 2⌉)
    sines, cosines = angle.sin(), angle.cos()
    if halves:
        return torch.cat([sines, cosines], dim=1)[:, :width]
    return torch.stack([sines, cosines], dim=2).flatten(1)[:, :width]


class LearnedPositions(VectorPositions):
    """One learned vector per position; longer inputs are an error."""

    def __init__(self, length: int, width: int, concatenate: bool = False) -> None:
        super().__init__(width, concatenate)
        self.weight = nn.Parameter(random_normal(length, width, std=width**-0.5))

    def vectors_at(self, x: Tensor, tokens: Tokens) -> Tensor:
        length = len(self.weight)
        # `max_length` also counts padding: only if it is too long, the positions themselves are read
        if tokens.max_length > length and (longest := int(tokens.position_ids.max()) + 1) > length:
            raise InputError(
                f"The input is {longest} tokens long, but this network learned {length} positions: "
                f"shorten the input, or train with model.positions.max_length = {longest}."
            )
        return self.weight[tokens.position_ids]

    def matrices(self) -> Iterator[Matrix]:
        yield Matrix("positions_weight", ("position", "unit"), lambda: self.weight, role="embedding")


class AlibiPositions(Positions):
    """ALiBi (Press et al. 2022), attention with linear biases: −slope · |distance| is added to each scaled score.

    Every head has a slope of its own, and nothing is learned. The paper is about decoders, where all keys are before
    the query. In an encoder the bias is the same on both sides.
    """

    biases = True

    def __init__(self, heads: int = 0) -> None:
        super().__init__()
        self.slopes = alibi_slopes(heads)
        self._tensor = torch.empty(0)  # the slopes, on the device and with the dtype of the last call; not saved

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return AlibiPositions(heads)

    def keep_heads(self, rank: int, parts: int, shared: Shared) -> None:
        count = len(self.slopes) // parts
        self.slopes = self.slopes[rank * count : (rank + 1) * count]

    def prepare(self, x: Tensor, layout: Layout) -> None:
        self.bias(x.to(matmul_dtype(x)), layout)

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        key = f"alibi {q.dtype}"
        if key not in layout.memo:  # the same in all layers
            if not self._tensor.numel() or self._tensor.device != q.device or self._tensor.dtype != q.dtype:
                self._tensor = q.new_tensor(self.slopes)
            slope = self._tensor[:, None, None]  # (H, 1, 1)
            layout.memo[key] = -slope * layout.distance.abs()  # (B, H, T, S)
        return cast(Tensor, layout.memo[key])


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes 2^(−8/H), 2^(−16/H), …, 2^(−8) for a power of two.

    Other numbers of heads take the slopes of the next lower power of two, then every other slope of the sequence that
    is twice as long, which lie between them.

    >>> alibi_slopes(8)
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    >>> [round(slope, 4) for slope in alibi_slopes(6)]
    [0.25, 0.0625, 0.0156, 0.0039, 0.5, 0.125]
    """
    if heads == 0:
        return []
    power = 2 ** int(math.log2(heads))
    return [*_geometric_slopes(power), *_geometric_slopes(2 * power)[0::2]][:heads]


def _geometric_slopes(heads: int) -> list[float]:
    return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]


class RelativePositions(Positions):
    """Relative positions (Shaw et al. 2018): a learned vector for each distance, added to keys and to values.

        e_ij = q_i · (k_j + a^K_ij) · scale,    z_i = Σ_j w_ij (v_j + a^V_ij),    a_ij = table[clip(j − i, −c, c)]

    with c = `max_distance`. With `per_head`, each head has its own vectors.
    """

    def __init__(self, max_distance: int, per_head: bool = False) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.per_head = per_head

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return RelativeVectors(self.max_distance, self.per_head, heads, key_width, value_width, scale)


class RelativeVectors(Positions):
    """The vectors of one layer, for keys (R, D) or (H, R, D) and for values (R, E) or (H, R, E).

    There are only R = 2c + 1 different vectors. So each query is multiplied by each of them once, and each key takes
    the product of its distance; the weights of all keys at one distance are summed before they are multiplied by its
    vector. Nothing of size T·S·D is ever stored.
    """

    biases = mixes = True

    def __init__(
        self, max_distance: int, per_head: bool, heads: int, key_width: int, value_width: int, scale: float
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.heads = heads
        self.scale = scale
        self._shared: Shared = lambda table: table
        shape = (heads, 2 * max_distance + 1) if per_head else (2 * max_distance + 1,)
        self.keys = nn.Parameter(random_normal(*shape, key_width, std=key_width**-0.5))
        self.values = nn.Parameter(random_normal(*shape, value_width, std=value_width**-0.5))

    def keep_heads(self, rank: int, parts: int, shared: Shared) -> None:
        if self.keys.dim() == 3:
            raise NotImplementedError("tables per head cannot be divided among processes")
        self.heads //= parts
        self._shared = shared

    def prepare(self, x: Tensor, layout: Layout) -> None:
        self._rows(layout)

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        products = q @ self._shared(self.keys).mT * self.scale  # (B, H, T, R)
        rows = self._rows(layout)
        return products.gather(-1, rows.expand(*products.shape[:-1], rows.size(-1)))  # (B, H, T, S)

    def mix(self, weights: Tensor, layout: Layout) -> Tensor:
        sums = weights.new_zeros(*weights.shape[:-1], self.values.size(-2))  # (B, H, T, R)
        sums = sums.scatter_add(-1, self._rows(layout).expand_as(weights), weights)
        return sums @ self._shared(self.values)  # (B, H, T, E)

    def flops(self) -> int:
        return 2 * self.heads * (2 * self.max_distance + 1) * (self.keys.size(-1) + self.values.size(-1))

    def _rows(self, layout: Layout) -> Tensor:
        """Return the row of the tables for each pair of tokens (B, 1, T, S); computed once for all layers."""
        key = f"relative {self.max_distance}"
        if key not in layout.memo:
            layout.memo[key] = layout.distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return cast(Tensor, layout.memo[key])


class BucketPositions(Positions):
    """T5's relative positions (Raffel et al. 2020): a learned number for each head and bucket of distances.

        e_ij = q_i · k_j · scale + table[bucket(j − i), head]

    Half of a direction's buckets are single distances; the others grow logarithmically up to `max_distance`, and the
    last one has all larger distances. In an encoder half of the buckets are for later keys. All layers of a stack share
    the table.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, both_sides: bool) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.both_sides = both_sides
        self.weight = nn.Parameter(random_normal(buckets, heads, std=0.1))

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return BucketBias(self)

    def matrices(self) -> Iterator[Matrix]:
        yield Matrix("positions_weight", ("bucket", "head"), lambda: self.weight, role="embedding")

    def buckets(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance, key minus query.

        >>> BucketPositions(1, 8, 16, both_sides=False).buckets(-torch.arange(20)).tolist()
        [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7]
        """
        count, first = len(self.weight), torch.zeros_like(distance)
        if self.both_sides:
            count //= 2
            first = (distance > 0) * count
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = count // 2
        growth = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.max_distance / exact)
        large = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        return first + torch.where(distance < exact, distance, large)


class BucketBias(Positions):
    """The bias of one layer, whose table belongs to its stack."""

    biases = True

    def __init__(self, stack: BucketPositions) -> None:
        super().__init__()
        self._stack = (stack,)  # in a tuple, so that the table is not a parameter of every layer

    def prepare(self, x: Tensor, layout: Layout) -> None:
        self._buckets(layout)

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        return self._stack[0].weight[self._buckets(layout)].movedim(-1, 1).to(q.dtype)  # (B, T, S, H) -> (B, H, T, S)

    def _buckets(self, layout: Layout) -> Tensor:
        """Return the bucket of each pair of tokens (B, T, S); computed once for all layers."""
        key = f"buckets {self._stack[0].max_distance} {len(self._stack[0].weight)} {self._stack[0].both_sides}"
        if key not in layout.memo:
            layout.memo[key] = self._stack[0].buckets(layout.distance.squeeze(1))
        return cast(Tensor, layout.memo[key])
