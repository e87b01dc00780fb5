"""Splitting lines into sentences, for models that were trained on single sentences, joining them, and splitting words.

By rules: a sentence ends at `.`, `!`, `?` or `…` before a space and a character that can begin a sentence, but not
after an abbreviation or an initial, nor before a lowercase letter. In Chinese and Japanese the marks alone end a
sentence. Consecutive sentences can be grouped up to a size, and hard-wrapped lines joined into paragraphs.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

ENGLISH = """mr mrs ms dr prof st jr sr vs etc inc ltd co corp gen col lt capt sgt rev hon fig no vol pp eg ie approx
    dept est jan feb mar apr jun jul aug sep sept oct nov dec"""
ROMANCE = """sig sigg dott avv ing arch geom rag egr gent spett art cap pag mme mlle sra srta dra ud uds av ej"""
GERMANIC = """bzw ca evtl ggf inkl usw vgl zb nr str abs bd hrsg dhr mevr bijv"""
ABBREVIATIONS = frozenset(f"{ENGLISH} {ROMANCE} {GERMANIC}".split())
CLOSING = "\"'”’»)\\]}"
_END = re.compile(rf"(?<=[.!?…])([{CLOSING}]*)\s+(?=[^\s])|(?<=[。！？])([{CLOSING}」』）]*)\s*(?=[^\s])")
_MARK = re.compile(r"[.!?…。！？]")
_LAST_WORD = re.compile(r"([^\W\d_]+(?:\.[^\W\d_]+)*)\.$")
_CJK = re.compile(r"[\u3000-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")
_ITEM = re.compile(r"\s*(?:[-*+•–—>|]|#{1,6}|\d{1,3}\.|\(?(?:\d{1,3}|[A-Za-z])\))\s")
CUT_PATTERNS = (  # where to cut a long sentence, best first
    r"[.!?…;:。！？；：][\"'”’»)\]]*",
    r"[,،，、][\"'”’»)\]]*|\s[–—-](?=\s)",
    r"\s",
)


def split_sentences(line: str) -> list[str]:
    """Return the sentences of a line, without surrounding spaces.

    >>> split_sentences('Dr. Smith left. "Why?" she asked. It was 3.14 p.m.')
    ['Dr. Smith left.', '"Why?" she asked.', 'It was 3.14 p.m.']
    """
    return [line[start:end] for start, end in sentence_spans(line)]


def sentence_spans(line: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence of a line, without surrounding spaces."""
    spans, start = list[tuple[int, int]](), 0
    for match in _END.finditer(line) if _MARK.search(line, 0, len(line) - 1) else ():  # most lines: none before the end
        end = match.end(1) if match.group(1) is not None else match.end(2)
        if not line[start:end].strip() or not _is_end(line[start:end], line[match.end() :]):
            continue
        spans.append((start, end))
        start = match.end()
    if not spans:  # most lines: one sentence
        text = line.strip()
        first = line.find(text)
        return [(first, first + len(text))] if text else []
    spans.append((start, len(line)))
    return [
        (start + len(text) - len(text.lstrip()), start + len(text.rstrip()))
        for start, end in spans
        if (text := line[start:end]).strip()
    ]


def group_sentences(lengths: Sequence[int], max_sentences: int, max_tokens: int) -> list[tuple[int, int]]:
    """Group consecutive sentences of these lengths; return the first and last + 1 of each group.

    A group has at most `max_sentences` sentences and `max_tokens` tokens; a longer sentence is a group of its own.

    >>> group_sentences([4, 5, 3, 20, 2], max_sentences=3, max_tokens=10)
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    groups: list[tuple[int, int]] = []
    tokens = 0
    for number, length in enumerate(lengths):
        if groups and number - groups[-1][0] < max_sentences and tokens + length <= max_tokens:
            groups[-1], tokens = (groups[-1][0], number + 1), tokens + length
        else:
            groups.append((number, number + 1))
            tokens = length
    return groups


def starts_paragraph(line: str) -> bool:
    """Return whether a line of hard-wrapped text does not continue the line before it.

    Such lines are blank, have no letters, or begin with the mark of a list item, a heading, a quote or a table row.

    >>> [starts_paragraph(line) for line in ["", "---", "- one", "2. two", "# three", "more words."]]
    [True, True, True, True, True, False]
    """
    return not any(map(str.isalpha, line)) or _ITEM.match(line) is not None


def unwrap_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Join the lines of each paragraph of hard-wrapped text; yield the number of its lines, and its text.

    Blank lines, headings and lines without letters are paragraphs of their own.

    >>> list(unwrap_lines(["I love you", "very much.", "", "- Yes.", "- No,", "  never."]))
    [(2, 'I love you very much.'), (1, ''), (1, '- Yes.'), (2, '- No, never.')]
    """
    paragraph, is_single = list[str](), False
    for line in lines:
        if paragraph and (starts_paragraph(line) or is_single):
            yield len(paragraph), join_sentences(paragraph)
            paragraph = []
        paragraph.append(line.strip() if paragraph else line.rstrip())
        is_single = not any(map(str.isalpha, paragraph[0])) or paragraph[0].startswith("#")
    if paragraph:
        yield len(paragraph), join_sentences(paragraph)


def _is_end(before: str, after: str) -> bool:
    mark = before.rstrip(CLOSING.replace("\\", "") + "」』）")
    first = after.lstrip("\"'“‘«([{¿¡")[:1]
    if mark[-1:] in "。！？":
        return True
    if not first or first.islower():
        return False
    if mark.endswith(".") and not mark.endswith(".."):
        word = _LAST_WORD.search(mark)
        if word is not None:
            letters = word.group(1).replace(".", "").lower()
            initial = len(word.group(1)) == 1 and word.group(1).isupper()
            return not (initial or letters in ABBREVIATIONS)
    return True


def join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences, with spaces between them unless they are Chinese or Japanese.

    >>> join_sentences(["Ciao.", "", "Come stai?"]), join_sentences(["你好。", "再见。"])
    ('Ciao. Come stai?', '你好。再见。')
    """
    line = ""
    for sentence in filter(None, sentences):
        needs_space = line and not (_CJK.match(line[-1]) or _CJK.match(sentence[0]))
        line += f" {sentence}" if needs_space else sentence
    return line


def split_to_fit(text: str, max_tokens: int, encode: Callable[[str], list[int]]) -> list[tuple[str, list[int]]]:
    """Split a text into parts of at most `max_tokens`, and return each with its ids.

    A text that is too long is cut near its middle: after a mark that ends a clause if there is one, otherwise after a
    comma, between words, or anywhere; the parts are split in the same way.
    """
    text = text.strip()
    ids = encode(text)
    if len(ids) <= max_tokens:
        return [(text, ids)] if text else []
    if len(text) == 1:  # a character of more tokens than the maximum
        return [(text, ids[:max_tokens])]
    cut = _cut_position(text)
    return split_to_fit(text[:cut], max_tokens, encode) + split_to_fit(text[cut:], max_tokens, encode)


def _cut_position(text: str) -> int:
    middle = len(text) / 2
    for pattern in CUT_PATTERNS:
        positions = [match.end() for match in re.finditer(pattern, text)]
        inner = [position for position in positions if 0.2 * len(text) <= position <= 0.8 * len(text)]
        if inner:
            return min(inner, key=lambda position: abs(position - middle))
    return max(1, round(middle))


class Word(NamedTuple):
    """A word or punctuation mark with its range of characters."""

    text: str
    start: int
    end: int


def split_words(sentence: str, *, split_punctuation: bool = False) -> list[Word]:
    """Split a sentence at spaces; with `split_punctuation`, punctuation around words becomes words of its own.

    >>> [word.text for word in split_words("(Ada's) friend, 5 €.", split_punctuation=True)]
    ['(', "Ada's", ')', 'friend', ',', '5', '€', '.']
    >>> split_words("in London.")
    [Word(text='in', start=0, end=2), Word(text='London.', start=3, end=10)]
    """
    words = (Word(match[0], *match.span()) for match in re.finditer(r"\S+", sentence))
    return [part for word in words for part in _split_punctuation(word)] if split_punctuation else list(words)


def _split_punctuation(word: Word) -> Iterator[Word]:
    """Yield the punctuation before a word, the word, and the punctuation after it."""
    text = word.text
    first = next((n for n, character in enumerate(text) if not _is_punctuation(character)), len(text))
    last = max((n + 1 for n, character in enumerate(text) if not _is_punctuation(character)), default=first)
    for start, end in [*_single_characters(0, first), (first, last), *_single_characters(last, len(text))]:
        if end > start:
            yield Word(text[start:end], word.start + start, word.start + end)


def _single_characters(start: int, end: int) -> list[tuple[int, int]]:
    return [(n, n + 1) for n in range(start, end)]


def _is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation or a symbol; combining marks are neither."""
    return unicodedata.category(character)[0] in "PS"
