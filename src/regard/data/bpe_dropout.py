"""BPE-dropout (Provilkov et al. 2020): a word spelled in other pieces each time, as a regulariser in training.

At each step of building a word, each merge that is possible is left out with probability `rate`, and of those that
remain the first in rank is made; where none remains, the word is done (their Algorithm 1). The pieces differ, the text
never does. What is drawn follows from the generator that is passed in: a resumed run sees the same pieces.

A token store holds ids, so this works on ids: the pieces tell the words, and the words their characters.
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

from regard.data.fast_encoder import find_word_splitter
from regard.data.tokenizer import BYTE_TOKENS, WORD_START, Tokenizer
from regard.errors import ConfigError

MIN_UNCACHED_LENGTH = 24  # characters from which on a word has too many spellings to remember them
MAX_CACHED_SPELLINGS = 300_000  # spellings to remember; more would fill the memory
Word = tuple[int, ...] | str  # the ids of its pieces, or its text


@dataclass(slots=True)
class _Spelling:
    """A word on its way from characters to pieces, and the merges that are possible from here, by rank."""

    ids: tuple[int, ...]
    merges: list[tuple[int, int]]  # where, and what it becomes
    after: "list[_Spelling | None]"  # the spelling each leads to, once someone went there


class BpeDropout:
    """Encodes with merges left out at random: 0 gives the tokenizer's own pieces, 1 single characters (or bytes).

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo molto"] * 2, TokenizerConfig(), vocabulary=300)
    >>> dropped = BpeDropout(tokenizer, 0.5).encode("ti amo molto", np.random.default_rng(0))
    >>> tokenizer.ids_to_tokens(dropped)
    ['▁', 't', 'i', '▁amo', '▁', 'm', 'o', 'l', 't', 'o']
    >>> tokenizer.decode(dropped)
    'ti amo molto'
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        content = json.loads(tokenizer.to_json())
        kind = _kind(content["model"], content["pre_tokenizer"])
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
        self._spellings: dict[tuple[int, ...], _Spelling] = {}
        self._begun: dict[Word, _Spelling] = {}  # by word

    def encode(self, text: str | Sequence[int] | NDArray[np.integer], random: np.random.Generator) -> list[int]:
        """The ids of a text, or of the ids that the tokenizer gave for it, with merges left out."""
        ids: list[int] = self._tokenizer.encode(text) if isinstance(text, str) else np.asarray(text, np.int64).tolist()
        if self.rate == 0:
            return ids
        if len(self._spellings) > MAX_CACHED_SPELLINGS:
            self._spellings.clear()
            self._begun.clear()
        # A merge is taken if all that rank before it are left out and it is not: how many are left out is geometric.
        # A word takes at most as many draws as it has characters.
        size = self._words.characters(ids)
        left_out = iter((random.geometric(1 - self.rate, size) - 1).tolist() if self.rate < 1 else [2**62] * size)
        result: list[int] = []
        for word in self._words.split(ids):
            spelling = self._begun.get(word)
            if spelling is None:
                symbols = self._words.symbols(word)
                if len(symbols) >= MIN_UNCACHED_LENGTH:
                    result += self._merge_long(symbols, left_out)
                    continue
                spelling = self._begun[word] = self._spelling(tuple(symbols))
            while spelling.merges:
                choice = next(left_out)
                if choice >= len(spelling.merges):
                    break
                spelling = spelling.after[choice] or self._merge(spelling, choice)
            result += spelling.ids
        return result

    def _merge(self, spelling: _Spelling, choice: int) -> _Spelling:
        place, piece = spelling.merges[choice]
        merged = self._spelling((*spelling.ids[:place], piece, *spelling.ids[place + 2 :]))
        spelling.after[choice] = merged
        return merged

    def _spelling(self, ids: tuple[int, ...]) -> _Spelling:
        known = self._spellings.get(ids)
        if known is None:
            ranked = sorted(
                (*self._merges[pair], place) for place, pair in enumerate(pairwise(ids)) if pair in self._merges
            )
            merges = [(place, piece) for _, piece, place in ranked]
            known = self._spellings[ids] = _Spelling(ids, merges, [None] * len(merges))
        return known

    def _merge_long(self, symbols: Sequence[int], left_out: Iterator[int]) -> list[int]:
        """The same without remembering: the possible merges are kept in order while the word changes."""
        ids = list(symbols)
        before, after = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))  # each symbol's neighbours
        merges = [(*self._merges[pair], place) for place, pair in enumerate(pairwise(ids)) if pair in self._merges]
        merges.sort()

        def possible(left: int) -> tuple[int, int, int] | None:
            if left < 0 or after[left] == len(ids):
                return None
            found = self._merges.get((ids[left], ids[after[left]]))
            return found and (*found, left)

        while merges and (choice := next(left_out)) < len(merges):
            _, piece, place = merges.pop(choice)
            for gone in (possible(before[place]), possible(after[place])):
                if gone:
                    del merges[bisect_left(merges, gone)]
            ids[place], after[place] = piece, after[after[place]]
            if after[place] < len(ids):
                before[after[place]] = place
            for new in (possible(before[place]), possible(place)):
                if new:
                    insort(merges, new)
        result, place = [], 0
        while place < len(ids):
            result.append(ids[place])
            place = after[place]
        return result


class _MarkedWords:
    """Words that begin with `▁`; a byte that stands for itself, or a special token, merges with nothing."""

    def __init__(self, content: dict[str, Any]) -> None:
        vocabulary: dict[str, int] = content["model"]["vocab"]
        whole = {*BYTE_TOKENS, *(token["content"] for token in content["added_tokens"])}
        whole.update(piece for piece in vocabulary if any(character not in vocabulary for character in piece))
        self._symbols = {
            number: [number] if piece in whole else [vocabulary[character] for character in piece]
            for piece, number in vocabulary.items()
        }
        self._begins = {number for piece, number in vocabulary.items() if piece.startswith(WORD_START)}

    def split(self, ids: Sequence[int]) -> Iterator[Word]:
        """The words that ids are pieces of."""
        start = 0
        for place, number in enumerate(ids):
            if number in self._begins and place:
                yield tuple(ids[start:place])
                start = place
        yield tuple(ids[start:])

    def symbols(self, word: Word) -> list[int]:
        """The ids of a word's characters."""
        return [symbol for number in word for symbol in self._symbols[number]]  # type: ignore[index]

    def characters(self, ids: Sequence[int]) -> int:
        """How many characters the ids have."""
        return sum([len(self._symbols[number]) for number in ids])


class _ByteWords:
    """Words as the tokenizer's own rule cuts them; where ids are no text, as in a part of one, each id is a word."""

    def __init__(self, tokenizer: Tokenizer, content: dict[str, Any]) -> None:
        self._vocabulary: dict[str, int] = content["model"]["vocab"]
        self._pieces = {number: piece for piece, number in self._vocabulary.items()}
        self._special = {token["id"] for token in content["added_tokens"]}
        self._tokenizer = tokenizer
        self._cut = find_word_splitter(content["pre_tokenizer"]) or self._cut_by_rule
        self._rule = tokenizers.Tokenizer.from_str(json.dumps(content)).pre_tokenizer
        self._bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def split(self, ids: Sequence[int]) -> Iterator[Word]:
        """The words that ids are pieces of."""
        for special, run in groupby(ids, self._special.__contains__):
            part = list(run)
            words = None if special else self._words(part)
            yield from ((number,) for number in part) if words is None else words

    def symbols(self, word: Word) -> list[int]:
        """The ids of a word's bytes."""
        if isinstance(word, tuple):
            (number,) = word
            return [number] if number in self._special else [self._vocabulary[byte] for byte in self._pieces[number]]
        return [self._vocabulary[byte] for byte in self._letters(word)]

    def characters(self, ids: Sequence[int]) -> int:
        """How many bytes the ids have."""
        return sum([len(self._pieces.get(number, "")) for number in ids])

    def _words(self, ids: Sequence[int]) -> list[str] | None:
        text = self._tokenizer.decode(ids)
        if "\ufffd" in text and self._letters(text) != "".join(self._pieces[number] for number in ids):
            return None  # it stands for bytes that are no character
        return self._cut(text)

    def _cut_by_rule(self, text: str) -> list[str]:
        assert self._rule is not None
        return [text[start:end] for _, (start, end) in self._rule.pre_tokenize_str(text)]

    def _letters(self, text: str) -> str:
        """The bytes of a text in the letters of the vocabulary."""
        return "".join(letters for letters, _ in self._bytes.pre_tokenize_str(text))


def _kind(model: dict[str, Any], rule: dict[str, Any] | None) -> str:
    """The kind of a tokenizer, by its file."""
    if model["type"] == "WordLevel":
        return "character" if rule and rule["type"] == "Split" else "word"
    if model["type"] != "BPE":
        return str(model["type"]).lower()
    if model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
        return "bpe with marks inside its words"
    if "ByteLevel" in json.dumps(rule):
        return "byte-level"
    if any(WORD_START in piece[1:] for piece in model["vocab"]):
        return "bpe with pieces of several words"
    return "bpe"
