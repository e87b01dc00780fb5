"""A tokenizer made of GPT-2's or BERT's files gives the ids of transformers' own; one that is there is carried over."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import BertTokenizer, GPT2Tokenizer

from regard.config import EncoderOnlyConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop.hf_folder import HFWeights
from regard.interop.hf_spec import ImportPlan
from regard.interop.hf_tokenizers import ImportedTokenizers, bert_tokenizer, gpt2_tokenizer
from regard.interop.huggingface import _known_tokens

SENTENCES = [
    "The cat sat on the mat, and the dog sang an old song about rivers.",
    "What's the matter? It's 12:45 already; they've gone to the café.",
    "Naïve résumés, über-long words and 3.14159 are all here!",
]
TEXTS = [
    *SENTENCES,
    "",
    " ",
    "   the   cat  \n\t sat ",
    "THE CAT",
    "cafe\u0301 naïve ﬁne ½ Ⅷ",
    "日本語 한국어 עברית العربية हिन्दी",
    "👍🏽 👨‍👩‍👧 \u200b\u00a0\u3000 \x00\x01\ufffd\ufeff",
    "don't we'll I'm they've you're he'd",
    "a" * 300,
    "before<|endoftext|>after [SEP] [MASK] x [UNK]",
    "###hash ##ing - — … “quotes” <tags>",
]
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        SENTENCES, vocab_size=330, special_tokens=["<|endoftext|>"], show_progress=False, min_frequency=1
    )
    tokenizer.save_model(str(folder))
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    specials = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({letter for text in SENTENCES for letter in text + text.lower() if not letter.isspace()})
    words = ["the", "cat", "sat", "##at", "##ing", "café", "cafe", "naive", "日", "한국어", "\u2028", "\x85"]
    pieces = [*specials, *letters, *(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_bytes("".join(f"{piece}\n" for piece in dict.fromkeys(pieces)).encode())
    return folder


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text).ids)


def saved_and_loaded(tokenizers: Any) -> Tokenizer:
    """The tokenizer after a round trip through its file."""
    return Tokenizer.from_str(tokenizers.files["tokenizer.json"].decode())


@pytest.mark.parametrize("prefix", [False, True])
def test_gpt2_ids_equal_hugging_face(prefix: bool, gpt2: Path) -> None:
    (gpt2 / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix}))
    theirs, ours = GPT2Tokenizer.from_pretrained(gpt2), saved_and_loaded(gpt2_tokenizer(gpt2))
    for text in TEXTS:
        assert ids(ours, text) == theirs(text).input_ids
        assert ours.decode(ids(ours, text), skip_special_tokens=False) == theirs.decode(theirs(text).input_ids)


def test_gpt2_ids_equal_hugging_face_for_any_text(gpt2: Path) -> None:
    (gpt2 / "tokenizer_config.json").write_text("{}")
    theirs, ours = GPT2Tokenizer.from_pretrained(gpt2), saved_and_loaded(gpt2_tokenizer(gpt2))

    @given(anything)
    def check(text: str) -> None:
        assert ids(ours, text) == theirs(text).input_ids

    check()


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False, "strip_accents": True}],
)
def test_bert_ids_equal_hugging_face(settings: dict[str, bool], bert: Path) -> None:
    (bert / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs, ours = BertTokenizer.from_pretrained(bert), saved_and_loaded(bert_tokenizer(bert))
    for text in TEXTS:
        assert ids(ours, text) == theirs(text).input_ids
    pair, expected = ours.encode("the cat", "sat"), theirs("the cat", "sat")
    assert (pair.ids, pair.type_ids) == (expected.input_ids, expected.token_type_ids)


def test_bert_ids_equal_hugging_face_for_any_text(bert: Path) -> None:
    (bert / "tokenizer_config.json").write_text("{}")
    theirs, ours = BertTokenizer.from_pretrained(bert), saved_and_loaded(bert_tokenizer(bert))

    @given(anything)
    def check(text: str) -> None:
        assert ids(ours, text) == theirs(text).input_ids

    check()


def test_vocabulary_lines_may_contain_unicode_line_separators(bert: Path) -> None:
    ours = saved_and_loaded(bert_tokenizer(bert))
    lines = (bert / "vocab.txt").read_bytes().decode().split("\n")
    assert (ours.token_to_id("\u2028"), ours.token_to_id("\x85")) == (lines.index("\u2028"), lines.index("\x85"))


def copy_vocabulary(folder: Path, out: Path, **files: Any) -> Path:
    """Copy a vocabulary and add other files: `tokenizer_config={...}` becomes `tokenizer_config.json`."""
    for file in folder.iterdir():
        if file.name in ("vocab.json", "merges.txt", "vocab.txt"):
            (out / file.name).write_bytes(file.read_bytes())
    for name, content in files.items():
        (out / f"{name}.json").write_text(json.dumps(content))
    return out


def test_added_tokens_are_not_split(gpt2: Path, tmp_path: Path) -> None:
    size = len(json.loads((gpt2 / "vocab.json").read_text()))
    added = {"<sep>": size, "<pad>": size + 1}
    properties = {"lstrip": False, "rstrip": True, "single_word": False, "normalized": False, "special": True}
    folder = copy_vocabulary(
        gpt2,
        tmp_path,
        added_tokens=added,
        tokenizer_config={"added_tokens_decoder": {size + 1: {"content": "<pad>", **properties}}},
    )
    ours = saved_and_loaded(gpt2_tokenizer(folder))
    assert {token: ours.token_to_id(token) for token in added} == added
    assert ids(ours, "the<sep>cat<pad> sat") == [
        *ids(ours, "the"),
        size,
        *ids(ours, "cat"),
        size + 1,
        *ids(ours, "sat"),
    ]


def test_add_bos_token_is_followed(gpt2: Path, tmp_path: Path) -> None:
    ours = saved_and_loaded(gpt2_tokenizer(copy_vocabulary(gpt2, tmp_path, tokenizer_config={"add_bos_token": True})))
    assert ours.encode("the").tokens[0] == "<|endoftext|>"


def test_special_tokens_may_have_other_names(bert: Path, tmp_path: Path) -> None:
    folder = copy_vocabulary(
        bert,
        tmp_path,
        special_tokens_map={"cls_token": {"content": "[unused0]"}, "sep_token": "[MASK]", "unk_token": None},
    )
    assert saved_and_loaded(bert_tokenizer(folder)).encode("the").tokens == ["[unused0]", "the", "[MASK]"]


def test_a_tokenizer_json_is_copied_without_truncation_and_padding(bert: Path, tmp_path: Path) -> None:
    tokenizer = saved_and_loaded(bert_tokenizer(bert))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizers = bert_tokenizer(tmp_path)
    assert saved_and_loaded(tokenizers).encode("the cat sat the cat").tokens == [
        "[CLS]",
        "the",
        "cat",
        "sat",
        "the",
        "cat",
        "[SEP]",
    ]
    assert tokenizers.notes == (
        "The folder's tokenizer.json truncates texts to 4 tokens; the imported one does not truncate.",
    )


def test_an_unsupported_tokenizer_class_is_omitted_with_a_note(bert: Path, tmp_path: Path) -> None:
    folder = copy_vocabulary(bert, tmp_path, tokenizer_config={"tokenizer_class": "BertJapaneseTokenizer"})
    tokenizers = bert_tokenizer(folder)
    assert tokenizers.files == {}
    assert tokenizers.notes == (
        "The folder's tokenizer is a BertJapaneseTokenizer, which regard cannot build; "
        "put a tokenizer.json into the imported folder to use it with text.",
    )


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", "[]", "should contain a JSON object; copy the folder again."),
        (
            "tokenizer.json",
            "{}",
            "cannot be read as a tokenizer (it has no model); copy the folder again.",
        ),
        ("vocab.json", '{"a": "b"}', "gives 'a' the id 'b'; copy the folder again."),
        ("vocab.json", '{"a": 1, "b": 1}', "gives the same id to several tokens; copy the folder again."),
        ("merges.txt", "a b c", "has a line 'a b c' that is not two tokens; copy the folder again."),
        ("merges.txt", None, "is missing; copy it from the original model."),
        ("merges.txt", b"\xff", "is not UTF-8 text (byte 0); copy it again."),
        ("added_tokens.json", '{"<new>": 3}', "gives '<new>' the id 3, which is not free; copy it again."),
    ],
)
def test_damaged_gpt2_tokenizer_files_are_refused(
    name: str, content: str | bytes | None, problem: str, gpt2: Path, tmp_path: Path
) -> None:
    folder = copy_vocabulary(gpt2, tmp_path)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError) as error:
        gpt2_tokenizer(folder)
    assert str(error.value) == f"{folder / name}: {problem}"


def test_merges_outside_of_the_vocabulary_are_refused(gpt2: Path, tmp_path: Path) -> None:
    folder = copy_vocabulary(gpt2, tmp_path)
    (folder / "merges.txt").write_text("ħ ĸ\n", "utf-8")
    with pytest.raises(ModelError) as error:
        gpt2_tokenizer(folder)
    assert str(error.value) == (
        f"{folder / 'vocab.json'}: cannot be read as a tokenizer "
        "(Error while initializing BPE: Token `ħĸ` out of vocabulary); copy the folder again."
    )


def test_a_bert_vocabulary_without_its_special_tokens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n")
    with pytest.raises(ModelError) as error:
        bert_tokenizer(tmp_path)
    assert str(error.value) == f"{tmp_path / 'vocab.txt'}: has no token [CLS]; copy the folder again."


def test_special_tokens_outside_of_the_vocabulary_are_replaced_with_a_note() -> None:
    tokens = SpecialTokensConfig(pad=0, unknown=71, start=2, end=3)
    plan = ImportPlan(
        EncoderOnlyConfig(vocab_size=60), tokens, [], HFWeights(Path(), {}, {}), ImportedTokenizers({}), "", {}, []
    )
    assert _known_tokens(plan) == SpecialTokensConfig(pad=0, unknown=3, start=2, end=3)
    assert plan.notes == ["The unknown token has id 71, outside of the network's vocabulary of 60; 3 is used."]
