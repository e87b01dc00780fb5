"""The interface of networks, which training, decoding, interpretation and serving use for all of them.

B batch · S source length · T target length · C model width · V vocabulary
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, Self

from torch import Tensor, nn

from regard.errors import InputError
from regard.models.adapter_files import Adapter
from regard.nn.embedding import OutputProjection
from regard.nn.layout import Mask, PaddingMask
from regard.nn.prediction_heads import TextClassificationHead
from regard.nn.taps import Matrix, MatrixProduct, Point, Tap, matrices_of, points_of, rename_axes, taps_of, under


@dataclass(frozen=True)
class Memory:
    """The output of an encoder for a batch."""

    states: Tensor  # (B, S, C), zero at padding
    mask: Tensor | None = None  # (B, S) True at tokens, False at padding; None: no padding
    host_mask: Tensor | None = field(default=None, kw_only=True)  # a copy of the mask on the CPU, if there is one

    @property
    def padding(self) -> Mask:
        """The mask, with its copy on the CPU if there is one."""
        if self.mask is None or self.host_mask is None:
            return self.mask
        return PaddingMask(self.mask, self.host_mask)

    def select(self, rows: Tensor) -> Self:
        """Return the memory of these rows, in this order; rows may repeat, as for beams."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return replace(self, states=self.states.index_select(0, rows), mask=mask, host_mask=None)


class Cache(Protocol):
    """What a decoder keeps between steps."""

    length: int

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """Return the cache of these rows, in this order; `sentences` are those of the memory, if they differ."""
        ...

    def reorder(self, rows: Tensor) -> Self:
        """Return the cache of these rows, each of which keeps its sentence of the memory."""
        ...

    def drop_last(self, count: int) -> None:
        """Forget the last tokens, at most `MAX_DROPPED`; raise `InputError` if the network cannot."""
        ...

    def last_tokens(self, count: int) -> list[tuple[Tensor, Tensor]] | None:
        """Return a copy of the keys and values of the last tokens, by layer; None if the network has none."""
        ...

    def restore(self, blocks: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> None:
        """Begin with tokens whose keys and values `last_tokens` returned, in blocks."""
        ...


class NetworkRows(Protocol):
    """Rows of different lengths that a language model continues together, each with a number."""

    rows: list[int]
    """The numbers of the rows, in the order of the next step; it changes with every step."""

    def threads(self, rows: int) -> int:
        """Return how many threads should compute a step of this many rows."""
        ...

    def add(self, row: int, cache: Cache) -> None:
        """Add a row that continues the text of a cache of one row, which is copied."""
        ...

    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows."""
        ...

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Feed the next token of each row, in the order of `rows`, and return the logits (R, V) after it."""
        ...


class Network(nn.Module):
    """A network that encodes, decodes, or both.

    `decode` without a cache processes the whole target in parallel, as in training; with one, only the new tokens, as
    in inference. A cached step equals the uncached result, and a batch equals its rows one by one. (Only a decoder
    without causal mask differs: a cached step cannot attend to later tokens.) A cache belongs to the memory that it was
    first used with.
    """

    encodes = False  # whether `encode` returns a memory
    decodes = False  # whether `decode` predicts tokens; it takes a memory if the network also encodes
    addresses: ClassVar[Mapping[str, str]] = {}  # first part of the addresses of a child, if not the child's name
    adapter: Adapter | None = None  # of a network with LoRA matrices

    def encode(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        """ids (B, S) -> memory. `features` are further tensors (B, S) about the tokens, by name.

        `segment_ids` is the number of the text that a token is in; `depth`, `preorder` and `last_descendant` are the
        position of its word in a dependency tree.
        """
        raise InputError(f"{type(self).__name__} has no encoder.")

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Mask = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """ids (B, T) -> hidden states (B, T, C), each of which predicts the next token.

        A memory may have fewer rows: then equally many consecutive rows of ids belong to each of its sentences. The
        feature `document_ids` (B, T) numbers documents that share a row without attending to each other.
        """
        raise InputError(f"{type(self).__name__} has no decoder.")

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (…, C) -> logits (…, V). Pass only the states whose prediction is needed."""
        raise InputError(f"{type(self).__name__} predicts no tokens.")

    def next_logits(self, ids: Tensor, memory: Memory | None, cache: Cache, mask: Mask = None) -> Tensor:
        """New tokens ids (B, T) -> logits (B, V) after the last of them: `decode` and `logits`, or a faster equal."""
        return self.logits(self.decode(ids, memory, cache, mask)[:, -1])

    def all_logits(self, ids: Tensor, memory: Memory | None, cache: Cache) -> Tensor:
        """New tokens ids (B, T) -> logits (B, T, V) after each of them."""
        return self.logits(self.decode(ids, memory, cache))

    def new_cache(self) -> Cache:
        """Return an empty cache for `decode`."""
        raise InputError(f"{type(self).__name__} has no decoder.")

    def new_row_batch(self) -> NetworkRows | None:
        """Return an empty batch for rows of different lengths; None if the network, as it is now, has none."""
        return None

    @property
    def alignment_tap(self) -> Tap | None:
        """The tap of the weights (B, H, T, S) with which target tokens attend to source tokens; None: there is none."""
        return None

    @property
    def taps(self) -> dict[str, Tap]:
        """Every tap of the network, by its module name."""
        return taps_of(self)

    def points(self) -> dict[str, Point]:
        """Return every point where a value can be read, by its address, in the order of the computation."""
        return {point.name: point for point in self._points()}

    def matrices(self) -> dict[str, Matrix]:
        """Return the learned matrices that a trace can show, by their addresses."""
        matrices = (under(self._address(name), matrices_of(child)) for name, child in self.named_children())
        return {matrix.name: matrix for of_child in matrices for matrix in of_child}

    def _points(self) -> Iterator[Point]:
        for name, child in self.named_children():
            tokens = "target" if self.decodes and name != "encoder" else "source"
            axes = {"token": tokens, "key": f"{tokens}_key", "memory": "source_key"}
            for point in rename_axes(under(self._address(name), points_of(child)), axes):
                yield point if point.product is None else replace(point, product=_absolute(point.product))

    def _address(self, child: str) -> str:
        return self.addresses.get(child, child)


def mask_tensors(mask: Mask) -> dict[str, Tensor | None]:
    """Return the fields of a `Memory` for a padding mask."""
    if isinstance(mask, PaddingMask):
        return {"mask": mask.tokens, "host_mask": mask.host}
    return {"mask": mask}


def _absolute(product: MatrixProduct) -> MatrixProduct:
    return replace(product, left=product.left.removeprefix("/"), right=product.right.removeprefix("/"))


class EncoderDecoderNetwork(Network):
    """Base of networks with encoder and decoder."""

    encodes = decodes = True
    output: OutputProjection

    def logits(self, hidden: Tensor) -> Tensor:
        return self.output(hidden)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Mask = None,
        target_mask: Mask = None,
        source_features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Teacher forcing: source (B, S), target (B, T) shifted right -> logits (B, T, V)."""
        return self.logits(self.decode(target, self.encode(source, source_mask, source_features), mask=target_mask))


class DecoderNetwork(Network):
    """Base of language models: a decoder without encoder."""

    decodes = True
    output: OutputProjection

    def logits(self, hidden: Tensor) -> Tensor:
        return self.output(hidden)

    def forward(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """ids (B, T) -> logits (B, T, V)."""
        return self.logits(self.decode(ids, mask=mask, features=features))


class EncoderNetwork(Network):
    """Base of text encoders: a vector per token, one for the whole text, and a prediction head on either."""

    encodes = True
    pooling: nn.Module
    head: nn.Module | None

    def encode(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        """ids (B, S) -> memory."""
        raise NotImplementedError

    def pool(self, memory: Memory) -> Tensor:
        """Return one vector per text (B, C)."""
        return self.pooling(memory.states, memory.mask)

    def head_input(self, memory: Memory) -> Tensor:
        """Return the input of the head: the vector of each text (B, C), or the states of its tokens (B, S, C)."""
        return self.pool(memory) if isinstance(self.head, TextClassificationHead) else memory.states

    def logits(self, hidden: Tensor) -> Tensor:
        """Input of the head (…, C) -> logits (…, V) or (…, labels)."""
        if self.head is None:
            return super().logits(hidden)
        return self.head(hidden)

    def forward(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> Tensor:
        """ids (B, S) -> one vector per text (B, C)."""
        return self.pool(self.encode(ids, mask, features))
