"""One decoded text and the forward pass of the network over it: activations by name, and the labels of their axes.

The target is processed in one pass, as in training, which gives the same numbers as decoding it token by token. A
`Recording` opens the taps of one layer at a time and caches recorded layers up to a bound, so that the trace of a large
network does not fill the memory; a layer that was evicted is recorded again when it is needed.

The analyses (`attribution`, `interventions`, …) take a `ForwardPass`; `Trace` is one with the analyses as methods.

S source length · T target length
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from regard.config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from regard.config.errors import did_you_mean
from regard.data.syntax import Parse
from regard.decoding.options import MAX_SOURCE_TOKENS, GenerationOptions, TranslationOptions
from regard.decoding.segmentation import split_lines, split_rule
from regard.errors import InputError
from regard.interpret.decode import DecodedText, SearchTree, TracedModel
from regard.interpret.tokens import TokenizedText, WordMerges, bpe_merges
from regard.models.network import EncoderNetwork, Memory, Network
from regard.nn.taps import Point

MAX_CACHED = 2**26  # numbers of all cached layers together

Hook = Callable[[Tensor, Any], Any]
"""Called with a module's first input and its output; a return value other than None replaces the output.

The output is a tensor, except for recurrent layers, which return a tuple with their state.
"""


@contextmanager
def thread_hooks(pairs: Sequence[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Register forward hooks that act only in the current thread, so that other threads can use the network."""
    owner = threading.get_ident()

    def bind(hook: Hook) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
        return lambda _module, inputs, output: hook(inputs[0], output) if threading.get_ident() == owner else None

    handles = [module.register_forward_hook(bind(hook)) for module, hook in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Recording:
    """Activations of one forward pass; call it with a point.

    `source_ids` are the encoder's, `input_ids` the decoder's (None if the network has no such stack); `features` are
    those of the source tokens, by name.
    """

    def __init__(
        self,
        network: Network,
        source_ids: Sequence[int] | None,
        input_ids: Sequence[int] | None,
        features: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        device = next(network.parameters()).device
        self.network = network
        self._arguments = source_ids, input_ids, features
        self._source = None if source_ids is None else torch.tensor([source_ids], device=device)  # (1, S)
        self._input = None if input_ids is None else torch.tensor([input_ids], device=device)  # (1, T)
        self.features = {name: torch.tensor([values], device=device) for name, values in (features or {}).items()}
        self._memory: Memory | None = None
        self._groups: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self._lock = threading.RLock()

    @cached_property
    def points(self) -> dict[str, Point]:
        """The points of the network, by their addresses."""
        return self.network.points()

    def __call__(self, point: Point) -> Tensor:
        """Return the activation of a point without its batch dimension: the axes are the point's."""
        if point.reads == "nothing" and point.transform is not None:
            return point.transform(torch.empty(0))
        with self._lock:
            value = self._cached(point)
        return value if point.transform is None else point.transform(value)

    def _cached(self, point: Point) -> Tensor:
        if point.group not in self._groups:
            self._groups[point.group] = self._record(point.group)
            while len(self._groups) > 1 and self._size() > MAX_CACHED:
                self._groups.popitem(last=False)
        self._groups.move_to_end(point.group)
        return self._groups[point.group][_key(point)]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Return the logits of all predictions, one row each.

        (T, V) for decoders; for encoder heads (1, L) of a text label, (S, L) of tags, (S, V) of masked tokens, and
        (2 S, V) of bidirectional language models: forward and backward prediction of each position in turn.
        """
        return self.differentiable_logits()

    def differentiable_logits(self) -> Tensor:
        """Return `logits` with gradients; only valid on a recording that has recorded nothing else."""
        states = self._head_input() if self._input is None else self._decode()
        return self.network.logits(states).float().flatten(0, -2)

    def fresh(self) -> "Recording":
        """Return a recording of the same ids with an empty cache, for a network that was changed in between."""
        return Recording(self.network, *self._arguments)

    def _size(self) -> int:
        return sum(tensor.numel() for group in self._groups.values() for tensor in group.values())

    @torch.no_grad()
    def _record(self, group: str) -> dict[str, Tensor]:
        members = {_key(point): point for point in self.points.values() if point.group == group}
        members = {key: point for key, point in members.items() if point.reads != "nothing"}
        recorded: dict[str, list[Tensor]] = {key: [] for key in members}
        if not group.startswith("encoder"):
            self._encode()  # before any tap is open
        with thread_hooks([(point.module, _recorder(point, recorded[key])) for key, point in members.items()]):
            match group.split(".")[0]:
                case "encoder":
                    self._memory = None
                    self._encode()
                case "decoder":
                    self._decode()
                case "output":
                    self.network.logits(self._decode())
                case "pooling":
                    self._pool()
                case "head":
                    self.network.logits(self._head_input())
        return {key: _stack(members[key], values) for key, values in recorded.items()}

    def _encode(self) -> Memory | None:
        if self._memory is None:
            self._memory = self._run_encoder()
        return self._memory

    def _run_encoder(self) -> Memory | None:
        return None if self._source is None else self.network.encode(self._source, features=self.features or None)

    def _decode(self) -> Tensor:
        assert self._input is not None
        return self.network.decode(self._input, self._encode())

    def _pool(self) -> Tensor:
        memory = self._encode()
        assert isinstance(self.network, EncoderNetwork)
        assert memory is not None
        return self.network.pool(memory)

    def _head_input(self) -> Tensor:
        """What an encoder's head reads.

        The last states of a bidirectional language model are not those of a point, so they come from a pass of their
        own with all taps of the encoder closed.
        """
        assert isinstance(self.network, EncoderNetwork)
        memory = self._encode() if "head.logits" in self.points else self._run_encoder()
        assert memory is not None
        return self.network.head_input(memory)


def _key(point: Point) -> str:
    """Points that read the same module share one recorded tensor."""
    return f"{point.reads} {id(point.module)}"


def _recorder(point: Point, values: list[Tensor]) -> Hook:
    if point.reads == "input":
        return lambda input_, _: values.append(input_.detach())
    return lambda _, output: values.append(output.detach())


def _stack(point: Point, values: list[Tensor]) -> Tensor:
    """Remove the batch: (1, …) -> (…) if recorded at once; (1, W) or (1, …, 1, W) per step -> (…, T, W)."""
    if len(values) == 1 and values[0].dim() > 2:
        return values[0][0]
    if point.axes == ("layer",):  # the same for every text, without a batch
        return values[0]
    if not any(axis.startswith(("source", "target")) for axis in point.axes):  # one vector for the text
        return values[0][0]
    if values[0].dim() > 2:  # a recurrent decoder that attends before each step
        return torch.cat(values, dim=-2)[0]
    steps = torch.cat(values)
    return steps.flip(0) if point.reversed else steps


@dataclass(frozen=True)
class ActiveUnits:
    """How many hidden units of a feed-forward layer are above zero, per token."""

    layer: str  # encoder.0
    units: int  # in the layer
    active: list[int]  # per token

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, for JSON."""
        return asdict(self)


class ForwardPass:
    """A decoded text, and the network's activations over it, recorded on demand."""

    def __init__(
        self,
        model: TracedModel,
        text: str,
        options: TranslationOptions | GenerationOptions | None,
        decoded: DecodedText,
        forced_target: str | None = None,
        parse: Parse | None = None,
    ) -> None:
        self.model = model
        self.text = text
        self.options = options
        self.decoded = decoded
        self.forced_target = forced_target
        self.parse = parse
        self.recording = Recording(model.network, decoded.source_ids, decoded.input_ids, decoded.features)

    @property
    def kind(self) -> str:
        """`translation`, `continuation` or `encoding`."""
        model = self.model.config.model
        return "translation" if model.translates else "continuation" if model.generates else "encoding"

    @cached_property
    def source(self) -> TokenizedText | None:
        """What the encoder reads."""
        ids = self.decoded.source_ids
        if ids is None:
            return None
        return TokenizedText.from_ids(ids, self.model.source_tokenizer, self.model.config.tokens)

    @cached_property
    def target(self) -> TokenizedText | None:
        """The output with its end token; for a language model, everything after the first token."""
        if self.decoded.input_ids is None:
            return None
        return TokenizedText.from_ids(self.decoded.target_ids, self.model.target_tokenizer, self.model.config.tokens)

    @cached_property
    def decoder_input(self) -> list[str]:
        """The tokens that the decoder reads: the target shifted right."""
        return self.model.target_tokenizer.ids_to_tokens(self.decoded.input_ids or [])

    @property
    def output(self) -> str:
        """The decoded text, without a prompt."""
        return self.model.target_tokenizer.decode(self.decoded.target_ids[self.prompt_length :])

    @property
    def prompt_length(self) -> int:
        """How many of the target tokens belong to the prompt."""
        return self.decoded.forced if self.kind == "continuation" and self.forced_target is None else 0

    @property
    def expected(self) -> str | None:
        """The label, tags or mask fillers that an encoder's head is expected to predict, if the user named them."""
        return self.forced_target if self.kind == "encoding" else None

    @cached_property
    def merges(self) -> list[WordMerges]:
        """The BPE merges of each word of the text."""
        return bpe_merges(self.text.strip(), self.model.source_tokenizer)

    @property
    def tree(self) -> SearchTree | None:
        """The search tree; None for forced targets and models that do not translate."""
        return self.decoded.tree

    @property
    def points(self) -> dict[str, Point]:
        """All points of the network, by name."""
        return self.recording.points

    def point(self, name: str) -> Point:
        """Return a point by name; InputError if there is none."""
        if name not in self.points:
            suggestion = did_you_mean(name, self.points)
            raise InputError(f"There is no point {name!r} in this network{suggestion}; the outline lists all points.")
        return self.points[name]

    def activation(self, point: str) -> Tensor:
        """Return the whole tensor of a point, of any size."""
        return self.recording(self.point(point))

    @cached_property
    def mixing(self) -> dict[str, float] | None:
        """The weight of each layer in a token's vector if the network mixes layers (ELMo), else None."""
        if "encoder.mixing.shares" not in self.points:
            return None
        return dict(zip(self.labels("layer") or [], self.activation("encoder.mixing.shares").tolist(), strict=True))

    def active_units(self, layer: str) -> ActiveUnits | None:
        """Count the active hidden units of a layer such as `encoder.0`; None if it has no feed-forward part."""
        name = f"{layer}.feed_forward.hidden"
        if name not in self.points:
            return None
        hidden = self.activation(name)  # (T, units)
        return ActiveUnits(layer, hidden.size(-1), (hidden > 0).sum(-1).tolist())

    def chosen_experts(self, layer: str) -> list[dict[int, float]] | None:
        """Return the gates of the experts of each token, by number; None if a layer such as `encoder.0` has none."""
        names = [f"{layer}.feed_forward.{point}" for point in ("chosen", "gates")]
        if names[0] not in self.points:
            return None
        chosen, gates = (self.activation(name) for name in names)  # (T, K), (T, E)
        return [
            {int(n): float(own[int(n)]) for n in numbers} for numbers, own in zip(chosen.tolist(), gates, strict=True)
        ]

    def all_active_units(self) -> list[ActiveUnits]:
        """Return the active units of every layer that has a feed-forward part."""
        layers = dict.fromkeys(point.group for point in self.points.values() if point.layer is not None)
        return [units for layer in layers if (units := self.active_units(layer)) is not None]

    def labels(self, axis: str) -> list[str] | None:
        """Return the labels along an axis (tokens, layers or class labels); None if it is only numbered."""
        if axis.startswith("source"):
            return None if self.source is None else self.source.tokens
        if axis == "layer":
            return ["embedding", *(f"layer {n}" for n in range(self.model.config.model.layers))]
        if axis == "label":
            model = self.model.config.model
            return list(getattr(model.head, "labels", ())) if isinstance(model, EncoderConfig) else None
        return self.decoder_input if axis.startswith("target") else None


def notes(trace: ForwardPass) -> list[str]:
    """Return remarks for readers who compare the trace with other output."""
    remarks = []
    config, parts = trace.model.config, 1
    if trace.kind == "translation":
        lines = split_lines([trace.text], split_rule(config, None), trace.model.source_tokenizer, MAX_SOURCE_TOKENS)
        parts = len(lines[0])
    if parts > 1:
        remarks.append(f"`regard translate` would split this text into {parts} parts; the trace treats it as one.")
    if trace.kind == "translation" and trace.forced_target is None and not trace.decoded.finished:
        remarks.append("The output reached the maximum length before its end token.")
    return remarks


def model_summary(trace: ForwardPass) -> dict[str, Any]:
    """Return the name and sizes of the model."""
    model = trace.model.config.model
    decoder = model.decoder_layers if isinstance(model, EncoderDecoderConfig) else None
    return {
        "name": trace.model.name,
        "kind": model.kind,
        "family": model.family,
        "layers": model.layers,
        "decoder_layers": decoder or model.layers,
        "heads": model.heads if isinstance(model, TransformerConfig) else None,
        "width": model.width,
        "vocab_size": model.vocab_size,
        "parameters": sum(parameter.numel() for parameter in trace.model.network.parameters()),
    }
