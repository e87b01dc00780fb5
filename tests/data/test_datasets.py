"""Datasets of Python programs: saved in the run folder, so that a run can be resumed without them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import regard
from regard.config import load_config
from regard.data.datasets import dataset_splits, save_dataset
from regard.errors import DataError
from regard.training.setup import dataset_path


@dataclass
class StandIn:
    """The part of `datasets.Dataset` that is used."""

    rows: list[dict[str, object]]
    features: Mapping[str, object] = field(default_factory=dict)

    @property
    def column_names(self) -> list[str]:
        return list(self.rows[0])

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class ClassLabel:
    names: list[str]


WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
PAIRS = StandIn(
    [
        {"id": n, "translation": {"en": f"{word} {other}", "it": f"{other} {word}"}}
        for n, (word, other) in enumerate((word, other) for word in WORDS for other in WORDS)
    ]
)


def test_datasets_are_distinguished_from_files() -> None:
    rows: list[Mapping[str, object]] = [{"text": "a"}]
    assert dataset_splits(PAIRS) == {"train": PAIRS}
    assert dataset_splits({"train": PAIRS, "validation": PAIRS}) == {"train": PAIRS, "valid": PAIRS}
    assert dataset_splits(rows) == {"train": rows}
    for files in ("a.tsv", Path("a.tsv"), ["a.tsv"], [Path("a")], None):
        assert dataset_splits(files) is None


def test_classes_with_names_and_rows_that_are_no_mappings(tmp_path: Path) -> None:
    labeled = StandIn([{"text": "è", "label": 1}], {"label": ClassLabel(["bad", "good"]), "text": object()})
    save_dataset(labeled, tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text("utf-8") == '{"text": "è", "label": "good"}\n'
    with pytest.raises(DataError, match="row 1 of the dataset is a str; pass mappings of columns"):
        save_dataset(["text"], tmp_path / "b.jsonl")  # type: ignore[list-item]
    assert not (tmp_path / "b.jsonl").exists()


@pytest.mark.slow
def test_a_run_on_a_dataset_is_resumed_without_it(tmp_path: Path) -> None:
    settings = [
        *("model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=16", "model.vocab_size=300"),
        *("training.steps=2", "training.batch_tokens=200", "training.threads=1", "validation.every=2"),
        "data.validation_fraction=0.2",
    ]
    run = regard.train(load_config(None, settings), data={"train": PAIRS, "test": PAIRS}, out=tmp_path / "run")
    assert dataset_path(run.folder, "train").read_text("utf-8").count("\n") == len(PAIRS)
    assert "test" in run.results
    longer = load_config(None, [*settings, "training.steps=3"])
    resumed = regard.train(longer, out=tmp_path / "run", resume=True)
    assert resumed.metrics[-1]["step"] == 3
