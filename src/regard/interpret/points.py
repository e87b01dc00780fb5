"""All the points of a network where a trace can look, each with its name, its axes and what it is.

Most are taps. A few are what goes into or comes out of a module that has no tap, such as the input of a norm, and a few
restate what a module does to what it was given, such as a norm's mean; the tests prove the restatements.

Axes: `source` and `target` are tokens that ask, `source_key` and `target_key` the same tokens where they are asked;
`head`, `unit` (an entry of a vector), `vocabulary`, `label` (of a classifier or tagger), `layer` (of those that are
mixed), `mixture` (of a Linformer).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from regard.interpret.matrices import DIRECTIONS
from regard.models.network import EncoderNetwork, Network
from regard.models.recurrent import BidirectionalLanguageModel
from regard.nn import Block, FullAttention, Stack
from regard.nn.block import Residual
from regard.nn.embedding import OutputProjection, TokenEmbedding
from regard.nn.linformer import LinformerAttention
from regard.nn.multihead import CrossAttention, MultiHeadAttention, SelfAttention
from regard.nn.positions import Positions
from regard.nn.prediction_heads import (
    BidirectionalLMHead,
    MaskedLMHead,
    TextClassificationHead,
    TokenClassificationHead,
)
from regard.nn.recurrent import RecurrentLayer
from regard.nn.recurrent_stack import RecurrentStack
from regard.nn.syntax import SyntaxPositions
from regard.nn.taps import Tap

Reads = Literal["output", "input", "nothing"]
ADDED = ", and what the positions add"  # to scores, or to what a head takes along


@dataclass(frozen=True)
class Point:
    """One place where numbers can be read."""

    stack: str
    layer: int | None
    part: str
    point: str
    axes: tuple[str, ...]
    description: str
    module: nn.Module = field(repr=False, compare=False)
    reads: Reads = "output"
    transform: Callable[[Tensor], Tensor] | None = field(default=None, repr=False, compare=False)
    reversed: bool = False  # recorded from the last token to the first

    @property
    def name(self) -> str:
        """Its name in an address."""
        layer = "" if self.layer is None else str(self.layer)
        return ".".join(filter(None, (self.stack, layer, self.part, self.point)))

    @property
    def group(self) -> str:
        """What is recorded in one pass with it: the points of its layer."""
        return f"{self.stack}.{'' if self.layer is None else self.layer}"

    @property
    def heads(self) -> bool:
        """Whether each head has its own."""
        return self.axes[0] == "head"

    def as_dict(self) -> dict[str, object]:
        """What an outline says of it."""
        return {
            "name": self.name,
            "stack": self.stack,
            "layer": self.layer,
            "part": self.part,
            "point": self.point,
            "axes": list(self.axes),
            "description": self.description,
        }


def points_of(network: Network) -> dict[str, Point]:
    """Every point of a network, in the order in which a sentence meets them."""
    return {point.name: point for point in _all(network)}


def _all(network: Network) -> Iterator[Point]:
    for name, tokens in (("encoder", "source"), ("decoder", "target")):
        stack = getattr(network, name, None)
        if isinstance(stack, Stack):
            yield from _stack(name, tokens, stack)
        elif isinstance(stack, RecurrentStack):
            yield from _recurrent(name, tokens, stack)
    if isinstance(network, BidirectionalLanguageModel):
        yield from _bidirectional(network)
    if network.decodes:
        logits, axes = _tap(network, "output.logits"), ("target", "vocabulary")
        yield Point(
            "output", None, "", "logits", axes, "states · Wᵀ: a score for every token of the vocabulary", logits
        )
        what = "softmax of the logits: the probability of every next token"
        yield Point("output", None, "", "probabilities", axes, what, logits, transform=lambda x: x.softmax(-1))
    if isinstance(network, EncoderNetwork):
        yield Point("pooling", None, "", "vector", ("unit",), "one vector for the whole text", network.pooling)
        if network.head is not None:
            yield from _head(network.head)


def _stack(name: str, tokens: str, stack: Stack) -> Iterator[Point]:
    yield from _embedding(name, tokens, stack.embedding)
    for number, block in enumerate(stack.layers):
        if isinstance(block, Block):
            yield from _block(name, number, tokens, block)
    if stack.norm is not None:
        yield from _norm(name, None, "norm", tokens, stack.norm)
    yield Point(name, None, "", "states", (tokens, "unit"), "what the stack gives for each token", stack.states)


def _embedding(name: str, tokens: str, embedding: TokenEmbedding) -> Iterator[Point]:
    axes = (tokens, "unit")

    def point(point: str, what: str, module: nn.Module) -> Point:
        return Point(name, None, "embedding", point, axes, what, module)

    yield point("lookup", "the row of the embedding matrix that each id points at", embedding.lookup)
    yield point("scaled", f"× {embedding.factor:.4g}", embedding.scaled)
    positions = embedding.positions
    tree = positions if isinstance(positions, SyntaxPositions) else None
    vectors = getattr(positions if tree is None else tree.sequential, "vectors", None)
    if isinstance(vectors, Tap):
        yield point("positions", "the vector of each position", vectors)
    if tree is not None and tree.vectors is not None:
        yield point("depth", "the vector of each word's depth in the dependency tree", tree.vectors)
    yield point("sum", "embedding and position added", embedding.sum)
    if embedding.segmented is not None:
        yield point("segmented", "and the vector of the first text, or of the second", embedding.segmented)
    if embedding.norm is not None:
        yield from _norm(name, None, "embedding_norm", tokens, embedding.norm)


def _block(name: str, layer: int, tokens: str, block: Block) -> Iterator[Point]:
    yield from _attention(name, layer, "attention", tokens, f"{tokens}_key", block.attention)
    yield from _residual(name, layer, "attention_residual", tokens, block.attention_residual)
    if block.cross_attention is not None and block.cross_attention_residual is not None:
        yield from _attention(name, layer, "cross_attention", tokens, "source_key", block.cross_attention)
        yield from _residual(name, layer, "cross_attention_residual", tokens, block.cross_attention_residual)
    if block.feed_forward is not None and block.feed_forward_residual is not None:
        yield from _feed_forward(name, layer, tokens, block.feed_forward)
        yield from _residual(name, layer, "feed_forward_residual", tokens, block.feed_forward_residual)


def _attention(
    name: str, layer: int, part: str, tokens: str, keys: str, attention: MultiHeadAttention
) -> Iterator[Point]:
    def point(point: str, axes: tuple[str, ...], what: str, module: nn.Module, reads: Reads = "output") -> Point:
        return Point(name, layer, part, point, axes, what, module, reads)

    asks: nn.Module = attention
    positions = Positions()  # that do nothing here
    if isinstance(attention, SelfAttention):
        asks, positions = attention.query_key_value, attention.positions
    elif isinstance(attention, CrossAttention):
        asks = attention.query
    yield point("input", (tokens, "unit"), "x: what queries are made of", asks, "input")
    yield point("q", ("head", tokens, "unit"), "x · W_q: what each token looks for", attention.q)
    yield point("k", ("head", keys, "unit"), "W_k: what each token offers to be found by", attention.k)
    yield point("v", ("head", keys, "unit"), "W_v: what each token gives when it is looked at", attention.v)
    kernel = attention.kernel
    if isinstance(kernel, FullAttention):
        seen = "mixture" if isinstance(kernel, LinformerAttention) else keys
        axes = ("head", tokens, seen)
        yield point("scores", axes, "q · kᵀ: how well each query and key go together", kernel.scores)
        yield point("scaled", axes, f"× {kernel.scale:.4g}{ADDED if positions.biases else ''}", kernel.scaled)
        yield point("masked", axes, "−∞ where a query may not look", kernel.masked)
        yield point("weights", axes, "softmax along each row: how a token shares its attention", kernel.weights)
    taken = f"weights · v{ADDED if positions.mixes else ''}"
    yield point("head_outputs", ("head", tokens, "unit"), taken, attention.head_outputs)
    yield point("concatenation", (tokens, "unit"), "the heads side by side", attention.concatenation)


def _feed_forward(name: str, layer: int, tokens: str, module: nn.Module) -> Iterator[Point]:
    def point(point: str, what: str, part: nn.Module, reads: Reads = "output") -> Point:
        return Point(name, layer, "feed_forward", point, (tokens, "unit"), what, part, reads)

    inner, hidden = module.get_submodule("inner"), module.get_submodule("hidden")
    yield point("input", "x: what the hidden units are made of", inner, "input")
    yield point("inner", "x · W_1 + b_1, before the activation", inner)
    yield point("hidden", "the hidden units after the activation", hidden)


def _residual(name: str, layer: int, part: str, tokens: str, residual: Residual) -> Iterator[Point]:
    axes = (tokens, "unit")
    yield Point(name, layer, part, "added", axes, "what the sub-layer gives: its projection", residual.added)
    yield Point(
        name, layer, part, "sum", axes, "x + Sublayer(x)" if residual.connected else "Sublayer(x)", residual.sum
    )
    yield from _norm(name, layer, part, tokens, residual.norm)
    yield Point(name, layer, part, "normed", axes, "after normalisation", residual.normed)


def _norm(name: str, layer: int | None, part: str, tokens: str, norm: nn.Module) -> Iterator[Point]:
    """What a norm does: (x − mean) / deviation · gain + bias; a root-mean-square norm has no mean and no bias."""
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        return
    epsilon = norm.eps if norm.eps is not None else torch.finfo(norm.weight.dtype).eps

    def point(point: str, axes: tuple[str, ...], what: str, restated: Callable[[Tensor], Tensor] | None) -> Point:
        return Point(name, layer, part, point, axes, what, norm, "input", restated)

    yield point("norm_input", (tokens, "unit"), "what is normalised", None)
    if isinstance(norm, nn.LayerNorm):
        yield point("mean", (tokens,), "of each token's vector", lambda x: x.mean(-1))
        what = "√(variance + ε) of each token's vector"
        yield point("deviation", (tokens,), what, lambda x: (x.var(-1, unbiased=False) + epsilon).sqrt())
    else:
        what = "√(mean square + ε) of each token's vector"
        yield point("deviation", (tokens,), what, lambda x: (x.square().mean(-1) + epsilon).sqrt())
    for what, parameter in (("gain", norm.weight), ("bias", getattr(norm, "bias", None))):
        if parameter is not None:
            yield Point(name, layer, part, what, ("unit",), f"the learned {what}", norm, "nothing", _given(parameter))


def _given(parameter: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda _: parameter.detach()


GATES = {
    "sum": "W_x x + W_h h + b",
    "input_gate": "i = σ(…): what is let in",
    "forget_gate": "f = σ(…): what is kept",
    "candidate": "tanh(…): what could be remembered",
    "output_gate": "o = σ(…): what is shown",
    "cell": "C = f ⊙ C + i ⊙ C̃: what is remembered",
    "reset_gate": "r = σ(…): what is looked back at",
    "update_gate": "z = σ(…): what is kept",
    "hidden": "h: the state after this token",
}


def _recurrent(name: str, tokens: str, stack: RecurrentStack) -> Iterator[Point]:
    yield from _embedding(name, tokens, stack.embedding)
    axes = (tokens, "unit")
    for number, layer in enumerate(stack.layers):
        if isinstance(layer, RecurrentLayer):
            for part, cell in zip(DIRECTIONS, layer.cells, strict=False):
                yield from _gates(name, number, part, axes, cell)
    attention = stack.cross_attention
    if attention is not None:
        across = ("head", tokens, "source_key")
        part = "cross_attention"
        yield Point(name, None, part, "scores", across, "how well each state goes with the source's", attention.scores)
        yield Point(name, None, part, "weights", across, "softmax along each row", attention.weights)
        yield Point(name, None, part, "context", axes, "weights · the encoder's states", attention.context)
    yield Point(name, None, "", "states", axes, "what the stack gives for each token", stack.states)


def _bidirectional(network: BidirectionalLanguageModel) -> Iterator[Point]:
    stack, axes = network.encoder, ("source", "unit")
    embedded, *shown = stack.states
    yield from _embedding("encoder", "source", stack.embedding)
    yield Point("encoder", None, "embedding", "states", axes, "h_0: the embedding, once for each direction", embedded)
    for number, (both, states) in enumerate(zip(zip(stack.forwards, stack.backwards, strict=True), shown, strict=True)):
        for part, layer in zip(DIRECTIONS, both, strict=True):
            if isinstance(layer, RecurrentLayer):
                yield from _gates("encoder", number, part, axes, layer.cells[0])
        yield Point("encoder", number, "", "states", axes, f"h_{number + 1}: both directions side by side", states)
    mixing = network.mixing
    what = "softmax of one learned scalar per layer: what each adds"
    yield Point("encoder", None, "mixing", "shares", ("layer",), what, mixing.weights)
    yield Point("encoder", None, "", "states", axes, "γ Σ shares · h: the layers mixed, for each token", mixing.mixed)


def _gates(name: str, layer: int, part: str, axes: tuple[str, ...], cell: nn.Module) -> Iterator[Point]:
    for gate, tap in cell.named_children():
        yield Point(name, layer, part, gate, axes, GATES[gate], tap, reversed=part == "backwards")


def _head(head: nn.Module) -> Iterator[Point]:
    """What an encoder's vectors are read out for."""
    if isinstance(head, TokenClassificationHead):
        axes = ("label",) if isinstance(head, TextClassificationHead) else ("source", "label")
        read = "pooling.vector" if isinstance(head, TextClassificationHead) else "states"
        what = f"{read} · W + b: a score for every label"
        yield Point("head", None, "", "logits", axes, what, head.logits)
        what = "softmax of the logits: the probability of every label"
        yield Point("head", None, "", "probabilities", axes, what, head.logits, transform=lambda x: x.softmax(-1))
    elif isinstance(head, MaskedLMHead):
        yield from _norm("head", None, "norm", "source", head.norm)
        yield from _guesses("", "which stands there", head.output, lambda x: x)
    elif isinstance(head, BidirectionalLMHead):
        yield from _guesses("forwards", "that follows", head.output, lambda x: x[:, 0])  # (S, 2, V) -> (S, V)
        yield from _guesses("backwards", "that goes before", head.output, lambda x: x[:, 1])


def _guesses(part: str, which: str, output: OutputProjection, taken: Callable[[Tensor], Tensor]) -> Iterator[Point]:
    axes = ("source", "vocabulary")
    what = "what the logits are made of"
    yield Point("head", None, part, "hidden", ("source", "unit"), what, output, "input", taken)
    what = f"hidden · W + b: a score for every token {which}"
    yield Point("head", None, part, "logits", axes, what, output.logits, transform=taken)
    what = f"softmax of the logits: the probability of every token {which}"
    yield Point(
        "head", None, part, "probabilities", axes, what, output.logits, transform=lambda x: taken(x).softmax(-1)
    )


def _tap(network: Network, name: str) -> Tap:
    return network.taps[name]
