"""Splitting lines into sentences, for translation models that were trained on single sentences, and joining them.

By rules: a sentence ends at `.`, `!`, `?` or `…` before a space and a character that can begin a sentence, but not
after an abbreviation or an initial, nor before a lowercase letter. In Chinese and Japanese the marks alone end a
sentence.
"""

import re
from collections.abc import Callable, Sequence

ENGLISH = """mr mrs ms dr prof st jr sr vs etc inc ltd co corp gen col lt capt sgt rev hon fig no vol pp eg ie approx
    dept est jan feb mar apr jun jul aug sep sept oct nov dec"""
ROMANCE = """sig sigg dott avv ing arch geom rag egr gent spett art cap pag mme mlle sra srta dra ud uds av ej"""
GERMANIC = """bzw ca evtl ggf inkl usw vgl zb nr str abs bd hrsg dhr mevr bijv"""
ABBREVIATIONS = frozenset(f"{ENGLISH} {ROMANCE} {GERMANIC}".split())
CLOSING = "\"'”’»)\\]}"
_END = re.compile(rf"(?<=[.!?…])([{CLOSING}]*)\s+(?=[^\s])|(?<=[。！？])([{CLOSING}」』）]*)\s*(?=[^\s])")
_LAST_WORD = re.compile(r"([^\W\d_]+(?:\.[^\W\d_]+)*)\.$")
_CJK = re.compile(r"[\u3000-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")
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
    sentences, start = [], 0
    for match in _END.finditer(line):
        end = match.end(1) if match.group(1) is not None else match.end(2)
        if not line[start:end].strip() or not _is_end(line[start:end], line[match.end() :]):
            continue
        sentences.append(line[start:end].strip())
        start = match.end()
    rest = line[start:].strip()
    return [*sentences, rest] if rest else sentences


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
