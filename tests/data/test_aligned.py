"""Parses of texts: tokens have the position of their word, and mismatches are errors."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import SpecialTokensConfig, TokenizerConfig
from regard.data.batching import make_pair_batch
from regard.data.lines import InvalidLines
from regard.data.prepare_pairs import LengthFilter, store_pairs
from regard.data.readers.aligned import attach_parses, read_aligned
from regard.data.readers.base import Pair
from regard.data.readers.conll import parse_conllu
from regard.data.store import open_store
from regard.data.syntax import (
    SYNTAX_FEATURES,
    Parse,
    TreePosition,
    parse_from_json,
    parse_to_json,
    token_features,
    tree_positions,
)
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.errors import DataError
from toy_trees import conllu, random_heads

TEXTS = ["the cat's whiskers", "I don't know, naïve Ångström!", "(yes) [no] 你好 世界", "one two three"]
FORMS = ["cat", "'s", "don", "n't", "[", "naïve", "Ångström", "你好", "!", "10 000", "ﬁn", "😀", "x"]


@cache
def tokenizer(kind: str) -> Tokenizer:
    config = TokenizerConfig.model_validate({"kind": kind, "nfkc": kind == "unigram", "lowercase": kind == "bpe"})
    return train_tokenizer(TEXTS * 3, config, vocab_size=400)


@given(
    kind=st.sampled_from(["bpe", "unigram", "byte-level", "character", "word"]),
    words=st.lists(st.sampled_from(FORMS), min_size=1, max_size=8),
    spaces=st.lists(st.sampled_from(["", " ", "  "]), min_size=8, max_size=8),
    seed=st.integers(0, 2**31),
)
def test_tokens_have_the_position_of_the_word_they_begin_in(
    kind: str, words: list[str], spaces: list[str], seed: int
) -> None:
    heads = random_heads(len(words), random.Random(seed))
    text = "".join(word + space for word, space in zip(words, spaces, strict=False)).strip()
    ((_, parse),) = attach_parses([text], [conllu(words, heads)])
    assert parse is not None
    ((ids, offsets),) = tokenizer(kind).encode_with_offsets([text])
    assert ids == tokenizer(kind).encode(text)
    features = token_features(parse, offsets)
    positions = [TreePosition(*position) for position in zip(*features.values(), strict=True)]
    ends = [word.end for word in parse]
    for (start, end), position in zip(offsets, positions, strict=True):
        first = next((n for n in range(start, end) if not text[n].isspace()), start)
        assert position == tree_positions(heads)[sum(end <= first for end in ends)]
    in_order = [position.preorder for position, _ in groupby(positions)]
    expected = [position.preorder for position in tree_positions(heads)]
    assert [number for number in expected if number in in_order] == in_order  # the tokens of a word are adjacent


def test_words_written_as_one_have_the_highest_position() -> None:
    rows = [("1-3", "dammelo", "_"), ("1", "da", "0"), ("2", "me", "1"), ("3", "lo", "1"), ("4", "!", "1")]
    block = "\n".join("\t".join([n, form, *"____", head, *"___"]) for n, form, head in rows)
    ((_, parse),) = attach_parses(["dammelo!"], [block])
    assert parse is not None
    assert [(word.end, word.position.depth) for word in parse] == [(7, 0), (8, 1)]
    assert parse_from_json(parse_to_json(parse)) == parse


def files(folder: Path, source: str, target: str, parses: str) -> Iterator[Pair]:
    named = {"s.en": source, "s.it": target, "s.conllu": parses}
    for name, content in named.items():
        (folder / name).write_text(content, "utf-8")
    return read_aligned([str(folder / "s.en")], [str(folder / "s.it")], InvalidLines(), [str(folder / "s.conllu")])


TWO = conllu(["I", "look"], [2, 0]) + conllu(["Look", "!"], [0, 1])


def test_sentences_belong_to_lines_in_order(tmp_path: Path) -> None:
    first, second = files(tmp_path, "I look \n  Look!\n", "Guardo\nGuarda!\n", TWO)
    assert first.parse is not None
    assert second.parse is not None
    assert [word.position.depth for word in first.parse] == [1, 0]
    assert [word.end for word in second.parse] == [4, 5]


@pytest.mark.parametrize(
    ("source", "parses", "message"),
    [
        ("I look\nLook!\n", conllu(["I", "look"], [2, 0]), "s.en:2: no parse, because s.conllu ends before it; "),
        ("I look\n", TWO, "s.conllu:6: a parse without a line, because the text ends before it; "),
        ("I look\nLook?\n", TWO, "s.en:2: has '?' where the parse has '!' (s.conllu:6); "),
        ("I look\nLook\n", TWO, "s.en:2: has nothing more where the parse has '!' (s.conllu:6); "),
        ("I look\nLook! Then go away from here\n", TWO, "s.en:2: has 'Then go away from h…' where the parse ends "),
    ],
)
def test_missing_or_misaligned_parses_are_errors_with_location(
    tmp_path: Path, source: str, parses: str, message: str
) -> None:
    target = "x\n" * source.count("\n")
    with pytest.raises(DataError) as error:
        list(files(tmp_path, source, target, parses))
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(message)
    assert error.value.exit_code == 3


def test_pairs_with_wrong_parses_are_skipped_and_counted(tmp_path: Path) -> None:
    list(files(tmp_path, "I look\nLook!\n", "x\nx\n", TWO))
    (tmp_path / "s.en").write_text("I see\nLook!\n")
    paths = [[str(tmp_path / f"s.{end}")] for end in ("en", "it", "conllu")]
    invalid = InvalidLines(skip=True)
    (pair,) = read_aligned(paths[0], paths[1], invalid, paths[2])
    assert pair.source == "Look!"
    assert dict(invalid.counts) == {"parse of another text": 1}


def test_one_file_of_parses_per_source_is_required(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        list(read_aligned(["a", "b"], ["c", "d"], InvalidLines(), ["e"]))
    assert str(error.value) == "there are 2 source files and 1 files of parses; pass one for each source."


def test_parses_of_texts_in_memory() -> None:
    blocks = [conllu(["I", "look"], [2, 0]), conllu(["Look", "!"], [0, 1])]
    assert [parse is None for _, parse in attach_parses(["I look", " ", "Look!"], blocks)] == [False, True, False]
    with pytest.raises(DataError) as error:
        list(attach_parses(["I see"], blocks))
    assert str(error.value) == (
        "text:1: has 'see' where the parse has 'look' (parse 1:2); pass the parse of this line."
    )
    with pytest.raises(DataError) as error:
        list(attach_parses(["I look"] * 2, blocks[:1]))
    assert str(error.value) == "text:2: no parse, because the list of parses ends before it; pass one for every line."


def test_store_keeps_syntax_features(tmp_path: Path) -> None:
    pairs = list(files(tmp_path, "I look\nLook!\n", "Guardo\nGuarda!\n", TWO))
    character_tokenizer = tokenizer("character")
    store_pairs(tmp_path / "store", pairs, character_tokenizer, LengthFilter(), {}, parsed=True)
    store = open_store(tmp_path / "store")
    assert store is not None
    batch = make_pair_batch(store, np.array([1, 0]), SpecialTokensConfig())
    assert batch.source_features["depth"].tolist() == [[0, 0, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0, 1]]
    assert set(batch.source_features) == set(SYNTAX_FEATURES)
    assert all(fact.shape == batch.source.shape for fact in batch.source_features.values())


def test_comments_without_words_are_skipped() -> None:
    assert list(parse_conllu("# only a comment\n\n\n", "x", InvalidLines())) == []
    none: Parse = ()
    assert token_features(none, []) == {name: [] for name in SYNTAX_FEATURES}
