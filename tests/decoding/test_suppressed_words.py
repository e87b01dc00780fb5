"""Forbidden words: never whole in a text, whichever tokens it is made of; parts of other words are free."""

import math
import re

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import SpecialTokensConfig
from regard.decoding.beam_search import beam_search
from regard.decoding.logits_processors import SuppressWords
from regard.decoding.options import OutputConstraints, SearchOptions

SPELLING = [
    "",
    "",
    "",
    "",
    " am",
    "o",
    "o.",
    "re",
    " amo",
    ".",
    " Ti",
    "a",
    "m",
    " ",
    " Ti amo",
    "! amo ",
    " am-o",
    " amore",
]
END = 3


def may_follow(ids: list[int], words: list[str]) -> set[int]:
    logits = torch.zeros(1, len(SPELLING))
    SuppressWords(words, SPELLING)(logits, torch.tensor([ids], dtype=torch.long).reshape(1, -1), torch.tensor([0]))
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


def test_no_text_begins_with_a_suppressed_word_that_goes_on_in_other_tokens() -> None:
    texts = ["", "", "", "", " caff", "è", " caffè", "a", " tè", "."]
    processor = SuppressWords(["caffè"], texts)
    for ids, ruled_out in (([], {6}), ([4], {5, 6}), ([8, 4], {5, 6}), ([8], {6})):
        logits = torch.zeros(1, len(texts))
        processor(logits, torch.tensor([ids], dtype=torch.long).reshape(1, -1), torch.tensor([0]))
        assert {n for n, value in enumerate(logits[0].tolist()) if value == -math.inf} == ruled_out


class CoffeeDecoder:
    """A decoder that prefers " caff" + "è", and gives everything else after " caff" little probability."""

    def __init__(self) -> None:
        self.step_number = 0

    def step(self, last: torch.Tensor) -> torch.Tensor:
        logits = torch.full((len(last), 10), -20.0)
        for row, token in enumerate(last[:, 0].tolist()):
            if token == 2:
                logits[row, 4], logits[row, 8] = 1.0, 0.0
            elif token == 4:
                logits[row, 5] = 8.0
                logits[row, 7] = 0.0
            else:
                logits[row, END] = 8.0
        return logits

    def reorder(self, order: torch.Tensor) -> None: ...

    def select(self, rows: torch.Tensor, sentences: torch.Tensor) -> None: ...


def test_beam_search_leaves_the_way_to_a_suppressed_word() -> None:
    texts = ["", "", "", "", " caff", "è", " caffè", "a", " tè", "."]
    tokens = SpecialTokensConfig()
    (hypotheses,) = beam_search(
        CoffeeDecoder(),  # type: ignore[arg-type]
        torch.tensor([5]),
        tokens,
        SearchOptions(beam=2, constraints=OutputConstraints()),
        [SuppressWords(["caffè"], texts)],
    )
    assert hypotheses[0].ids == [8]  # " tè" and not " caffa", which has the probability of "caffè" if it is shared


def test_a_word_is_ruled_out_where_it_would_end() -> None:
    assert 6 not in may_follow([4], ["amo"])  # " am" + "o."
    assert 5 not in may_follow([4], ["amo"])  # " am" + "o": only an ending that no word has could avoid "amo" then
    assert 8 not in may_follow([], ["amo"])  # " amo" in one token
    assert 17 in may_follow([], ["amo"])  # " amore": a longer word
    assert 7 in may_follow([4], ["amo"])  # " am" + "re"
    assert END in may_follow([4, 5], ["amo"])  # a prefix of the user that ends with the word needs no wrong ending
    assert 15 not in may_follow([], ["amo"])  # it stands whole inside a token
    assert may_follow([10, 4], ["Ti amo"]).isdisjoint({6})  # several words in a row
    assert may_follow([12], ["amo"]) == set(range(len(SPELLING))) - {8, 14, 15}  # "m" begins nothing
