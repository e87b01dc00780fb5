"""Tokens and the words they make up, whatever the tokenizer: found by decoding, so that no tokenizer need be known."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from regard.config import SpecialTokensConfig
from regard.data.tokenizer import Tokenizer

_CJK = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]"  # one character is one word
_WORD = re.compile(rf"{_CJK}|(?:(?!{_CJK})\w)+(?:['’-](?:(?!{_CJK})\w)+)*|[^\w\s]")


@dataclass(frozen=True)
class Word:
    """A word, or a sign, or a special token, and the places of its tokens."""

    text: str
    tokens: tuple[int, ...]
    special: bool = False


@dataclass(frozen=True)
class Line:
    """A row of tokens as people read it."""

    text: str
    ids: list[int]
    tokens: list[str]
    words: list[Word]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        words = [{"text": word.text, "tokens": list(word.tokens), "special": word.special} for word in self.words]
        return {"text": self.text, "ids": self.ids, "tokens": self.tokens, "words": words}


def line(ids: Sequence[int], tokenizer: Tokenizer, special: SpecialTokensConfig) -> Line:
    """The tokens of ids, and their words."""
    ids = list(ids)
    return Line(tokenizer.decode(ids), ids, tokenizer.ids_to_tokens(ids), words(ids, tokenizer, special))


def words(ids: Sequence[int], tokenizer: Tokenizer, special: SpecialTokensConfig) -> list[Word]:
    """Words in order; special tokens are words of their own, and so are signs that have tokens of their own."""
    specials = {special.pad, special.unknown, special.start, special.end}
    text = tokenizer.decode(ids)
    spans = [match.span() for match in _WORD.finditer(text)]
    owners: list[tuple[int, int]] = []  # of each token: which special token, or which word
    covered: list[tuple[int, int]] = []  # of each token: which part of the text
    start = 0
    for place, number in enumerate(ids):
        so_far = tokenizer.decode(ids[: place + 1]).rstrip("\ufffd")  # a letter is the token's that completes its bytes
        end = max(start, min(len(text), len(so_far)))
        begin = start + len(text[start:end]) - len(text[start:end].lstrip())
        owners.append((1, place) if number in specials else (0, _owner(begin, spans)))
        covered.append((start, end))
        start = end
    pieces = tokenizer.ids_to_tokens(ids)
    found = []
    for (kind, owner), places in groupby(range(len(ids)), key=owners.__getitem__):
        several = tuple(places)
        if kind:
            found.append(Word(pieces[owner], several, special=True))
        else:
            shown = text[covered[several[0]][0] : covered[several[-1]][1]].strip()
            found.append(Word(shown or "".join(pieces[place] for place in several), several))
    return found


def _owner(place: int, spans: Sequence[tuple[int, int]]) -> int:
    """Which word a place in the text belongs to: the one it is in, or the next; past the last, the last."""
    return next((number for number, (_, end) in enumerate(spans) if place < end), max(0, len(spans) - 1))
