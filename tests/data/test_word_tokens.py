"""The fast encoder gives the same ids as the tokenizer for any text."""

from functools import cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from regard.config.data import TokenizerConfig
from regard.data import word_tokens
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.data.word_tokens import fast_encoder

KINDS = ["bpe", "unigram", "word", "byte-level", "character"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text("ae lo▁\t\u00a0\u2003[<?.", max_size=40)
BYTES = st.text("aé中½²Ⅷ٣ \t\n\r\u00a0\x85\u2028\x1c\x1f'stlvemrd!—€\u0301\u200d\x00_1", max_size=30)
ODD = [
    "  I'll  it's'd\n\n  x \n",
    "",
    " ",
    "a  b",
    " a ",
    "a\u00a0 b",
    "\u3000a",
    "[SOS] <0x41>",
    "ﬁ \ufb01",
    "▁",
    "a▁ ▁b",
    "日本 語",
    "a\x00 b",
]


@cache
def sentences() -> list[str]:
    text = "where is the café I love you very much low lower lowest dov'è caffè [x] <y> a-b?"
    return [text[n % 37 : n % 37 + n % 41 + 2] for n in range(500)]


@cache
def tokenizer(kind: str, nfkc: bool = False, lowercase: bool = False) -> Tokenizer:
    config = {"kind": kind, "nfkc": nfkc, "lowercase": lowercase}
    return train_tokenizer(sentences(), TokenizerConfig.model_validate(config), 400)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nfkc", [False, True])
@given(texts=st.lists(TEXT | BYTES | st.sampled_from(ODD), max_size=6))
def test_any_text_equals_the_tokenizer(kind: str, nfkc: bool, texts: list[str]) -> None:
    assert fast_encoder(tokenizer(kind, nfkc, nfkc))(texts) == tokenizer(kind, nfkc, nfkc).encode_batch(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_equal_the_tokenizer_with_a_small_cache(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, expected = fast_encoder(tokenizer(kind)), tokenizer(kind).encode_batch(sentences())
    assert encode(sentences()) == expected
    monkeypatch.setattr(word_tokens, "MAX_CACHED_WORDS", 10)
    assert encode(sentences()[:100]) == expected[:100]
    assert encode(sentences()) == expected


@given(text=TEXT | st.sampled_from(ODD))
def test_tokenizer_without_normalizer(text: str) -> None:
    fast = tokenizers.Tokenizer.from_str(tokenizer("bpe").to_json().decode())
    fast.normalizer = None
    modified = Tokenizer(fast)
    assert fast_encoder(modified)([text]) == modified.encode_batch([text])


def test_added_tokens_across_words() -> None:
    fast = tokenizers.Tokenizer.from_str(tokenizer("bpe").to_json().decode())
    fast.add_tokens(["New York"])
    modified = Tokenizer(fast)
    assert fast_encoder(modified)(["New York is"]) == modified.encode_batch(["New York is"])


def test_every_character_class_is_split_like_the_library() -> None:
    codes = [*range(0x600), *range(0x600, 0x30000, 37)]
    texts = [
        "".join(f"a{chr(code)}1{chr(code)}! {chr(code)} {chr(code)}\n" for code in codes if chr(code).isprintable())
    ]
    texts += [f"a{chr(code)}  {chr(code)}b" for code in range(0x100)]
    assert fast_encoder(tokenizer("byte-level"))(texts) == tokenizer("byte-level").encode_batch(texts)
