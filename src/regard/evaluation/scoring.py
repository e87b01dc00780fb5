"""Texts and translations under a model: from text to the log-probability of each token."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from regard.config import Config
from regard.data.corpus import Pair
from regard.data.lines import InvalidLines
from regard.data.pairs import encode_parsed
from regard.data.parses import TokenFeatures
from regard.data.tokenizer import Tokenizer
from regard.evaluation.likelihood import Scored

if TYPE_CHECKING:
    from regard.models.network import Network

LONGEST = 4096  # tokens that are read at once where the network sets no bound; attention needs their square in memory
Counting = Callable[[str, int, int | None], None]  # is told what is done, how much of it so far, and of how much
TOGETHER = 128  # texts at a time: enough to fill batches, few enough to be soon answered


class Predicting(Protocol):
    """A model that predicts tokens, such as `regard.load` gives."""

    @property
    def config(self) -> Config:
        """Its settings."""
        ...

    @property
    def networks(self) -> "list[Network]":
        """One network, or several that vote."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the text it reads."""
        ...

    @property
    def target_tokenizer(self) -> Tokenizer:
        """Of the text it predicts."""
        ...


def score_pairs(model: Predicting, pairs: Sequence[Pair]) -> list[Scored]:
    """The tokens of each target with their log-probabilities, as a translation of its source."""
    from regard.decoding import scoring

    facts: list[TokenFeatures] = []
    if model.config.model.needs_parses:
        sources, facts = encode_parsed(pairs, model.tokenizer)
    else:
        sources = model.tokenizer.encode_batch([pair.source for pair in pairs])
    targets = model.target_tokenizer.encode_batch([pair.target for pair in pairs])
    found = scoring.pair_log_probabilities(model.networks, sources, targets, model.config.tokens, facts)
    return _scored(model, targets, found)


def score_texts(model: Predicting, texts: Sequence[str], context: int | None = None) -> list[Scored]:
    """The tokens of each text with their log-probabilities, given those before them.

    A text of more than `context` tokens is read in windows of so many, which overlap by half.
    """
    from regard.decoding import scoring

    ids = model.tokenizer.encode_batch(texts)
    window = context or model.config.context_window or LONGEST
    return _scored(model, ids, scoring.text_log_probabilities(model.networks, ids, model.config.tokens, window))


def readable(model: Predicting, pairs: Iterable[Pair], name: str, faults: InvalidLines) -> Iterator[Pair]:
    """The pairs that the model can read whole; one that is too long is a fault of the data called `name`."""
    learned = model.config.model.max_length
    longest = learned or LONGEST
    why = f"this network learned {learned:,} positions" if learned else f"at most {longest:,} can be scored"
    for number, pair in enumerate(pairs, start=1):
        lengths = {
            "source": len(model.tokenizer.encode(pair.source)) + 1,
            "target": len(model.target_tokenizer.encode(pair.target)) + 1,
        }
        side = max(lengths, key=lengths.__getitem__)
        if lengths[side] > longest:
            said = f"pair {number:,} has a {side} of {lengths[side]:,} tokens with its end, but {why}"
            faults.add("too long", f"{name}: {said}; shorten it")
        else:
            yield pair


def _scored(model: Predicting, ids: Sequence[Sequence[int]], scores: Sequence[list[float]]) -> list[Scored]:
    end = model.config.tokens.end
    return [
        Scored(model.target_tokenizer.ids_to_tokens([*row, end]), values)
        for row, values in zip(ids, scores, strict=True)
    ]
