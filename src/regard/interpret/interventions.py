"""Run the network again with heads, sub-layers or layers switched off, or with attention weights replaced.

An intervention is a hook on a tap, so the real search runs with the real network. It shows what attention weights
cannot: how the output depends on a part of the network.

B rows · H heads · T queries · S keys · N predictions · V choices
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from regard.config.errors import did_you_mean
from regard.errors import InputError
from regard.interpret.decode import decode_text
from regard.interpret.forward_pass import ForwardPass, Hook, thread_hooks
from regard.interpret.predictions import OUTPUT, Predictions, predictions_of
from regard.nn.recurrent import DIRECTIONS
from regard.nn.taps import Point

OverrideSpec = Literal["even"] | int | tuple[float, ...]
"""`even`: uniform over the allowed keys; an integer: all weight on this key; a tuple: a weight for each key."""

TOLERANCE = 1e-3  # allowed deviation of the sum of weights from 1, since users type few digits
MAX_SHOWN = 120  # characters of an intervention that an error message repeats
_PATTERN = re.compile(r"(?P<place>[a-z_0-9.]+?)(?:\[(?P<head>\d{1,6})\])?(?:=(?P<override>.+))?")


@dataclass(frozen=True)
class Intervention:
    """A part of the network to switch off: one head, all heads of an attention, an expert, a sub-layer, or a layer.

    What a part that is off would have added is zero; a recurrent layer is bypassed. With `override`, the weights of the
    attention are replaced instead: `even` is uniform over the keys that the mask allows, an integer puts all weight on
    one key, and a tuple has a weight for each key.
    """

    stack: str  # encoder, decoder
    layer: int | None  # None for the attention of a recurrent decoder, which belongs to no layer
    part: str | None = None  # attention, cross_attention, feed_forward; forwards, backwards; None for all
    head: int | None = None  # or the number of an expert
    override: OverrideSpec | None = None

    @classmethod
    def parse(cls, text: str) -> "Intervention":
        """Parse the text form: `decoder.1.cross_attention[2]`, `encoder.0`, `decoder.0.attention[1]=even`.

        >>> Intervention.parse("decoder.1.cross_attention[2]")
        Intervention(stack='decoder', layer=1, part='cross_attention', head=2, override=None)
        >>> Intervention.parse("decoder.1.cross_attention[2]=0.5,0.25,0.25").override
        (0.5, 0.25, 0.25)
        """
        match = _PATTERN.fullmatch(text)
        override = None if match is None or match["override"] is None else parse_override(match["override"])
        if match is None or (match["override"] is not None and override is None):
            raise InputError(
                f"{_shorten(text)!r} names no part to change; write decoder.1.cross_attention[2], "
                "decoder.1.feed_forward or encoder.0 to switch it off, or append =even, =KEY or a weight for each key, "
                "as in =0.5,0.5,0, to replace attention weights."
            )
        stack, *rest = match["place"].split(".")
        layer = int(rest.pop(0)) if rest and rest[0].isdigit() else None
        head = None if match["head"] is None else int(match["head"])
        return cls(stack, layer, ".".join(rest) or None, head, override)

    def __str__(self) -> str:
        head = "" if self.head is None else f"[{self.head}]"
        return f"{self.place}{head}{'' if self.override is None else f'={format_override(self.override)}'}"

    @property
    def place(self) -> str:
        """The address of the part, without the head."""
        return ".".join(str(part) for part in (self.stack, self.layer, self.part) if part is not None)


# --- hooks ------------------------------------------------------------------------------------------------------------


@contextmanager
def apply_interventions(trace: ForwardPass, interventions: Sequence[Intervention]) -> Iterator[None]:
    """Change the network inside the context, for the current thread only."""
    pairs = [pair for intervention in interventions for pair in _hooks(trace, intervention)]
    with thread_hooks(pairs):
        yield


def _hooks(trace: ForwardPass, intervention: Intervention) -> list[tuple[nn.Module, Hook]]:
    place, head, override = intervention.place, intervention.head, intervention.override
    parts = _switchable_parts(trace.points)
    if intervention.part is None and override is None and head is None and intervention.layer is not None:
        selected = [name for name in parts if name.startswith(f"{place}.")]
        bypassable_layers = getattr(getattr(trace.model.network, intervention.stack, None), "bypassable_layers", None)
        if bypassable_layers is not None and (layers := bypassable_layers(intervention.layer)):
            return [(layer, _bypass) for layer in layers]
    else:
        selected = [place] if place in parts else []
    if not selected:
        raise InputError(
            f"There is no {place} to change{did_you_mean(place, parts)}; the parts that can be changed are "
            f"{', '.join(parts)}."
        )
    if override is not None:
        return _override_hooks(trace, intervention, override)
    if head is None:
        return [(point.module, _zero) for name in selected for point in parts[name]]
    outputs = trace.points.get(f"{place}.head_outputs") or trace.points.get(f"{place}.expert_outputs")
    if outputs is None:
        raise InputError(f"{place}: has no heads; leave the head out to switch all of it off.")
    _check_head(trace, outputs, intervention)
    return [(outputs.module, _zero_head(head))]


def _switchable_parts(points: dict[str, Point]) -> dict[str, list[Point]]:
    """The parts that can be switched off, each with the points of what it adds (or, recurrent, of its state)."""
    parts: dict[str, list[Point]] = {}
    for point in points.values():
        recurrent = point.layer is not None and point.part in DIRECTIONS
        if point.point in (("cell", "hidden") if recurrent else ("added", "context")):
            place = point.name.removesuffix(f".{point.point}").removesuffix("_residual")
            parts.setdefault(place, []).append(point)
    return parts


def _override_hooks(trace: ForwardPass, intervention: Intervention, spec: OverrideSpec) -> list[tuple[nn.Module, Hook]]:
    override = AttentionOverride(spec, intervention.head)
    weights = trace.points.get(f"{intervention.place}.weights")
    if weights is None:
        raise InputError(f"{intervention.place}: has no attention weights to replace; switch it off instead.")
    _check_head(trace, weights, intervention)
    check_override(_shorten(str(intervention)), spec, trace.recording(weights).size(-1))
    masked = trace.points.get(f"{intervention.place}.masked")
    mask_hooks: list[tuple[nn.Module, Hook]] = [] if masked is None else [(masked.module, override.note_mask)]
    return [*mask_hooks, (weights.module, override.replace_weights)]


def _check_head(trace: ForwardPass, point: Point, intervention: Intervention) -> None:
    count, kind = len(trace.recording(point)), point.axes[0]
    if intervention.head is not None and intervention.head >= count:
        raise InputError(f"{intervention}: there is no {kind} {intervention.head}; the {kind}s are 0 to {count - 1}.")


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def _zero(_input: Tensor, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _zero_head(head: int) -> Hook:
    def hook(_input: Tensor, output: Tensor) -> Tensor:  # (B, H, T, E)
        output = output.clone()
        output[:, head] = 0
        return output

    return hook


def _bypass(input_: Tensor, output: Any) -> Any:
    """Return the input (R, L, W) of a recurrent layer, and a state (R, W) of zeros.

    A Transformer layer that is off adds nothing to the residual stream. A recurrent layer has no residual connection,
    so its input is passed on. A layer that attends to the source before each step cannot be bypassed, as its input and
    output differ in width; its output is zero instead.
    """
    _, state = output
    return input_, tuple(torch.zeros_like(part) for part in state)


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepChange:
    """One prediction of the original output, before and after an intervention."""

    token: str  # or label
    before: float  # log-probability
    after: float
    kl_divergence: float  # KL(before ‖ after) of the whole distribution, in nats
    source_token: str | None = None  # of an encoder: the token that the prediction is about; None for the text


@dataclass(frozen=True)
class InterventionResult:
    """The outputs before and after an intervention, and the probability of the original output.

    The output of an encoder is what its head finds most probable: a label, tags, or tokens.
    """

    kind: str  # output, classes, tags, tokens
    interventions: list[str]
    before: str
    after: str
    tokens: list[str]  # or labels: of the new output, including its end token
    first_difference: int | None  # step at which the outputs first differ; None if they are equal
    steps: list[StepChange]

    @property
    def same(self) -> bool:
        """Whether the output did not change."""
        return self.first_difference is None

    @property
    def cost(self) -> float:
        """By how much the log-probability of the original output fell."""
        return sum(step.before - step.after for step in self.steps)

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, `same` and `cost`, for JSON."""
        return {**asdict(self), "same": self.same, "cost": self.cost}


def run_interventions(trace: ForwardPass, interventions: Sequence[Intervention]) -> InterventionResult:
    """Decode again with the interventions, and score the original output with them."""
    if not interventions:
        raise InputError(
            "No intervention was given; name a head, a sub-layer or a layer, as in decoder.1.attention[0]."
        )
    predictions = predictions_of(trace)
    if predictions is None:
        raise InputError("This network predicts nothing, so there is no output to compare; read its vectors instead.")
    logits = trace.recording.logits()
    with apply_interventions(trace, interventions):
        changed_logits = trace.recording.fresh().logits()
        new = _output_ids(trace, predictions, changed_logits, decode=True)
    old = _output_ids(trace, predictions, logits)
    return InterventionResult(
        predictions.kind,
        [str(intervention) for intervention in interventions],
        predictions.text(old[trace.prompt_length :]),
        predictions.text(new[trace.prompt_length :]),
        predictions.names(new),
        _first_difference(old, new),
        _step_changes(predictions, logits, changed_logits),
    )


def _output_ids(trace: ForwardPass, predictions: Predictions, logits: Tensor, *, decode: bool = False) -> list[int]:
    """The decoded ids, perhaps decoded again; of an encoder's head, the most probable choices."""
    if predictions.kind != OUTPUT:
        ids: list[int] = predictions.distributions(logits).argmax(-1).tolist()
        return ids
    if decode and trace.forced_target is None:
        return decode_text(trace.model, trace.text, trace.options, None, trace.parse).target_ids
    return trace.decoded.target_ids


def _step_changes(predictions: Predictions, logits: Tensor, changed_logits: Tensor) -> list[StepChange]:
    before, after = predictions.distributions(logits), predictions.distributions(changed_logits)  # (N, V)
    divergence = (before.exp() * (before - after)).nansum(-1)
    rows = zip(
        predictions.names(predictions.ids),
        predictions.log_probabilities(logits).tolist(),
        predictions.log_probabilities(changed_logits).tolist(),
        divergence.clamp(min=0).tolist(),
        predictions.source_tokens,
        strict=True,
    )
    return [StepChange(*row) for row in rows]


def _first_difference(before: Sequence[int], after: Sequence[int]) -> int | None:
    if list(before) == list(after):
        return None
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))


# --- attention override -----------------------------------------------------------------------------------------------


def parse_override(text: str) -> OverrideSpec | None:
    """Parse an override; None if the text is none.

    >>> parse_override("even"), parse_override("2"), parse_override("0.5,0.25,0.25"), parse_override("1,")
    ('even', 2, (0.5, 0.25, 0.25), (1.0,))
    """
    if text == "even":
        return "even"
    try:
        return tuple(map(float, text.removesuffix(",").split(","))) if "," in text else int(text)
    except ValueError:
        return None


def format_override(spec: OverrideSpec) -> str:
    """Format an override as `parse_override` reads it; a single weight has a trailing comma.

    >>> format_override((0.5, 0.25, 0.25)), format_override((1.0,)), format_override(1)
    ('0.5,0.25,0.25', '1,', '1')
    """
    if not isinstance(spec, tuple):
        return str(spec)
    return ",".join(f"{weight:g}" for weight in spec) + ("," if len(spec) == 1 else "")


def check_override(name: str, spec: OverrideSpec, keys: int) -> None:
    """Raise InputError if the override does not fit this number of keys; `name` begins the message."""
    if isinstance(spec, int) and not 0 <= spec < keys:
        raise InputError(f"{name}: there is no key {spec}; the keys are 0 to {keys - 1}, {keys} in all.")
    if not isinstance(spec, tuple):
        return
    if len(spec) != keys:
        raise InputError(f"{name}: has {len(spec)} weights for {keys} keys; give one weight for each key.")
    if not all(math.isfinite(weight) and weight >= 0 for weight in spec) or abs(sum(spec) - 1) > TOLERANCE:
        raise InputError(
            f"{name}: attention weights must be 0 or more and sum to 1; these sum to {sum(spec):g}. Change them."
        )


class AttentionOverride:
    """Hooks that replace the weights of one head, or of all heads, of one attention module.

    The override holds for every query, restricted to the keys that the mask allows: a decoder never attends to tokens
    that it has not generated yet. `note_mask` records which keys each query may attend to; without a mask, all of them.
    """

    def __init__(self, spec: OverrideSpec, head: int | None) -> None:
        self.spec = spec
        self.heads = slice(None) if head is None else slice(head, head + 1)
        self.allowed: Tensor | None = None  # (B, H, T, S), for the weights that come next

    def note_mask(self, _input: Tensor, masked_scores: Tensor) -> None:
        """Record where masked scores (B, H, T, S) are above −∞; a weight of 0 may also be an unmasked small one."""
        self.allowed = masked_scores > -math.inf

    def replace_weights(self, _input: Tensor, weights: Tensor) -> Tensor:
        """Return the replaced weights (B, H, T, S); a query that may attend to none of the keys keeps its own."""
        original = weights[:, self.heads]
        target = _key_weights(self.spec, original).expand_as(original)
        if self.allowed is not None:
            target = target * self.allowed[:, self.heads]
        total = target.sum(-1, keepdim=True)
        replaced = weights.clone()
        replaced[:, self.heads] = torch.where(total > 0, target / total, original)
        return replaced


def _key_weights(spec: OverrideSpec, weights: Tensor) -> Tensor:
    """The weight of each key (S,), before masking."""
    keys = weights.size(-1)
    if isinstance(spec, str):
        return weights.new_ones(keys)
    values: Sequence[float] = spec if isinstance(spec, tuple) else [0.0] * spec + [1.0]
    padded = weights.new_zeros(max(keys, len(values)))
    padded[: len(values)] = weights.new_tensor(values)
    return padded[:keys]
