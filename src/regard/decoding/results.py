"""A translation as plain values: what `regard translate --json` prints and the server answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

DIGITS = 4


@dataclass(frozen=True)
class Hypothesis:
    """One way to translate a sentence, or to go on with a text."""

    ids: list[int]
    """What was written, without start and end."""
    score: float
    """What it is worth, by which hypotheses are ranked: its log-probability with penalties."""
    log_probability: float
    """The sum of its tokens' log-probabilities."""
    ended: bool = True
    """Whether it came to its end, rather than to the greatest length."""
    token_scores: list[float] | None = None
    """The log-probability of each token, that of the end last, if it ended."""
    attention: Sequence[Sequence[float]] | None = None
    """For each token how much it looked at each of the source's, its end included."""


@dataclass(frozen=True)
class Alternative:
    """One translation of a sentence."""

    text: str
    tokens: list[str]
    score: float
    log_probability: float
    ended: bool
    token_scores: list[float] | None = None
    """The log-probability of each token, that of the end last, if it ended."""
    attention: Sequence[Sequence[float]] | None = None
    """For each token how much it looked at each of the source's, whose end is left out."""


@dataclass(frozen=True)
class TranslatedSentence:
    """A sentence of a line, or a part of one that was too long, and its translations, the best first."""

    source: str
    tokens: list[str]
    alternatives: list[Alternative]


@dataclass(frozen=True)
class Translation:
    """The translation of a line."""

    source: str
    text: str
    sentences: list[TranslatedSentence]
    pieces: int = 0
    """How many parts were made of sentences that were too long."""


@dataclass(frozen=True)
class TextScore:
    """The tokens of a text, its end token last, with their log-probabilities."""

    tokens: list[str]
    log_probabilities: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole text.

        >>> TextScore(["▁Ciao", "[EOS]"], [-1.5, -0.5]).total
        -2.0
        """
        return sum(self.log_probabilities)

    @property
    def mean(self) -> float:
        """The mean log-probability per token."""
        return self.total / len(self.log_probabilities)


class Candidate(NamedTuple):
    """A token that might stand at a place."""

    token: int
    log_probability: float


class ScoredToken(NamedTuple):
    """A token of a text, how probable it was there, and what was most probable."""

    token: int
    log_probability: float | None  # none where nothing came before it
    candidates: tuple[Candidate, ...] = ()


class SampledToken(NamedTuple):
    """One token, drawn for one row."""

    row: int
    token: int
    log_probability: float  # by the network itself, before temperature and filters, among all that is text
    candidates: tuple[Candidate, ...] = ()


@dataclass
class Generation:
    """What was written after a prompt."""

    prompt: str
    sample: int
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    """The same tokens with their probabilities, where these are asked for."""
    log_probability: float = 0.0
    ended: bool = False
    """Whether it came to its own end, or to one of the texts to stop at, rather than to the greatest length."""
    slid: bool = False
    """Whether its beginning left the network's window."""


class TextChunk(NamedTuple):
    """Some more text of one continuation."""

    row: int
    text: str


def described(translation: Translation) -> dict[str, Any]:
    """Everything that is known about a translation."""
    return {
        "source": translation.source,
        "translation": translation.text,
        "sentences": [
            {
                "source": sentence.source,
                "tokens": sentence.tokens,
                "alternatives": [_alternative(one) for one in sentence.alternatives],
            }
            for sentence in translation.sentences
        ],
    }


def _alternative(one: Alternative) -> dict[str, Any]:
    return {
        "text": one.text,
        "tokens": one.tokens,
        "score": _rounded(one.score),
        "log_probability": _rounded(one.log_probability),
        "token_scores": _all_rounded(one.token_scores or []),
        "ended": one.ended,
        "alignment": [_most(row) for row in (one.attention or [])[: len(one.tokens)]],
        "attention": [_all_rounded(row) for row in one.attention or []],
    }


def _rounded(number: float) -> float | None:
    """JSON has no NaN: what is not known is null."""
    return round(number, DIGITS) if isfinite(number) else None


def _all_rounded(numbers: Iterable[float]) -> list[float | None]:
    return [_rounded(number) for number in numbers]


def _most(row: Sequence[float]) -> int:
    """Which token of the source was looked at most."""
    return max(range(len(row)), key=row.__getitem__)
