"""Malicious and damaged tokenizer files are refused before the library reads them."""

import base64
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from regard.config import TokenizerConfig
from regard.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.data.word_tokens import fast_encoder
from regard.errors import DataError, ModelError

TEXT = "ti amo, molto <b>[EOS]"


def content() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(train_tokenizer(["ti amo molto"], TokenizerConfig(), vocab_size=300).to_json())
    return result


def write(folder: Path, tokenizer: object) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    return path


def problem(path: Path, vocab_size: int | None = None) -> str:
    with pytest.raises((ModelError, DataError)) as error:
        load_tokenizer(path, vocab_size)
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_code == 3
    return message.removeprefix(f"{path}: ")


def replace(pattern: dict[str, str], text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": text}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def charsmap(trie: bytes, replacements: bytes = b"x\0") -> dict[str, Any]:
    compiled = struct.pack("<I", len(trie)) + trie + replacements
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(compiled).decode()}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def template(ids: list[int], token: str = "[CLS]") -> dict[str, Any]:
    pieces = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"[CLS]": {"id": "[CLS]", "ids": ids, "tokens": ["[CLS]"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": special}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
@pytest.mark.parametrize(
    "options", [{}, {"nfkc": True, "lowercase": True}, {"split_punctuation": False, "byte_fallback": False}]
)
def test_every_trained_tokenizer_is_accepted(kind: str, options: dict[str, bool], tmp_path: Path) -> None:
    trained = train_tokenizer(["ti amo molto"] * 3, TokenizerConfig(kind=kind, **options), 300)  # type: ignore[arg-type]
    (tmp_path / "tokenizer.json").write_bytes(trained.to_json())
    loaded = load_tokenizer(tmp_path / "tokenizer.json", len(trained))
    unchecked = tokenizers.Tokenizer.from_str(trained.to_json().decode())
    assert loaded.to_json() == unchecked.to_str().encode()
    assert loaded.encode(TEXT) == trained.encode(TEXT)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"pre_tokenizer": split("(a+)+$")}, "has the regular expression '(a+)+$', which is not one that regard knows"),
        ({"normalizer": replace({"Regex": "(a|a)*b"}, "")}, "has the regular expression '(a|a)*b'"),
        ({"decoder": replace({"Regex": "(a|a)*b"}, "")}, "its decoder has the regular expression"),
        ({"normalizer": replace({"String": "a"}, "a" * 10**6)}, "make texts more than 16 times as long"),
        ({"normalizer": sequence(*[replace({"String": "a"}, "aa")] * 30)}, "make texts more than 16 times as long"),
        ({"normalizer": replace({"String": ""}, "a")}, "its normalizer has an invalid pattern"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}}, "has a text of 1,000,000 characters"),
        ({"normalizer": sequence(*[{"type": "NFC"}] * 40)}, "has 40 parts, more than 32"),
        ({"normalizer": {"type": "Invented"}}, "its normalizer is 'Invented', which regard does not know"),
        ({"normalizer": charsmap(b"\xff" * 8)}, "cannot be read as a tokenizer"),
        ({"normalizer": charsmap(b"")}, "its precompiled_charsmap is damaged"),
        ({"normalizer": charsmap(bytes(8), b"x" * 10**5 + b"\0")}, "replacements of more than 256 bytes"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "its pre_tokenizer is 'FixedLength'"),
        ({"post_processor": template([10**9])}, "adds ids [1000000000], which its vocabulary does not have"),
        ({"post_processor": template([1], "[X]")}, "adds '[X]', which it does not define"),
        ({"added_tokens": [{"content": "a" * 10**6, "id": 3}]}, "a token is not a text of at most 1024 characters"),
        ({"added_tokens": [{"content": "a", "id": -3}]}, "it gives 'a' the id -3"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 10**9}, "unk_token": "a"}}, "it gives 'a' the id 1000000000"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "b"}}, "has no unknown token 'b'"),
        ({"model": {"type": "Unigram", "vocab": [["a", float("nan")]], "unk_id": 0}}, "'a' has the score nan"),
        ({"model": {"type": "Invented", "vocab": {}}}, "its model is 'Invented'"),
        ({"model": {"type": "BPE", "vocab": 5, "merges": []}}, "does not have the structure of a tokenizer.json"),
        ({"model": 5}, "does not have the structure of a tokenizer.json"),
        ({"normalizer": []}, "does not have the structure of a tokenizer.json"),
    ],
)
def test_malicious_content_is_refused(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    message = problem(write(tmp_path, content() | change))
    assert expected in message
    assert message.endswith("; pass another tokenizer.json.")


@pytest.mark.parametrize(
    "change",
    [
        {
            "padding": {
                "strategy": {"Fixed": 10**9},
                "direction": "Right",
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "p",
            }
        },
        {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}},
        {"truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 0}},
    ],
)
def test_padding_and_truncation_are_cleared(change: dict[str, Any], tmp_path: Path) -> None:
    expected = train_tokenizer(["ti amo molto"], TokenizerConfig(), vocab_size=300)
    assert load_tokenizer(write(tmp_path, content() | change)).encode(TEXT) == expected.encode(TEXT)


def test_ids_outside_of_the_network_are_refused(tmp_path: Path) -> None:
    tokenizer = content()
    tokenizer["model"]["vocab"]["▁ti"] = 5000
    message = problem(write(tmp_path, tokenizer), 300)
    assert "it gives '▁ti' the id 5000, but the network has 300 tokens" in message


def test_special_tokens_outside_of_the_network_are_left_out(tmp_path: Path) -> None:
    tokenizer = content()
    size = len(tokenizer["model"]["vocab"])
    token = {"id": size, "content": "<|pad|>", "special": True} | dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized"), False
    )
    tokenizer["added_tokens"].append(token)
    loaded = load_tokenizer(write(tmp_path, tokenizer), size)
    assert len(loaded) == size
    assert max(loaded.encode("ti amo <|pad|>")) < size
    tokenizer["added_tokens"][-1]["special"] = False
    assert f"it gives '<|pad|>' the id {size}" in problem(write(tmp_path, tokenizer), size)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a regular file"),
        (os.mkfifo, "it is a pipe, not a regular file"),
        (lambda path: path.mkdir(), "it is a folder, not a regular file"),
        (lambda path: os.truncate(write(path.parent, {}), MAX_TOKENIZER_BYTES + 1), "it is larger than 64 MB"),
    ],
)
def test_only_regular_files_of_bounded_size_are_read(make: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    make(tmp_path / "tokenizer.json")
    assert problem(tmp_path / "tokenizer.json") == f"cannot be read ({reason}); pass the path of a tokenizer.json."


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 10**5, '{"model": "\\ud800"}', "\0"])
def test_content_that_is_no_tokenizer_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    problem(tmp_path / "tokenizer.json")


def test_a_panic_of_the_library_is_an_error_with_a_message() -> None:
    fast = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    fast.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    tokenizer, text = Tokenizer(fast, "model/tokenizer.json"), "a" * 40 + "b"
    for call in (tokenizer.encode, tokenizer.encode_continuation, lambda text: fast_encoder(tokenizer)([text])):
        with pytest.raises(ModelError, match=r"^model/tokenizer\.json: the tokenizers library failed on a text \(Onig"):
            call(text)


def test_wrong_arguments_are_not_taken_for_errors_of_the_library() -> None:
    tokenizer = train_tokenizer(["ti amo"], TokenizerConfig(), vocab_size=300)
    with pytest.raises(TypeError):
        tokenizer.encode(5)  # type: ignore[arg-type]
