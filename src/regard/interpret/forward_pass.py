"""One decoded text and the forward pass of the network over it: activations by name, and the labels of their axes.

The analyses (`alignment`, `attribution`, `interventions`, …) take a `ForwardPass`; `Trace` is one with the analyses as
methods.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pydantic import JsonValue
from torch import Tensor

from regard.config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from regard.config.errors import did_you_mean
from regard.data.syntax import Parse
from regard.decoding.options import MAX_SOURCE_TOKENS, GenerationOptions, TranslationOptions
from regard.decoding.segmentation import split_lines, split_rule
from regard.errors import InputError
from regard.interpret.decode import DecodedText, SearchTree, TracedModel
from regard.interpret.recording import Recording
from regard.interpret.tokens import TokenizedText, WordMerges, bpe_merges
from regard.nn.taps import Point


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
