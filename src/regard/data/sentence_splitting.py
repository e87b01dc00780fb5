"""Sentences in a line of text: taking them apart for a translator that was trained on single ones, and joining them.

Rules, not a model: a sentence ends at `.`, `!`, `?` or `…` before a space and something that can begin a sentence. An
abbreviation or an initial is no end, and neither is a mark before a small letter. In Chinese and Japanese the marks end
a sentence by themselves.
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
MARKS = (
    r"[.!?…;:。！？；：][\"'”’»)\]]*",
    r"[,،，、][\"'”’»)\]]*|\s[–—-](?=\s)",
    r"\s",
)  # where to cut, the best first


def split_sentences(line: str) -> list[str]:
    """The sentences of a line, without the spaces around them; none of a line that is empty.

    >>> split_sentences('Dr. Smith left. "Why?" she asked. It was 3.14 p.m.')
    ['Dr. Smith left.', '"Why?" she asked.', 'It was 3.14 p.m.']
    """
    found, start = [], 0
    for match in _END.finditer(line):
        end = match.end(1) if match.group(1) is not None else match.end(2)
        if not line[start:end].strip() or not _is_end(line[start:end], line[match.end() :]):
            continue
        found.append(line[start:end].strip())
        start = match.end()
    rest = line[start:].strip()
    return [*found, rest] if rest else found


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
    """Sentences in a line, a space between them; none where the writing has none.

    >>> join_sentences(["Ciao.", "", "Come stai?"]), join_sentences(["你好。", "再见。"])
    ('Ciao. Come stai?', '你好。再见。')
    """
    line = ""
    for sentence in filter(None, sentences):
        apart = line and not (_CJK.match(line[-1]) or _CJK.match(sentence[0]))
        line += f" {sentence}" if apart else sentence
    return line


def split_to_fit(text: str, longest: int, encode: Callable[[str], list[int]]) -> list[tuple[str, list[int]]]:
    """A text in parts of at most `longest` tokens, with the ids of each.

    It is cut near its middle, after a mark that ends a clause if there is one, else after a comma, else between words,
    else anywhere; and so on until all parts are short enough.
    """
    text = text.strip()
    ids = encode(text)
    if len(ids) <= longest:
        return [(text, ids)] if text else []
    if len(text) == 1:  # nothing left to cut: a character that is spelled in more tokens than there is room for
        return [(text, ids[:longest])]
    cut = _near_middle(text)
    return split_to_fit(text[:cut], longest, encode) + split_to_fit(text[cut:], longest, encode)


def _near_middle(text: str) -> int:
    middle = len(text) / 2
    for marks in MARKS:
        places = [match.end() for match in re.finditer(marks, text)]
        inner = [place for place in places if 0.2 * len(text) <= place <= 0.8 * len(text)]
        if inner:
            return min(inner, key=lambda place: abs(place - middle))
    return max(1, round(middle))
