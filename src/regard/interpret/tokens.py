"""Tokens of a text, the words they belong to, and the BPE merges that made them, for any tokenizer."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import tokenizers
from pydantic import JsonValue

from regard.config import SpecialTokensConfig
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_file import guarded_call

_CJK = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]"  # each character is a word
_WORD = re.compile(rf"{_CJK}|(?:(?!{_CJK})\w)+(?:['’-](?:(?!{_CJK})\w)+)*|[^\w\s]")


@dataclass(frozen=True)
class WordSpan:
    """A word, punctuation mark or special token, and the indices of its tokens."""

    text: str
    tokens: tuple[int, ...]
    special: bool = False


@dataclass(frozen=True)
class TokenizedText:
    """A sequence of token ids with its text, tokens and words."""

    text: str
    ids: list[int]
    tokens: list[str]
    words: list[WordSpan]

    @classmethod
    def from_ids(cls, ids: Sequence[int], tokenizer: Tokenizer, special: SpecialTokensConfig) -> "TokenizedText":
        """Decode ids and group them into words."""
        ids = list(ids)
        return cls(tokenizer.decode(ids), ids, tokenizer.ids_to_tokens(ids), group_words(ids, tokenizer, special))

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, for JSON."""
        words: list[JsonValue] = [
            {"text": word.text, "tokens": list(word.tokens), "special": word.special} for word in self.words
        ]
        return {"text": self.text, "ids": [*self.ids], "tokens": [*self.tokens], "words": words}


def group_words(ids: Sequence[int], tokenizer: Tokenizer, special: SpecialTokensConfig) -> list[WordSpan]:
    """Group tokens into words, by decoding every prefix; special tokens and punctuation are words of their own."""
    specials = {special.pad, special.unknown, special.start, special.end}
    text = tokenizer.decode(ids)
    spans = [match.span() for match in _WORD.finditer(text)]
    owners: list[tuple[int, int]] = []  # per token: (1, index of the special token) or (0, index of the word)
    covered: list[tuple[int, int]] = []  # per token: its range of characters in the text
    start = 0
    for index, token_id in enumerate(ids):
        prefix = tokenizer.decode(ids[: index + 1]).rstrip("\ufffd")  # a letter belongs to the token of its last byte
        end = max(start, min(len(text), len(prefix)))
        first_letter = start + len(text[start:end]) - len(text[start:end].lstrip())
        owners.append((1, index) if token_id in specials else (0, _word_at(first_letter, spans)))
        covered.append((start, end))
        start = end
    tokens = tokenizer.ids_to_tokens(ids)
    words = []
    for (is_special, owner), group in groupby(range(len(ids)), key=owners.__getitem__):
        indices = tuple(group)
        if is_special:
            words.append(WordSpan(tokens[owner], indices, special=True))
        else:
            word = text[covered[indices[0]][0] : covered[indices[-1]][1]].strip()
            words.append(WordSpan(word or "".join(tokens[index] for index in indices), indices))
    return words


def _word_at(character: int, spans: Sequence[tuple[int, int]]) -> int:
    """Index of the word that contains a character, else of the next word, else of the last."""
    return next((index for index, (_, end) in enumerate(spans) if character < end), max(0, len(spans) - 1))


@dataclass(frozen=True)
class WordMerges:
    """The symbols of a word after each BPE merge; the first stage has single characters."""

    word: str
    stages: tuple[tuple[str, ...], ...]

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, for JSON."""
        return {"word": self.word, "stages": [list(stage) for stage in self.stages]}


def bpe_merges(text: str, tokenizer: Tokenizer) -> list[WordMerges]:
    """Return the merges of each word of a text, best rank first; empty if the tokenizer is not BPE.

    `tokenizers` does not report its merges, so they are replayed here. If the result differs from the tokenizer's, the
    list is empty.

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["amo amo"], TokenizerConfig(), vocab_size=300)
    >>> bpe_merges("amo", tokenizer)[0].stages
    (('▁', 'a', 'm', 'o'), ('▁', 'am', 'o'), ('▁am', 'o'), ('▁amo',))
    """
    content = json.loads(tokenizer.to_json())
    model = content["model"]
    if model.get("type") != "BPE" or not model["merges"] or content["pre_tokenizer"] is None:
        return []
    ranks = {_merge_pair(merge): rank for rank, merge in enumerate(model["merges"])}
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_json().decode())
    location, normalized = tokenizer.location, text
    if backend.normalizer is not None:
        normalized = guarded_call(location, backend.normalizer.normalize_str, text)
    words = [word for word, _ in guarded_call(location, backend.pre_tokenizer.pre_tokenize_str, normalized)]
    merges = [WordMerges(word, _merge_stages(word, ranks)) for word in words]
    symbols = [symbol for word in merges for symbol in word.stages[-1]]
    vocabulary = set(model["vocab"])
    tokens = tokenizer.ids_to_tokens(tokenizer.encode(text))
    return merges if not vocabulary.issuperset(symbols) or symbols == tokens else []


def _merge_stages(word: str, ranks: dict[tuple[str, str], int]) -> tuple[tuple[str, ...], ...]:
    symbols = tuple(word)
    stages = [symbols]
    while len(symbols) > 1:
        rank, index = min((ranks.get(pair, len(ranks)), n) for n, pair in enumerate(pairwise(symbols)))
        if rank == len(ranks):
            break
        symbols = (*symbols[:index], symbols[index] + symbols[index + 1], *symbols[index + 2 :])
        stages.append(symbols)
    return tuple(stages)


def _merge_pair(merge: str | list[str]) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second
