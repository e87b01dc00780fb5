"""Putting the tags of a text into its translation, by word alignment. Torch-free.

Each mark (`data/html_text.py`) covers some source words. A target word speaks for a mark as far as its best source word
inside the mark outweighs its best one outside, and the mark gets the consecutive target words with the largest sum.
Marks that were nested stay nested, and marks side by side get words of their own, so that the result is well formed
whatever the weights are. Markup at a position goes where most target words are on the same side of it as their source
words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from math import inf

from regard.data.html_text import Mark, MarkedText
from regard.data.tokenizer import Tokenizer
from regard.decoding.results import Translation
from regard.decoding.word_alignment import AlignedText, Span, align_sentences

UNALIGNED_WEIGHT = -0.01


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
    writer = _Writer(aligned)
    _write(marked.marks, (0, len(aligned.source)), (0, len(aligned.target)), aligned, writer)
    return writer.html()


def _write(marks: Sequence[Mark], source: Span, target: Span, aligned: AlignedText, writer: "_Writer") -> None:
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
        weights = [_membership(row, words) for row in aligned.weights[start:end]]
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


def _membership(row: dict[int, float], words: Span) -> float:
    """Return how much more a target word belongs to these source words than to others."""
    if not row:
        return UNALIGNED_WEIGHT
    inside = max((weight for n, weight in row.items() if words[0] <= n < words[1]), default=0.0)
    outside = max((weight for n, weight in row.items() if not words[0] <= n < words[1]), default=0.0)
    return inside - outside


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
    for n, row in enumerate(aligned.weights[first:last], start=first):
        best = max(row, key=row.__getitem__, default=None)
        agreement += 0 if best is None else 1 if best < place else -1
        agreements[n + 1] = agreement
    return max(allowed, key=agreements.__getitem__)


class _Writer:
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
