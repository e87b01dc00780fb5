"""Datasets of Python programs, such as those of Hugging Face `datasets`, as data files of a run.

Anything that iterates over mappings is a dataset: one example each, with the columns of its format. A mapping of split
names to datasets is a collection of splits. They are written to JSON Lines, which a resumed run reads again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.errors import DataError
from regard.files import atomic_file, explain_write_errors

SPLIT_NAMES = {"train": "train", "validation": "valid", "valid": "valid", "dev": "valid", "test": "test"}


@runtime_checkable
class Dataset(Protocol):
    """What is used of a dataset: `datasets.Dataset` and `datasets.IterableDataset` have it."""

    @property
    def column_names(self) -> object:
        """The names of its columns."""
        ...

    def __iter__(self) -> Iterator[Mapping[str, object]]: ...


Datasets = Dataset | Sequence[Mapping[str, object]] | Mapping[str, Dataset]


def dataset_splits(data: object) -> dict[str, Iterable[Mapping[str, object]]] | None:
    """Return the datasets by split, `train`, `valid` and `test`; None if the data is no dataset, but names of files.

    >>> dataset_splits(["a.tsv"]) is None, list(dataset_splits([{"source": "a", "target": "b"}]) or ())
    (True, ['train'])
    """
    if isinstance(data, Mapping) and data and all(name in SPLIT_NAMES for name in data):
        return {SPLIT_NAMES[name]: split for name, split in data.items()}
    if isinstance(data, Dataset):
        return {"train": data}
    if isinstance(data, Sequence) and data and isinstance(data[0], Mapping):
        return {"train": data}
    return None


def save_dataset(dataset: Iterable[Mapping[str, object]], path: Path) -> None:
    """Write a dataset as JSON Lines; numbers of classes that have names become the names."""
    classes = _class_names(dataset)
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            for number, row in enumerate(dataset, start=1):
                if not isinstance(row, Mapping):
                    raise DataError(f"row {number} of the dataset is a {type(row).__name__}; pass mappings of columns.")
                record = {name: _value(value, classes.get(name)) for name, value in row.items()}
                try:
                    file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                except (TypeError, ValueError) as error:
                    raise DataError(f"row {number} of the dataset cannot be saved as JSON ({error}).") from None


def _class_names(dataset: object) -> dict[str, Sequence[str]]:
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping):
        return {}
    return {name: names for name, feature in features.items() if (names := getattr(feature, "names", None))}


def _value(value: Any, names: Sequence[str] | None) -> Any:
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return value if isinstance(value, str | int | float | Mapping | list | None) else str(value)
