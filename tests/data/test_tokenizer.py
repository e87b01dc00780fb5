"""Text → ids → text loses nothing but what normalisation drops, whatever the text."""

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


def tidied(text: str) -> str:
    """Without outer spaces; Python would also take the separators from 0x1C to 0x1F for spaces, Unicode does not."""
    spaces = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
    return text.replace("▁", " ").strip(spaces)


@pytest.mark.parametrize("kind", SUB_WORDS)
@given(text=TEXT | st.sampled_from(ODD))
def test_sub_words_lose_nothing(kind: str, text: str) -> None:
    assert tokenizer(kind).decode(tokenizer(kind).encode(text)) == tidied(text)


@given(text=TEXT | st.sampled_from(ODD))
def test_bytes_lose_nothing_at_all(text: str) -> None:
    assert tokenizer("byte-level").decode(tokenizer("byte-level").encode(text)) == text


@given(text=st.text(st.sampled_from("".join(TEXTS)), max_size=30))
def test_known_characters_lose_nothing(text: str) -> None:
    assert tokenizer("character").decode(tokenizer("character").encode(text)) == text


@pytest.mark.parametrize("text", TEXTS[:5])
def test_known_words_lose_nothing(text: str) -> None:
    assert tokenizer("word").decode(tokenizer("word").encode(text)) == text


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level"])
@given(text=TEXT)
def test_normalisation_is_what_the_settings_ask_for(kind: str, text: str) -> None:
    nfkc = tokenizer(kind, nfkc=True)
    expected = unicodedata.normalize("NFKC", text)
    assert nfkc.decode(nfkc.encode(text)) == (expected if kind == "byte-level" else tidied(expected))
    lower = tokenizer(kind, lowercase=True)
    assert lower.decode(lower.encode("TI AMO MOLTO")) == "ti amo molto"


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level", "character", "word"])
def test_special_tokens_come_first_and_never_from_a_text(kind: str) -> None:
    subject = tokenizer(kind)
    assert subject.ids_to_tokens(range(4)) == SPECIAL_TOKENS
    assert not {0, 2, 3} & set(subject.encode("[PAD] [SOS] [EOS]"))
    assert subject.decode([2, *subject.encode("Ti amo"), 3, 0, 0]) == "Ti amo"


@pytest.mark.parametrize("kind", [*SUB_WORDS, "byte-level", "character", "word"])
def test_a_tokenizer_survives_its_file(kind: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer(kind).to_json())
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert len(again) == len(tokenizer(kind)) <= 400
    assert again.encode_batch(TEXTS + ODD) == [tokenizer(kind).encode(text) for text in TEXTS + ODD]


@pytest.mark.parametrize("kind", ["bpe", "byte-level", "character", "word"])
def test_learning_is_deterministic(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind})
    assert train_tokenizer(TEXTS, config, 400).to_json() == tokenizer(kind).to_json()


def test_frequent_words_become_one_piece() -> None:
    assert tokenizer("bpe").ids_to_tokens(tokenizer("bpe").encode("Ti amo")) == ["▁Ti", "▁amo"]


def test_a_bad_file_gets_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\); pass the path of a tokenizer"):
        load_tokenizer(path)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"not UTF-8 text; pass the path of a tokenizer.json."):
        load_tokenizer(path)
    path.write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer.json: is not a tokenizer.json \("):
        load_tokenizer(path)
