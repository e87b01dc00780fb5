"""Texts and tables that the terminal and the HTML page share."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from regard.interpret.forward_pass import ForwardPass
from regard.interpret.predictions import HeadPrediction, HeadPredictions, head_predictions
from regard.interpret.render.tables import format_number

Cell = str | float | None
MAX_ALTERNATIVES = 3  # shown besides the best
ATTENTION_TITLES = {"attention": "self-attention", "cross_attention": "cross-attention"}
CAUTION = (
    "Attention is not explanation: weights show where a head attends, not what the output depends on. The cost of "
    "leaving a word out, or of switching a head off, shows that."
)


@dataclass(frozen=True)
class Sheet:
    """A table of text and fractions; fractions are shown with bars. None is an empty cell."""

    title: str
    note: str
    columns: dict[str, type[str] | type[float]]
    rows: list[list[Cell]]


def encoder_sheets(trace: ForwardPass) -> Iterator[Sheet]:
    """Return the tables of this network; none for decoders."""
    if trace.mixing is not None:
        note = "weight of each layer in a token's vector, before the scale"
        yield Sheet("Mixing", note, {"layer": str, "weight": float}, [[*pair] for pair in trace.mixing.items()])
    head = head_predictions(trace)
    if head is not None:
        yield _head_sheet(head)


def _head_sheet(head: HeadPredictions) -> Sheet:
    if head.kind == "classes":
        (text,) = head.predictions
        rows: list[list[Cell]] = [[label.token, label.probability] for label in text.candidates]
        return Sheet("Label", "predicted label of the text", {"label": str, "p": float}, rows)
    if head.kind == "tags":
        note = "tag of each token; the tag of a word is that of its first token"
        rows = [[p.token, p.best.token, p.best.probability, _alternatives(p)] for p in head.predictions]
        return Sheet("Tags", note, {"token": str, "tag": str, "p": float, "others": str}, rows)
    if any(prediction.direction for prediction in head.predictions):
        return _bidirectional_sheet(head)
    note = "predicted token at each position, and the probability of the actual token, which is visible unless [MASK]"
    columns = {"token": str, "p": float, "prediction": str, "p of the prediction": float, "others": str}
    rows = [[p.token, p.probability, p.best.token, p.best.probability, _alternatives(p)] for p in head.predictions]
    return Sheet("Predicted tokens", note, columns, rows)


def _bidirectional_sheet(head: HeadPredictions) -> Sheet:
    note = "probability of each token given the tokens before it (forwards) and after it (backwards), with the best"
    rows = []
    for _, group in groupby(head.predictions, key=lambda prediction: prediction.position):
        by_direction = {prediction.direction: prediction for prediction in group}
        token = next(iter(by_direction.values())).token
        rows.append([token, *_best(by_direction.get("forwards")), *_best(by_direction.get("backwards"))])
    columns = {"token": str, "p forwards": float, "best forwards": str, "p backwards": float, "best backwards": str}
    return Sheet("Bidirectional predictions", note, columns, rows)


def _best(prediction: HeadPrediction | None) -> list[Cell]:
    if prediction is None:
        return [None, None]
    return [prediction.probability, f"{prediction.best.token} {prediction.best.probability:.3f}"]


def _alternatives(prediction: HeadPrediction) -> str:
    others = prediction.candidates[1 : 1 + MAX_ALTERNATIVES]
    return "  ".join(f"{other.token} {format_number(other.probability, 3)}" for other in others)
