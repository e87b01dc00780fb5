"""Which parts of a line are translated together: the one rule of `translate`, `evaluate`, Python and HTTP. Torch-free.

A network translates best what looks like its training data. Splitting a line into sentences loses the context that
pronouns and agreement depend on; a line with more sentences or tokens than the training data is translated badly. So a
line is translated as a whole if the training data has lines of as many sentences and tokens, and otherwise in groups of
consecutive sentences that are within both. If a translation has not as many sentences as its source, something was left
out or run together, and the sentences are translated again, each on its own. The limits are measured in training and
saved with the model; without them, as in imported models, every sentence is translated on its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from regard.config import Config
from regard.data.sentence_splitting import group_sentences, sentence_spans, split_sentences
from regard.data.syntax import TokenFeatures
from regard.data.tokenizer import Tokenizer
from regard.decoding.languages import LanguageTokens
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.decoding.results import Hypothesis

if TYPE_CHECKING:
    from regard.data.store import TokenColumn

TOKEN_QUANTILE = 0.99  # of the lengths of training sources: longer lines are split
SENTENCE_FRACTION = 1 / 500  # of training sources that must have as many sentences as a line that is not split
MIN_EXAMPLES = 10  # and at least as many of them
MAX_SAMPLE = 10_000  # sources whose sentences are counted


class EncodedText(NamedTuple):
    """A part of a line that is translated together."""

    text: str
    ids: list[int]
    sentences: int = 1
    """How many sentences its translation should have; 1 if that is not known."""


@dataclass(frozen=True)
class SplitRule:
    """The most sentences and tokens that are translated together; a single sentence may be longer.

    >>> str(SplitRule(3, 60)), str(SplitRule()), str(SplitRule(None))
    ('above 3 sentences or 60 tokens', 'always', 'never')
    """

    max_sentences: int | None = 1
    """None: lines are never split into sentences."""
    max_tokens: int = 0

    def __str__(self) -> str:
        if self.max_sentences is None:
            return "never"
        return (
            "always" if self.max_sentences == 1 else f"above {self.max_sentences} sentences or {self.max_tokens} tokens"
        )


@dataclass(frozen=True, slots=True)
class TranslationPlan:
    """What follows from options and a model, for all texts."""

    options: TranslationOptions
    has_parses: bool
    rule: SplitRule
    max_tokens: int  # of the source of a part
    search: SearchOptions
    languages: LanguageTokens
    only_ids: bool  # of the best hypothesis, which are enough for texts without details


@dataclass(slots=True)
class Part:
    """One or more sentences, or a part of a sentence that was too long."""

    text: str
    ids: list[int]
    features: TokenFeatures | None = None  # from its parse
    is_copied: bool = False  # it has no letters
    sentences: int = 1
    prefix: list[int] = field(default_factory=list)
    hypotheses: Sequence[Hypothesis] = ()
    output: Sequence[int] = ()  # ids of the best hypothesis


@dataclass(slots=True)
class EncodedLine:
    """The parts of a line."""

    text: str
    parts: list[Part]
    split_parts: int  # of sentences that were too long


def split_rule(config: Config, split_sentences: bool | None) -> SplitRule:
    """Return the rule of a model: split always (True), never (False), or by the lengths that it was trained on.

    Lines with parses are never split.
    """
    if config.model.needs_parses:
        return SplitRule(None)
    if split_sentences is not None:
        return SplitRule(1 if split_sentences else None)
    return SplitRule(config.data.trained_sentences or 1, config.data.trained_tokens or 0)


def has_letters(text: str) -> bool:
    """Return whether a text has letters; nearly all begin with one.

    >>> has_letters("a"), has_letters("(a)"), has_letters("1:2"), has_letters("")
    (True, True, False, False)
    """
    return text[:1].isalpha() or any(map(str.isalpha, text))


def is_whole(text: str, rule: SplitRule) -> bool:
    """Return whether a stripped text has no sentences to split, to group or to count."""
    return bool(text) and (rule.max_sentences is None or len(sentence_spans(text)) == 1)


def split_lines(
    lines: Sequence[str], rule: SplitRule, tokenizer: Tokenizer, max_tokens: int
) -> list[list[EncodedText]]:
    """Return the parts of each line that are translated together, with their ids; an empty line has none.

    Parts of several sentences have at most `max_tokens`. All lines are tokenized at once; only the few that are too
    long as a whole are tokenized again.
    """
    lines = [line.strip() for line in lines]
    if rule.max_sentences == 1:
        return _encode([split_sentences(line) for line in lines], tokenizer)
    parts = _encode([[line] if line else [] for line in lines], tokenizer)
    if rule.max_sentences is None:
        return parts
    limit, long = min(rule.max_tokens, max_tokens), list[int]()
    for n, line in enumerate(lines):
        sentences = len(sentence_spans(line))
        if sentences <= 1:
            continue
        if sentences > rule.max_sentences or len(parts[n][0].ids) > limit:
            long.append(n)
        else:
            parts[n] = [parts[n][0]._replace(sentences=sentences)]
    grouped = _group([lines[n] for n in long], rule.max_sentences, limit, tokenizer)
    for n, line_parts in zip(long, grouped, strict=True):
        parts[n] = line_parts
    return parts


def _group(lines: Sequence[str], max_sentences: int, max_tokens: int, tokenizer: Tokenizer) -> list[list[EncodedText]]:
    """Group the sentences of lines up to a size."""
    texts, counts = [], list[list[int]]()
    for line, sentences in zip(lines, _encode([split_sentences(line) for line in lines], tokenizer), strict=True):
        spans = sentence_spans(line)
        groups = group_sentences([len(sentence.ids) for sentence in sentences], max_sentences, max_tokens)
        texts.append([line[spans[first][0] : spans[last - 1][1]] for first, last in groups])
        counts.append([last - first for first, last in groups])
    return [
        [part._replace(sentences=count) for part, count in zip(parts, line_counts, strict=True)]
        for parts, line_counts in zip(_encode(texts, tokenizer), counts, strict=True)
    ]


def _encode(texts: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[list[EncodedText]]:
    ids = iter(tokenizer.encode_batch([text for line in texts for text in line]))
    return [[EncodedText(text, next(ids)) for text in line] for line in texts]


def measure_lengths(sources: "TokenColumn", tokenizer: Tokenizer) -> dict[str, int]:
    """Measure `data.trained_tokens` and `data.trained_sentences` on the sources of the training pairs.

    Sentences are counted in a sample, evenly spread over the pairs.
    """
    import numpy as np

    lengths = sources.lengths
    sample = np.unique(np.linspace(0, len(lengths) - 1, min(MAX_SAMPLE, len(lengths))).astype(int))
    counts = np.array([len(split_sentences(tokenizer.decode(sources[n].tolist()))) for n in sample])
    needed = max(MIN_EXAMPLES, SENTENCE_FRACTION * len(sample))
    most = max((count for count in range(2, int(counts.max()) + 1) if (counts >= count).sum() >= needed), default=1)
    return {"trained_tokens": max(1, int(np.quantile(lengths, TOKEN_QUANTILE))), "trained_sentences": most}
