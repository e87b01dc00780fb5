"""Marian's tokenizers give the ids of transformers, for models trained by SentencePiece in the test."""

import io
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import MarianConfig, MarianMTModel, MarianTokenizer, logging

from regard.config import SpecialTokensConfig
from regard.data.tokenizer import Tokenizer as OurTokenizer
from regard.errors import ModelError
from regard.interop import import_huggingface
from regard.interop.marian_tokenizer import marian_tokenizers
from regard.interop.sentencepiece import PieceType, parse_sentencepiece, read_sentencepiece
from regard.models import load_network

ENGLISH = "the cat sat on mat dog runs quickly through green field sings old songs rivers seas 12 345 hello, world! ½"
ITALIAN = "il gatto è seduto sul tappeto cane corre nel campo perché città più ciao, mondo! ñandú ß 漢字 漢 字"
TEXTS = [
    "the cat sat on the mat",
    "  the   cat  ",
    "",
    "   ",
    "\tthe\ncat\r\n",
    "The DOG, hello!! (world)",
    "perché è così? Straße ß ßß 漢 漢字 漢字漢",
    "café cafe\u0301 ﬁne ½ Ⅷ ㎏ Ａ①",
    "日本語 한국어 עברית العَرَبِيّة हिन्दी ไทย",
    "👍🏽 👨‍👩‍👧 \u200b\u00a0\u3000\x00\x01\ufffd\ufeff\u2028",
    "▁the▁cat ▁ cat▁",
    "the</s>cat <pad> x<unk>",
    ">>ita<< the cat",
    ">>ita<<the cat",
    "a>b >> <<",
    "songs " * 40,
]


def train_sentencepiece(words: str, **settings: Any) -> bytes:
    """Train a unigram model on sentences of these words."""
    generator, model = random.Random(0), io.BytesIO()
    sentences = [" ".join(generator.choices(words.split(), k=generator.randint(3, 9))) for _ in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 120, **settings},
    )
    return model.getvalue()


def write(folder: Path, *, missing: str = "", **settings: Any) -> Path:
    """Write Marian's tokenizer files: `vocab.json` has the pieces of both sides in sorted order."""
    folder.mkdir(exist_ok=True)
    pieces = set()
    for name, words in (("source.spm", ENGLISH), ("target.spm", ITALIAN)):
        (folder / name).write_bytes(train_sentencepiece(words, **settings))
        model = read_sentencepiece(folder / name)
        pieces |= {piece.text for piece in model.pieces if piece.type in (PieceType.NORMAL, PieceType.USER_DEFINED)}
    texts = ["</s>", "<unk>", *sorted(pieces - {missing}), ">>ita<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({text: number for number, text in enumerate(texts)}))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("marian"))


def theirs(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        return MarianTokenizer.from_pretrained(folder)


def ours(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target after a round trip through their files."""
    files = marian_tokenizers(folder).files
    return tuple(Tokenizer.from_str(files[name].decode()) for name in ("tokenizer.json", "target_tokenizer.json"))  # type: ignore[return-value]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"normalization_rule_name": "identity"},
    {"normalization_rule_name": "nfkc_cf"},
    {"add_dummy_prefix": False},
    {"split_by_whitespace": False},
    {"user_defined_symbols": ["cat", "⟨x⟩"]},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings) or "defaults")
def test_marian_ids_equal_hugging_face(settings: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, **settings)
    expected, (source, target) = theirs(tmp_path), ours(tmp_path)
    for text in [*TEXTS, "a cat⟨x⟩y"]:
        assert source.encode(text).ids == expected(text).input_ids
        assert target.encode(text).ids == expected(text_target=text).input_ids


CASED = st.characters(exclude_categories=["Cs", "Mn", "Mc", "Me"], exclude_characters="\u200c\u200d\uff9e\uff9f")
PARTS = st.one_of(
    st.text(CASED, max_size=3),
    st.sampled_from([f"{word} " for word in (ENGLISH + " " + ITALIAN).split()]),
    st.sampled_from(["  ", "ß", "è", "漢", "x", "</s>", "<pad>", "<unk>"]),
)


def test_marian_ids_equal_hugging_face_for_any_text_without_combining_marks(folder: Path) -> None:
    expected, (source, target) = theirs(folder), ours(folder)

    @given(st.lists(PARTS, max_size=12).map("".join))
    def check(text: str) -> None:
        assert source.encode(text).ids == expected(text).input_ids
        assert target.encode(text).ids == expected(text_target=text).input_ids

    check()


def test_either_tokenizer_decodes_what_the_other_encodes(folder: Path) -> None:
    expected, (source, target) = theirs(folder), ours(folder)
    for text in TEXTS:
        if text.startswith(">>"):
            continue  # language codes are not decoded
        for ids in (source.encode(text).ids, target.encode(text).ids):
            decoded = expected.decode(ids, skip_special_tokens=True)
            assert source.decode(ids).strip() == target.decode(ids).strip() == decoded


def test_a_separate_target_vocabulary_is_used_for_targets(folder: Path, tmp_path: Path) -> None:
    write(tmp_path)
    ids = json.loads((tmp_path / "vocab.json").read_text())
    reversed_ids = {text: len(ids) - 1 - number for text, number in ids.items()}
    (tmp_path / "target_vocab.json").write_text(json.dumps(reversed_ids))
    (tmp_path / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    source, target = ours(tmp_path)
    assert source.encode("the cat").ids == ours(folder)[0].encode("the cat").ids
    assert target.encode("il gatto").ids == [len(ids) - 1 - n for n in ours(folder)[1].encode("il gatto").ids]


def test_a_tokenizer_json_is_copied_and_only_that_of_the_target_is_built(folder: Path, tmp_path: Path) -> None:
    write(tmp_path)
    source, _ = ours(folder)
    source.add_tokens(["added"])
    source.save(str(tmp_path / "tokenizer.json"))
    copied, target = ours(tmp_path)
    assert copied.token_to_id("added") is not None
    assert target.token_to_id("added") is None


def test_an_imported_marian_has_both_tokenizers_and_the_ids_of_its_special_tokens(tmp_path: Path) -> None:
    logging.disable_progress_bar()
    size = len(json.loads((write(tmp_path / "huggingface") / "vocab.json").read_text()))
    sizes: dict[str, Any] = {f"{stack}_{what}": 2 for stack in ("encoder", "decoder") for what in ("layers", "ffn_dim")}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0}
    MarianMTModel(MarianConfig(vocab_size=size, d_model=8, **sizes, **heads, **tokens)).save_pretrained(
        tmp_path / "huggingface"
    )
    report = import_huggingface(tmp_path / "huggingface", tmp_path / "ours")
    assert report.notes == ()
    assert load_network(report.folder).config.tokens == SpecialTokensConfig(
        pad=size - 1, unknown=1, start=size - 1, end=0
    )
    for name, tokenizer in zip(
        ("tokenizer.json", "target_tokenizer.json"), ours(tmp_path / "huggingface"), strict=True
    ):
        assert Tokenizer.from_file(str(report.folder / name)).to_str() == tokenizer.to_str()


# Cases in which the ids differ, as documented in the module.


def test_a_combining_mark_on_a_normalized_character_is_lost(folder: Path) -> None:
    expected, (source, _) = theirs(folder), ours(folder)
    ligature_with_mark = "\N{LATIN SMALL LIGATURE FI}\N{COMBINING ACUTE ACCENT}"
    assert source.encode(ligature_with_mark).ids == source.encode("fi").ids
    assert expected(ligature_with_mark).input_ids != source.encode("fi").ids
    for text in ("fi\N{COMBINING ACUTE ACCENT}", "\N{LATIN SMALL LIGATURE FI}"):  # either alone works
        assert source.encode(text).ids == expected(text).input_ids


def test_a_piece_without_an_id_is_split_into_others(tmp_path: Path) -> None:
    write(tmp_path, missing="▁the")
    expected, (source, _) = theirs(tmp_path), ours(tmp_path)
    unknown, end = 1, 0
    assert expected("the").input_ids == [unknown, end]
    assert "".join(source.encode("the", add_special_tokens=False).tokens) == "▁the"
    assert unknown not in source.encode("the").ids
    assert marian_tokenizers(tmp_path).notes == (
        "source.spm has pieces without an id in vocab.json (1, such as '▁the'); texts are split into other pieces.",
    )


def test_known_language_codes_are_recognized_anywhere(folder: Path) -> None:
    expected, (source, _) = theirs(folder), ours(folder)
    code = source.token_to_id(">>ita<<")
    assert code in source.encode("the cat >>ita<<").ids
    assert OurTokenizer(source).encode(">>ita<< the cat")[0] == code
    assert code not in expected("the cat >>ita<<").input_ids
    assert expected(">>fra<<").input_ids == [1, 0]
    assert source.encode(">>fra<<").ids != [1, 0]


# Errors


def error_message(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        marian_tokenizers(folder)
    return str(caught.value).removeprefix(f"{folder}/")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("source.spm", "target.spm"):
        write(tmp_path)
        (tmp_path / name).unlink()
        assert error_message(tmp_path) == f"{name}: is missing; copy it from the original model."
    write(tmp_path)
    (tmp_path / "vocab.json").unlink()
    assert error_message(tmp_path) == f"vocab.json: is missing, so {tmp_path} is not a complete model folder."


@pytest.mark.parametrize(
    "content", [b"", b"\x0a", b"\x0a\x05ab", b"hello", b"\xff" * 40, b"\x08" * 3, b"\x0a\x02\x0a\x00\x10"]
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "source.spm").write_bytes(content)
    assert error_message(tmp_path) == "source.spm: is not a SentencePiece model, or it is damaged; copy it again."


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a\x07\x08\x80\x80\x80\x80\x80\x20",  # a piece whose text is the integer 2^40: not that many zero bytes
        b"\x0a\x03\x0a\x01a" + b"\x20" + b"\x80" * 20 + b"\x01",  # an integer of 21 bytes, which could be of millions
    ],
)
def test_memory_and_time_are_bounded(content: bytes) -> None:
    with pytest.raises((TypeError, ValueError)):
        parse_sentencepiece(content)


def test_a_truncated_sentencepiece_model_is_refused(folder: Path) -> None:
    whole = (folder / "source.spm").read_bytes()
    for length in random.Random(0).sample(range(len(whole)), 200):
        try:
            model = parse_sentencepiece(whole[:length])
        except (ValueError, IndexError, KeyError):
            continue
        assert len(model.pieces) <= len(parse_sentencepiece(whole).pieces)  # truncated between two fields


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model_type": "bpe"}, "is a bpe model, and regard supports unigram models"),
        (
            {"byte_fallback": True, "vocab_size": 400},
            "splits unknown characters into bytes, which regard does not support",
        ),
        (
            {"treat_whitespace_as_suffix": True},
            "attaches spaces to the word before them, which regard does not support",
        ),
    ],
)
def test_unsupported_sentencepiece_models_are_refused(settings: dict[str, Any], problem: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "source.spm").write_bytes(train_sentencepiece(ENGLISH, **settings))
    assert error_message(tmp_path) == f"source.spm: {problem}; put a tokenizer.json into the same folder."


def test_a_model_that_does_not_escape_spaces_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    unescaped_spaces = b"\x1a\x02\x28\x00"  # normalizer (field 3): escape_whitespaces (field 5) is false
    (tmp_path / "source.spm").write_bytes(train_sentencepiece(ENGLISH) + unescaped_spaces)
    assert error_message(tmp_path) == (
        "source.spm: does not escape spaces, which regard does not support; put a tokenizer.json into the same folder."
    )


def test_unsupported_models_are_not_read_if_there_are_tokenizer_files(folder: Path, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "target.spm").write_bytes(train_sentencepiece(ENGLISH, model_type="bpe"))
    assert error_message(tmp_path).endswith("put a target_tokenizer.json into the same folder.")
    for name, content in marian_tokenizers(folder).files.items():
        (tmp_path / name).write_bytes(content)
    assert marian_tokenizers(tmp_path).by_file.keys() == {"tokenizer.json", "target_tokenizer.json"}


def test_a_vocabulary_without_an_end_token_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "vocab.json").write_text('{"<unk>": 0}')
    assert error_message(tmp_path) == "vocab.json: has no token </s>; copy the folder again."


def test_the_parser_agrees_with_sentencepiece(folder: Path) -> None:
    content = (folder / "source.spm").read_bytes()
    model, reference = parse_sentencepiece(content), sentencepiece.SentencePieceProcessor(model_proto=content)
    assert len(model.pieces) == reference.get_piece_size()
    for number, piece in enumerate(model.pieces):
        assert piece.text == reference.id_to_piece(number)
        assert piece.score == pytest.approx(reference.get_score(number))
        assert (piece.type is PieceType.CONTROL) == reference.is_control(number)
    assert (model.normalizer, model.algorithm, model.dummy_prefix) == ("nmt_nfkc", "unigram", True)
