"""Builtin corpora are read like files."""

import sys

import pytest

from regard import phrasebook
from regard.data.lines import InvalidLines
from regard.data.readers import read_documents, read_pair_files
from regard.data.readers.base import Pair
from regard.data.readers.builtin import DOCUMENT_CORPORA, PAIR_CORPORA, builtin_documents, builtin_pairs
from regard.errors import DataError

ALL = (
    "builtin:phrasebook, builtin:phrasebook-dev, builtin:phrasebook-test, "
    "builtin:phrasebook-topics, builtin:phrasebook-topics-dev, builtin:phrasebook-topics-test, "
    "builtin:python-docs and builtin:python-docs-dev"
)


@pytest.mark.parametrize("name", PAIR_CORPORA)
def test_phrasebook_pairs(name: str) -> None:
    expected = [Pair(pair.source, pair.target) for pair in phrasebook.split(PAIR_CORPORA[name])]
    assert list(read_pair_files([name], InvalidLines())) == expected


def test_python_documents() -> None:
    train, dev = (["".join(text) for text in read_documents([name], InvalidLines())] for name in DOCUMENT_CORPORA)
    assert len(train) > 50
    assert len(train) // 20 <= len(dev) <= len(train) // 20 + 1
    assert not set(train) & set(dev)
    assert sum(map(len, train)) > 300_000
    assert any('The "if" statement' in text for text in train + dev)
    assert all("\n" in text for text in train)


def error_message(read: object) -> str:
    with pytest.raises(DataError) as error:
        list(read)  # type: ignore[call-overload]
    return str(error.value)


def test_unknown_names_are_errors() -> None:
    assert error_message(read_pair_files(["builtin:phrasebok"], InvalidLines())) == (
        f"builtin:phrasebok: is not a builtin corpus (did you mean builtin:phrasebook?); available: {ALL}."
    )
    assert error_message(read_documents(["builtin:xyz"], InvalidLines())) == (
        f"builtin:xyz: is not a builtin corpus; available: {ALL}."
    )


def test_wrong_example_types_are_errors() -> None:
    with pytest.raises(DataError) as error:
        builtin_pairs("builtin:python-docs")
    assert str(error.value) == (
        "builtin:python-docs: holds documents, not sentence pairs; use "
        "builtin:phrasebook, builtin:phrasebook-dev and builtin:phrasebook-test."
    )
    with pytest.raises(DataError) as error:
        builtin_documents("builtin:phrasebook")
    assert str(error.value) == (
        "builtin:phrasebook: holds sentence pairs, not documents; use builtin:python-docs and builtin:python-docs-dev."
    )


def test_missing_python_documentation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DataError) as error:
        builtin_documents("builtin:python-docs")
    assert str(error.value) == (
        "builtin:python-docs: this Python has no documentation (pydoc_data); install it, or pass your own text."
    )
