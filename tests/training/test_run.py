"""`Run`: metrics as dicts and as a DataFrame, and messages about damaged folders; callbacks, and TensorBoard."""

import gc
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import regard
from regard.errors import RegardError, RunFolderError
from regard.training.run import Callback, Run, TensorBoardCallback, tensorboard_callbacks
from regard.training.runner import run_training
from small_runs import lines, request, write_pairs

LINES = [
    {"step": 1, "epoch": 0.5, "loss": 3.5},
    {"step": 2, "epoch": 1.0, "loss": 3.25},
    {"step": 2, "epoch": 1.0, "valid": {"loss": 3.0, "bleu": 1.5}},
]


def write_run(folder: Path) -> Run:
    """A run folder that has only metrics.jsonl."""
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES), "utf-8")
    return Run(folder)


def test_a_finished_run_has_its_metrics_results_and_best_model(tmp_path: Path) -> None:
    settings = ("training.steps=2", "validation.every=2")
    run = run_training(request(tmp_path / "run", write_pairs(tmp_path / "pairs.tsv", 100), *settings))
    assert run.metrics == lines(run.folder)
    assert [line["step"] for line in run.metrics] == [1, 2, 2]
    assert run.results["best"] == {"step": 2, **lines(run.folder)[-1]["valid"]}
    assert (run.best / "model.safetensors").is_file()


@pytest.mark.slow
def test_large_models_of_a_run_are_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written again at each validation, read for the average and the test, and loaded."""
    for module in ("regard.models.folder", "regard.training.run_folder"):
        monkeypatch.setattr(f"{module}.MAX_SHARD_BYTES", 8192)
    data = write_pairs(tmp_path / "pairs.tsv", 100)
    settings = ("training.steps=4", "validation.every=2", "training.average_checkpoints=2")
    run = run_training(request(tmp_path / "run", data, *settings))
    for folder in (run.best, run.folder / "last"):
        files = {path.name for path in folder.glob("*.safetensors")}
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert files == set(index["weight_map"].values())  # none of an earlier validation
        assert len(files) > 2
    assert len(run.results["best"]) > 1
    assert regard.load(run.best).translate("one two", max_tokens=3) is not None
    longer = request(tmp_path / "run", data, "training.steps=6", *settings[1:], resume=True)
    assert run_training(longer).metrics[-1]["step"] == 6


def test_to_pandas_has_a_row_per_line_and_a_column_per_validation_score(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def data_frame(rows: list[dict[str, float]]) -> Any:
        return ("DataFrame", rows)

    pandas = ModuleType("pandas")
    pandas.DataFrame = data_frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame: Any = write_run(tmp_path).to_pandas()
    assert frame == (
        "DataFrame",
        [*LINES[:2], {"step": 2, "epoch": 1.0, "valid_loss": 3.0, "valid_bleu": 1.5}],
    )


def test_to_pandas_makes_a_data_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    frame = write_run(tmp_path).to_pandas()
    assert list(frame.columns) == ["step", "epoch", "loss", "valid_loss", "valid_bleu"]
    assert frame["valid_bleu"].dropna().tolist() == [1.5]


def test_without_pandas_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if the package were not installed
    with pytest.raises(RegardError, match=r"^Run\.to_pandas needs pandas; install it with: pip install pandas\.$"):
        write_run(tmp_path).to_pandas()


def test_a_folder_without_metrics_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl: cannot be read \(No such file or directory\)"):
        _ = Run(tmp_path).metrics
    with pytest.raises(RunFolderError, match=r"run\.json: cannot be read"):
        _ = Run(tmp_path).results


def test_metrics_leave_out_a_line_that_was_not_completely_written(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "epo')
    assert run.metrics == LINES


def test_a_damaged_line_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1\n{"step": 2}\n', "utf-8")
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl: is damaged"):
        _ = Run(tmp_path).metrics


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


@pytest.mark.slow
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


@pytest.mark.slow
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
