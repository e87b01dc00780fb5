"""The outline of a trace: everything except tensors, as JSON."""

from typing import Any

from regard.config import EncoderDecoderConfig, TransformerConfig
from regard.data.sentence_splitting import split_sentences
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.predictions import decoding_steps, head_predictions
from regard.nn.taps import Matrix, Point

FORMAT = 1


def outline(trace: ForwardPass) -> dict[str, Any]:
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


def notes(trace: ForwardPass) -> list[str]:
    """Return remarks for readers who compare the trace with other output."""
    remarks = []
    sentences = len(split_sentences(trace.text)) if trace.kind == "translation" else 1
    if sentences > 1:
        remarks.append(
            f"`regard translate` would split this text into {sentences} sentences; the trace treats it as one."
        )
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


def _point_fields(point: Point) -> dict[str, Any]:
    names = ("name", "stack", "layer", "part", "point", "axes", "description")
    return {name: getattr(point, name) for name in names} | {"axes": list(point.axes)}


def _matrix_fields(matrix: Matrix) -> dict[str, Any]:
    return {"name": matrix.name, "axes": list(matrix.axes), "heads": matrix.heads}


def _search_summary(trace: ForwardPass) -> dict[str, Any] | None:
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
