"""Alignment of the words of a text and of its translation, by attention. Torch-free.

The weight of a target word and a source word of the same sentence is the attention of its tokens: the mean over the
tokens of the target word, of the sum over those of the source word. Words that are equal in both languages belong
together. Without attention, words are aligned by their relative positions.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from regard.data.html_text import Mark
from regard.data.tokenizer import Tokenizer
from regard.decoding.results import Alternative, TranslatedSentence

EQUAL_WORD_WEIGHT = 1.0  # that words which are the same in both languages add to their attention
PUNCTUATION_WEIGHT = 0.2
_CHUNK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]|[^\s\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]+")
_ELISION = re.compile(r"[^\W\d_]{1,5}['’](?=[^\W\d_]{3})")  # l'amore is two words, don't is one
Span = tuple[int, int]  # start and end in a text


def find_words(text: str) -> list[Span]:
    """Return the words of a text; punctuation around words and characters of Chinese and Japanese count as words.

    >>> text = "«L'amore, sì!»"
    >>> [text[start:end] for start, end in find_words(text)]
    ['«', "L'", 'amore', ',', 'sì', '!', '»']
    """
    words: list[Span] = []
    for chunk in _CHUNK.finditer(text):
        start, end = chunk.span()
        first, last = start, end
        while first < last and _is_punctuation(text[first]):
            first += 1
        while last > first and _is_punctuation(text[last - 1]):
            last -= 1
        words += [(n, n + 1) for n in range(start, first)]
        elision = _ELISION.match(text, first, last)
        if elision is not None:
            words.append(elision.span())
            first = elision.end()
        if first < last:
            words.append((first, last))
        words += [(n, n + 1) for n in range(last, end)]
    return words


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


class Block(NamedTuple):
    """The words of a sentence and of its translation: first, and last + 1, in the texts."""

    source: Span
    target: Span


@dataclass(frozen=True)
class AlignedText:
    """The words of a source text and of its translation, and the weight of each source word for each target word."""

    source: list[Span]
    text: str
    target: list[Span]
    weights: list[dict[int, float]]
    """For each target word, the weights of source words of the same sentence; empty if it is aligned with none."""
    blocks: list[Block]

    def is_punctuation(self, word: int) -> bool:
        """Return whether a target word is a punctuation mark."""
        start, end = self.target[word]
        return end - start == 1 and _is_punctuation(self.text[start])

    def source_words(self, mark: Mark) -> Span:
        """Return the source words of which at least half is in a mark."""
        first, last = (bisect_left(self.source, 2 * place, key=sum) for place in (mark.start, mark.end))
        return first, max(first, last)

    def target_window(self, source: Span) -> Span:
        """Return the target words of all sentences that have one of these source words."""
        first = max(0, bisect_right(self.blocks, source[0], key=lambda block: block.source[0]) - 1)
        last = max(first + 1, bisect_left(self.blocks, source[1], key=lambda block: block.source[0]))
        blocks = self.blocks[first:last]
        return (blocks[0].target[0], blocks[-1].target[1]) if blocks else (0, len(self.target))


def align_sentences(
    source: str,
    translation: str,
    sentences: Sequence[TranslatedSentence],
    rank: int,
    tokenizers: tuple[Tokenizer, Tokenizer],
) -> AlignedText:
    """Align the words of a text and of its translation of a rank, sentence by sentence."""
    source_words, target_words = find_words(source), find_words(translation)
    weights: list[dict[int, float]] = [{} for _ in target_words]
    blocks: list[Block] = []
    source_end = target_end = 0
    for sentence in sentences:
        alternative = sentence.alternatives[: rank + 1][-1]
        source_start = max(source.find(sentence.source, source_end), source_end)
        target_start = max(translation.find(alternative.text, target_end), target_end)
        source_end, target_end = source_start + len(sentence.source), target_start + len(alternative.text)
        block = Block(_inside(source_words, source_start, source_end), _inside(target_words, target_start, target_end))
        tokens = _token_spans(sentence, alternative, tokenizers)
        _align(
            _sentence_words(source, source_words, block.source, source_start, tokens and tokens[0]),
            _sentence_words(translation, target_words, block.target, target_start, tokens and tokens[1]),
            alternative.attention if tokens else None,
            weights,
        )
        blocks.append(block)
    return AlignedText(source_words, translation, target_words, weights, blocks)


@dataclass(frozen=True)
class _Word:
    index: int
    text: str
    tokens: list[int]  # that overlap it

    @property
    def is_punctuation(self) -> bool:
        return len(self.text) == 1 and _is_punctuation(self.text)


def _sentence_words(
    text: str, words: list[Span], block: Span, sentence_start: int, tokens: list[Span] | None
) -> list[_Word]:
    return [
        _Word(
            n,
            text[start:end],
            [
                number
                for number, token in enumerate(tokens or ())
                if token[0] < end - sentence_start and start - sentence_start < token[1]
            ],
        )
        for n, (start, end) in enumerate(words[slice(*block)], start=block[0])
    ]


def _token_spans(
    sentence: TranslatedSentence, alternative: Alternative, tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[list[Span], list[Span]] | None:
    """Return the characters that each source and target token covers; None without attention."""
    if alternative.attention is None:
        return None
    source_tokenizer, target_tokenizer = tokenizers
    ((_, source),) = source_tokenizer.encode_with_offsets([sentence.source])
    tokens = alternative.tokens
    ends = [len(target_tokenizer.decode_tokens(tokens[:n])) for n in range(len(tokens) + 1)]
    return source, list(pairwise(ends))


def _align(
    source: list[_Word],
    target: list[_Word],
    attention: Sequence[Sequence[float]] | None,
    weights: list[dict[int, float]],
) -> None:
    """Add the weights between the words of a sentence and of its translation.

    Attention is averaged over the tokens of a target word and summed over those of a source word. A punctuation mark
    belongs to the same mark of the source only.
    """
    words = [(place, word) for place, word in enumerate(source) if not word.is_punctuation]
    for place, word in enumerate(target):
        if word.is_punctuation:
            order = sum(other.text == word.text for other in target[:place])
            same = [other.index for other in source if other.text == word.text]
            if same:
                weights[word.index] = {same[min(order, len(same) - 1)]: PUNCTUATION_WEIGHT}
            continue
        rows = [attention[n] for n in word.tokens if n < len(attention)] if attention is not None else []
        for other_place, other in words:
            if rows:
                weight = sum(row[n] for row in rows for n in other.tokens if n < len(row)) / len(rows)
            else:
                weight = 1 - abs((place + 0.5) / len(target) - (other_place + 0.5) / len(source))
            if other.text.casefold() == word.text.casefold():
                weight += EQUAL_WORD_WEIGHT
            weights[word.index][other.index] = weight


def _inside(words: list[Span], start: int, end: int) -> Span:
    """Return the words that begin between two places of the text."""
    first, last = bisect_left(words, (start,)), bisect_left(words, (end,))
    return first, max(first, last)
