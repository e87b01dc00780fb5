"""A trace: every number between a text and what the model makes of it.

The text is decoded once, as usual. The trace then runs the network over source and output in one pass, as in training,
which gives the same numbers as decoding token by token; it does so layer by layer, when a number is requested. Numbers
have addresses (`regard.interpret.tensors`) and are returned in slices of bounded size.

    trace = model.look("I love you very much.")
    trace.steps[0].candidates
    trace.tensor("decoder.1.cross_attention.weights[2]").values
"""

import json
from functools import cached_property
from typing import TypedDict

from pydantic import JsonValue

from regard.data.syntax import Parse
from regard.decoding.options import GenerationOptions, TranslationOptions
from regard.errors import InputError
from regard.interpret.attribution import Alignment, GradientNorms, HeadCost, align, gradient_norms, head_costs
from regard.interpret.decode import DecodedText, TracedModel, decode_text
from regard.interpret.forward_pass import ForwardPass, model_summary, notes
from regard.interpret.interventions import Intervention, InterventionResult, run_interventions
from regard.interpret.predictions import (
    HeadPredictions,
    Predictions,
    Step,
    decoding_steps,
    head_predictions,
    output_log_probability,
    predictions_of,
)
from regard.interpret.render.page import notebook_frame, trace_page
from regard.interpret.tensors import (
    MAX_NUMBERS,
    Address,
    ProductTerms,
    Range,
    TensorSlice,
    activation_slice,
    matrix_slice,
    product_terms,
)
from regard.interpret.training_step import TrainingStep, training_step
from regard.nn.taps import Matrix, Point

FORMAT = 1  # version of the JSON fields
JsonObject = dict[str, JsonValue]


class TraceOutline(TypedDict):
    """Everything about a trace except tensors, for JSON."""

    format: int
    kind: str
    forced: bool
    forced_target: str | None
    text: str
    output: str
    model: JsonObject
    source: JsonObject | None
    merges: list[JsonObject]
    target: JsonObject | None
    decoder_input: list[str]
    steps: list[JsonObject]
    search: JsonObject | None
    head: JsonObject | None
    mixing: dict[str, float] | None
    has_alignment: bool
    points: list[JsonObject]
    matrices: list[JsonObject]
    notes: list[str]


class TraceDict(TraceOutline):
    """The outline of a trace with its search tree and its active hidden units."""

    tree: JsonObject | None
    units: list[JsonObject]


def look(
    model: TracedModel,
    text: str,
    options: TranslationOptions | GenerationOptions | None = None,
    target: str | None = None,
    parse: Parse | None = None,
) -> "Trace":
    """Decode a text, or force a target, and return its trace; `parse` is for models with syntax positions."""
    if not getattr(model.config.model, "causal_mask", True):
        raise InputError(
            f"{model.name}: has no causal mask, so one pass over the whole target differs from decoding token by token "
            "and there is no trace; train the model with model.causal_mask = true."
        )
    return Trace(model, text, options, decode_text(model, text, options, target, parse), target, parse)


class Trace(ForwardPass):
    """A forward pass with the analyses and renderings as methods. Created by `look`."""

    @cached_property
    def steps(self) -> list[Step]:
        """Every decoding step; empty for encoders."""
        return decoding_steps(self)

    @cached_property
    def head_predictions(self) -> HeadPredictions | None:
        """Labels, tags or tokens that an encoder's head predicts; None if the network has no head."""
        return head_predictions(self)

    @cached_property
    def predictions(self) -> Predictions | None:
        """The predictions that the analyses are about; None if the network predicts nothing."""
        return predictions_of(self)

    @property
    def log_probability(self) -> float:
        """Total log-probability of the output, or of the predictions of an encoder's head."""
        return output_log_probability(self)

    def tensor(
        self,
        address: str | Address,
        *,
        rows: Range | None = None,
        columns: Range | None = None,
        max_numbers: int = MAX_NUMBERS,
    ) -> TensorSlice:
        """Return the activation at an address, or some rows (last axis but one) and columns (last axis) of it.

        With a step, rows are those of that step, and keys and values are those that it can attend to.
        """
        address = Address.parse(address) if isinstance(address, str) else address
        return activation_slice(self, address, rows, columns, max_numbers)

    def weight(
        self,
        name: str,
        *,
        head: int | None = None,
        rows: Range | None = None,
        columns: Range | None = None,
        max_numbers: int = MAX_NUMBERS,
    ) -> TensorSlice:
        """Return a learned matrix, or a part of it, such as `encoder.0.attention.W_q`, oriented as in x · W."""
        return matrix_slice(self, Address(name, head), rows, columns, max_numbers)

    def product(self, address: str | Address, row: int, column: int) -> ProductTerms:
        """Return one element of a matrix product as the list of its terms."""
        address = Address.parse(address) if isinstance(address, str) else address
        return product_terms(self, address, row, column)

    def alignment(self) -> Alignment:
        """Align source and target words by cross-attention, with the cost of leaving out each source word."""
        return align(self)

    def intervene(self, *interventions: Intervention) -> InterventionResult:
        """Decode again with heads or layers off, or with attention weights replaced, and compare the outputs."""
        return run_interventions(self, interventions)

    def head_costs(self) -> list[HeadCost]:
        """Return the entropy of every attention head and the cost of switching it off."""
        return head_costs(self)

    def gradient_norms(self) -> GradientNorms:
        """Return the gradient norm of each module for the loss of this output."""
        return gradient_norms(self)

    def training_step(self) -> TrainingStep:
        """Return the training step on this text and target: shifted input, labels, and the loss at each position.

        A translator needs a forced target; a language model is trained on the text itself.
        """
        return training_step(self)

    def branch(self, node: int) -> "Trace":
        """Return the trace of the tokens from the root of the search tree to a node, forced as the target."""
        if self.tree is None:
            raise InputError("This trace has no search tree; trace a translation without a forced target.")
        if not 0 < node < len(self.tree.nodes):
            raise InputError(f"There is no node {node}; the nodes after the root are 1 to {len(self.tree.nodes) - 1}.")
        path = self.tree.path(self.tree.nodes[node])
        input_ids = [self.model.config.tokens.start, *path[:-1]]
        decoded = DecodedText(
            self.decoded.source_ids, input_ids, path, len(path), finished=False, features=self.decoded.features
        )
        return Trace(self.model, self.text, self.options, decoded, self.model.target_tokenizer.decode(path))

    @property
    def notes(self) -> list[str]:
        """Remarks for readers who compare the trace with other output."""
        return notes(self)

    def outline(self) -> TraceOutline:
        """Return everything except tensors: texts, tokens, steps, and the names of all points and matrices."""
        return outline(self)

    def as_dict(self) -> TraceDict:
        """Return the outline, the search tree and the active hidden units, for JSON."""
        return {
            **self.outline(),
            "tree": None if self.tree is None else self.tree.as_dict(self.model.target_tokenizer),
            "units": [units.as_dict() for units in self.all_active_units()],
        }

    def as_json(self, *, indent: int | None = None) -> str:
        """Return `as_dict()` as JSON text."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=indent, allow_nan=False)

    def as_html(self) -> str:
        """Return a self-contained HTML page."""
        return trace_page(self)

    def _repr_html_(self) -> str:
        """Display the page in notebooks."""
        return notebook_frame(self)

    def __repr__(self) -> str:
        return f"<Trace of {self.text!r} → {self.output!r}: {len(self.steps)} steps, {len(self.points)} points>"


# --- outline ----------------------------------------------------------------------------------------------------------


def outline(trace: ForwardPass) -> TraceOutline:
    """Return the texts, tokens, steps and predictions of a trace, and the names of all points and matrices."""
    head = head_predictions(trace)
    return {
        "format": FORMAT,
        "kind": trace.kind,
        "forced": trace.forced_target is not None,
        "forced_target": trace.forced_target,
        "text": trace.text,
        "output": trace.output,
        "model": model_summary(trace),
        "source": None if trace.source is None else trace.source.as_dict(),
        "merges": [word.as_dict() for word in trace.merges],
        "target": None if trace.target is None else trace.target.as_dict(),
        "decoder_input": trace.decoder_input,
        "steps": [step.as_dict() for step in decoding_steps(trace)],
        "search": _search_summary(trace),
        "head": None if head is None else head.as_dict(),
        "mixing": trace.mixing,
        "has_alignment": trace.model.config.model.has_alignment,
        "points": [_point_fields(point) for point in trace.points.values()],
        "matrices": [_matrix_fields(matrix) for matrix in trace.model.network.matrices().values()],
        "notes": notes(trace),
    }


def _point_fields(point: Point) -> JsonObject:
    names = ("name", "stack", "layer", "part", "point", "axes", "description")
    return {name: getattr(point, name) for name in names} | {"axes": list(point.axes)}


def _matrix_fields(matrix: Matrix) -> JsonObject:
    return {"name": matrix.name, "axes": list(matrix.axes), "heads": matrix.heads}


def _search_summary(trace: ForwardPass) -> JsonObject | None:
    hypothesis = trace.decoded.hypothesis
    if hypothesis is None or trace.tree is None:
        return None
    return {
        "beam": trace.tree.search.beam,
        "length_penalty": trace.tree.search.length_penalty,
        "log_probability": hypothesis.log_probability,
        "score": hypothesis.score,
        "finished": hypothesis.ended,
    }
