"""Attention as word alignment, measured against the alignment that the phrasebook knows.

    AER = 1 − 2 |A ∩ G| / (|A| + |G|)

A the links that attention gives, one for each target word; G the true ones, which may be several for a word.

T target tokens · S source tokens
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.interpret.trace import Trace
from regard.phrasebook import Pair, split_words

Links = set[tuple[int, int]]  # (source word, target word), as the phrasebook counts them


def error_rate(found: Iterable[Links], true: Iterable[Links]) -> float:
    """The alignment error rate over sentences (Och and Ney, 2003), where all true links are sure.

    >>> error_rate([{(0, 0), (1, 1)}], [{(0, 0), (1, 2)}])
    0.5
    """
    shared = linked = 0
    for ours, theirs in zip(found, true, strict=True):
        shared += 2 * len(ours & theirs)
        linked += len(ours) + len(theirs)
    return 1 - shared / linked


def words_of_tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    """Which word of `split_words` each token of a text begins in."""
    spans, start = [], 0
    for word in split_words(text):
        start = text.index(word, start) + len(word)
        spans.append(start)
    ((_, offsets),) = tokenizer.encode_placed([text])
    owners = []
    for begin, end in offsets:
        inside = begin + len(text[begin:end]) - len(text[begin:end].lstrip())  # a token may carry the space before it
        owners.append(next((n for n, stop in enumerate(spans) if inside < stop), len(spans) - 1))
    return owners


def merged(weights: Tensor, target: Sequence[int], source: Sequence[int]) -> Tensor:
    """Weights of tokens (T, S) as weights of words: summed over a source word's tokens, averaged over a target word's.

    What comes after the last token of a text, its end, is left out.
    """
    by_source = torch.zeros(weights.size(0), max(source) + 1)
    by_source.index_add_(1, torch.tensor(source), weights[:, : len(source)].float())
    rows = torch.zeros(max(target) + 1, by_source.size(1))
    rows.index_add_(0, torch.tensor(target), by_source[: len(target)])
    return rows / torch.bincount(torch.tensor(target))[:, None].clamp(min=1)


def links(weights: Tensor) -> Links:
    """Each target word with the source word that has the most of its weight (target words, source words)."""
    return {(int(i), j) for j, i in enumerate(weights.argmax(1))}


def one_each(true: Links) -> Links:
    """The best that one link for each target word could do: any of the true ones."""
    return set({j: (i, j) for i, j in sorted(true, reverse=True)}.values())


def diagonal(pair: Pair) -> Links:
    """What one would guess who cannot read: words at the same place of both sentences."""
    source, target = len(split_words(pair.source)), len(split_words(pair.target))
    return {(min(source - 1, round(j * (source - 1) / max(1, target - 1))), j) for j in range(target)}


def attention_of(trace: Trace, pair: Pair) -> dict[str, Tensor]:
    """The cross-attention of every head on a pair that was forced, as weights of words, by the head's name."""
    source = words_of_tokens(pair.source, trace.subject.source)
    target = words_of_tokens(pair.target, trace.subject.target)
    found = {}
    for point in trace.points.values():
        if point.part == "cross_attention" and point.point == "weights":
            for head, weights in enumerate(trace.whole(point.name)):
                found[f"{point.name.removesuffix('.weights')}[{head}]"] = merged(weights, target, source)
    return found
