"""BPE-dropout (Provilkov et al. 2020): random segmentations of words, as regularization.

At each step of segmenting a word, each possible merge is dropped with probability `rate`, and the highest-ranked of the
others is applied; if none is left, the word is done (Algorithm 1 of the paper). The tokens vary, the text does not.
They follow from the random generator that is passed in, so that a resumed run sees the same tokens.

Token stores hold ids, so this works on ids: the words are recovered from the tokens, and the characters from the words.
"""

import json
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from regard.data.tokenizer import BYTE_TOKENS, WORD_START, Tokenizer, has_whole_tokens
from regard.data.tokenizer_file import PUNCTUATION_PATTERN
from regard.data.word_tokens import find_word_splitter
from regard.errors import ConfigError

MIN_UNCACHED_LENGTH = 24  # characters; longer words have too many segmentations to cache
MAX_CACHED_SEGMENTATIONS = 300_000
BpeWord = tuple[int, ...] | str  # the ids of its tokens, or its text


@dataclass(slots=True)
class _Segmentation:
    """A segmentation of a word, and the merges that are possible next, by rank."""

    ids: tuple[int, ...]
    merges: list[tuple[int, int]]  # position, and the new token
    after: "list[_Segmentation | None]"  # the segmentation after each merge, filled when it is first needed


class BpeDropout:
    """Encodes with merges dropped at random: rate 0 gives the tokenizer's own tokens, 1 single characters (or bytes).

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo molto"] * 2, TokenizerConfig(), vocab_size=300)
    >>> dropped = BpeDropout(tokenizer, 0.5).encode("ti amo molto", np.random.default_rng(0))
    >>> tokenizer.ids_to_tokens(dropped)
    ['▁', 't', 'i', '▁amo', '▁', 'm', 'o', 'l', 't', 'o']
    >>> tokenizer.decode(dropped)
    'ti amo molto'
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        content = json.loads(tokenizer.to_json())
        kind = _tokenizer_kind(content["model"], content["pre_tokenizer"])
        if kind not in ("bpe", "byte-level"):
            raise ConfigError(f"BPE-dropout needs tokenizer.kind bpe or byte-level, not {kind}.")
        self.rate = rate
        self._tokenizer = tokenizer
        self._words = _ByteWords(tokenizer, content) if kind == "byte-level" else _MarkedWords(content)
        vocabulary: dict[str, int] = content["model"]["vocab"]
        pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in content["model"]["merges"])
        self._merges = {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right])
            for rank, (left, right) in enumerate(pairs)
        }
        self._segmentations: dict[tuple[int, ...], _Segmentation] = {}
        self._initial: dict[BpeWord, _Segmentation] = {}  # by word

    def encode(self, text: str | Sequence[int] | NDArray[np.integer], random: np.random.Generator) -> list[int]:
        """Return ids with dropped merges, for a text or for the ids that the tokenizer gave for it."""
        ids: list[int] = self._tokenizer.encode(text) if isinstance(text, str) else np.asarray(text, np.int64).tolist()
        if self.rate == 0:
            return ids
        if len(self._segmentations) > MAX_CACHED_SEGMENTATIONS:
            self._segmentations.clear()
            self._initial.clear()
        # A merge is applied if all of higher rank are dropped and it is not: the number of dropped ones is geometric.
        # A word takes at most as many draws as it has characters.
        size = self._words.num_characters(ids)
        num_dropped = iter((random.geometric(1 - self.rate, size) - 1).tolist() if self.rate < 1 else [2**62] * size)
        ids_out: list[int] = []
        for word in self._words.split(ids):
            segmentation = self._initial.get(word)
            if segmentation is None:
                symbols = self._words.symbols(word)
                if len(symbols) >= MIN_UNCACHED_LENGTH:
                    ids_out += self._merge_long(symbols, num_dropped)
                    continue
                segmentation = self._initial[word] = self._segmentation(tuple(symbols))
            while segmentation.merges:
                choice = next(num_dropped)
                if choice >= len(segmentation.merges):
                    break
                segmentation = segmentation.after[choice] or self._merge(segmentation, choice)
            ids_out += segmentation.ids
        return ids_out

    def _merge(self, segmentation: _Segmentation, choice: int) -> _Segmentation:
        position, token = segmentation.merges[choice]
        merged = self._segmentation((*segmentation.ids[:position], token, *segmentation.ids[position + 2 :]))
        segmentation.after[choice] = merged
        return merged

    def _segmentation(self, ids: tuple[int, ...]) -> _Segmentation:
        cached = self._segmentations.get(ids)
        if cached is None:
            ranked = sorted(
                (*self._merges[pair], position) for position, pair in enumerate(pairwise(ids)) if pair in self._merges
            )
            merges = [(position, token) for _, token, position in ranked]
            cached = self._segmentations[ids] = _Segmentation(ids, merges, [None] * len(merges))
        return cached

    def _merge_long(self, symbols: Sequence[int], num_dropped: Iterator[int]) -> list[int]:
        """Segment a long word without the cache: the possible merges are kept sorted while the word changes."""
        ids = list(symbols)
        before, after = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))  # neighbors of each symbol
        merges = [
            (*self._merges[pair], position) for position, pair in enumerate(pairwise(ids)) if pair in self._merges
        ]
        merges.sort()

        def possible(left: int) -> tuple[int, int, int] | None:
            if left < 0 or after[left] == len(ids):
                return None
            merge = self._merges.get((ids[left], ids[after[left]]))
            return merge and (*merge, left)

        while merges and (choice := next(num_dropped)) < len(merges):
            _, token, position = merges.pop(choice)
            for obsolete in (possible(before[position]), possible(after[position])):
                if obsolete:
                    del merges[bisect_left(merges, obsolete)]
            ids[position], after[position] = token, after[after[position]]
            if after[position] < len(ids):
                before[after[position]] = position
            for new in (possible(before[position]), possible(position)):
                if new:
                    insort(merges, new)
        ids_out, position = [], 0
        while position < len(ids):
            ids_out.append(ids[position])
            position = after[position]
        return ids_out


class _MarkedWords:
    """Words as the pre-tokenizer splits them: they begin with `▁`, or where letters, spaces and each mark meet.

    Byte tokens and special tokens are never merged.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        vocabulary: dict[str, int] = content["model"]["vocab"]
        whole = {*BYTE_TOKENS, *(token["content"] for token in content["added_tokens"])}
        whole.update(token for token in vocabulary if any(character not in vocabulary for character in token))
        self._symbols = {
            number: [number] if token in whole else [vocabulary[character] for character in token]
            for token, number in vocabulary.items()
        }
        splits_punctuation = any(
            rule.get("pattern") == {"Regex": PUNCTUATION_PATTERN}
            for rule in (content["pre_tokenizer"] or {}).get("pretokenizers", ())
        )
        class_of = _CharacterClasses()
        self._classes = {  # the same for all characters of a token; bytes and special tokens count as letters
            number: class_of[token.removeprefix(WORD_START)[:1]] if splits_punctuation and token not in whole else ""
            for token, number in vocabulary.items()
        }
        self._word_starts = {number for token, number in vocabulary.items() if token.startswith(WORD_START)}
        self._mark = vocabulary.get(WORD_START)

    def split(self, ids: Sequence[int]) -> Iterator[BpeWord]:
        """Yield the words of ids."""
        classes, word_starts = self._classes, self._word_starts
        start = 0
        for position, (before, number) in enumerate(pairwise(ids), start=1):
            if number in word_starts or (before != self._mark and classes[number] != classes[before]):
                yield tuple(ids[start:position])
                start = position
        yield tuple(ids[start:])

    def symbols(self, word: BpeWord) -> list[int]:
        """Return the ids of the characters of a word."""
        return [symbol for number in word for symbol in self._symbols[number]]  # type: ignore[index]

    def num_characters(self, ids: Sequence[int]) -> int:
        """Return the number of characters of ids."""
        return sum([len(self._symbols[number]) for number in ids])


class _CharacterClasses(dict[str, str]):
    """Maps each character to what separates it from others: itself for a mark, a space, or nothing for letters."""

    def __missing__(self, character: str) -> str:
        rule = pre_tokenizers.Split(tokenizers.Regex(PUNCTUATION_PATTERN), "isolated")
        samples = {"": "a", " ": " "}
        joined = (name for name, sample in samples.items() if len(rule.pre_tokenize_str(sample + character)) == 1)
        self[character] = next(joined, character)
        return self[character]


class _ByteWords:
    """Words as the pre-tokenizer splits them. If ids are not valid text, as in a part of one, each id is a word."""

    def __init__(self, tokenizer: Tokenizer, content: dict[str, Any]) -> None:
        self._vocabulary: dict[str, int] = content["model"]["vocab"]
        self._tokens = {number: token for token, number in self._vocabulary.items()}
        self._special = {token["id"] for token in content["added_tokens"]}
        self._tokenizer = tokenizer
        self._split_words = find_word_splitter(content["pre_tokenizer"]) or self._split_by_rule
        self._rule = tokenizers.Tokenizer.from_str(json.dumps(content)).pre_tokenizer
        self._bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def split(self, ids: Sequence[int]) -> Iterator[BpeWord]:
        """Yield the words of ids."""
        for special, run in groupby(ids, self._special.__contains__):
            part = list(run)
            words = None if special else self._words(part)
            yield from ((number,) for number in part) if words is None else words

    def symbols(self, word: BpeWord) -> list[int]:
        """Return the ids of the bytes of a word."""
        if isinstance(word, tuple):
            (number,) = word
            return [number] if number in self._special else [self._vocabulary[byte] for byte in self._tokens[number]]
        return [self._vocabulary[byte] for byte in self._to_byte_characters(word)]

    def num_characters(self, ids: Sequence[int]) -> int:
        """Return the number of bytes of ids."""
        return sum([len(self._tokens.get(number, "")) for number in ids])

    def _words(self, ids: Sequence[int]) -> list[str] | None:
        text = self._tokenizer.decode(ids)
        if "\ufffd" in text and self._to_byte_characters(text) != "".join(self._tokens[number] for number in ids):
            return None  # bytes that are not a character
        return self._split_words(text)

    def _split_by_rule(self, text: str) -> list[str]:
        assert self._rule is not None
        return [text[start:end] for _, (start, end) in self._rule.pre_tokenize_str(text)]

    def _to_byte_characters(self, text: str) -> str:
        """Return the bytes of a text in the characters of the vocabulary."""
        return "".join(characters for characters, _ in self._bytes.pre_tokenize_str(text))


def _tokenizer_kind(model: dict[str, Any], rule: dict[str, Any] | None) -> str:
    """Return the kind of a tokenizer, from its file."""
    if has_whole_tokens(model):
        return "character" if rule and rule["type"] == "Split" else "word"
    if model["type"] != "BPE":
        return str(model["type"]).lower()
    if model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
        return "bpe with a prefix or suffix for parts of words"
    if "ByteLevel" in json.dumps(rule):
        return "byte-level"
    if any(WORD_START in token[1:] for token in model["vocab"]):
        return "bpe with tokens of several words"
    return "bpe"
