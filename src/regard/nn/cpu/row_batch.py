"""Rows of different lengths that a language model continues together, one token per step: the numbers of each alone.

Rows join with the keys and values of their prompt, and leave at any step. Two things make the numbers of a row, to the
last bit, independent of the other rows and of where it is among them:

    linear layers  products with at least two rows, in oneDNN's blocked format, which sums each output in the same order
                   for any number of rows (a single one is doubled; a product with one row may differ)
    attention      keys and values are kept for rows of similar length together, padded to one of a few capacities. The
                   capacity of a row depends on its length alone, and products, softmax and sums are those of each row

Both were measured with PyTorch's libraries for x86 processors and feed-forward layers of a multiple of 32 units (others
are not whole vector registers, and a row's activations depend on where it is). Elsewhere the last bits may depend on
the other rows, as in every batch. Layers whose kernel forgets (sliding windows) compute each row on its own.

R rows · C model width · N output width · H query heads · G key and value heads · V vocabulary
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import cpu
from regard.nn.attention import FullAttention
from regard.nn.cache import DecoderCache, KeyValueCache, LayerCache
from regard.nn.cpu.attention import matmul_attention
from regard.nn.cpu.decode_step import AttentionStep, DecodeStep, FewRowsLinear, UnsupportedLayerError
from regard.nn.cpu.row_cache import CapacityGroup, capacity_for
from regard.nn.embedding import OutputProjection
from regard.nn.layout import AttentionMask, Layout, Tokens
from regard.nn.positions import Positions
from regard.nn.transformer import Block, Stack

MIN_ROWS = 2  # in a product
PARALLEL_WORK = 2_500_000  # see `RowStep.threads`
ROWS_PER_READ = 10  # rows that are multiplied with a weight in the time of reading it


class RowsLinear(FewRowsLinear):
    """x Wᵀ + b for rows x (R, C), the result of each of which does not depend on the others."""

    min_copied = 0

    def __call__(self, x: Tensor) -> Tensor:
        if self._copies is None or not torch.backends.mkldnn.is_available():
            return F.linear(x, self._weight, self._bias)
        if len(x) < MIN_ROWS:  # one of the rows of a step, which an expert gets
            return self.packed_product(x.repeat(MIN_ROWS, 1), self._copies)[: len(x)]
        return self.packed_product(x, self._copies)


class RowsLayer(LayerCache):
    """What one layer of a step works on."""

    def __init__(self, number: int, batch: "PreparedRows") -> None:
        super().__init__()
        self.number = number
        self.batch = batch


class RowStep(DecodeStep):
    """The prepared step of a language model for a `PreparedRows`."""

    linear = RowsLinear

    def __init__(self, stack: Stack, output: OutputProjection) -> None:
        self.shapes: list[tuple[int, int]] = []
        """Key and value width of each layer with full attention."""
        self.kv_heads = 0
        self.forgetting: list[int] = []
        """The numbers of the other layers."""
        self.head_widths: set[int] = set()
        super().__init__(stack, output)
        self.dtype = stack.embedding.weight.dtype
        sizes = [linear.weight.numel() for linear in stack.modules() if isinstance(linear, nn.Linear)]
        self._product_size = (sum(sizes) + output.weight.numel()) / (len(sizes) + 1)

    def attention_step(self, number: int, block: Block) -> AttentionStep:
        attention, kernel = block.attention, block.attention.kernel
        is_full = type(kernel) is FullAttention
        if block.cross_attention is not None or not (is_full or kernel.max_past is not None):
            raise UnsupportedLayerError
        project, output = RowsLinear.of(attention.query_key_value), RowsLinear.of(attention.output)
        positions = attention.positions
        rotates = type(positions).rotate is not Positions.rotate
        heads, kv_heads, sizes = attention.heads, attention.kv_heads, attention.sizes
        if self.kv_heads not in (0, kv_heads):
            raise UnsupportedLayerError
        self.kv_heads = kv_heads
        place = len(self.shapes) if is_full else len(self.forgetting)
        if is_full:
            self.shapes.append((attention.key_width, attention.value_width))
        else:
            self.forgetting.append(number)
        is_plain = type(kernel) is FullAttention and kernel.soft_cap is None and not positions.mixes

        def attend(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
            bias = positions.bias(q, layout) if positions.biases else None
            if is_plain:
                return matmul_attention(q, k, v, layout.mask, bias, scale=kernel.scale, dropout=0.0)
            mix = partial(positions.mix, layout=layout) if positions.mixes else None
            out: Tensor = kernel(q, k, v, layout, bias, mix)
            return out

        def step(x: Tensor, layout: Layout, cache: LayerCache) -> Tensor:
            assert isinstance(cache, RowsLayer)
            q, k, v = project(x).split(sizes, dim=-1)
            q = q.view(len(x), heads, 1, attention.key_width)
            k = k.view(len(x), kv_heads, 1, attention.key_width)
            v = v.view(len(x), kv_heads, 1, attention.value_width)
            q, k = attention.normed_queries(q), attention.normed_keys(k)
            if rotates:
                q, k = positions.rotate(q, layout.queries), positions.rotate(k, layout.queries)
            out = x.new_zeros(len(x), heads, 1, attention.value_width)
            batch = cache.batch
            if is_full:
                for group, rows, group_layout in batch.groups():
                    keys, values = group.write(place, k[rows], v[rows])
                    out[rows] = attend(q[rows], keys, values, group_layout)
            else:
                for row, own, row_layout in batch.single_rows(place):
                    keys, values = own.append(k[row], v[row], kernel.max_past)
                    out[row] = attend(q[row], keys, values, row_layout)
            return output(out.view(len(x), -1))

        return step

    def threads(self, rows: int) -> int:
        """Return how many threads compute a step: one, if a product takes less than about half a millisecond.

        On a machine with other work, such as the requests of a server, threads that wait for each other after every
        small product made steps up to six times slower. The numbers do not depend on the threads.
        """
        work = self._product_size * max(1.0, rows / ROWS_PER_READ)
        return 1 if work < PARALLEL_WORK else torch.get_num_threads()

    def run(self, ids: Tensor, layout: Layout, caches: Sequence[LayerCache]) -> Tensor:
        """ids (R, 1) -> logits (R, V)"""
        x = self._embedding(ids, layout.queries).flatten(0, 1)  # (R, C)
        for block, layer in zip(self._blocks, caches, strict=True):
            x = block(x, layout, None, None, layer)
        return self._cap(self._logits(x if self._norm is None else self._norm(x)))


class PreparedRows:
    """Rows of a language model, each with a number, its length, and its keys and values."""

    def __init__(self, step: RowStep) -> None:
        self.rows: list[int] = []
        """The numbers of the rows, in the order of the next step; it changes with every step."""
        self._step = step
        self._groups: dict[int, CapacityGroup] = {}  # by capacity
        self._own: dict[int, list[KeyValueCache]] = {}  # of layers that forget, by row
        self._layers = [RowsLayer(number, self) for number in range(step.num_layers)]
        self._positions = torch.empty(0, dtype=torch.long)
        self._ends: list[int] = []  # of the groups among the rows
        self._ordered: list[CapacityGroup] = []
        self._group_layouts: list[tuple[CapacityGroup, slice, Layout]] = []
        self._row_layouts: list[Layout] | None = None

    def threads(self, rows: int) -> int:
        """Return how many threads compute a step of this many rows."""
        return self._step.threads(rows)

    @torch.inference_mode()
    def add(self, row: int, cache: object) -> None:
        """Add a row that continues the text of a cache of one row, which is copied."""
        assert isinstance(cache, DecoderCache)
        length = cache.length
        full = [layer.own for n, layer in enumerate(cache.layers) if n not in self._step.forgetting]
        keys = [part.keys[0] for part in full if part.keys is not None]
        values = [part.values[0] for part in full if part.values is not None]
        self._group(length).add(row, length, keys, values)
        first = torch.zeros(1, dtype=torch.long)
        self._own[row] = [cache.layers[n].own.select(first) for n in self._step.forgetting]
        self._arrange()

    @torch.inference_mode()
    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows."""
        for row in rows:
            next(group for group in self._groups.values() if row in group.rows).remove(row)
            del self._own[row]
        self._arrange()

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Tensor:
        """Feed the next token of each row, in the order of `rows`, and return the logits (R, V) after it."""
        count = len(self.rows)
        ids = torch.tensor([*tokens, *[tokens[0]] * (MIN_ROWS - count)])[:, None]
        longest = max(max(group.lengths) for group in self._ordered) + 1
        queries = Tokens(self._positions[:, None], limit=longest)
        self._group_layouts, start = [], 0
        for group, end in zip(self._ordered, self._ends, strict=True):
            group.next_token()
            rows = slice(start, end)
            own = Tokens(queries.position_ids[rows], limit=longest)
            layout = Layout(own, Tokens(group.key_positions, limit=group.capacity), group.mask)
            self._group_layouts.append((group, rows, layout))
            start = end
        self._row_layouts = None
        with _threads(self._step.threads(count)):
            logits = self._step.run(ids, Layout(queries, queries, AttentionMask(1, 1)), self._layers)
        self._positions += 1
        for group in self._ordered:
            group.advance()
        self._move_full_rows()
        return logits[:count]

    def groups(self) -> Sequence[tuple[CapacityGroup, slice, Layout]]:
        """Return the groups of the step that is running, each with its place among the rows, and its layout."""
        return self._group_layouts

    def single_rows(self, place: int) -> Iterable[tuple[slice, KeyValueCache, Layout]]:
        """Return the place of each row, with its cache in one of the layers that forget, and its layout."""
        if self._row_layouts is None:  # all layers of a step share them
            lengths = [length for group in self._ordered for length in group.lengths]
            self._row_layouts = [_single_layout(length) for length in lengths]
        for n, (row, layout) in enumerate(zip(self.rows, self._row_layouts, strict=True)):
            yield slice(n, n + 1), self._own[row][place], layout

    def _group(self, length: int) -> CapacityGroup:
        """Return the group of rows of this length, whose next token must fit."""
        capacity = capacity_for(length + 1)
        if capacity not in self._groups:
            step = self._step
            self._groups[capacity] = CapacityGroup(capacity, step.shapes, step.kv_heads, step.dtype)
        return self._groups[capacity]

    def _move_full_rows(self) -> None:
        full = [
            (group, row, length)
            for group in self._ordered
            if group.capacity in group.lengths
            for row, length in zip(group.rows, group.lengths, strict=True)
            if length == group.capacity
        ]
        for group, row, length in full:
            self._group(length).add(row, length, *group.take(row))
            group.remove(row)
        if full:
            self._arrange()

    def _arrange(self) -> None:
        """Put the rows in the order of their groups."""
        self._drop_groups()
        self._ordered = sorted(
            (group for group in self._groups.values() if group.rows), key=lambda group: group.capacity
        )
        self.rows = [row for group in self._ordered for row in group.rows]
        lengths = [length for group in self._ordered for length in group.lengths]
        self._positions = torch.tensor([*lengths, *lengths[:1] * (MIN_ROWS - len(lengths))], dtype=torch.long)
        self._ends, end = [], 0
        for group in self._ordered:
            group.arrange()
            end += len(group.rows)
            self._ends.append(end)

    def _drop_groups(self) -> None:
        """Drop groups without rows, but keep the memory of some for the next rows: at most as much as is in use."""
        room = sum(group.size for group in self._groups.values() if group.rows)
        for capacity, group in sorted(self._groups.items()):
            if not group.rows:
                room -= group.size
                if room < 0:
                    del self._groups[capacity]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with this many threads."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _single_layout(before: int) -> Layout:
    """Return the layout of one new token after others."""
    positions = torch.arange(before + 1)[None]
    queries, keys = Tokens(positions[:, before:], limit=before + 1), Tokens(positions, limit=before + 1)
    return Layout(queries, keys, AttentionMask(1, before + 1, causal=True))


def row_batch(stack: Stack, output: OutputProjection) -> PreparedRows | None:
    """Return an empty batch of rows for a language model; None if its device or one of its layers does not allow it."""
    if stack.training or not cpu.enabled(stack.embedding.weight.device):
        return None
    step = stack.prepared_rows
    if not isinstance(step, RowStep) or not step.is_current:
        try:
            step = stack.prepared_rows = RowStep(stack, output)
        except UnsupportedLayerError:
            return None
    return None if step.is_watched else PreparedRows(step)
