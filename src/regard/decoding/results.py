"""Results of decoding and of encoder inference: plain dataclasses. Torch-free."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.decoding.domain import DomainFlag

JSON_DIGITS = 4


@dataclass(frozen=True)
class Hypothesis:
    """An output of beam search or greedy search, as token ids."""

    ids: list[int]
    """The generated tokens, without start and end."""
    score: float
    """The log-probability with penalties, by which hypotheses are ranked."""
    log_probability: float
    """The sum of the tokens' log-probabilities."""
    ended: bool = True
    """Whether it reached the end token, rather than the maximum length."""
    token_scores: list[float] | None = None
    """The log-probability of each token, the end token last if it was reached."""
    attention: Sequence[Sequence[float]] | None = None
    """The attention of each token to each source token, end token included."""

    def without(self, outputs: int, inputs: int) -> "Hypothesis":
        """Return the hypothesis without its first output tokens, and without the attention to the first input tokens.

        These are forced, and their log-probability is 0.
        """
        if not outputs and not inputs:
            return self
        return replace(
            self,
            ids=self.ids[outputs:],
            token_scores=None if self.token_scores is None else self.token_scores[outputs:],
            attention=None if self.attention is None else [row[inputs:] for row in self.attention[outputs:]],
        )


@dataclass(frozen=True)
class Alternative:
    """One translation of a sentence."""

    text: str
    tokens: list[str]
    score: float
    """The log-probability with penalties, by which alternatives are ranked."""
    log_probability: float
    """The sum of the tokens' log-probabilities."""
    ended: bool
    """Whether it reached the end token, rather than the maximum length."""
    token_scores: list[float] | None = None
    """The log-probability of each token, the end token last if it was reached."""
    attention: Sequence[Sequence[float]] | None = None
    """The attention of each token to each source token, without the end token."""

    def as_dict(self) -> dict[str, object]:
        """Return everything for JSON; values that are not known are null."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "score": _rounded(self.score),
            "log_probability": _rounded(self.log_probability),
            "token_scores": _all_rounded(self.token_scores or []),
            "ended": self.ended,
            "alignment": [_argmax(row) for row in (self.attention or [])[: len(self.tokens)]],
            "attention": [_all_rounded(row) for row in self.attention or []],
        }


@dataclass(frozen=True)
class TranslatedSentence:
    """One or more sentences of a line, or a part of a sentence that was too long, with their translations."""

    source: str
    tokens: list[str]
    """The tokens of the source."""
    alternatives: list[Alternative]
    """The translations, best first."""
    flags: "tuple[DomainFlag, ...]" = ()
    """Why the sentence is unlike the training data: `unknown_pieces`, `low_confidence`; empty if it is like them."""
    unknown_words: tuple[str, ...] = ()
    """Words with tokens that are never or hardly ever seen in training."""
    confidence: float | None = None
    """exp(mean log-probability of the tokens) of the best translation; None if unknown, as in greedy search without
    token scores."""

    def as_dict(self) -> dict[str, object]:
        """Return everything for JSON."""
        return {
            "source": self.source,
            "tokens": self.tokens,
            "alternatives": [alternative.as_dict() for alternative in self.alternatives],
            "confidence": None if self.confidence is None else _rounded(self.confidence),
            "flags": list(self.flags),
            "unknown_words": list(self.unknown_words),
        }


@dataclass(frozen=True)
class Translation:
    """The translation of a line."""

    source: str
    text: str
    """The best translations of its sentences, joined."""
    sentences: list[TranslatedSentence]
    parts: int = 0
    """The number of parts that sentences which were too long were split into."""
    alternatives: list[str] = field(default_factory=list)
    """The next best translations: of each sentence the alternative of the same rank, or its last, joined."""

    @property
    def out_of_domain(self) -> bool:
        """Whether a sentence is unlike the training data, so that its translation should not be relied on."""
        return any(sentence.flags for sentence in self.sentences)

    def as_dict(self) -> dict[str, object]:
        """Return everything for JSON."""
        return {
            "source": self.source,
            "translation": self.text,
            "out_of_domain": self.out_of_domain,
            "sentences": [sentence.as_dict() for sentence in self.sentences],
        }


class Candidate(NamedTuple):
    """A possible token at a position."""

    token: int
    log_probability: float


class ScoredToken(NamedTuple):
    """A token of a text with its log-probability and the most probable tokens at its position."""

    token: int
    log_probability: float | None
    """None for a first token that nothing precedes."""
    candidates: tuple[Candidate, ...] = ()


class SampledToken(NamedTuple):
    """A token that was sampled for one row of a batch."""

    row: int
    token: int
    log_probability: float
    """By the network itself, before temperature and filters; special tokens that are not text are excluded."""
    candidates: tuple[Candidate, ...] = ()


class TextChunk(NamedTuple):
    """A piece of the text that is being generated in one row."""

    row: int
    text: str


@dataclass
class Generation:
    """The continuation of a prompt."""

    prompt: str
    sample: int
    """The number of this continuation among those of its prompt, from 0."""
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    scored_tokens: list[ScoredToken] = field(default_factory=list)
    """The same tokens with their log-probabilities, if requested with `top_logprobs`."""
    log_probability: float = 0.0
    ended: bool = False
    """Whether it reached the end token or a stop text, rather than the maximum length."""
    truncated: bool = False
    """Whether the text outgrew the context window, so that its beginning was dropped."""
    prompt_tokens: int = 0
    """Tokens of the prompt, start token included."""
    cached_tokens: int = 0
    """Tokens of the prompt that were not computed, because an earlier prompt began with them."""


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


@dataclass(frozen=True)
class Classification:
    """The predicted label of a text."""

    label: str
    probabilities: dict[str, float]
    """The probability of every label."""
    truncated: bool = False
    """Whether the text was longer than the network's maximum length."""

    @property
    def probability(self) -> float:
        """The probability of the predicted label."""
        return self.probabilities[self.label]


class TaggedWord(NamedTuple):
    """A word with its predicted tag."""

    text: str
    tag: str
    probability: float


@dataclass(frozen=True)
class FillCandidate:
    """A token for a masked position."""

    token: str
    """As in the vocabulary."""
    text: str
    """Without word marker or leading space."""
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text with masks, and candidates for each of them."""

    source: str
    text: str
    """The source with the most probable token at each mask."""
    masks: list[list[FillCandidate]]
    """The candidates for each mask, most probable first."""


@dataclass(frozen=True)
class Embeddings:
    """One vector per text."""

    vectors: "NDArray[np.float32]"
    """(N, C)"""
    truncated: int
    """Number of texts that were longer than the network's maximum length."""


def _rounded(number: float) -> float | None:
    """JSON has no NaN: an unknown value is null."""
    return round(number, JSON_DIGITS) if isfinite(number) else None


def _all_rounded(numbers: Iterable[float]) -> list[float | None]:
    return [_rounded(number) for number in numbers]


def _argmax(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)
