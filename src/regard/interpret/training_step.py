"""One training step on a text or pair, position by position: shifted input, labels, probabilities and loss.

In training the decoder reads the target shifted right and predicts the next token at all positions in one pass (teacher
forcing). Each position with a label has the loss of `training/losses.py`,

    loss = (1 − ε)·(−log p[label]) + ε·mean over v of (−log p[v]),   ε = training.label_smoothing

and the step minimizes the mean over the labels of a batch. An encoder's head has labels at some positions only: the
masked tokens, the first token of each word, or the whole text; the others are ignored. Dropout and R-Drop, which make
the loss random, are left out.

N labels · V vocabulary
"""

import math
from dataclasses import asdict, dataclass

from pydantic import JsonValue

from regard.errors import InputError
from regard.interpret.decode import training_text
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.predictions import HeadPrediction, head_predictions, is_masked, logits_row


@dataclass(frozen=True)
class TrainingPosition:
    """One position: the token that is read, the label to predict, and what the prediction costs.

    Without a label, the position is ignored and the numbers are None.
    """

    position: int | None  # None: the label is of the whole text
    input_token: str | None
    label: str | None
    direction: str | None = None  # in which a bidirectional language model predicts
    probability: float | None = None  # of the label
    cross_entropy: float | None = None  # −log p of the label, in nats
    smoothing: float | None = None  # mean of −log p over all choices
    loss: float | None = None  # what is minimized: cross entropy with label smoothing
    best: str | None = None  # the most probable choice


@dataclass(frozen=True)
class TrainingStep:
    """All positions of a text or pair, and the loss that training minimizes."""

    source: list[str]  # what the encoder reads; empty without an encoder
    decoder_input: list[str]  # the target shifted right; empty without a decoder
    positions: list[TrainingPosition]
    label_smoothing: float
    choices: int  # tokens or labels that are predicted from
    notes: list[str]

    @property
    def labels(self) -> list[TrainingPosition]:
        """The positions that have a label."""
        return [position for position in self.positions if position.label is not None]

    @property
    def loss(self) -> float:
        """The mean loss of all labels, which a step minimizes."""
        return math.fsum(position.loss or 0.0 for position in self.labels) / len(self.labels)

    @property
    def cross_entropy(self) -> float:
        """The mean of −log p of the labels: the loss without label smoothing."""
        return math.fsum(position.cross_entropy or 0.0 for position in self.labels) / len(self.labels)

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields and the loss, for JSON."""
        numbers = {"loss": self.loss, "cross_entropy": self.cross_entropy, "num_labels": len(self.labels)}
        return {**asdict(self), **numbers}


@dataclass(frozen=True)
class _Label:
    """A row of the logits and the id that it should predict."""

    row: int
    id: int
    position: int | None
    direction: str | None


def training_step(trace: ForwardPass) -> TrainingStep:
    """Return the step that trains a model on the text and target of a trace.

    A language model is trained on the text itself, followed by the target if there is one.
    """
    model = trace.model
    if trace.kind == "translation" and trace.forced_target is None:
        raise InputError("A training step needs the translation to learn; pass it as the target (--target).")
    if trace.kind == "continuation":
        trace = ForwardPass(model, trace.text, None, training_text(model, trace.text, trace.forced_target or ""))
    labels = _decoder_labels(trace) if trace.decoded.input_ids is not None else _encoder_labels(trace)
    positions = _positions(trace, labels)
    return TrainingStep(
        source=[] if trace.source is None else trace.source.tokens,
        decoder_input=trace.decoder_input,
        positions=positions,
        label_smoothing=model.config.training.label_smoothing,
        choices=trace.recording.logits().size(-1),
        notes=_notes(trace, len(positions) - len(labels)),
    )


def _decoder_labels(trace: ForwardPass) -> list[_Label]:
    return [_Label(n, target, n, None) for n, target in enumerate(trace.decoded.target_ids)]


def _encoder_labels(trace: ForwardPass) -> list[_Label]:
    """The labels of an encoder's head: what the user expects, or in bidirectional language models the tokens."""
    head, expected = head_predictions(trace), trace.decoded.expected_ids
    if head is None:
        raise InputError("This network predicts nothing, so there is nothing to train it on.")
    if head.predictions[0].direction is not None:
        ids = trace.decoded.source_ids or []
        return [_label(prediction, ids[prediction.position or 0]) for prediction in head.predictions]
    if expected is None:
        what = {"classes": "the label of the text", "tags": "a tag for each token"}.get(head.kind, "a token per [MASK]")
        raise InputError(f"A training step needs {what}; pass it as the target (--target).")
    if head.kind == "classes":
        return [_label(head.predictions[0], expected[0])]
    if head.kind == "tags":
        first = {word.tokens[0] for word in trace.source.words} if trace.source is not None else set()
        within = zip(head.predictions[1:-1], expected, strict=True)
        return [_label(prediction, tag) for prediction, tag in within if prediction.position in first]
    masked = [prediction for prediction in head.predictions if is_masked(trace, prediction)]
    return [_label(prediction, token) for prediction, token in zip(masked, expected, strict=True)]


def _label(prediction: HeadPrediction, id_: int) -> _Label:
    return _Label(logits_row(prediction), id_, prediction.position, prediction.direction)


def _positions(trace: ForwardPass, labels: list[_Label]) -> list[TrainingPosition]:
    """Every position in order, with the loss where there is a label."""
    tokens = trace.decoder_input or (trace.source.tokens if trace.source is not None else [])
    labeled: dict[int | None, list[TrainingPosition]] = {}
    logits = trace.recording.logits()[[label.row for label in labels]].log_softmax(-1)  # (N, V)
    smoothing = trace.model.config.training.label_smoothing
    for label, row in zip(labels, logits, strict=True):
        cross_entropy, uniform = -float(row[label.id]), -float(row.mean())
        name, best = _names(trace, [label.id, int(row.argmax())])
        position = TrainingPosition(
            label.position,
            None if label.position is None else tokens[label.position],
            name,
            label.direction,
            math.exp(-cross_entropy),
            cross_entropy,
            uniform,
            (1 - smoothing) * cross_entropy + smoothing * uniform,
            best,
        )
        labeled.setdefault(label.position, []).append(position)
    if None in labeled:
        return labeled[None]
    ignored = {n: [TrainingPosition(n, token, None)] for n, token in enumerate(tokens)}
    return [position for n in ignored for position in labeled.get(n, ignored[n])]


def _names(trace: ForwardPass, ids: list[int]) -> list[str]:
    labels = trace.labels("label") if trace.decoded.input_ids is None else None
    return [labels[n] for n in ids] if labels else trace.model.target_tokenizer.ids_to_tokens(ids)


def _notes(trace: ForwardPass, ignored: int) -> list[str]:
    notes = ["Dropout is off here; in training it changes the loss at random."]
    if trace.model.config.training.rdrop:
        notes.append("R-Drop, which adds the difference of two passes with dropout, is left out.")
    if trace.decoded.input_ids is not None:
        notes.append("The causal mask hides later tokens from each position, so that no position reads its own label.")
        notes.append("In a batch, shorter texts are padded; padding has no label and adds nothing to the loss.")
    elif ignored:
        count = "1 position has" if ignored == 1 else f"{ignored} positions have"
        notes.append(f"{count} no label and add{'s' if ignored == 1 else ''} nothing to the loss.")
    return notes
