"""Multiple-choice tasks: which choice does a language model give the highest probability?

As in the lm-evaluation-harness (Gao et al. 2021): a question is a context, and its choices are continuations of it.
`acc` is the fraction of questions whose answer has the highest log-probability, `acc_norm` the same with the
log-probability divided by the number of characters of the choice; each with the standard error of the mean.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.lines import InvalidLines, read_lines
from regard.data.tokenizer import Tokenizer
from regard.decoding.scoring import ContinuationScore, continuation_scores
from regard.errors import DataError
from regard.evaluation.likelihood import MAX_SCORED_TOKENS, ProgressCallback, ScoringModel
from regard.files import load_json

CONTEXT_KEYS = ("context", "ctx", "question", "query", "prompt")
CHOICE_KEYS = ("choices", "endings", "options")
ANSWER_KEYS = ("answer", "gold", "label", "answerKey")
DELIMITER = " "  # between a context and a choice
QUESTIONS_AT_A_TIME = 64


@dataclass(frozen=True)
class Question:
    """A context, its choices, and the right one."""

    context: str
    choices: tuple[str, ...]
    answer: int
    delimiter: str = DELIMITER


@dataclass(frozen=True)
class ChoiceScores:
    """Accuracies on the questions of a task."""

    questions: int
    acc: float
    acc_norm: float

    @property
    def scores(self) -> dict[str, float]:
        """The accuracies and their standard errors, by the names of the harness."""
        scores: dict[str, float] = {}
        for name, value in (("acc", self.acc), ("acc_norm", self.acc_norm)):
            scores |= {name: value, f"{name}_stderr": standard_error(value, self.questions)}
        return scores

    def as_dict(self) -> dict[str, Any]:
        """Return scores and counts for JSON."""
        return {"scores": self.scores, "questions": self.questions}


def standard_error(mean: float, count: int) -> float:
    """The standard error of the mean of numbers that are 0 or 1: their sample standard deviation by √count.

    >>> round(standard_error(0.5, 101), 4)
    0.05
    """
    return math.sqrt(mean * (1 - mean) / (count - 1)) if count > 1 else math.nan


def evaluate_choices(
    model: ScoringModel, questions: Sequence[Question], progress: ProgressCallback = lambda *_: None
) -> ChoiceScores:
    """Let a language model answer questions."""
    right = right_norm = done = 0
    for start in range(0, len(questions), QUESTIONS_AT_A_TIME):
        batch = questions[start : start + QUESTIONS_AT_A_TIME]
        pairs = [(question.context, question.delimiter + choice) for question in batch for choice in question.choices]
        scores = iter(score_continuations(model, pairs))
        for question in batch:
            totals = [next(scores).total for _ in question.choices]
            norms = [total / len(choice) for total, choice in zip(totals, question.choices, strict=True)]
            right += totals.index(max(totals)) == question.answer
            right_norm += norms.index(max(norms)) == question.answer
        done += len(batch)
        progress("answering questions", done, len(questions))
    return ChoiceScores(done, right / done, right_norm / done)


def score_continuations(model: ScoringModel, pairs: Sequence[tuple[str, str]]) -> list[ContinuationScore]:
    """Score the second text of each pair as a continuation of the first."""
    window = model.config.context_window or MAX_SCORED_TOKENS
    encoded = [encode_pair(model.tokenizer, context, continuation) for context, continuation in pairs]
    return continuation_scores(model.networks, encoded, model.config.tokens, window)


def encode_pair(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The ids of a context and of its continuation, as the harness divides those of both together.

    Spaces at the end of the context belong to the continuation: tokens of words begin with their space.
    """
    stripped = context.rstrip()
    whole = tokenizer.encode(context + continuation)
    start = len(tokenizer.encode(stripped)) if stripped else 0
    return whole[:start], whole[start:]


def read_questions(file: str) -> list[Question]:
    """Read questions from JSON Lines: a context, choices, and the answer by its index, its label or its text."""
    questions = [_question(entry, location) for entry, location in read_objects(file)]
    if not questions:
        raise DataError(f"{file}: has no questions; add some.")
    return questions


def read_objects(file: str) -> Iterator[tuple[Mapping[str, object], str]]:
    """Yield the objects of JSON Lines, each with its location."""
    for line in read_lines(file, InvalidLines(hint="")):
        if line.text is None or not line.text.strip():
            continue
        try:
            entry = load_json(line.text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{line.location}: is not JSON ({error}); correct the line.") from None
        if not isinstance(entry, dict):
            raise DataError(f"{line.location}: should be an object, such as a question with its choices.")
        yield entry, line.location


def _question(entry: Mapping[str, object], location: str) -> Question:
    context = _value(entry, CONTEXT_KEYS, location)
    choices, labels = _value(entry, CHOICE_KEYS, location), None
    if isinstance(choices, dict):  # as in ARC: {"text": [...], "label": ["A", "B", ...]}
        labels = choices.get("label")
        choices = choices.get("text")
    return make_question(context, choices, _value(entry, ANSWER_KEYS, location), location, labels=labels)


def _value(entry: Mapping[str, object], keys: Sequence[str], location: str) -> object:
    for key in keys:
        if key in entry:
            return entry[key]
    raise DataError(f"{location}: has none of the keys {', '.join(keys)}; add one.")


def make_question(
    context: object,
    choices: object,
    answer: object,
    location: str,
    *,
    labels: object = None,
    delimiter: str = DELIMITER,
) -> Question:
    """Return a question, after checks of its parts."""
    if not isinstance(context, str):
        raise DataError(f"{location}: its context should be a text, not {context!r}; correct it.")
    listed: list[object] = list(choices) if isinstance(choices, list | tuple) else []
    texts = tuple(choice for choice in listed if isinstance(choice, str) and choice)
    if len(texts) < 2 or len(texts) < len(listed):
        raise DataError(f"{location}: its choices should be a list of at least two texts, not {choices!r}; correct it.")
    index = _index(answer, texts, list(labels) if isinstance(labels, list | tuple) else [])
    if index is None:
        raise DataError(
            f"{location}: its answer {answer!r} is neither an index from 0 to {len(texts) - 1} nor one of its choices; "
            "correct it."
        )
    return Question(context, texts, index, delimiter)


def _index(answer: object, choices: Sequence[str], labels: Sequence[object]) -> int | None:
    if isinstance(answer, bool):
        return None
    if answer in labels:
        return labels.index(answer)
    if answer in choices:
        return choices.index(str(answer))
    if isinstance(answer, str) and answer.isdecimal():
        answer = int(answer)
    return answer if isinstance(answer, int) and 0 <= answer < len(choices) else None
