"""Word boundaries among tokens: which tokens begin a word, and which tokens are whole words.

Words are separated by spaces and punctuation. Tokenizers mark them in three ways: `▁` or `Ġ` before a token that begins
a word, `##` before one that does not, or not at all, if each character is a token.

B rows · T their length · V vocabulary
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.tokenizer import BYTE_TOKENS, SPECIAL_TOKENS, WORD_START, Tokenizer

BYTE_LEVEL_SPACE = "Ġ"
BYTE_LEVEL_CONTROLS = range(0x100, 0x121)  # how byte-level tokenizers write the bytes up to the space
CONTINUATION_PREFIX = "##"  # of WordPiece
_BYTE_TOKENS = frozenset(BYTE_TOKENS)
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class WordBoundaries:
    """Which tokens of a vocabulary begin a word whatever is before them, and which end one whatever follows."""

    starts_word: Bools  # (V,)
    ends_word: Bools  # (V,)

    def word_starts(self, ids: NDArray[np.integer[Any]]) -> Bools:
        """Return True at tokens (B, T) that begin a word; the first token of a row always does."""
        starts: Bools = self.starts_word[ids]
        starts[:, 0] = True
        starts[:, 1:] |= self.ends_word[ids[:, :-1]]
        return starts


def word_boundaries(tokenizer: Tokenizer, special: Iterable[int]) -> WordBoundaries:
    """Return the word boundaries of a tokenizer; each special token is a word.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo"], TokenizerConfig(kind="character"))
    >>> ids = np.array([tokenizer.encode("ti amo")])
    >>> word_boundaries(tokenizer, range(4)).word_starts(ids).tolist()
    [[True, False, True, True, False, False]]
    """
    tokens = tokenizer.ids_to_tokens(range(len(tokenizer)))
    if (prefix := tokenizer.continuation_prefix) is not None:
        starts = np.array([not token.startswith(prefix) for token in tokens])
        ends = np.zeros_like(starts)
    elif tokenizer.is_byte_level:
        starts, ends = _boundaries(tokens, _is_word_byte)
    else:
        starts, ends = _boundaries(tokens, str.isalnum)
        for number, token in enumerate(tokens):
            if token in _BYTE_TOKENS:  # usually a part of a letter
                starts[number] = ends[number] = False
            elif token.startswith(WORD_START):
                ends[number] &= len(token) > 1  # a mark alone belongs to the token after it
    special_ids = list(special)
    starts[special_ids] = ends[special_ids] = True
    return WordBoundaries(starts, ends)


def _boundaries(tokens: Sequence[str], is_inside: Callable[[str], bool]) -> tuple[Bools, Bools]:
    """Return whether the first and the last character of each token separate words."""
    starts = [not token or not is_inside(token[0]) for token in tokens]
    ends = [not token or not is_inside(token[-1]) for token in tokens]
    return np.array(starts), np.array(ends)


def _is_word_byte(character: str) -> bool:
    """Return whether a character of a byte-level token is a letter, a digit, or a byte of one outside ASCII."""
    return character.isalnum() if character.isascii() else ord(character) not in BYTE_LEVEL_CONTROLS


def whole_words(tokenizer: Tokenizer) -> list[str | None]:
    """Return the word that each token is, by id; None for tokens that only occur inside words.

    If tokens mark the start of a word, those with a mark are words, and so is punctuation. Every token of a `word`
    tokenizer is a word.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ciao, ciao"], TokenizerConfig(kind="word"), vocab_size=10)
    >>> whole_words(tokenizer)[4:]
    ['ciao', ',']
    """
    tokens, texts = tokenizer.ids_to_tokens(range(len(tokenizer))), tokenizer.token_strings()
    is_word = _word_test(tokenizer, tokens)
    return [
        text.strip() if token not in SPECIAL_TOKENS and text.strip() and is_word(token, text) else None
        for token, text in zip(tokens, texts, strict=True)
    ]


def _word_test(tokenizer: Tokenizer, tokens: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a function that tells words from parts of words, by token and text."""
    if any(token.startswith(CONTINUATION_PREFIX) for token in tokens):
        return lambda token, text: not token.startswith(CONTINUATION_PREFIX)
    marked = any(token.startswith(WORD_START) for token in tokens)
    if marked and json.loads(tokenizer.to_json())["model"]["type"] == "WordLevel":
        return lambda token, text: True
    return lambda token, text: text.startswith(" ") or _is_punctuation(text)


def _is_punctuation(text: str) -> bool:
    return not any(character.isalnum() or character == "\N{REPLACEMENT CHARACTER}" for character in text)
