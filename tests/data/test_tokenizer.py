"""Text → ids → text is lossless apart from normalization."""

import json
import unicodedata
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from regard.config.data import TokenizerConfig
from regard.data.tokenizer import SPECIAL_TOKENS, Tokenizer, load_tokenizer, train_tokenizer
from regard.errors import DataError, ModelError

TEXTS = ["I love you very much.", "Ti amo molto.", "Where is the café?", "Dov'è il caffè?", "low lower lowest"] * 4
SUB_WORDS = ["bpe", "unigram"]
MARKS = st.text("amuch .?!…-'’\"([<>])€\n\t\u0301😀▁", max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ODD = [
    "日本語 😀👩\u200d👩\u200d👧 \u0301x",
    "tab\there\r\nline",
    "a\u00a0b\u2003c\x00d",
    "[SOS] [PAD]x [UNK]",
    "<0x41><unk>",
    "a  b",
    "é e\u0301",
    "",
]


@cache
def tokenizer(kind: str, lowercase: bool = False, nfkc: bool = False, split_punctuation: bool = True) -> Tokenizer:
    options = {"lowercase": lowercase, "nfkc": nfkc, "split_punctuation": split_punctuation}
    return train_tokenizer(TEXTS, TokenizerConfig.model_validate({"kind": kind, **options}), 400)


def stripped(text: str) -> str:
    """Strip outer spaces by Unicode's definition, which excludes the separators from 0x1C to 0x1F."""
    spaces = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
    return text.replace("▁", " ").strip(spaces)


@pytest.mark.parametrize("kind", SUB_WORDS)
@pytest.mark.parametrize("split_punctuation", [True, False])
@given(text=TEXT | MARKS | st.sampled_from(ODD))
def test_sub_word_tokenizers_are_lossless(kind: str, split_punctuation: bool, text: str) -> None:
    under_test = tokenizer(kind, split_punctuation=split_punctuation)
    assert under_test.decode(under_test.encode(text)) == stripped(text)


@pytest.mark.parametrize("kind", SUB_WORDS)
def test_a_word_has_one_id_whatever_punctuation_follows(kind: str) -> None:
    under_test = tokenizer(kind)
    word = under_test.encode("much")
    assert len(word) == 1 or kind == "unigram"
    for mark in (".", "?!", "...", ")", '"', "’", "€", "\nx", "[x", "<0x41>", " x"):
        assert under_test.encode(f"much{mark}") == [*word, *under_test.encode_continuation(mark)], mark


@pytest.mark.parametrize("kind", SUB_WORDS)
def test_no_token_has_letters_and_punctuation(kind: str) -> None:
    def mixed(under_test: Tokenizer) -> list[str]:
        tokens = (token.removeprefix("▁") for token in under_test.ids_to_tokens(range(260, len(under_test))))
        return [token for token in tokens if any(map(str.isalnum, token)) and not token.isalnum()]

    assert mixed(tokenizer(kind)) == []
    if kind == "bpe":
        assert "much." in mixed(tokenizer(kind, split_punctuation=False))


def test_a_run_of_one_mark_may_become_one_token() -> None:
    dots = train_tokenizer(["well... (so --"] * 5, TokenizerConfig(), 300)
    assert dots.ids_to_tokens(dots.encode("well... (so) --")) == ["▁well", "...", "▁(", "so", "<0x29>", "▁--"]
    assert dots.ids_to_tokens(dots.encode("!!.")) == ["▁", "<0x21>", "<0x21>", "."]


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level", "character"])
@given(text=MARKS | st.sampled_from(["[[x]]", "<<", "[", "...x", "x y"]))
def test_continuations_join_the_text_before(kind: str, text: str) -> None:
    under_test = tokenizer(kind)
    ids = [*under_test.encode("Ti"), *under_test.encode_continuation(text)]
    if kind != "character":
        assert under_test.decode(ids) == (f"Ti{text}" if kind == "byte-level" else stripped(f"Ti{text}"))


@given(text=TEXT | st.sampled_from(ODD))
def test_byte_level_tokenizer_is_lossless(text: str) -> None:
    assert tokenizer("byte-level").decode(tokenizer("byte-level").encode(text)) == text


@pytest.mark.parametrize("kind", ["character", "word"])
@given(text=TEXT | MARKS | st.sampled_from([*ODD, *TEXTS]))
def test_unknown_characters_and_words_are_spelled_in_bytes(kind: str, text: str) -> None:
    under_test = tokenizer(kind)
    ids = under_test.encode(text)
    assert under_test.decode(ids) == (text if kind == "character" else stripped(text))
    assert 1 not in ids


def test_known_characters_and_words_are_one_token() -> None:
    assert tokenizer("character").ids_to_tokens(tokenizer("character").encode("caffè 日")) == [
        *"caffè ",
        "<0xE6>",
        "<0x97>",
        "<0xA5>",
    ]
    tokens = tokenizer("word").ids_to_tokens(tokenizer("word").encode("Ti amo, x."))
    assert tokens == ["▁Ti", "▁amo", "<0x2C>", "▁", "<0x78>", "."]


@pytest.mark.parametrize("kind", ["character", "word"])
def test_without_byte_fallback_they_are_unknown(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "byte_fallback": False})
    under_test = train_tokenizer(TEXTS, config, 400)
    assert len(under_test) < 60
    assert under_test.unknown_id == 1
    assert under_test.num_unknown(under_test.encode("Ti amo 日")) == 1
    assert under_test.decode(under_test.encode("Ti amo molto.")) == "Ti amo molto."


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level", "character", "word"])
def test_no_text_is_unknown_to_a_trained_tokenizer(kind: str) -> None:
    assert tokenizer(kind).unknown_id is None
    assert tokenizer(kind).num_unknown([1, 1]) == 0


def test_unknown_tokens_of_other_tokenizers() -> None:
    pieces = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    assert Tokenizer(pieces).unknown_id == 0
    unigram = tokenizers.Tokenizer(models.Unigram([("a", -1.0), ("<unk>", 0.0)], unk_id=1))
    assert Tokenizer(unigram).num_unknown(Tokenizer(unigram).encode("aba")) == 1
    assert Tokenizer(tokenizers.Tokenizer(models.BPE({"a": 0}, []))).unknown_id is None
    some_bytes = models.BPE({"<unk>": 0, "a": 1, "<0x41>": 2}, [], unk_token="<unk>", byte_fallback=True)
    assert Tokenizer(tokenizers.Tokenizer(some_bytes)).unknown_id == 0


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level"])
@given(text=TEXT)
def test_normalization_follows_the_config(kind: str, text: str) -> None:
    nfkc = tokenizer(kind, nfkc=True)
    expected = unicodedata.normalize("NFKC", text)
    assert nfkc.decode(nfkc.encode(text)) == (expected if kind == "byte-level" else stripped(expected))
    lower = tokenizer(kind, lowercase=True)
    assert lower.decode(lower.encode("TI AMO MOLTO")) == "ti amo molto"


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level", "character", "word"])
def test_special_tokens_are_first_and_never_encoded_from_text(kind: str) -> None:
    under_test = tokenizer(kind)
    assert under_test.ids_to_tokens(range(4)) == SPECIAL_TOKENS
    assert not {0, 2, 3} & set(under_test.encode("[PAD] [SOS] [EOS]"))
    assert under_test.decode([2, *under_test.encode("Ti amo"), 3, 0, 0]) == "Ti amo"


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level", "character", "word"])
def test_saved_tokenizers_are_equal(kind: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer(kind).to_json())
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert len(loaded) == len(tokenizer(kind)) <= 400
    ids = [tokenizer(kind).encode(text) for text in TEXTS + ODD]
    texts = [loaded.decode(row) for row in ids]
    for count in (0, 1, len(ids)):  # few texts are not processed in parallel
        assert loaded.encode_batch((TEXTS + ODD)[:count]) == ids[:count]
        assert loaded.decode_batch(ids[:count]) == texts[:count]


@pytest.mark.parametrize("kind", ["bpe", "byte-level", "character", "word"])
def test_training_is_deterministic(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind})
    assert train_tokenizer(TEXTS, config, 400).to_json() == tokenizer(kind).to_json()


def test_unigram_tokens_of_equal_score_are_in_alphabetical_order() -> None:
    letters = "qjzxkvbpgfwmucldrhsnioate"
    model = json.loads(train_tokenizer([*letters] * 3, TokenizerConfig(kind="unigram"), 400).to_json())["model"]
    learned = model["vocab"][260:]
    ties = [[token for token, _ in group] for _, group in groupby(learned, key=lambda entry: entry[1])]
    assert max(map(len, ties)) > 10
    assert ties == [sorted(group) for group in ties]
    assert [score for _, score in learned] == sorted((score for _, score in learned), reverse=True)


@pytest.mark.parametrize("kind", [*SUB_WORDS, "word"])
def test_every_word_begins_with_a_space_even_the_first(kind: str) -> None:
    under_test = tokenizer(kind)
    strings = under_test.token_strings()
    for text in ("Ti amo molto", "molto amo Ti"):
        assert "".join(strings[number] for number in under_test.encode(text)) == f" {text}"
    assert under_test.encode("amo")[-1:] == under_test.encode("Ti amo")[-1:]


def test_frequent_words_become_one_token() -> None:
    assert tokenizer("bpe").ids_to_tokens(tokenizer("bpe").encode("Ti amo")) == ["▁Ti", "▁amo"]


def test_invalid_files_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\); pass the path of a tokenizer"):
        load_tokenizer(path)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"not UTF-8 text; pass the path of a tokenizer.json."):
        load_tokenizer(path)
    path.write_text("{}")
    problem = f"{path}: cannot be read as a tokenizer (it has no model); "
    with pytest.raises(DataError) as data_error:
        load_tokenizer(path)
    assert str(data_error.value) == f"{problem}pass another tokenizer.json."
    with pytest.raises(ModelError) as model_error:
        load_tokenizer(path, vocab_size=10)
    assert str(model_error.value) == f"{problem}copy the folder again."
    path.write_text("[")
    for size, remedy in ((None, "pass another tokenizer.json."), (10, "copy the folder again.")):
        with pytest.raises((DataError, ModelError), match=rf"is not valid JSON \(.*\); {remedy}"):
            load_tokenizer(path, size)
