"""Preparation of documents: lossless, whatever their size."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config.data import TokenizerConfig
from regard.data import prepare_documents
from regard.data.prepare_documents import check_lossless_tokenizer, store_documents
from regard.data.store import TokenStore, open_store
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.errors import ConfigError

CODE = "def f(x):\n    if x:\n\n        return 'x'  \n\treturn\r\n\n\n"
KINDS = ["byte-level", "character"]


@cache
def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer([CODE] * 3, TokenizerConfig.model_validate({"kind": kind}), 300)


def stored(folder: Path, texts: list[list[str]], kind: str) -> TokenStore:
    store_documents(folder, texts, tokenizer(kind), {"made": "here"})
    store = open_store(folder)
    assert store is not None
    return store


@pytest.mark.parametrize("piece", [1, 7, 2**14])
@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.lists(st.text(CODE, max_size=20).map(lambda line: f"{line}\n"), max_size=6), max_size=5))
def test_documents_are_lossless(
    kind: str, piece: int, texts: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_documents, "PIECE_CHARACTERS", piece)
        patch.setattr(prepare_documents, "PIECES_PER_CHUNK", 3)
        store = stored(tmp_path_factory.mktemp("store") / "corpus", texts, kind)
    kept = ["".join(text) for text in texts if text]
    (column,) = store.columns
    assert [tokenizer(kind).decode(column[n].tolist()) for n in range(len(store))] == kept
    empty = {"empty": len(texts) - len(kept)} if len(texts) > len(kept) else {}
    assert store.counts == {"read": len(texts), "kept": len(kept), **empty}


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_lossless_in_bytes(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = [f"{line}\n" for line in text.split("\n")]
    store = stored(tmp_path_factory.mktemp("store") / "corpus", [lines], "byte-level")
    assert tokenizer("byte-level").decode(store.columns[0][0].tolist()) == f"{text}\n"


def test_short_documents_are_tokenized_at_once(tmp_path: Path) -> None:
    lines = CODE.splitlines(keepends=True) * 100
    store = stored(tmp_path / "corpus", [lines], "byte-level")
    assert store.columns[0][0].tolist() == tokenizer("byte-level").encode("".join(lines))  # it fits into one piece


def test_progress_counts_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_documents, "PIECE_CHARACTERS", 1)
    monkeypatch.setattr(prepare_documents, "PIECES_PER_CHUNK", 2)
    seen: list[int] = []
    store_documents(tmp_path / "corpus", [["x:\n", "x\n", "x\n"], ["x\n"]], tokenizer("character"), {}, seen.append)
    assert seen == [5, 9]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_lossy_tokenizers_are_errors(kind: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_lossless_tokenizer(kind)
    assert str(error.value) == (
        f"tokenizer.kind = '{kind}' loses line ends; use 'byte-level' or 'character' for a language model."
    )


@pytest.mark.parametrize("kind", KINDS)
def test_lossless_tokenizers_are_accepted(kind: str) -> None:
    check_lossless_tokenizer(kind)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_document(tmp_path: Path) -> None:
    program = f"""
import resource
from pathlib import Path
from regard.config.data import TokenizerConfig
from regard.data.prepare_documents import store_documents
from regard.data.tokenizer import train_tokenizer
tokenizer = train_tokenizer(["some words\\n"], TokenizerConfig(kind="character"))
def peak(lines):
    document = ("some words some words some words\\n" for _ in range(lines))
    store_documents(Path({str(tmp_path)!r}) / "corpus", [document], tokenizer, {{}})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small, large = peak(60_000), peak(400_000)
assert large - small < 20_000, (small, large)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
