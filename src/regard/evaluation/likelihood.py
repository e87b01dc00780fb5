"""Log-probabilities of given texts and translations under a model, and the measures that follow from them."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from regard.config import Config
from regard.data.batching import encode_parsed
from regard.data.lines import InvalidLines
from regard.data.readers.base import Pair
from regard.data.syntax import TokenFeatures
from regard.data.tokenizer import Tokenizer, unknown_note
from regard.decoding.results import TextScore
from regard.errors import DataError

if TYPE_CHECKING:
    from regard.models.network import Network

MAX_SCORED_TOKENS = (
    4096  # per forward pass if the network has no limit of its own; attention memory grows as its square
)
SCORING_BATCH = 128  # texts at a time: enough to fill batches, few enough to return results early
ProgressCallback = Callable[[str, int, int | None], None]
"""Receives what is being done, how much is done, and the total if it is known."""


class ScoringModel(Protocol):
    """A model that predicts tokens, such as `regard.load` returns."""

    @property
    def config(self) -> Config:
        """The model's configuration."""
        ...

    @property
    def networks(self) -> "list[Network]":
        """One network, or the networks of an ensemble."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the source text."""
        ...

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the predicted text."""
        ...


def perplexity(cross_entropy: float) -> float:
    """Return e^cross_entropy, for a mean cross entropy per token in nats.

    >>> round(perplexity(math.log(50)))
    50
    """
    return math.exp(min(cross_entropy, 700))  # e^710 exceeds the largest float


@dataclass(frozen=True)
class Likelihood:
    """Token count and total log-probability of a set of texts, and their size in bytes where it is known.

    Unknown tokens stand for any text that the tokenizer has no token for. They have a probability as tokens, but their
    text has none, so that bits per byte are not defined.
    """

    tokens: int
    total: float
    bytes: int = 0
    unknown: int = 0

    @property
    def loss(self) -> float:
        """Mean negative log-probability per token, end tokens included.

        >>> Likelihood(tokens=4, total=-8.0).loss
        2.0
        """
        return -self.total / self.tokens

    @property
    def perplexity(self) -> float:
        """e^loss.

        >>> round(Likelihood(tokens=2, total=2 * math.log(1 / 50)).perplexity)
        50
        """
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float | None:
        """Negative log-probability in bits per byte of UTF-8, comparable across tokenizers; None with unknown tokens.

        >>> Likelihood(tokens=3, total=10 * math.log(1 / 4), bytes=10).bits_per_byte
        2.0
        """
        return None if self.unknown else -self.total / math.log(2) / self.bytes

    def as_dict(self) -> dict[str, Any]:
        """Return scores and counts for JSON."""
        scores = {"loss": self.loss, "perplexity": self.perplexity}
        if self.bits_per_byte is not None:
            scores["bits_per_byte"] = self.bits_per_byte
        unknown = {"unknown": self.unknown} if self.unknown else {}
        return {"scores": scores, "tokens": self.tokens, **unknown, "bytes": self.bytes}


def total_likelihood(scores: Iterable[TextScore], bytes: int = 0, unknown: str | None = None) -> Likelihood:
    """Sum the scores of several texts; `unknown` is the unknown token, which is counted."""
    tokens, total, num_unknown = 0, 0.0, 0
    for score in scores:
        tokens += len(score.log_probabilities)
        total += score.total
        num_unknown += score.tokens[:-1].count(unknown) if unknown is not None else 0
    return Likelihood(tokens, total, bytes, num_unknown)


def score_pairs(model: ScoringModel, pairs: Sequence[Pair]) -> list[TextScore]:
    """Score the target of each pair as a translation of its source."""
    from regard.decoding.scoring import pair_log_probabilities

    features: list[TokenFeatures] = []
    if model.config.model.needs_parses:
        sources, features = encode_parsed(pairs, model.tokenizer)
    else:
        sources = model.tokenizer.encode_batch([pair.source for pair in pairs])
    targets = model.target_tokenizer.encode_batch([pair.target for pair in pairs])
    scores = pair_log_probabilities(model.networks, sources, targets, model.config.tokens, features)
    return _text_scores(model, targets, scores)


def score_texts(model: ScoringModel, texts: Sequence[str], context_length: int | None = None) -> list[TextScore]:
    """Score each text, every token given the tokens before it.

    A text of more than `context_length` tokens is scored in windows of that length which overlap by half.
    """
    from regard.decoding.scoring import text_log_probabilities

    ids = model.tokenizer.encode_batch(texts)
    window = context_length or model.config.context_window or MAX_SCORED_TOKENS
    return _text_scores(model, ids, text_log_probabilities(model.networks, ids, model.config.tokens, window))


def scorable_pairs(model: ScoringModel, pairs: Iterable[Pair], name: str, invalid: InvalidLines) -> Iterator[Pair]:
    """Yield the pairs that fit into the network; longer ones are reported as invalid lines of the data `name`.

    Tokens of text that the tokenizers do not know are reported as a note.
    """
    learned = model.config.model.max_length
    limit = learned or MAX_SCORED_TOKENS
    reason = f"this network learned {learned:,} positions" if learned else f"at most {limit:,} can be scored"
    unknown = total = 0
    for number, pair in enumerate(pairs, start=1):
        source, target = model.tokenizer.encode(pair.source), model.target_tokenizer.encode(pair.target)
        lengths = {"source": len(source) + 1, "target": len(target) + 1}
        side = max(lengths, key=lengths.__getitem__)
        if lengths[side] > limit:
            problem = f"pair {number:,} has a {side} of {lengths[side]:,} tokens with its end, but {reason}"
            invalid.add("too long", f"{name}: {problem}; shorten it")
        else:
            unknown += model.tokenizer.num_unknown(source) + model.target_tokenizer.num_unknown(target)
            total += len(source) + len(target)
            yield pair
    if unknown:
        invalid.note(unknown_note(unknown, total))


def evaluate_language_model(
    model: ScoringModel,
    documents: Iterable[Iterable[str]],
    name: str,
    context_length: int,
    progress: ProgressCallback,
) -> Likelihood:
    """Return the likelihood of documents, each scored on its own; empty documents are skipped.

    Args:
        model: A language model.
        documents: Each document as its parts, which are concatenated.
        name: What the data are called in error messages.
        context_length: Tokens per window; every token has at least half of them before it where the text has as many.
        progress: Called after each document with the bytes scored so far.
    """
    scores: list[TextScore] = []
    size = 0
    for document in documents:
        text = "".join(document)
        if text:
            scores += score_texts(model, [text], context_length)
            size += len(text.encode())
            progress("scoring bytes", size, None)
    if not scores:
        raise DataError(f"{name}: contains no text to evaluate a model on; use a file with text.")
    unknown = model.tokenizer.unknown_id
    return total_likelihood(scores, size, None if unknown is None else model.tokenizer.ids_to_tokens([unknown])[0])


def _text_scores(model: ScoringModel, ids: Sequence[Sequence[int]], scores: Sequence[list[float]]) -> list[TextScore]:
    end = model.config.tokens.end
    return [
        TextScore(model.target_tokenizer.ids_to_tokens([*row, end]), values)
        for row, values in zip(ids, scores, strict=True)
    ]
