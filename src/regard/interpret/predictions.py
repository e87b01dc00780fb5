"""What a network predicts, prediction by prediction, with probabilities.

A decoder predicts each next token (`Step`). An encoder's head predicts a label of the text, a tag for each token, or
tokens (`HeadPrediction`): those behind [MASK], and in bidirectional language models each token from the left and from
the right. `Predictions` selects the rows of the logits that analyses such as gradients and interventions are about: the
decoded output, or for an encoder the most probable labels or tokens, or those that the user named.

All probabilities are the network's own, without suppressed tokens or other rules of decoding. Logarithms are natural.

T steps · S source tokens · L labels · V vocabulary · N predictions
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import torch
from pydantic import JsonValue
from torch import Tensor

from regard.config import EncoderConfig
from regard.data.tokenizer import Tokenizer
from regard.interpret.forward_pass import ForwardPass
from regard.nn.recurrent import DIRECTIONS

MAX_CANDIDATES = 10  # per step
OUTPUT = "output"


@dataclass(frozen=True)
class PredictionCandidate:
    """A token or label that could be predicted."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One decoding step: the distribution after `input_token`, and the token that follows."""

    step: int
    input_token: str
    token: str
    id: int
    forced: bool  # part of a prompt or a forced target, not chosen by the model
    log_probability: float
    probability: float
    rank: int  # of the token among the vocabulary; 0 is the most probable
    entropy: float  # of the distribution, in nats
    candidates: list[PredictionCandidate]

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, for JSON."""
        return asdict(self)


def decoding_steps(trace: ForwardPass) -> list[Step]:
    """Return every step of the decoder; empty for encoders."""
    decoded, tokenizer = trace.decoded, trace.model.target_tokenizer
    if decoded.input_ids is None:
        return []
    log_probabilities = trace.recording.logits().log_softmax(-1)  # (T, V)
    targets = log_probabilities.new_tensor(decoded.target_ids, dtype=torch.long)[:, None]
    chosen = log_probabilities.gather(1, targets)  # (T, 1)
    entropies = -(log_probabilities.exp() * log_probabilities).nansum(-1)
    ranks = (log_probabilities > chosen).sum(-1)
    top = log_probabilities.topk(min(MAX_CANDIDATES, log_probabilities.size(-1)), dim=-1)
    columns = (chosen[:, 0], chosen[:, 0].exp(), ranks, entropies, top.indices, top.values.exp())
    rows = zip(*(column.tolist() for column in columns), strict=True)
    input_tokens, tokens = tokenizer.ids_to_tokens(decoded.input_ids), tokenizer.ids_to_tokens(decoded.target_ids)
    return [
        Step(
            step=n,
            input_token=input_tokens[n],
            token=tokens[n],
            id=decoded.target_ids[n],
            forced=n < decoded.forced,
            log_probability=log_probability,
            probability=probability,
            rank=rank,
            entropy=max(0.0, entropy),
            candidates=_candidates(top_ids, top_probabilities, tokenizer),
        )
        for n, (log_probability, probability, rank, entropy, top_ids, top_probabilities) in enumerate(rows)
    ]


def _candidates(ids: list[int], probabilities: list[float], tokenizer: Tokenizer) -> list[PredictionCandidate]:
    rows = zip(ids, tokenizer.ids_to_tokens(ids), probabilities, strict=True)
    return [PredictionCandidate(*row) for row in rows]


@dataclass(frozen=True)
class HeadPrediction:
    """The prediction of an encoder's head for one token, or for the whole text."""

    position: int | None  # of the token in the source; None for the text
    token: str | None
    direction: str | None  # forwards or backwards in a bidirectional language model
    probability: float | None  # of the token at this position, if tokens are predicted
    candidates: list[PredictionCandidate]  # the most probable first

    @property
    def best(self) -> PredictionCandidate:
        """The most probable candidate."""
        return self.candidates[0]


@dataclass(frozen=True)
class HeadPredictions:
    """All predictions of an encoder's head; `kind` is classes, tags or tokens."""

    kind: str
    predictions: list[HeadPrediction]

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, for JSON."""
        return {"kind": self.kind, "predictions": [asdict(prediction) for prediction in self.predictions]}


def head_predictions(trace: ForwardPass) -> HeadPredictions | None:
    """Return what the encoder's head predicts; None if the network has no head."""
    model = trace.model.config.model
    if not isinstance(model, EncoderConfig) or model.head.kind == "none":
        return None
    if model.head.kind == "classes":
        row = trace.activation("head.probabilities")  # (L,)
        text = HeadPrediction(None, None, None, None, _top_candidates(trace, row, "label", len(row)))
        return HeadPredictions("classes", [text])
    if "head.probabilities" not in trace.points:
        return HeadPredictions("tokens", list(_bidirectional_predictions(trace)))
    axis = trace.points["head.probabilities"].axes[-1]
    return HeadPredictions(model.head.kind, list(_token_predictions(trace, axis)))


def _token_predictions(trace: ForwardPass, axis: str) -> Iterator[HeadPrediction]:
    tokens, ids = trace.labels("source") or [], trace.decoded.source_ids or []
    for position, row in enumerate(trace.activation("head.probabilities")):  # (S, V) or (S, L)
        probability = float(row[ids[position]]) if axis == "vocabulary" else None
        yield HeadPrediction(position, tokens[position], None, probability, _top_candidates(trace, row, axis))


def _bidirectional_predictions(trace: ForwardPass) -> Iterator[HeadPrediction]:
    """Each token is predicted by the state before it and by the state after it, where these exist."""
    tokens, ids = trace.labels("source") or [], trace.decoded.source_ids or []
    rows = {direction: trace.activation(f"head.{direction}.probabilities") for direction in DIRECTIONS}  # (S, V)
    for position, token in enumerate(tokens):
        for direction, state in zip(DIRECTIONS, (position - 1, position + 1), strict=True):
            if 0 <= state < len(tokens):
                row = rows[direction][state]
                candidates = _top_candidates(trace, row, "vocabulary")
                yield HeadPrediction(position, token, direction, float(row[ids[position]]), candidates)


def _top_candidates(
    trace: ForwardPass, row: Tensor, axis: str, count: int = MAX_CANDIDATES
) -> list[PredictionCandidate]:
    top = row.topk(min(count, len(row)))
    ids, probabilities = top.indices.tolist(), top.values.tolist()
    if axis == "vocabulary":
        return _candidates(ids, probabilities, trace.model.target_tokenizer)
    labels = trace.labels(axis) or []
    return [PredictionCandidate(n, labels[n], p) for n, p in zip(ids, probabilities, strict=True)]


@dataclass(frozen=True)
class Predictions:
    """Rows of the logits, and in each row the id (token or label) that an analysis is about."""

    kind: str  # output, classes, tags, tokens
    rows: list[int]
    ids: list[int]
    source_tokens: list[str | None]  # the token that each prediction is about, with its direction if there are two
    labels: list[str] | None  # names of the choices; None if they are tokens
    tokenizer: Tokenizer
    directions: list[str] = field(default_factory=list)  # of each prediction, in bidirectional language models

    def distributions(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (N, V) of all choices."""
        return logits[self.rows].log_softmax(-1)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (N,) of `ids`."""
        return self.distributions(logits).gather(1, torch.tensor(self.ids, device=logits.device)[:, None])[:, 0]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens or labels of ids."""
        return self.tokenizer.ids_to_tokens(ids) if self.labels is None else [self.labels[n] for n in ids]

    def text(self, ids: Sequence[int]) -> str:
        """Return ids as text; for bidirectional language models, each direction separately."""
        if self.labels is not None:
            return " ".join(self.names(ids))
        if not self.directions:
            return self.tokenizer.decode(ids)
        by_direction = {
            name: [id_ for id_, direction in zip(ids, self.directions, strict=True) if direction == name]
            for name in DIRECTIONS
        }
        return "; ".join(f"{name}: {self.tokenizer.decode(part)}" for name, part in by_direction.items())


def predictions_of(trace: ForwardPass) -> Predictions | None:
    """Return what the analyses of a trace are about; None if the network predicts nothing."""
    decoded, tokenizer = trace.decoded, trace.model.target_tokenizer
    if decoded.input_ids is not None:
        count = len(decoded.target_ids)
        return Predictions(OUTPUT, list(range(count)), decoded.target_ids, [None] * count, None, tokenizer)
    head = head_predictions(trace)
    if head is None:
        return None
    predictions = _selected(trace, head)
    return Predictions(
        head.kind,
        [logits_row(prediction) for prediction in predictions],
        decoded.expected_ids or [_default_id(trace, prediction) for prediction in predictions],
        [" ".join(filter(None, (p.token, p.direction))) or None for p in predictions],
        None if head.kind == "tokens" else trace.labels("label"),
        tokenizer,
        [prediction.direction for prediction in predictions if prediction.direction is not None],
    )


def _selected(trace: ForwardPass, head: HeadPredictions) -> list[HeadPrediction]:
    """Those about the text itself: without start and end tokens, and only masked tokens if there are any."""
    if head.kind == "classes":
        return head.predictions
    if head.predictions[0].direction is not None:
        return sorted(head.predictions, key=lambda prediction: prediction.direction != "forwards")
    within = head.predictions[1:-1]
    return [prediction for prediction in within if is_masked(trace, prediction)] or within


def _default_id(trace: ForwardPass, prediction: HeadPrediction) -> int:
    """The most probable choice; for a token that the network can see, the token itself."""
    if prediction.probability is None or is_masked(trace, prediction):
        return prediction.best.id
    return (trace.decoded.source_ids or [])[prediction.position or 0]


def is_masked(trace: ForwardPass, prediction: HeadPrediction) -> bool:
    """Whether the prediction is about a [MASK]."""
    if prediction.token is None:
        return False
    return (trace.decoded.source_ids or [])[prediction.position or 0] == trace.model.config.tokens.mask


def logits_row(prediction: HeadPrediction) -> int:
    """Return the row of the logits; a bidirectional model predicts a token at its neighbors, in rows 2n and 2n + 1."""
    match prediction.position, prediction.direction:
        case None, _:
            return 0
        case position, "forwards":
            return 2 * (position - 1)
        case position, "backwards":
            return 2 * (position + 1) + 1
        case position, _:
            return position


def output_log_probability(trace: ForwardPass) -> float:
    """Return the total log-probability of the output, or of the head's predictions."""
    predictions = predictions_of(trace)
    return 0.0 if predictions is None else float(predictions.log_probabilities(trace.recording.logits()).sum())
