"""Corpora that come with the package, by name: `builtin:phrasebook`, `builtin:phrasebook-topics`,
`builtin:python-docs`, and their dev and test splits.

The phrasebook has English and Italian sentence pairs; its topics are its English sentences, labeled with the topic of
the grammar. The documents are those that Python carries for `help()`: the chapters of its language reference, about
460,000 characters.
"""

import importlib
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from regard.config.errors import did_you_mean
from regard.data.lines import InvalidLines
from regard.data.readers.base import READERS, LabeledExample, Pair, Reader, TaggedExample
from regard.errors import DataError
from regard.version import __version__

if TYPE_CHECKING:
    from regard.phrasebook import SplitName

PREFIX = "builtin:"
PAIR_CORPORA: "dict[str, SplitName]" = {
    "builtin:phrasebook": "train",
    "builtin:phrasebook-dev": "dev",
    "builtin:phrasebook-test": "test",
}
TOPIC_CORPORA: "dict[str, SplitName]" = {
    name.replace("phrasebook", "phrasebook-topics"): split for name, split in PAIR_CORPORA.items()
}
DOCUMENT_CORPORA = {"builtin:python-docs": False, "builtin:python-docs-dev": True}  # whether it is the dev split
DEV_INTERVAL = 20  # every 20th chapter of the documents is in the dev split


@READERS.register("builtin")
class BuiltinReader(Reader):
    """Reader of corpora that come with the package."""

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield the pairs of the phrasebook."""
        return builtin_pairs(file)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield the chapters of the documentation."""
        return builtin_documents(file)

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield the sentences of the phrasebook with their topics."""
        return builtin_labeled(file)

    def tagged(self, file: str, invalid: InvalidLines, column: int | None = None) -> Iterator[TaggedExample]:
        """Raise an error: no builtin corpus has tags."""
        raise DataError(f"{file}: has no tags, and neither has any other builtin corpus; pass a file.")

    @classmethod
    def matches(cls, file: str) -> bool:
        """Return whether a name begins with `builtin:`."""
        return is_builtin(file)


def is_builtin(name: str) -> bool:
    """Return whether a name is that of a builtin corpus.

    >>> is_builtin("builtin:phrasebook"), is_builtin("phrasebook.tsv")
    (True, False)
    """
    return name.startswith(PREFIX)


def builtin_pairs(name: str) -> Iterator[Pair]:
    """Yield the sentence pairs of this name.

    >>> next(builtin_pairs("builtin:phrasebook-test"))
    Pair(source='I love you very much', target='Ti amo molto')
    """
    _check_known(name)
    if name not in PAIR_CORPORA:
        raise DataError(f"{name}: holds {_content(name)}, not sentence pairs; use {_join(PAIR_CORPORA)}.")
    from regard import phrasebook

    return (Pair(pair.source, pair.target) for pair in phrasebook.split(PAIR_CORPORA[name]))


def builtin_labeled(name: str) -> Iterator[LabeledExample]:
    """Yield the labeled texts of this name.

    >>> next(builtin_labeled("builtin:phrasebook-topics-test"))
    LabeledExample(label='people', text='I love you very much', second=None,
                   location='builtin:phrasebook-topics-test:1')
    """
    _check_known(name)
    if name not in TOPIC_CORPORA:
        raise DataError(f"{name}: holds {_content(name)}, not labeled texts; use {_join(TOPIC_CORPORA)}.")
    from regard import phrasebook

    split = phrasebook.split(TOPIC_CORPORA[name])
    return (LabeledExample(pair.topic, pair.source, location=f"{name}:{n}") for n, pair in enumerate(split, start=1))


def builtin_documents(name: str) -> Iterator[Iterator[str]]:
    """Yield the documents of this name, each as a stream of text."""
    _check_known(name)
    if name not in DOCUMENT_CORPORA:
        raise DataError(f"{name}: holds {_content(name)}, not documents; use {_join(DOCUMENT_CORPORA)}.")
    chapters = _python_docs(name)
    return (
        iter([chapters[title]])
        for n, title in enumerate(sorted(chapters))
        if (n % DEV_INTERVAL == 0) == DOCUMENT_CORPORA[name]
    )


def content_version(name: str) -> str:
    """Return what the content of a corpus depends on: the version of the package, and of Python for its documents."""
    _check_known(name)
    return f"{__version__}, Python {platform.python_version()}" if name in DOCUMENT_CORPORA else __version__


def _check_known(name: str) -> None:
    known = [*PAIR_CORPORA, *TOPIC_CORPORA, *DOCUMENT_CORPORA]
    if name not in known:
        # compared without the common prefix, which would make all names similar
        guess = did_you_mean(name.removeprefix(PREFIX), [option.removeprefix(PREFIX) for option in known])
        guess = guess.replace("did you mean ", f"did you mean {PREFIX}")
        raise DataError(f"{name}: is not a builtin corpus{guess}; available: {_join(known)}.")


def _content(name: str) -> str:
    return "sentence pairs" if name in PAIR_CORPORA else "labeled texts" if name in TOPIC_CORPORA else "documents"


def _python_docs(name: str) -> dict[str, str]:
    try:
        return cast(dict[str, str], importlib.import_module("pydoc_data.topics").topics)
    except ImportError:
        raise DataError(
            f"{name}: this Python has no documentation (pydoc_data); install it, or pass your own text."
        ) from None


def _join(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}"
