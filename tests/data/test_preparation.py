"""Preparation: splits that do not overlap, keys that follow content and settings, and counts of what was left out."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Config, TokenizerConfig, load_config
from regard.data.corpus_scan import pair_stats
from regard.data.data_key import data_key, files_fingerprint
from regard.data.preparation import PreparedSplit, is_held_out, load_or_build_store
from regard.data.prepare_documents import prepare_documents, split_tail
from regard.data.prepare_pairs import LengthFilter, prepare_pairs, store_pairs
from regard.data.readers import builtin
from regard.data.readers.base import Pair
from regard.data.store import TokenColumn, TokenStore, open_store, write_store
from regard.data.tokenizer import train_tokenizer
from regard.errors import DataError


def no_report(what: str, count: int) -> None:
    pass


def config(data: Path, *settings: str) -> Config:
    return load_config(None, ["model.vocab_size=300", f"data.train.files={data}", *settings])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {n % 90}\ttarget {n % 90}\n" for n in range(300)))
    return path


def test_equal_pairs_are_in_the_same_split(data: Path, tmp_path: Path) -> None:
    settings = config(data, "data.validation_fraction=0.2")
    prepared = prepare_pairs(tmp_path / "data", "key", settings, no_report)
    decode = prepared.tokenizer.decode
    sides = [
        {decode(part.store.columns[0][n].tolist()) for n in range(len(part.store))} for part in prepared.splits.values()
    ]
    assert sides[0]
    assert sides[1]
    assert not sides[0] & sides[1]
    assert len(prepared.train.store) + len(prepared.valid.store) == 300
    assert [pair.source for pair in prepared.valid.pairs()] == [
        decode(prepared.valid.store.columns[0][n].tolist()) for n in range(len(prepared.valid.store))
    ]


def test_rejected_pairs_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    long = "word " * 300
    path.write_text(f"a b\tc d\n{long}\t{long}\na\t{'b ' * 40}\n")
    settings = config(path, f"data.valid.files={path}")
    prepared = prepare_pairs(tmp_path / "data", "key", settings, no_report)
    assert prepared.train.counts() == {"read": 3, "kept": 1, "too long": 1, "unequal lengths": 1}
    assert list(prepared.train.omissions()) == ["1 left out: too long", "1 left out: unequal lengths"]
    assert prepared.valid.counts() == {"read": 3, "kept": 3}  # validation keeps all lengths


def test_no_usable_examples_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("word " * 300 + "\t" + "word " * 300 + "\n")
    with pytest.raises(DataError) as error:
        prepare_pairs(tmp_path / "data", "key", config(path, f"data.valid.files={path}"), no_report)
    assert str(error.value) == "data.train has no usable examples (1 too long); pass more text."


def test_too_few_pairs_for_validation_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n" * 9)
    with pytest.raises(DataError) as error:
        prepare_pairs(tmp_path / "data", "key", config(path), no_report)
    assert str(error.value) == (
        "no pair was held out for validation, because there are too few different ones; "
        "raise data.validation_fraction, which is 0.05, or pass --valid."
    )


def test_data_key_follows_content_and_settings_but_not_paths(data: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.tsv"
    moved.write_bytes(data.read_bytes())
    key = data_key(config(data))
    assert data_key(config(moved)) == key
    assert data_key(config(data, "training.steps=7", "model.width=64", "tokenizer.dropout=0.1")) == key
    for setting in (
        "model.vocab_size=299",
        "tokenizer.lowercase=true",
        "data.max_length=9",
        "data.validation_fraction=0.2",
    ):
        assert data_key(config(data, setting)) != key
    moved.write_text("x\ty\n")
    assert data_key(config(moved)) != key


KEYS = {  # of version 0.1; with another key, data that are prepared already would be prepared again
    "encoder-decoder": "d873f12f72bf0b184823e303893e17c6",
    "decoder-only": "4d42f550d459a22b12331d48545f3a48",
    "decoder-only chat": "dc2e027d2b4cd9a08b5a6c269e6c0b8b",
    "decoder-only dpo": "96d48048f51dda8b4dafa5b778d6f49f",
    "bidirectional-language-model tokens": "5b4c78f770636e4e872f2d975ae783b3",
    "encoder-only tokens": "6f75e07c30e6d790853a9b1e3dc6ea92",
    "encoder-only classes": "6ec1e4e5156bf0dbcdb937c4159e5c94",
    "encoder-only tags": "e3fab2c28d164df3463c2db0af7fded0",
    "encoder-only none": "00abe7e1e0a4331b687da9fc001bb10f",
}


def test_data_key_of_each_task_stays(tmp_path: Path) -> None:
    contents = {"a.txt": "some text\n", "tokenizer.json": "{}", "chat_template.jinja": "{{ messages }}"}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    keys = {}
    for name in KEYS:
        network, *choice = name.split()
        settings = [f"model.kind={network}", "model.vocab_size=100", f"data.train.files=['{tmp_path / 'a.txt'}']"]
        if choice and network == "decoder-only":
            settings += [f"training.task={choice[0]}", f"tokenizer.file={tmp_path / 'tokenizer.json'}"]
        elif choice:
            settings.append(f"model.head={choice[0]}")
        keys[name] = data_key(load_config(None, settings))
    assert keys == KEYS


def test_stats_count_pairs_and_characters(data: Path) -> None:
    stats = pair_stats(config(data).data.train, False, no_report)
    assert (stats.examples, stats.characters) == (300, data.stat().st_size - 2 * 300)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0.05, 0.95))
def test_split_tail_keeps_all_tokens(lengths: list[int], fraction: float) -> None:
    ends = np.cumsum(lengths)
    column = TokenColumn(np.arange(ends[-1], dtype=np.uint16), ends)
    first, last = split_tail(TokenStore(Path(), (column,), {}), fraction)

    def tokens(store: TokenStore) -> Iterator[int]:
        return (int(token) for n in range(len(store)) for token in store.columns[0][n])

    assert [*tokens(first), *tokens(last)] == list(range(int(ends[-1])))
    assert len(last.columns[0].ids) == ends[-1] - round(int(ends[-1]) * (1 - fraction))
    assert all(length > 0 for store in (first, last) for length in store.columns[0].lengths)


def test_language_model_is_validated_on_the_end_of_its_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abcdefghij" * 100)
    settings = config(path, "model.kind=decoder-only", "tokenizer.kind=character", "data.validation_fraction=0.1")
    prepared = prepare_documents(tmp_path / "data", "key", settings, no_report)
    assert prepared.tokenizer.decode(prepared.valid.store.columns[0][0].tolist()) == ("abcdefghij" * 10 + "\n")[1:]


def test_held_out_pairs_follow_from_their_text() -> None:
    pair = Pair("I love you very much.", "Ti amo molto.")
    assert is_held_out(pair, 0.999999) is is_held_out(Pair(pair.source, pair.target), 0.999999) is True
    assert not is_held_out(pair, 0.0)


def test_key_follows_from_content_and_settings(tmp_path: Path) -> None:
    names = ["a.tsv", "b.tsv", "c.jsonl", "d.tsv.gz"]
    a, b, c, d = (str(tmp_path / name) for name in names)
    for path in (a, b, c, d):
        Path(path).write_text("x\ty\n")
    key = files_fingerprint([a], {"longest": 9})
    assert len(key) == 32
    assert key == files_fingerprint([a], {"longest": 9}) == files_fingerprint([b], {"longest": 9})
    others = [([a], {"longest": 8}), ([c], {"longest": 9}), ([d], {"longest": 9}), ([a, b], {"longest": 9})]
    assert len({key, *(files_fingerprint(files, settings) for files, settings in others)}) == 5
    Path(a).write_text("x\tz\n")
    assert files_fingerprint([a], {"longest": 9}) != key
    assert files_fingerprint([a, b], {}) != files_fingerprint([b, a], {})


def test_key_of_builtin_corpora_follows_from_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*builtin.PAIR_CORPORA, *builtin.DOCUMENT_CORPORA]
    keys = {files_fingerprint([name], {}) for name in names}
    assert len(keys) == len(names)
    monkeypatch.setattr(builtin, "__version__", "99")
    assert not keys & {files_fingerprint([name], {}) for name in names}


def error_message(file: str) -> str:
    with pytest.raises(DataError) as error:
        files_fingerprint([file], {})
    return str(error.value)


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    missing, pipe = tmp_path / "missing", tmp_path / "pipe"
    os.mkfifo(pipe)
    assert error_message(str(missing)) == f"{missing}: not found; check the path."
    assert error_message(str(pipe)) == f"{pipe}: can be read only once; save it to a file, and pass the file."
    assert error_message("-") == "standard input can be read only once; save it to a file, and pass the file."
    assert error_message("builtin:x").startswith("builtin:x: is not a builtin corpus")
    assert error_message("a\0b") == "'a\\x00b': is not a path; check it."


def test_store_is_reused_while_complete_and_of_the_same_key(tmp_path: Path) -> None:
    folder, built = tmp_path / "corpus", list[str]()

    def store(key: str) -> list[int]:
        def build(place: Path) -> None:
            write_store(place, [[[len(built)]]], columns=1, vocab_size=10, metadata={"key": key})
            built.append(key)

        return [int(number) for number in load_or_build_store(folder, key, build).columns[0][0]]

    assert [store("a"), store("a"), store("b"), store("b"), store("a")] == [[0], [0], [1], [1], [2]]
    (folder / "0.ids").write_bytes(b"")
    assert store("a") == [3]
    assert built == ["a", "b", "a", "a"]


def test_store_without_key_is_a_programming_error(tmp_path: Path) -> None:
    def build(place: Path) -> None:
        write_store(place, [], columns=1, vocab_size=10, metadata={})

    with pytest.raises(ValueError, match="was written without its key"):
        load_or_build_store(tmp_path / "corpus", "a", build)
    with pytest.raises(DataError) as error:
        load_or_build_store(tmp_path / "other", "a", lambda place: None)
    assert str(error.value) == f"{tmp_path / 'other'}: was written but cannot be read again; check the disk."


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        ("k.tsv", ["model.vocab_size=300"], "92352df23c631dc7eb2df8ea60929bb5"),
        ("k.tsv", ["model.kind=encoder-only", "model.head.kind=classes"], "c6ec7c2bf212935e3599b16760169a2d"),
    ],
)
def test_keys_equal_those_of_version_0_1(name: str, settings: list[str], key: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("a\tb\nc\td\n")
    settings = [f"data.train.files={tmp_path / name}", *settings]
    assert data_key(load_config(None, [*settings, "tokenizer.split_punctuation=false"])) == key
    assert data_key(load_config(None, settings)) != key


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_keys_depend_on_byte_fallback_where_it_is_a_choice(kind: str) -> None:
    settings = ["data.train.files=builtin:phrasebook", f"tokenizer.kind={kind}"]
    keys = {data_key(load_config(None, [*settings, f"tokenizer.byte_fallback={value}"])) for value in ("true", "false")}
    assert len(keys) == (1 if kind == "bpe" else 2)


def test_unknown_tokens_are_noted_for_each_split(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a b"], TokenizerConfig(kind="character", byte_fallback=False))
    store_pairs(tmp_path / "pairs", [Pair("a è", "b"), Pair("b", "日日 a")], tokenizer, LengthFilter(), {})
    store = open_store(tmp_path / "pairs")
    assert store is not None
    split = PreparedSplit(store, text_columns=2)
    assert split.unknown_tokens(tokenizer) == 3
    note = "3 of 9 tokens (33.3%) are unknown: the tokenizer has no token for their text, which the model cannot read"
    assert split.notes(tokenizer) == [note]
    assert PreparedSplit(store, text_columns=1).unknown_tokens(tokenizer) == 1  # the other column holds labels
    assert split.notes(train_tokenizer(["a"], TokenizerConfig(), 300)) == []  # has a token for everything
