"""Read the files of a run folder for the report, whatever state the run is in."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.files import check_regular_file

Record = dict[str, Any]


@dataclass(frozen=True)
class RunLog:
    """The content of a run folder. Everything but the metrics may be empty."""

    name: str
    info: Record  # run.json
    training: list[Record]  # lines of metrics.jsonl, in order of their steps
    validation: list[Record]
    samples: list[Record]
    outputs: Record
    config: str

    @property
    def last_step(self) -> int:
        """The last step with metrics."""
        return max((line["step"] for line in [*self.training[-1:], *self.validation[-1:]]), default=0)

    @property
    def best_step(self) -> int | None:
        """The step of the best model: from run.json, or else that of the lowest validation loss."""
        recorded = finite_number(as_record(as_record(self.info.get("results")).get("best")).get("step"))
        if recorded is not None:
            return int(recorded)
        losses = [(finite_number(as_record(line["valid"]).get("loss")), line["step"]) for line in self.validation]
        return min(((loss, step) for loss, step in losses if loss is not None), default=(0.0, None))[1]


def read_run_log(folder: Path) -> RunLog:
    """Read a run folder."""
    metrics = folder / "metrics.jsonl"
    try:
        check_regular_file(metrics)
    except FileNotFoundError:
        raise ModelError(f"{metrics}: is missing, so {folder} is not a run folder.") from None
    except OSError as error:
        raise ModelError(f"{metrics}: cannot be read ({error.strerror}); restore it from a copy.") from None
    training: list[Record] = []
    validation: list[Record] = []
    for line in _lines(metrics):
        lines = validation if "valid" in line else training
        _drop_repeated(lines, line["step"])
        lines.append(line)
    samples: list[Record] = []
    for line in _lines(folder / "samples.jsonl"):
        if samples and line["step"] < samples[-1]["step"]:
            _drop_repeated(samples, line["step"])
        samples.append(line)
    info = as_record(_json(folder / "run.json"))
    name = str(info.get("name") or folder.resolve().name)
    config = folder / "config.toml"
    settings = _read(config) if config.is_file() else ""
    return RunLog(name, info, training, validation, samples, as_record(_json(folder / "outputs.json")), settings)


def finite_number(value: object) -> float | None:
    """A finite number, or None for anything else.

    >>> finite_number(3), finite_number(float("nan")), finite_number("3"), finite_number(True)
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e100 else None


def as_record(value: object) -> Record:
    """A JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_records(value: object) -> list[Record]:
    """The objects of a JSON list, or none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _drop_repeated(lines: list[Record], step: int) -> None:
    """Drop the lines from a step on: a resumed run repeats the steps after its checkpoint."""
    while lines and lines[-1]["step"] >= step:
        lines.pop()


def _lines(path: Path) -> Iterator[Record]:
    """The objects of a JSON Lines file that have a step. A line that a kill truncated is skipped."""
    if not path.is_file():
        return
    for line in _read(path).split("\n"):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        step = finite_number(as_record(content).get("step"))
        if step is not None:
            yield {**content, "step": int(step)}


def _json(path: Path) -> object:
    if not path.is_file():
        return None
    try:
        content: object = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not valid JSON ({error}); fix or remove it.") from None
    return content


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from None
