"""Reading a run folder: metrics, samples and facts, however the run ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ModelError

Record = dict[str, Any]


@dataclass(frozen=True)
class RunLog:
    """What a run folder holds. Everything but the metrics may be empty."""

    name: str
    facts: Record  # run.json
    training: list[Record]  # lines of metrics.jsonl, in order of their steps
    validation: list[Record]
    samples: list[Record]
    outputs: Record
    config: str

    @property
    def last_step(self) -> int:
        """The last step that left a line."""
        return max((line["step"] for line in [*self.training[-1:], *self.validation[-1:]]), default=0)

    @property
    def best_step(self) -> int | None:
        """The step whose model was kept: as the run says, or else the one with the lowest validation loss."""
        said = finite_number(as_record(as_record(self.facts.get("results")).get("best")).get("step"))
        if said is not None:
            return int(said)
        losses = [(finite_number(as_record(line["valid"]).get("loss")), line["step"]) for line in self.validation]
        return min(((loss, step) for loss, step in losses if loss is not None), default=(0.0, None))[1]


def read_run_log(folder: Path) -> RunLog:
    """Read a run folder."""
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        raise ModelError(f"{metrics}: is missing, so {folder} is not a run folder.")
    training: list[Record] = []
    validation: list[Record] = []
    for line in _lines(metrics):
        kind = validation if "valid" in line else training
        _rewind(kind, line["step"])
        kind.append(line)
    samples: list[Record] = []
    for line in _lines(folder / "samples.jsonl"):
        if samples and line["step"] < samples[-1]["step"]:
            _rewind(samples, line["step"])
        samples.append(line)
    facts = as_record(_json(folder / "run.json"))
    name = str(facts.get("name") or folder.resolve().name)
    config = folder / "config.toml"
    settings = _read(config) if config.is_file() else ""
    return RunLog(name, facts, training, validation, samples, as_record(_json(folder / "outputs.json")), settings)


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
    """The objects in a JSON list, or none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _rewind(lines: list[Record], step: int) -> None:
    """A run that resumes repeats the steps after its checkpoint: the later lines count."""
    while lines and lines[-1]["step"] >= step:
        lines.pop()


def _lines(path: Path) -> Iterator[Record]:
    """The objects of a JSON-lines file that have a step. A line that a kill cut short is passed over."""
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
        raise ModelError(f"{path}: is not valid JSON ({error}); mend or remove it.") from None
    return content


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from None
