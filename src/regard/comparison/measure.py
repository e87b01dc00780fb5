"""What is known about each entrant, in one row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

from regard.api import Model
from regard.comparison.entrant import Entrant
from regard.comparison.speed import tokens_per_second
from regard.decoding.engines.choice import Name
from regard.training.report.folder import number, read_run, record
from regard.training.report.thinning import Point
from regard.training.run import Run
from regard.training.settle import config_of, prepared_folder

SCORES = ("bleu", "bits_per_byte", "accuracy", "macro_f1")  # besides the loss


@dataclass(frozen=True)
class Row:
    """One entrant; what is not known is not there."""

    name: str
    network: str
    parameters: int
    training_speed: float | None = None  # targets a second
    steps: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)  # of the test data, or else of the validation data
    writing_speed: float | None = None  # tokens a second
    curve: Sequence[Point] = ()  # validation loss by step


def measure(entrants: Sequence[Entrant], sentences: Sequence[str], engine: Name) -> list[Row]:
    """A row for each, with the speed of writing measured now."""
    models = {entrant.name: Model(entrant.model) for entrant in entrants}
    speeds = tokens_per_second(models, sentences, engine)
    return [_row(entrant, models[entrant.name], speeds.get(entrant.name)) for entrant in entrants]


def sentences_of(entrants: Sequence[Entrant], most: int) -> list[str]:
    """Sentences to translate: the first of the first run that was validated on translations."""
    for run in (Run(entrant.run) for entrant in entrants if entrant.run is not None):
        config = config_of(run)
        texts = prepared_folder(run, config, str(run.read_about()["key"])) / "valid.jsonl"
        if config.model.translates and texts.is_file():  # labelled texts are kept there too
            with open(texts, encoding="utf-8") as lines:
                return [json.loads(line)["source"] for line in islice(lines, most)]
    return []


def _row(entrant: Entrant, model: Model, speed: float | None) -> Row:
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    settled = Row(entrant.name, model.config.model.family, parameters, writing_speed=speed)
    return settled if entrant.run is None else _trained(settled, entrant.run)


def _trained(row: Row, folder: Path) -> Row:
    run = read_run(folder)
    results = record(run.facts.get("results"))
    found = record(results.get("test")) or record(results.get("best"))
    speeds = [speed for line in run.training if (speed := number(line.get("tokens_per_second"))) is not None]
    losses = [(line["step"], number(record(line["valid"]).get("loss"))) for line in run.validation]
    return Row(
        row.name,
        row.network,
        row.parameters,
        median(speeds) if speeds else None,
        run.last_step,
        {name: value for name in ("loss", *SCORES) if (value := number(found.get(name))) is not None},
        row.writing_speed,
        [(step, loss) for step, loss in losses if loss is not None],
    )
