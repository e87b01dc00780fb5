"""Forbidden words: never whole in a text, whichever tokens it is made of; parts of other words are free."""

import math
import re

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.logits_processors import SuppressWords

SPELLING = ["", "", "", "", " am", "o", "o.", "re", " amo", ".", " Ti", "a", "m", " ", " Ti amo", "! amo ", " am-o"]
END = 3


def may_follow(ids: list[int], words: list[str]) -> set[int]:
    logits = torch.zeros(1, len(SPELLING))
    SuppressWords(words, SPELLING, END)(logits, torch.tensor([ids], dtype=torch.long).reshape(1, -1), torch.tensor([0]))
    return {n for n, value in enumerate(logits[0].tolist()) if value > -math.inf}


def holds(text: str, word: str) -> bool:
    before, after = (r"(?<![^\W_])" if word[0].isalnum() else ""), (r"(?![^\W_])" if word[-1].isalnum() else "")
    return re.search(before + re.escape(word) + after, text) is not None


@settings(max_examples=200)
@given(
    draws=st.lists(st.integers(0, 10**6), min_size=1, max_size=9),
    words=st.lists(st.sampled_from(["amo", "Ti amo", "a", "am", "."]), min_size=1, max_size=2, unique=True),
)
def test_what_may_be_written_never_holds_a_forbidden_word(draws: list[int], words: list[str]) -> None:
    ids: list[int] = []
    for draw in draws:
        allowed = sorted(may_follow(ids, words) - {0, 1, 2})
        chosen = allowed[draw % len(allowed)] if allowed else END
        if chosen == END:
            break
        ids.append(chosen)
        text = "".join(SPELLING[n] for n in ids)
        assert not any(holds(f"{text}x", word) for word in words)  # the last word may be incomplete
    if ids and END in may_follow(ids, words):
        assert not any(holds("".join(SPELLING[n] for n in ids), word) for word in words)


def test_a_word_is_ruled_out_where_it_would_end() -> None:
    assert 6 not in may_follow([4], ["amo"])  # " am" + "o."
    assert 5 in may_follow([4], ["amo"])  # " am" + "o" may yet become "amore" …
    assert may_follow([4, 5], ["amo"]) >= {7}  # … by "re"
    assert not may_follow([4, 5], ["amo"]) & {END, 9, 10, 13}  # but not by an end, a point or a space
    assert 15 not in may_follow([], ["amo"])  # it stands whole inside a token
    assert may_follow([10, 4], ["Ti amo"]).isdisjoint({6})  # several words in a row
    assert may_follow([12], ["amo"]) == set(range(len(SPELLING))) - {15}  # "m" begins nothing
