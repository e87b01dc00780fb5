"""How a BPE tokenizer put the pieces of a word together: from characters, the merge of the best rank first.

`tokenizers` gives the pieces but not the way to them, so the way is walked here; that it leads to the same pieces is
tested, and checked each time: where it would not, nothing is shown.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tokenizers

from regard.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Building:
    """One word on its way: the symbols after each merge, the first being its characters."""

    word: str
    stages: tuple[tuple[str, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"word": self.word, "stages": [list(stage) for stage in self.stages]}


def merges(text: str, tokenizer: Tokenizer) -> list[Building]:
    """The building of each word of a text; nothing where the tokenizer does not merge.

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["amo amo"], TokenizerConfig(), vocabulary=300)
    >>> merges("amo", tokenizer)[0].stages
    (('▁', 'a', 'm', 'o'), ('▁', 'am', 'o'), ('▁am', 'o'), ('▁amo',))
    """
    content = json.loads(tokenizer.to_json())
    model = content["model"]
    if model.get("type") != "BPE" or content["pre_tokenizer"] is None:
        return []
    ranks = {_pair(merge): rank for rank, merge in enumerate(model["merges"])}
    fast = tokenizers.Tokenizer.from_str(tokenizer.to_json().decode())
    normal = fast.normalizer.normalize_str(text) if fast.normalizer is not None else text
    words = [word for word, _ in fast.pre_tokenizer.pre_tokenize_str(normal)]
    buildings = [Building(word, _stages(word, ranks)) for word in words]
    last = [symbol for building in buildings for symbol in building.stages[-1]]
    known = set(model["vocab"])
    pieces = tokenizer.ids_to_tokens(tokenizer.encode(text))
    return buildings if not known.issuperset(last) or last == pieces else []


def _stages(word: str, ranks: dict[tuple[str, str], int]) -> tuple[tuple[str, ...], ...]:
    symbols = tuple(word)
    stages = [symbols]
    while len(symbols) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), n) for n, pair in enumerate(pairwise(symbols)))
        if rank == len(ranks):
            break
        symbols = (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])
        stages.append(symbols)
    return tuple(stages)


def _pair(merge: str | list[str]) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second
