"""The learned matrices of a network, by the names the paper gives them, each laid so that x · W reads as it is written.

PyTorch keeps W transposed, and keeps the matrices of one projection side by side; here each head has its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn

from regard.models.network import EncoderNetwork, Network
from regard.models.recurrent import BidirectionalLanguageModel
from regard.nn import Block, DensePooling, OutputProjection, Stack
from regard.nn.embedding import TokenEmbedding
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.prediction_heads import BidirectionalLMHead, MaskedLMHead, TokenClassificationHead
from regard.nn.recurrent import RecurrentLayer
from regard.nn.recurrent_stack import RecurrentStack
from regard.nn.syntax import SyntaxPositions

DIRECTIONS = ("forwards", "backwards")


@dataclass(frozen=True)
class Matrix:
    """A matrix, or a bias; of each head where `heads` says so."""

    name: str
    axes: tuple[str, ...]
    heads: int | None
    take: Callable[[], Tensor] = field(repr=False, compare=False)

    def as_dict(self) -> dict[str, object]:
        """What an outline says of it."""
        return {"name": self.name, "axes": list(self.axes), "heads": self.heads}


def matrices_of(network: Network) -> dict[str, Matrix]:
    """Every matrix of a network that a trace can show, in the order in which a sentence meets them."""
    return {matrix.name: matrix for matrix in _all(network)}


def _all(network: Network) -> Iterator[Matrix]:
    for name in ("encoder", "decoder"):
        stack = getattr(network, name, None)
        if isinstance(stack, Stack | RecurrentStack):
            yield from _embedding(f"{name}.embedding", stack.embedding)
        if isinstance(stack, Stack):
            for number, block in enumerate(stack.layers):
                if isinstance(block, Block):
                    yield from _block(f"{name}.{number}", block)
        elif isinstance(stack, RecurrentStack):
            for number, layer in enumerate(stack.layers):
                if isinstance(layer, RecurrentLayer):
                    yield from _recurrent(f"{name}.{number}", layer)
    if isinstance(network, BidirectionalLanguageModel):
        yield from _bidirectional(network)
    output = getattr(network, "output", None)
    if isinstance(output, OutputProjection):
        yield from _output("output", output)
    if isinstance(network, EncoderNetwork):
        if isinstance(network.pooling, DensePooling):
            yield from _linear("pooling", "dense", network.pooling.dense)
        yield from _head(network.head)


def _output(name: str, output: OutputProjection) -> Iterator[Matrix]:
    yield Matrix(f"{name}.W", ("unit", "vocabulary"), None, lambda: output.weight.mT)
    if output.bias is not None:
        yield Matrix(f"{name}.b", ("vocabulary",), None, lambda: _present(output.bias))


def _head(head: nn.Module | None) -> Iterator[Matrix]:
    if isinstance(head, TokenClassificationHead):
        dense = head.dense
        yield Matrix("head.W", ("unit", "label"), None, lambda: dense.weight.mT)
        yield Matrix("head.b", ("label",), None, lambda: dense.bias)
    elif isinstance(head, MaskedLMHead):
        yield from _linear("head", "dense", head.dense)
        yield from _output("head", head.output)
    elif isinstance(head, BidirectionalLMHead):
        yield from _output("head", head.output)


def _bidirectional(network: BidirectionalLanguageModel) -> Iterator[Matrix]:
    stack, mixing = network.encoder, network.mixing
    yield from _embedding("encoder.embedding", stack.embedding)
    for number, both in enumerate(zip(stack.forwards, stack.backwards, strict=True)):
        for part, layer in zip(DIRECTIONS, both, strict=True):
            if isinstance(layer, RecurrentLayer):
                yield from _walking(f"encoder.{number}.{part}", layer)
    yield Matrix("encoder.mixing.scalars", ("layer",), None, lambda: mixing.scalars)
    yield Matrix("encoder.mixing.scale", ("unit",), None, lambda: mixing.scale)


def _embedding(name: str, embedding: TokenEmbedding) -> Iterator[Matrix]:
    yield Matrix(f"{name}.weight", ("vocabulary", "unit"), None, lambda: embedding.weight)
    positions = embedding.positions
    tree = positions if isinstance(positions, SyntaxPositions) else None
    learned = getattr(positions if tree is None else tree.sequential, "weight", None)
    if isinstance(learned, nn.Parameter):
        yield Matrix(f"{name}.positions_weight", ("position", "unit"), None, lambda: learned)
    if tree is not None and tree.weight is not None:
        yield Matrix(f"{name}.depth_weight", ("depth", "unit"), None, lambda: _present(tree.weight))


def _block(name: str, block: Block) -> Iterator[Matrix]:
    attention = block.attention
    yield from _projections(f"{name}.attention", attention, attention.query_key_value, "qkv")
    cross = block.cross_attention
    if cross is not None:
        yield from _projections(f"{name}.cross_attention", cross, cross.query, "q")
        yield from _projections(f"{name}.cross_attention", cross, cross.key_value, "kv")
    for part in (attention, cross):
        if part is not None:
            where = "attention" if part is attention else "cross_attention"
            yield from _linear(f"{name}.{where}", "o", part.output)
    if block.feed_forward is not None:
        for number, linear in (("1", "inner"), ("2", "output")):
            yield from _linear(f"{name}.feed_forward", number, block.feed_forward.get_submodule(linear))


def _projections(
    name: str, attention: SelfAttention | CrossAttention, linear: nn.Linear, which: str
) -> Iterator[Matrix]:
    """The projections side by side in one linear layer: W (C, D) for each head."""
    start, heads = 0, attention.heads
    for letter in which:
        size = heads * (attention.value_width if letter == "v" else attention.key_width)
        rows = slice(start, start + size)
        yield Matrix(f"{name}.W_{letter}", ("head", "unit", "unit"), heads, _weight(linear, rows, heads))
        if linear.bias is not None:
            yield Matrix(f"{name}.b_{letter}", ("head", "unit"), heads, _bias(linear, rows, heads))
        start += size


def _weight(linear: nn.Linear, rows: slice, heads: int) -> Callable[[], Tensor]:
    return lambda: linear.weight[rows].unflatten(0, (heads, -1)).mT  # (H·D, C) -> (H, C, D)


def _bias(linear: nn.Linear, rows: slice, heads: int) -> Callable[[], Tensor]:
    return lambda: linear.bias[rows].unflatten(0, (heads, -1))


def _linear(name: str, suffix: str, linear: nn.Module) -> Iterator[Matrix]:
    if isinstance(linear, nn.Linear):
        yield Matrix(f"{name}.W_{suffix}", ("unit", "unit"), None, lambda: linear.weight.mT)
        if linear.bias is not None:
            yield Matrix(f"{name}.b_{suffix}", ("unit",), None, lambda: linear.bias)


def _recurrent(name: str, layer: RecurrentLayer) -> Iterator[Matrix]:
    for direction in range(len(layer.cells)):
        yield from _walking(f"{name}.{DIRECTIONS[direction]}", layer, direction)


def _walking(name: str, layer: RecurrentLayer, direction: int = 0) -> Iterator[Matrix]:
    """What one cell of a layer walks with."""
    for number, matrix in enumerate(("W_x", "W_h", "b_x", "b_h")):
        axes = ("unit", "unit") if number < 2 else ("unit",)
        yield Matrix(f"{name}.{matrix}", axes, None, _of_layer(layer, direction, number))


def _of_layer(layer: RecurrentLayer, direction: int, number: int) -> Callable[[], Tensor]:
    return lambda: layer.weights(direction)[number].mT if number < 2 else layer.weights(direction)[number]


def _present(learned: Tensor | None) -> Tensor:
    assert learned is not None
    return learned
