"""Corpora that come with the package: `builtin:phrasebook`, `builtin:phrasebook-topics`, `builtin:python-docs`, and
their held-out parts.

The phrasebook is ours: English and Italian sentence pairs; its topics are its English sentences, each labelled with the
chapter that it is from. The documents are what Python itself carries for `help()`:
the chapters of its language reference, about 460,000 characters.
"""

import importlib
import platform
from collections.abc import Iterator
from typing import cast

from regard import phrasebook
from regard.config.errors import did_you_mean
from regard.data.corpus import Pair
from regard.data.labelled import LabeledExample
from regard.errors import DataError
from regard.phrasebook.splits import Split
from regard.version import __version__

PREFIX = "builtin:"
PAIRS: dict[str, Split] = {
    "builtin:phrasebook": "train",
    "builtin:phrasebook-dev": "dev",
    "builtin:phrasebook-test": "test",
}
TOPICS: dict[str, Split] = {name.replace("phrasebook", "phrasebook-topics"): split for name, split in PAIRS.items()}
DOCUMENTS = {"builtin:python-docs": False, "builtin:python-docs-dev": True}  # whether it is the held-out part
HELD_OUT = 20  # every so-manieth topic is held out


def is_builtin(name: str) -> bool:
    """Whether a name is meant for a corpus that comes with the package.

    >>> is_builtin("builtin:phrasebook"), is_builtin("phrasebook.tsv")
    (True, False)
    """
    return name.startswith(PREFIX)


def builtin_pairs(name: str) -> Iterator[Pair]:
    """The sentence pairs of this name.

    >>> next(builtin_pairs("builtin:phrasebook-test"))
    Pair(source='I love you very much', target='Ti amo molto')
    """
    _check(name)
    if name not in PAIRS:
        raise DataError(f"{name}: holds {_what(name)}, not sentence pairs; for pairs there is {_listed(PAIRS)}.")
    return (Pair(pair.source, pair.target) for pair in phrasebook.split(PAIRS[name]))


def builtin_labeled(name: str) -> Iterator[LabeledExample]:
    """The labelled texts of this name.

    >>> next(builtin_labeled("builtin:phrasebook-topics-test"))
    LabeledExample(label='people', text='I love you very much', second=None,
                   location='builtin:phrasebook-topics-test:1')
    """
    _check(name)
    if name not in TOPICS:
        raise DataError(f"{name}: holds {_what(name)}, not labelled texts; for such there is {_listed(TOPICS)}.")
    split = phrasebook.split(TOPICS[name])
    return (LabeledExample(pair.topic, pair.source, location=f"{name}:{n}") for n, pair in enumerate(split, start=1))


def builtin_documents(name: str) -> Iterator[Iterator[str]]:
    """The documents of this name, each a stream of text."""
    _check(name)
    if name not in DOCUMENTS:
        raise DataError(f"{name}: holds {_what(name)}, not documents; for documents there is {_listed(DOCUMENTS)}.")
    topics = _topics(name)
    return (iter([topics[topic]]) for n, topic in enumerate(sorted(topics)) if (n % HELD_OUT == 0) == DOCUMENTS[name])


def version_of(name: str) -> str:
    """What the content of a corpus depends on besides its name: our version, and Python's for what Python carries."""
    _check(name)
    return f"{__version__}, Python {platform.python_version()}" if name in DOCUMENTS else __version__


def _check(name: str) -> None:
    known = [*PAIRS, *TOPICS, *DOCUMENTS]
    if name not in known:
        guess = did_you_mean(name.removeprefix(PREFIX), [option.removeprefix(PREFIX) for option in known])
        guess = guess.replace("did you mean ", f"did you mean {PREFIX}")  # what all have in common says nothing
        raise DataError(f"{name}: does not come with regard{guess}; there is {_listed(known)}.")


def _what(name: str) -> str:
    return "sentence pairs" if name in PAIRS else "labelled texts" if name in TOPICS else "documents"


def _topics(name: str) -> dict[str, str]:
    try:
        return cast(dict[str, str], importlib.import_module("pydoc_data.topics").topics)
    except ImportError:
        raise DataError(
            f"{name}: this Python came without its documentation (pydoc_data); install it, or give text of your own."
        ) from None


def _listed(names: dict[str, Split] | dict[str, bool] | list[str]) -> str:
    first, last = ", ".join([*names][:-1]), [*names][-1]
    return f"{first} and {last}"
