"""Text → ids → text is lossless apart from normalization."""

import unicodedata
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config.data import TokenizerConfig
from regard.data.tokenizer import SPECIAL_TOKENS, Tokenizer, load_tokenizer, train_tokenizer
from regard.errors import DataError

TEXTS = ["I love you very much.", "Ti amo molto.", "Where is the café?", "Dov'è il caffè?", "low lower lowest"] * 4
SUB_WORDS = ["bpe", "unigram"]
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
def tokenizer(kind: str, lowercase: bool = False, nfkc: bool = False) -> Tokenizer:
    config = TokenizerConfig.model_validate({"kind": kind, "lowercase": lowercase, "nfkc": nfkc})
    return train_tokenizer(TEXTS, config, 400)


def stripped(text: str) -> str:
    """Strip outer spaces by Unicode's definition, which excludes the separators from 0x1C to 0x1F."""
    spaces = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
    return text.replace("▁", " ").strip(spaces)


@pytest.mark.parametrize("kind", SUB_WORDS)
@given(text=TEXT | st.sampled_from(ODD))
def test_sub_word_tokenizers_are_lossless(kind: str, text: str) -> None:
    assert tokenizer(kind).decode(tokenizer(kind).encode(text)) == stripped(text)


@given(text=TEXT | st.sampled_from(ODD))
def test_byte_level_tokenizer_is_lossless(text: str) -> None:
    assert tokenizer("byte-level").decode(tokenizer("byte-level").encode(text)) == text


@given(text=st.text(st.sampled_from("".join(TEXTS)), max_size=30))
def test_known_characters_are_lossless(text: str) -> None:
    assert tokenizer("character").decode(tokenizer("character").encode(text)) == text


@pytest.mark.parametrize("text", TEXTS[:5])
def test_known_words_are_lossless(text: str) -> None:
    assert tokenizer("word").decode(tokenizer("word").encode(text)) == text


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
    assert loaded.encode_batch(TEXTS + ODD) == [tokenizer(kind).encode(text) for text in TEXTS + ODD]


@pytest.mark.parametrize("kind", ["bpe", "byte-level", "character", "word"])
def test_training_is_deterministic(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind})
    assert train_tokenizer(TEXTS, config, 400).to_json() == tokenizer(kind).to_json()


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
    with pytest.raises(DataError, match=r"tokenizer.json: cannot be read as a tokenizer \(it has no model\)"):
        load_tokenizer(path)
