"""Where words begin among tokens, for whoever wants to treat a word as a whole.

A word is what a space or a sign separates from what is around it. Tokenizers tell it in three ways: `▁` or `Ġ` before a
piece that begins a word, `##` before one that does not, or nothing, where each character is a token.

B rows · T their length · V vocabulary
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.tokenizer import BYTE_TOKENS, SPECIAL_TOKENS, WORD_START, Tokenizer

SPACE = "Ġ"  # of byte-level tokenizers
CONTROLS = range(0x100, 0x121)  # how byte-level tokenizers write the bytes up to the space
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class WordBoundaries:
    """Which tokens begin a word, whatever stands before them, and which end one, whatever follows."""

    starts_word: Bools  # (V,)
    ends_word: Bools  # (V,)

    def word_starts(self, ids: NDArray[np.integer[Any]]) -> Bools:
        """True at the tokens (B, T) that begin a word; a row begins with one."""
        found: Bools = self.starts_word[ids]
        found[:, 0] = True
        found[:, 1:] |= self.ends_word[ids[:, :-1]]
        return found


def word_boundaries(tokenizer: Tokenizer, special: Iterable[int]) -> WordBoundaries:
    """Those of a tokenizer; each special token stands for itself.

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo"], TokenizerConfig(kind="character"))
    >>> ids = np.array([tokenizer.encode("ti amo")])
    >>> word_boundaries(tokenizer, range(4)).word_starts(ids).tolist()
    [[True, False, True, True, False, False]]
    """
    pieces = tokenizer.ids_to_tokens(range(len(tokenizer)))
    if (inside := tokenizer.continuation_prefix) is not None:
        opens = np.array([not piece.startswith(inside) for piece in pieces])
        closes = np.zeros_like(opens)
    elif tokenizer.is_byte_level:
        opens, closes = _edges(pieces, _in_words_as_bytes)
    else:
        opens, closes = _edges(pieces, str.isalnum)
        for number, piece in enumerate(pieces):
            if piece in _BYTES:  # a part of a letter, as a rule
                opens[number] = closes[number] = False
            elif piece.startswith(WORD_START):
                closes[number] &= len(piece) > 1  # a mark by itself belongs to what follows
    numbers = list(special)
    opens[numbers] = closes[numbers] = True
    return WordBoundaries(opens, closes)


_BYTES = frozenset(BYTE_TOKENS)


def _edges(pieces: Sequence[str], is_inside: Any) -> tuple[Bools, Bools]:
    """Whether the first and the last character of each piece are such that a word ends there."""
    opens = [not piece or not is_inside(piece[0]) for piece in pieces]
    closes = [not piece or not is_inside(piece[-1]) for piece in pieces]
    return np.array(opens), np.array(closes)


def _in_words_as_bytes(character: str) -> bool:
    """A letter, a digit, or a byte of one beyond ASCII."""
    return character.isalnum() if character.isascii() else ord(character) not in CONTROLS


CONTINUES = "##"  # how WordPiece marks a token that does not start a word


def whole_words(tokenizer: Tokenizer) -> list[str | None]:
    """The word that each token may be by itself, by id; None for what only stands inside words.

    Where tokens mark the start of a word, those are words that do, and so is punctuation. Every token of a `word`
    tokenizer is one.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ciao, ciao"], TokenizerConfig(kind="word"), vocabulary=10)
    >>> whole_words(tokenizer)[4:]
    ['ciao', ',']
    """
    pieces, spelled = tokenizer.ids_to_tokens(range(len(tokenizer))), tokenizer.token_strings()
    is_word = _rule(tokenizer, pieces)
    return [
        text.strip() if piece not in SPECIAL_TOKENS and text.strip() and is_word(piece, text) else None
        for piece, text in zip(pieces, spelled, strict=True)
    ]


def _rule(tokenizer: Tokenizer, pieces: Sequence[str]) -> Callable[[str, str], bool]:
    """What tells a word from a part of one, by its token and by its text."""
    if any(piece.startswith(CONTINUES) for piece in pieces):
        return lambda piece, text: not piece.startswith(CONTINUES)
    marked = any(piece.startswith(WORD_START) for piece in pieces)
    if marked and json.loads(tokenizer.to_json())["model"]["type"] == "WordLevel":
        return lambda piece, text: True
    return lambda piece, text: text.startswith(" ") or _is_punctuation(text)


def _is_punctuation(text: str) -> bool:
    return not any(character.isalnum() or character == "\N{REPLACEMENT CHARACTER}" for character in text)
