"""Fast encoding of many texts: every word is tokenized once and then looked up.

A tokenizer splits a text into words and tokenizes each word separately, so the ids of a text are those of its words.
Splitting in Python and looking words up is several times as fast as the library, with the same ids.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from regard.data.tokenizer import WORD_START, Tokenizer

MAX_CACHED_WORDS = 500_000
Encode = Callable[[Sequence[str]], list[list[int]]]
SplitWords = Callable[[str], list[str] | None]  # of a normalized text; None if this splitter cannot tell


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
        self._word_tokenizer = Tokenizer(fast)
        self._cache: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        normalized = list(texts if self._normalizer is None else map(self._normalizer.normalize_str, texts))
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


def find_word_splitter(pre_tokenizer: dict[str, Any]) -> SplitWords | None:
    """Return a function that splits texts as this pre-tokenizer does; None if it is of another kind."""
    first = pre_tokenizer["pretokenizers"][0] if pre_tokenizer.get("type") == "Sequence" else pre_tokenizer
    if first == {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": True}:
        return _split_at_spaces
    kind = pre_tokenizer.get("type")
    if kind == "ByteLevel" and pre_tokenizer["use_regex"] and not pre_tokenizer["add_prefix_space"]:
        return _Gpt2Splitter()
    if kind == "Split" and pre_tokenizer["pattern"] == {"Regex": r"[\s\S]"} and pre_tokenizer["behavior"] == "Isolated":
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
