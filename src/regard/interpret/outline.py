"""The outline of a trace: everything but its tensors, for JSON."""

from typing import TYPE_CHECKING, Any

from regard.config import EncoderDecoderConfig, TransformerConfig
from regard.data.sentence_splitting import split_sentences
from regard.interpret.matrices import matrices_of

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

FORMAT = 1


def outline(trace: "Trace") -> dict[str, Any]:
    """What was read and written, each step, and what can be asked for."""
    return {
        "format": FORMAT,
        "kind": trace.kind,
        "forced": trace.forced is not None,
        "given": trace.forced,
        "text": trace.text,
        "output": trace.output,
        "model": _about(trace),
        "source": None if trace.source is None else trace.source.as_dict(),
        "merges": [building.as_dict() for building in trace.merges],
        "target": None if trace.target is None else trace.target.as_dict(),
        "read": trace.read,
        "steps": [step.as_dict() for step in trace.steps],
        "search": _search(trace),
        "head": None if trace.readings is None else trace.readings.as_dict(),
        "mixing": trace.mixing,
        "aligns": trace.subject.config.model.has_alignment,
        "points": [point.as_dict() for point in trace.points.values()],
        "matrices": [matrix.as_dict() for matrix in matrices_of(trace.subject.network).values()],
        "notes": trace.notes,
    }


def notes(trace: "Trace") -> list[str]:
    """What a reader should know who compares this with other output."""
    found = []
    sentences = len(split_sentences(trace.text)) if trace.kind == "translation" else 1
    if sentences > 1:
        found.append(f"`regard translate` would take this text for {sentences} sentences; here it is read as one.")
    if trace.kind == "translation" and trace.forced is None and not trace.written.ended:
        found.append("It did not come to its end: there was no more room.")
    return found


def _about(trace: "Trace") -> dict[str, Any]:
    model = trace.subject.config.model
    decoder = model.decoder_layers if isinstance(model, EncoderDecoderConfig) else None
    return {
        "name": trace.subject.name,
        "kind": model.kind,
        "family": model.family,
        "layers": model.layers,
        "decoder_layers": decoder or model.layers,
        "heads": model.heads if isinstance(model, TransformerConfig) else None,
        "width": model.width,
        "vocabulary": model.vocab_size,
        "parameters": sum(parameter.numel() for parameter in trace.subject.network.parameters()),
    }


def _search(trace: "Trace") -> dict[str, Any] | None:
    found = trace.written.found
    if found is None or trace.tree is None:
        return None
    return {
        "width": trace.tree.search.width,
        "length_penalty": trace.tree.search.length_penalty,
        "score": found.log_probability,
        "worth": found.score,
        "ended": found.ended,
    }
