"""Scalars for TensorBoard, with and without it."""

import gc
import sys
from pathlib import Path
from types import ModuleType

import pytest

from regard.training.callbacks import scalars


class Writer:
    """Stands in for torch's SummaryWriter and remembers what it is told."""

    made: "list[Writer]" = []  # noqa: RUF012

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.told: list[tuple[object, ...]] = []
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def flush(self) -> None:
        self.told.append(("flush",))

    def close(self) -> None:
        self.told.append(("close",))


def test_scalars_reach_tensorboard_and_the_file_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    record = scalars(tmp_path)
    record(500, {"train/loss": 3.2, "valid/bleu": 12.1})
    (writer,) = Writer.made
    assert writer.folder == str(tmp_path)
    assert writer.told == [("train/loss", 3.2, 500), ("valid/bleu", 12.1, 500), ("flush",)]
    del record
    gc.collect()
    assert writer.told[-1] == ("close",)


def test_without_tensorboard_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # what a missing package looks like
    scalars(tmp_path / "scalars")(1, {"loss": 3.2})
    assert list(tmp_path.iterdir()) == []
