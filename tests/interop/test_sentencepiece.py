"""BPE models of SentencePiece, such as Llama 2's, in folders of Hugging Face and in GGUF files: the same ids."""

import io
import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from regard.config import Config, DecoderOnlyConfig, RotaryPositionsConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop import export_gguf, import_gguf_file
from regard.interop.gguf_file import read_gguf
from regard.interop.gguf_tokenizer import export_tokenizer, import_tokenizer
from regard.interop.hf_tokenizers import llama_tokenizer
from regard.interop.sentencepiece import bpe_tokenizer, parse_sentencepiece
from regard.models import build, load_network, save

SENTENCES = [
    "The cat sat on the mat, and the dog sang an old song about rivers.",
    "What's the matter? It's 12:45 already; they've gone to the café.",
    "def add(a, b):\n    return a + b  # the sum of a and b",
    "Naïve résumés, über-long words and 3.14159 are all here!",
]
TEXTS = [
    *SENTENCES,
    "",
    " ",
    "  the   cat \n\t sat ",
    "1987 + 12345 = ?",
    "日本語 👍🏽 \u200b\u00a0 ﬁne ½",
    "the" * 40,
    "<0x41> ▁x",
]


def train(**settings: Any) -> bytes:
    model = io.BytesIO()
    llama: dict[str, Any] = {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
        "split_digits": True,
        "allow_whitespace_only_pieces": True,
        "vocab_size": 420,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **llama | settings,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def llama() -> bytes:
    return train()


def tokenizer_of(content: bytes) -> Tokenizer:
    model = parse_sentencepiece(content)
    return bpe_tokenizer(model.pieces, dummy_prefix=model.dummy_prefix, byte_fallback=model.byte_fallback)


@pytest.mark.parametrize(
    "settings",
    [{}, {"add_dummy_prefix": False}, {"byte_fallback": False, "vocab_size": 160}, {"split_by_whitespace": False}],
    ids=str,
)
def test_ids_and_texts_equal_sentencepiece(settings: dict[str, Any]) -> None:
    content = train(**settings)
    theirs, ours = sentencepiece.SentencePieceProcessor(model_proto=content), tokenizer_of(content)
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text).ids == ids, text
        if theirs.unk_id() not in ids:
            assert ours.decode(ids) == theirs.decode(ids) == text.replace("▁", " ")


@given(text=st.text(st.sampled_from("The catsoné12.,\n\t ▁日👍\u0301")))
def test_ids_of_any_text_equal_sentencepiece(llama: bytes, text: str) -> None:
    assert tokenizer_of(llama).encode(text).ids == sentencepiece.SentencePieceProcessor(model_proto=llama).encode(text)


def test_a_folder_with_tokenizer_model_gets_a_start_token_and_added_tokens(llama: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(llama)
    ids = sentencepiece.SentencePieceProcessor(model_proto=llama).encode("the cat")
    (tokenizer,) = llama_tokenizer(tmp_path).by_file.values()
    assert tokenizer.encode("the cat").ids == [1, *ids]
    size = tokenizer.get_vocab_size()
    added = {str(size): {"content": "<tool>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "added_tokens_decoder": added}))
    (tokenizer,) = llama_tokenizer(tmp_path).by_file.values()
    assert tokenizer.encode("the cat<tool>").ids == [*ids, size]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "OtherTokenizer"}))
    assert "is a OtherTokenizer, which regard cannot build" in llama_tokenizer(tmp_path).notes[0]


@pytest.mark.parametrize("settings", [{"model_type": "unigram", "vocab_size": 330}, {"remove_extra_whitespaces": True}])
def test_models_that_change_texts_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(train(**settings))
    with pytest.raises(ModelError, match=r"tokenizer.model: is a \w+ model .* put a tokenizer.json"):
        llama_tokenizer(tmp_path)


@pytest.mark.parametrize("prefix", [True, False])
def test_gguf_files_hold_them(prefix: bool, tmp_path: Path) -> None:
    content = train(add_dummy_prefix=prefix, user_defined_symbols=["||"])
    tokenizer = tokenizer_of(content)
    model = DecoderOnlyConfig(
        vocab_size=tokenizer.get_vocab_size() + 2,
        width=32,
        layers=1,
        heads=2,
        feed_forward=32,
        activation="swiglu",
        norm="rms",
        norm_order="pre",
        positions=RotaryPositionsConfig(layout="halves"),
        scale_embeddings=False,
    )
    tokens = SpecialTokensConfig(pad=2, unknown=0, start=1, end=2)
    config = Config.model_validate({"model": model, "tokens": tokens})
    save(tmp_path / "model", build(model), config, extra_files={"tokenizer.json": tokenizer.to_str().encode()})
    report = export_gguf(tmp_path / "model", tmp_path / "x.gguf")
    assert not report.notes
    metadata: Any = read_gguf(report.folder).metadata
    assert metadata["tokenizer.ggml.model"] == "llama"
    assert metadata["tokenizer.ggml.add_space_prefix"] is prefix
    kinds = [3 if kind == 2 else kind for kind in metadata["tokenizer.ggml.token_type"]]
    pieces = parse_sentencepiece(content).pieces
    assert [3 if piece.type == 2 else piece.type for piece in pieces] == kinds[: len(pieces)]
    imported = import_gguf_file(report.folder, tmp_path / "imported").folder
    again = Tokenizer.from_file(str(imported / "tokenizer.json"))
    for text in (*TEXTS, "a||b"):
        assert again.encode(text).ids == [1, *tokenizer.encode(text).ids]
    assert load_network(imported).config.tokens.start == 1


def test_tokenizers_with_other_merges_have_no_scores(llama: bytes) -> None:
    tokenizer = tokenizer_of(llama)
    content = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    entries = export_tokenizer(tokenizer, size)
    assert entries is not None
    assert entries["model"] == "llama"
    merges = content["model"]["merges"]
    divided = next(n for n, merge in enumerate(merges) if "".join(merge) == "".join(merges[n + 1]))
    for changed in (merges[1:], [*merges[:divided], *merges[divided + 1 :], merges[divided]]):
        content["model"]["merges"] = changed
        assert export_tokenizer(Tokenizer.from_str(json.dumps(content)), size) is None


ENTRIES: dict[str, Any] = {"tokens": ["<unk>", "a", "b", "ab"], "scores": [0.0, -1.0, -1.0, 0.0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "tokenizer.ggml.scores should be a number for each token"),
        ({"scores": [1.0]}, "tokenizer.ggml.scores should be a number for each token"),
        ({"scores": [1.0, float("nan"), 1.0, 1.0]}, "the score of 'a' is not a number"),
        ({"token_type": [1, 1, 1, 9]}, "tokenizer.ggml.token_type should have numbers from 1 to 6"),
        ({"tokens": ["<unk>", "a", "b", "c" * 9999]}, "a token has more than 1024 characters"),
        ({"tokens": ["<unk>", "a", "b", "a"]}, "tokenizer.ggml.tokens has 'a' twice"),
    ],
)
def test_unusable_entries_have_one_message(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tokenizer_model("llama")
    for name, value in (ENTRIES | changes).items():
        if value is not None:
            writer.add_array(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=message) as error:
        import_tokenizer(read_gguf(tmp_path / "x.gguf"))
    assert str(error.value).startswith(f"{tmp_path / 'x.gguf'}: ")
