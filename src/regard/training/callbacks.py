"""Callbacks: user code that a run calls as it trains, and the one that writes TensorBoard files."""

import weakref
from collections.abc import Mapping
from pathlib import Path


class Callback:
    """Base class of callbacks; override the methods you need. Only the first of several processes calls them.

    class PrintLoss(regard.Callback):
        def on_step(self, step, metrics):
            print(step, metrics["loss"])

    regard.train("tiny", data="pairs.tsv", out="runs/mine", callbacks=[PrintLoss()])
    """

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called every `training.log_every` steps with the fields of that line of metrics.jsonl."""

    def on_validation(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Called after each validation; `best`: the scores are the best so far, by `validation.metric`."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """Called when a checkpoint has been written."""


class TensorBoardCallback(Callback):
    """Writes metrics and validation scores to event files for TensorBoard, which must be installed.

    Every call is on disk when it returns. The file is closed when the callback is garbage-collected.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        weakref.finalize(self, self._writer.close)

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar per field."""
        self._write(step, {name: value for name, value in metrics.items() if name != "step"})

    def on_validation(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Write one scalar per score, under `valid/`."""
        self._write(step, {f"valid/{name}": value for name, value in scores.items()})

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # the writer would keep two minutes of scalars in memory, and a kill would lose them


def tensorboard_callbacks(folder: Path) -> list[Callback]:
    """The TensorBoard callback, or nothing if TensorBoard is not installed."""
    try:
        return [TensorBoardCallback(folder)]
    except ImportError:
        return []
