"""Scalars for TensorBoard, for those who have it installed; regard itself does not need it."""

import weakref
from collections.abc import Callable, Mapping
from pathlib import Path


def scalars(folder: Path) -> Callable[[int, Mapping[str, float]], None]:
    """A function that takes a step and its figures and writes them where TensorBoard reads them.

    Without the `tensorboard` package it does nothing. Every call is on disk when it returns, and the file is closed
    when the function is no longer held, or at the latest when Python ends.

        record = scalars(Path("runs/en-it/tensorboard"))
        record(500, {"train/loss": 3.2, "valid/bleu": 12.1})
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return _nothing
    writer = SummaryWriter(str(folder))

    def record(step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        writer.flush()  # the writer would otherwise keep two minutes of figures in memory, and a kill would lose them

    weakref.finalize(record, writer.close)
    return record


def _nothing(step: int, figures: Mapping[str, float]) -> None:
    """Where there is no TensorBoard, nothing is written."""
