"""Callbacks: called with the metrics of a run; TensorBoard with and without its package."""

import gc
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from regard.training.callbacks import Callback, TensorBoardCallback, tensorboard_callbacks
from regard.training.runner import run_training
from small_runs import lines, request, write_pairs


class Recorder(Callback):
    """Remembers all calls."""

    def __init__(self) -> None:
        self.steps: list[Mapping[str, float]] = []
        self.validations: list[tuple[int, Mapping[str, float], bool]] = []
        self.checkpoints: list[tuple[int, Path]] = []

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        assert metrics["step"] == step
        self.steps.append(dict(metrics))

    def on_validation(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        self.validations.append((step, dict(scores), best))

    def on_checkpoint(self, step: int, path: Path) -> None:
        assert path.is_file()
        self.checkpoints.append((step, path))


def test_callbacks_get_the_lines_of_metrics_jsonl_and_the_checkpoints(tmp_path: Path) -> None:
    data, recorder = write_pairs(tmp_path / "pairs.tsv"), Recorder()
    settings = ("training.steps=6", "validation.every=3", "training.checkpoint_minutes=60")
    run = run_training(request(tmp_path / "run", data, *settings), callbacks=[recorder])
    metrics = lines(run.folder)
    assert recorder.steps == [line for line in metrics if "loss" in line]
    validations = [line for line in metrics if "valid" in line]
    assert [(step, scores) for step, scores, _ in recorder.validations] == [
        (line["step"], line["valid"]) for line in validations
    ]
    assert recorder.validations[0][2]
    assert [step for step, _ in recorder.checkpoints] == [0, 3, 3, 6, 6]


def test_a_callback_that_raises_ends_the_run_and_its_error_is_recorded(tmp_path: Path) -> None:
    class Broken(Callback):
        def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
            raise ValueError("no connection")

    data = write_pairs(tmp_path / "pairs.tsv")
    with pytest.raises(ValueError, match="no connection"):
        run_training(request(tmp_path / "run", data), callbacks=[Broken()])
    assert '"failure": "ValueError: no connection"' in (tmp_path / "run" / "run.json").read_text()


class Writer:
    """Stands in for torch's SummaryWriter and remembers its calls."""

    created: "list[Writer]" = []  # noqa: RUF012

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.calls: list[tuple[object, ...]] = []
        Writer.created.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.calls.append((name, value, step))

    def flush(self) -> None:
        self.calls.append(("flush",))

    def close(self) -> None:
        self.calls.append(("close",))


def test_scalars_are_written_to_tensorboard_and_the_file_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    callback = TensorBoardCallback(tmp_path)
    callback.on_step(500, {"step": 500, "loss": 3.2})
    callback.on_validation(500, {"bleu": 12.1}, best=True)
    (writer,) = Writer.created
    assert writer.folder == str(tmp_path)
    assert writer.calls == [("loss", 3.2, 500), ("flush",), ("valid/bleu", 12.1, 500), ("flush",)]
    del callback
    gc.collect()
    assert writer.calls[-1] == ("close",)


def test_without_tensorboard_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if the package were not installed
    assert tensorboard_callbacks(tmp_path / "scalars") == []
    assert list(tmp_path.iterdir()) == []
