"""BPE-dropout: different tokens, the same text, in the distribution of the paper's Algorithm 1."""

import json
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from regard import phrasebook
from regard.config.data import TokenizerConfig
from regard.data import bpe_dropout
from regard.data.bpe_dropout import BpeDropout
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.errors import ConfigError

KINDS = ["bpe", "byte-level"]
TINY = 1e-12  # takes the path of dropout, but drops nothing
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text("aelotw ▁[<'\n日", max_size=60)
ODD = [
    "[SOS] <0x41>",
    "日本語 😀👩\u200d👩",
    "low  lower\tlowest",
    "x" * 100,
    "lower" * 30,
    "I'll\n\n  go",
    "low\ufffd lower",
    "",
    " ",
]


@cache
def sentences() -> list[str]:
    return [text for pair in phrasebook.split("dev") for text in (pair.source, pair.target)]


@cache
def tokenizer(kind: str) -> Tokenizer:
    config = TokenizerConfig.model_validate({"kind": kind})
    return train_tokenizer([*sentences(), "low lower lowest " * 9], config, 1000)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, TINY])
@given(text=TEXT | st.sampled_from(ODD))
def test_rate_zero_gives_the_tokens_of_the_tokenizer(kind: str, rate: float, text: str) -> None:
    assert BpeDropout(tokenizer(kind), rate).encode(text, random()) == tokenizer(kind).encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_rate_zero_gives_the_tokens_of_sentences(kind: str) -> None:
    dropout, generator = BpeDropout(tokenizer(kind), TINY), random()
    for ids in tokenizer(kind).encode_batch(sentences()):
        assert dropout.encode(ids, generator) == ids


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT | st.sampled_from(ODD), rate=st.sampled_from([0.1, 0.5, 0.9, 1.0]), seed=st.integers(0, 9))
def test_text_is_unchanged(kind: str, text: str, rate: float, seed: int) -> None:
    dropout = BpeDropout(tokenizer(kind), rate)
    ids = tokenizer(kind).encode(text)
    dropped = dropout.encode(ids, random(seed))
    assert tokenizer(kind).decode(dropped) == tokenizer(kind).decode(ids)
    assert dropped == dropout.encode(text, random(seed))  # independent of the cache


@pytest.mark.parametrize("kind", KINDS)
def test_rate_one_gives_characters(kind: str) -> None:
    pieces = tokenizer(kind).ids_to_tokens(BpeDropout(tokenizer(kind), 1.0).encode("Where is it?", random()))
    start = "▁" if kind == "bpe" else ""
    assert pieces == list(f"{start}Where is it?".replace(" ", "▁" if kind == "bpe" else "Ġ"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_equal_merges_is_applied_first(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TokenizerConfig.model_validate({"kind": kind})
    repeated = train_tokenizer(["ab aab aaa aa"] * 5, config, 270)
    for long in (0, 24):
        monkeypatch.setattr(bpe_dropout, "MIN_UNCACHED_LENGTH", long)
        for text in ("aaa", "baaa", "aaaaa", "b" + "aaa" * 9):
            assert BpeDropout(repeated, TINY).encode(text, random()) == repeated.encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_follow_from_the_seed(kind: str) -> None:
    text = " ".join(sentences()[:20])
    drawn = [BpeDropout(tokenizer(kind), 0.3).encode(text, random(seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT | st.sampled_from(ODD), rate=st.sampled_from([TINY, 0.2, 0.6]), seed=st.integers(0, 9))
def test_long_words_equal_short_ones(kind: str, text: str, rate: float, seed: int) -> None:
    expected = BpeDropout(tokenizer(kind), rate).encode(text, random(seed))
    with pytest.MonkeyPatch.context() as patch:
        for long in (0, 10**6):  # all words are long; none is
            patch.setattr(bpe_dropout, "MIN_UNCACHED_LENGTH", long)
            assert BpeDropout(tokenizer(kind), rate).encode(text, random(seed)) == expected


def test_clearing_the_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode_all() -> list[list[int]]:
        dropout, generator = BpeDropout(tokenizer("bpe"), 0.3), random()
        return [dropout.encode(text, generator) for text in sentences()[:200]]

    remembered = encode_all()
    monkeypatch.setattr(bpe_dropout, "MAX_CACHED_SEGMENTATIONS", 50)
    assert encode_all() == remembered


@given(text=st.text("aelotw .,!'\n\u0301()", max_size=60))
def test_words_are_those_of_the_pre_tokenizer(text: str) -> None:
    under_test = train_tokenizer(["aelotw .,!'\n\u0301()"], TokenizerConfig(), 300)
    fast = tokenizers.Tokenizer.from_str(under_test.to_json().decode())
    assert fast.pre_tokenizer is not None
    assert fast.normalizer is not None
    pieces = [piece for piece, _ in fast.pre_tokenizer.pre_tokenize_str(fast.normalizer.normalize_str(text))]
    words = BpeDropout(under_test, 0.5)._words.split(under_test.encode(text))
    split = ["".join(under_test.ids_to_tokens(word)) for word in words if not isinstance(word, str)]
    assert list(filter(None, split)) == pieces


def algorithm_1(word: tuple[str, ...], ranks: dict[tuple[str, str], int], rate: float) -> dict[tuple[str, ...], float]:
    """Return the exact probability of each segmentation, by enumerating all choices."""
    merges = sorted((ranks[pair], place) for place, pair in enumerate(pairwise(word)) if pair in ranks)
    probabilities = defaultdict(float, {word: rate ** len(merges)})  # all dropped: done
    for num_dropped, (_, place) in enumerate(merges):
        merged = (*word[:place], word[place] + word[place + 1], *word[place + 2 :])
        for segmentation, probability in algorithm_1(merged, ranks, rate).items():
            probabilities[segmentation] += rate**num_dropped * (1 - rate) * probability
    return probabilities


@pytest.mark.parametrize("long", [0, 24])
def test_frequencies_match_algorithm_1(monkeypatch: pytest.MonkeyPatch, long: int) -> None:
    monkeypatch.setattr(bpe_dropout, "MIN_UNCACHED_LENGTH", long)
    dropout, generator, count = BpeDropout(tokenizer("bpe"), 0.3), random(), 20_000
    pieces = tokenizer("bpe").ids_to_tokens
    ranks = {(pieces([left])[0], pieces([right])[0]): rank for (left, right), (rank, _) in dropout._merges.items()}
    ids = tokenizer("bpe").encode("lowest")
    seen = Counter(tuple(pieces(dropout.encode(ids, generator))) for _ in range(count))
    expected = algorithm_1(tuple("▁lowest"), ranks, 0.3)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 10
    assert set(seen) <= set(expected)
    for segmentation, probability in expected.items():  # within five standard deviations
        assert abs(seen[segmentation] - count * probability) <= 5 * max(
            1, (count * probability * (1 - probability)) ** 0.5
        ), segmentation


def test_special_tokens_are_kept() -> None:
    for kind in KINDS:
        ids = [2, *tokenizer(kind).encode("lower lowest"), 3, 0, 0]
        dropped = BpeDropout(tokenizer(kind), 1.0).encode(ids, random())
        assert (dropped[0], dropped[-3:]) == (2, [3, 0, 0])
        assert tokenizer(kind).decode(dropped) == "lower lowest"


def test_bytes_of_a_partial_text_are_kept() -> None:
    ids = tokenizer("byte-level").encode("日本語 lowest")[1:]  # begins inside a character
    dropped = BpeDropout(tokenizer("byte-level"), 0.5).encode(ids, random())
    assert "".join(tokenizer("byte-level").ids_to_tokens(dropped)) == "".join(
        tokenizer("byte-level").ids_to_tokens(ids)
    )
    assert BpeDropout(tokenizer("byte-level"), TINY).encode(ids, random()) == ids


@pytest.mark.slow
@given(text=TEXT | st.sampled_from(ODD))
def test_other_pre_tokenizers(text: str) -> None:
    content = json.loads(tokenizer("byte-level").to_json())
    by_three = {"type": "Split", "pattern": {"Regex": r"[\s\S]{1,3}"}, "behavior": "Isolated", "invert": False}
    content["pre_tokenizer"]["use_regex"] = False
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [by_three, content["pre_tokenizer"]]}
    odd = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(content)))
    assert BpeDropout(odd, TINY).encode(text, random()) == odd.encode(text)
    assert odd.decode(BpeDropout(odd, 0.5).encode(text, random())) == text


@pytest.mark.parametrize("kind", ["unigram", "character", "word"])
def test_other_kinds_of_tokenizer_are_errors(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind})
    with pytest.raises(ConfigError) as error:
        BpeDropout(train_tokenizer(sentences()[:20], config, 400), 0.1)
    assert str(error.value) == f"BPE-dropout needs tokenizer.kind bpe or byte-level, not {kind}."
