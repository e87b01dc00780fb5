"""Short training runs have the losses that are recorded in golden.json, up to rounding of other processors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from record import GOLDEN, run_metrics, train_arguments, write_data

from commands import regard

TOLERANCE = 1e-4  # relative; between two processors the losses differed by 1e-8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    write_data(folder)
    return folder


def losses(metrics: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The numbers of training and the validation loss; scores of decoded texts jump when a token changes."""
    for line in metrics:
        numbers = {f"valid {name}": value for name, value in line.get("valid", {}).items() if name == "loss"} | line
        for name in sorted(numbers.keys() - {"step", "valid"}):
            yield f"{name} of step {line['step']}", numbers[name]


@pytest.mark.parametrize(
    "name",
    [
        "translation, relative, pre-norm, RMS, SwiGLU",
        "gpt",
        "gpt, LSTM",
        "classify",
    ],
)
def test_losses_are_the_recorded_ones(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = regard(*train_arguments(name))
    assert done.code == 0, done.err
    expected = dict(losses(json.loads(GOLDEN.read_text("utf-8"))[name]["metrics"]))
    assert sum("valid loss" in key for key in expected) == 2
    assert dict(losses(run_metrics(folder, name))) == pytest.approx(expected, rel=TOLERANCE)
