"""Putting the tags of a text into its translation, by word alignment. Torch-free.

Each mark (`data/html_text.py`) covers some source words. A target word speaks for a mark as far as its best source word
inside the mark outweighs its best one outside, and the mark gets the consecutive target words with the largest sum.
Marks that were nested stay nested, and marks side by side get words of their own, so that the result is well formed
whatever the weights are. Markup at a position goes where most target words are on the same side of it as their source
words.

Words are aligned by attention. The weight of a target word and a source word of the same sentence is the attention of
its tokens: the mean over the tokens of the target word, of the sum over those of the source word. Words that are equal
in both languages belong together. Without attention, words are aligned by their relative positions.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from math import inf
from typing import NamedTuple

from regard.data.html_text import Mark, MarkedText
from regard.data.tokenizer import Tokenizer
from regard.decoding.results import Alternative, TranslatedSentence, Translation

EQUAL_WORD_WEIGHT = 1.0  # that words which are the same in both languages add to their attention
PUNCTUATION_WEIGHT = 0.2
_CHUNK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]|[^\s\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]+")
_ELISION = re.compile(r"[^\W\d_]{1,5}['’](?=[^\W\d_]{3})")  # l'amore is two words, don't is one
Span = tuple[int, int]  # start and end in a text
UNALIGNED_WEIGHT = -0.01


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


class TextBlock(NamedTuple):
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
    blocks: list[TextBlock]

    @cached_property
    def best_sources(self) -> list[int | None]:
        """For each target word, the source word with the largest weight; None if it is aligned with none."""
        return [max(row, key=row.__getitem__, default=None) for row in self.weights]

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
    blocks: list[TextBlock] = []
    source_end = target_end = 0
    for sentence in sentences:
        alternative = sentence.alternatives[: rank + 1][-1]
        source_start = max(source.find(sentence.source, source_end), source_end)
        target_start = max(translation.find(alternative.text, target_end), target_end)
        source_end, target_end = source_start + len(sentence.source), target_start + len(alternative.text)
        block = TextBlock(
            _inside(source_words, source_start, source_end), _inside(target_words, target_start, target_end)
        )
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


def with_marks(
    marked: MarkedText, translation: Translation, tokenizers: tuple[Tokenizer, Tokenizer], *, keep_attention: bool
) -> Translation:
    """Return the translation of a text as HTML with its marks, in all alternatives."""
    texts = [translation.text, *translation.alternatives]
    best, *others = [
        place_marks(marked, align_sentences(marked.text, text, translation.sentences, rank, tokenizers))
        for rank, text in enumerate(texts)
    ]
    if not keep_attention:
        for sentence in translation.sentences:
            sentence.alternatives[:] = [replace(alternative, attention=None) for alternative in sentence.alternatives]
    return replace(translation, text=best, alternatives=others)


def place_marks(marked: MarkedText, aligned: AlignedText) -> str:
    """Return a translation as HTML, with the marks of its source."""
    writer = _MarkupWriter(aligned)
    _write(marked.marks, (0, len(aligned.source)), (0, len(aligned.target)), aligned, writer)
    return writer.html()


def _write(marks: Sequence[Mark], source: Span, target: Span, aligned: AlignedText, writer: "_MarkupWriter") -> None:
    """Write target words with the marks around and between them that belong to these source words."""
    elements = _elements(marks, source, target, aligned)
    placed = {id(mark) for _, mark in elements.values()}
    inner = {n for start, (end, _) in elements.items() for n in range(start + 1, end)}
    gaps = [n for n in range(target[0], target[1] + 1) if n not in inner]
    at_gap: dict[int, list[Mark]] = {}
    for mark in marks:
        if id(mark) not in placed:
            at_gap.setdefault(_best_gap(mark, gaps, aligned), []).append(mark)
    n = target[0]
    while True:
        for mark in at_gap.get(n, []):
            writer.position(mark)
        if n == target[1]:
            return
        if n in elements:
            end, mark = elements[n]
            writer.open(mark.opening)
            _write(mark.children, aligned.source_words(mark), (n, end), aligned, writer)
            writer.close(mark.closing)
            n = end
        else:
            writer.word(n)
            n += 1


def _elements(marks: Sequence[Mark], source: Span, target: Span, aligned: AlignedText) -> dict[int, tuple[int, Mark]]:
    """Return the target words of marks, those of different marks apart: by their start, their end and the mark.

    The mark with the largest weight chooses first. Marks for which no word is left are not returned.
    """
    candidates = []
    for mark in marks:
        words = aligned.source_words(mark)
        if words[0] == words[1]:
            continue
        if words == source and target[0] < target[1]:
            return {target[0]: (target[1], mark)}
        start, end = aligned.target_window(words)
        start, end = max(start, target[0]), min(end, target[1])
        weights = [_membership(aligned, n, words) for n in range(start, end)]
        candidates.append((_best_run(weights)[0], start, weights, mark))
    taken: set[int] = set()
    elements = {}
    for _, offset, weights, mark in sorted(candidates, key=lambda candidate: -candidate[0]):
        free = [-inf if offset + n in taken else weight for n, weight in enumerate(weights)]
        weight, start, end = _best_run(free)
        if weight <= 0:  # no word is aligned with the mark: it gets the word that is closest to it
            singles = [-inf if aligned.is_punctuation(offset + n) else weight for n, weight in enumerate(free)]
            weight = max(singles, default=-inf)
            start = singles.index(weight) if singles else 0
            end = start + 1
        if weight > -inf:
            elements[offset + start] = (offset + end, mark)
            taken.update(range(offset + start, offset + end))
    return elements


def _membership(aligned: AlignedText, word: int, words: Span) -> float:
    """Return how much more a target word belongs to these source words than to others."""
    row, best = aligned.weights[word], aligned.best_sources[word]
    if best is None:
        return UNALIGNED_WEIGHT
    if words[0] <= best < words[1]:
        return row[best] - max((weight for n, weight in row.items() if not words[0] <= n < words[1]), default=0.0)
    return max(row.get(n, 0.0) for n in range(*words)) - row[best]


def _best_run(weights: Sequence[float]) -> tuple[float, int, int]:
    """Return the largest sum of consecutive weights, at least one, with its start and end (Kadane)."""
    best, start, total = (-inf, 0, 0), 0, -inf
    for n, weight in enumerate(weights):
        if total < 0:
            start, total = n, weight
        else:
            total += weight
        if total > best[0]:
            best = (total, start, n + 1)
    return best


def _best_gap(mark: Mark, gaps: Sequence[int], aligned: AlignedText) -> int:
    """Return the gap between words with the most target words on the same side of the mark as their source words.

    Gaps are in the order of positions, so that tags which are at positions, such as unclosed ones, keep their order.
    """
    place = aligned.source_words(mark)[0]  # the first source word after the mark
    first, last = aligned.target_window((place, place))
    allowed = gaps[bisect_left(gaps, first) : bisect_right(gaps, last)]
    if not allowed:
        return gaps[max(0, bisect_left(gaps, first) - 1)]
    agreements, agreement = {first: 0}, 0
    for n, best in enumerate(aligned.best_sources[first:last], start=first):
        agreement += 0 if best is None else 1 if best < place else -1
        agreements[n + 1] = agreement
    return max(allowed, key=agreements.__getitem__)


class _MarkupWriter:
    """Writes words and tags; the space between two words stays outside tags."""

    def __init__(self, aligned: AlignedText) -> None:
        self._text = aligned.text
        self._words = aligned.target
        self._parts: list[str] = []
        self._space = ""  # that is due before the next word
        self._after_space = True  # nothing but tags has been written since the last space, or the start

    def html(self) -> str:
        """Return what was written."""
        return "".join(self._parts)

    def word(self, number: int) -> None:
        """Write a word."""
        start, end = self._words[number]
        following = self._words[number + 1][0] if number + 1 < len(self._words) else end
        self._parts += [self._space, escape(self._text[start:end], quote=False)]
        self._space, self._after_space = self._text[end:following], False

    def open(self, tag: str) -> None:
        """Write an opening tag."""
        self._after_space = self._after_space or bool(self._space)
        self._parts += [self._space, tag]
        self._space = ""

    def close(self, tag: str) -> None:
        """Write a closing tag."""
        self._parts.append(tag)

    def position(self, mark: Mark) -> None:
        """Write markup at a position, with spaces around it as in the source."""
        has_space = self._after_space or bool(self._space)
        if mark.space_before and not self._after_space:
            self._parts.append(self._space or " ")
            self._space = ""
        self._parts.append(mark.markup)
        self._after_space = False
        if mark.space_after and has_space:
            self._space = self._space or " "
