"""Words and their tokens: which tokens begin a word, which tokens are whole words, and fast encoding word by word.

Words are separated by spaces and punctuation. Tokenizers mark them in three ways: `▁` or `Ġ` before a token that begins
a word, `##` before one that does not, or not at all, if each character is a token.

A tokenizer splits a text into words and tokenizes each word separately, so the ids of a text are those of its words.
Splitting in Python and looking up words that were tokenized before is several times as fast as the library, with the
same ids.

B rows · T their length · V vocabulary
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from regard.data.tokenizer import BYTE_TOKENS, SPECIAL_TOKENS, WORD_START, Tokenizer, has_whole_tokens
from regard.data.tokenizer_file import CHARACTER_PATTERN, guarded_call

BYTE_LEVEL_SPACE = "Ġ"
BYTE_LEVEL_CONTROLS = range(0x100, 0x121)  # how byte-level tokenizers write the bytes up to the space
CONTINUATION_PREFIX = "##"  # of WordPiece
_BYTE_TOKENS = frozenset(BYTE_TOKENS)
MAX_CACHED_WORDS = 500_000
Bools = NDArray[np.bool_]
Encode = Callable[[Sequence[str]], list[list[int]]]
SplitWords = Callable[[str], list[str] | None]  # of a normalized text; None if this splitter cannot tell


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
    >>> tokenizer = train_tokenizer(["ciao, ciao"], TokenizerConfig(kind="word", byte_fallback=False), vocab_size=10)
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
    if marked and has_whole_tokens(json.loads(tokenizer.to_json())["model"]):
        return lambda token, text: token not in _BYTE_TOKENS
    return lambda token, text: text.startswith(" ") or _is_punctuation(text)


def _is_punctuation(text: str) -> bool:
    return not any(character.isalnum() or character == "\N{REPLACEMENT CHARACTER}" for character in text)


def fast_encoder(tokenizer: Tokenizer) -> Encode:
    """Return a function that encodes texts exactly as the tokenizer does, in the fastest way for its kind.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo molto"], TokenizerConfig(), vocab_size=300)
    >>> fast_encoder(tokenizer)(["ti amo", "molto"]) == tokenizer.encode_batch(["ti amo", "molto"])
    True
    """
    content = json.loads(tokenizer.to_json())
    splitter = find_word_splitter(content["pre_tokenizer"] or {})
    added = any(not token["special"] for token in content["added_tokens"])  # such tokens may span several words
    if splitter is None or added or content["truncation"] or content["padding"] or content["model"].get("dropout"):
        return tokenizer.encode_batch
    return _CachedWordEncoder(tokenizer, splitter)


class _CachedWordEncoder:
    """Encodes texts word by word, with a cache of words."""

    def __init__(self, tokenizer: Tokenizer, split_words: SplitWords) -> None:
        self._split_words = split_words
        fast = tokenizers.Tokenizer.from_str(tokenizer.to_json().decode())
        no_op = json.loads(fast.to_str())["normalizer"] in (None, {"type": "Sequence", "normalizers": []})
        self._normalizer = None if no_op else fast.normalizer  # calling one that does nothing takes time too
        fast.normalizer = None  # words are those of a normalized text
        self._word_tokenizer = Tokenizer(fast, tokenizer.location)
        self._cache: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        normalized = guarded_call(self._word_tokenizer.location, self._normalize, texts)
        split_texts = [self._split_words(text) for text in normalized]
        if len(self._cache) > MAX_CACHED_WORDS:
            self._cache.clear()
        new = list(set().union(*filter(None, split_texts)).difference(self._cache))
        self._cache.update(zip(new, self._word_tokenizer.encode_batch(new), strict=True))
        return [
            self._word_tokenizer.encode(text)
            if words is None
            else list(chain.from_iterable(map(self._cache.__getitem__, words)))
            for text, words in zip(normalized, split_texts, strict=True)
        ]

    def _normalize(self, texts: Sequence[str]) -> list[str]:
        return list(texts if self._normalizer is None else map(self._normalizer.normalize_str, texts))


def find_word_splitter(pre_tokenizer: dict[str, Any]) -> SplitWords | None:
    """Return a function that splits texts as this pre-tokenizer does; None if it is of another kind."""
    first = pre_tokenizer["pretokenizers"][0] if pre_tokenizer.get("type") == "Sequence" else pre_tokenizer
    if first == {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": True}:
        return _split_at_spaces
    kind = pre_tokenizer.get("type")
    if kind == "ByteLevel" and pre_tokenizer["use_regex"] and not pre_tokenizer["add_prefix_space"]:
        return _Gpt2Splitter()
    if (
        kind == "Split"
        and pre_tokenizer["pattern"] == {"Regex": CHARACTER_PATTERN}
        and pre_tokenizer["behavior"] == "Isolated"
    ):
        return list
    return None


def _split_at_spaces(text: str) -> list[str] | None:
    if WORD_START in text or text.startswith(" "):  # never after the normalization of our own tokenizers
        return None
    return [f" {word}" for word in text.split(" ")] if text else []


class _Gpt2Splitter:
    """Splits as GPT-2 does: contractions; letters, digits or signs with a space before; spaces but the last."""

    PATTERN = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[a-zA-Z]+| ?[0-9]+| ?[^\sa-zA-Z0-9]+|\s+(?!\S)|\s+", re.ASCII)

    def __init__(self) -> None:
        self._to_ascii = _AsciiOfSameClass()

    def __call__(self, text: str) -> list[str]:
        if text.isascii():
            return self.PATTERN.findall(text)
        words = self.PATTERN.findall(text.translate(self._to_ascii))
        ends = accumulate(map(len, words))  # the words cover the text
        return [text[end - len(word) : end] for word, end in zip(words, ends, strict=True)]


class _AsciiOfSameClass(dict[int, int]):
    """Maps each character to an ASCII one that the library puts into the same class: letter, digit, sign or space."""

    def __missing__(self, code: int) -> int:
        rule = pre_tokenizers.ByteLevel(add_prefix_space=False)
        same_class = (sample for sample in "a1!" if len(rule.pre_tokenize_str(sample + chr(code))) == 1)
        self[code] = code if code < 128 else ord(next(same_class, "\t"))
        return self[code]
