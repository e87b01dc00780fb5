"""docs/reference/metrics.md documents every field of metrics.jsonl, and no field that runs do not write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import labeled_runs
import small_runs
from regard.config import load_sources
from regard.training.runner import run_training
from regard.training.setup import TrainRequest
from regard.training.task import TASKS, NetworkTask

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
NETWORK_TASKS = [name for name, task in TASKS.items() if issubclass(task, NetworkTask)]
EXPERT_FIELDS = {"load_balancing_loss"}
SHORT = ("training.steps=2", "validation.every=2")
TEXT_MODELS = {
    "gpt": ["model.kind=decoder-only"],
    "elmo": ["model.kind=bidirectional-language-model"],
    "masked": ["model.kind=encoder-only", "model.head=tokens"],
}


def table(heading: str, number: int = 0) -> list[list[str]]:
    """The rows of a table below a heading of the page, split into cells."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section + "\n", flags=re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in tables[number].splitlines()[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def fields(heading: str) -> set[str]:
    return {name for row in table(heading) for name in names(row[0])}


def scores_of(task: str) -> set[str]:
    """The validation scores that the page lists for a task."""
    return {row[0].strip("`") for row in table("Validation scores") if row[2] == "all" or task in names(row[2])}


def metrics_of(task: str, folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of a short run."""
    out = folder / "run"
    match task:
        case "translation":
            small_runs.run(out, small_runs.write_pairs(folder / "pairs.tsv", 100), *SHORT)
        case "classify":
            data = labeled_runs.write_table(folder / "texts.tsv", labeled_runs.negated_sentences(100))
            labeled_runs.run(out, data, *SHORT)
        case "tag":
            data = labeled_runs.write_columns(folder / "tags.conll", labeled_runs.tagged_sentences(100))
            labeled_runs.run(out, data, *SHORT, head="tags")
        case "chat" | "dpo":
            (folder / "base").mkdir()
            metrics_of("gpt", folder / "base")
            question, answer = ({"role": role, "content": "the dog"} for role in ("user", "assistant"))
            chat: dict[str, Any] = {"messages": [question, answer]}
            if task == "dpo":
                chat = {"messages": [question], "chosen": "the dog", "rejected": "a cat"}
            data = folder / "chats.jsonl"
            data.write_text(f"{json.dumps(chat)}\n" * 3, "utf-8")
            files = [f"data.train.files={data}", f"data.valid.files={data}", f"training.task={task}"]
            start = [
                "model.kind=decoder-only",
                f"training.start_from={folder / 'base' / 'run'}",
                "training.log_every=1",
            ]
            run_training(TrainRequest(load_sources(None, [*files, *start, *SHORT]), out))
        case _:
            data = folder / "book.txt"
            data.write_text("\n\n".join(["the cat sat and the dog ran", "a dog barked at the sun"] * 40), "utf-8")
            small_runs.run(out, data, *TEXT_MODELS[task], "tokenizer.kind=character", "data.context_length=32", *SHORT)
    return small_runs.lines(out)


@pytest.mark.parametrize("task", NETWORK_TASKS)
def test_the_page_lists_exactly_the_fields_of_a_run(task: str, tmp_path: Path) -> None:
    lines = metrics_of(task, tmp_path)
    training, validation = ([line for line in lines if ("valid" in line) == valid] for valid in (False, True))
    assert len(training) == 2
    assert len(validation) == 1
    assert {name for line in training for name in line} == fields("Training lines") - EXPERT_FIELDS
    assert set(validation[0]) == fields("Validation lines")
    assert set(validation[0]["valid"]) == scores_of(task)


def test_the_load_balancing_loss_of_experts_is_part_of_the_loss(tmp_path: Path) -> None:
    data = small_runs.write_pairs(tmp_path / "pairs.tsv", 100)
    balancing = ("model.experts=3", "training.load_balancing=0.5", "training.label_smoothing=0", *SHORT)
    lines = [
        small_runs.lines(small_runs.run(tmp_path / name, data, *balancing, *settings))[0]
        for name, settings in {"one": (), "accumulated": ("training.gradient_accumulation=2",)}.items()
    ]
    for line in lines:
        assert set(line) == fields("Training lines")
        assert 1 < line["load_balancing_loss"] < 3
        assert line["loss"] == pytest.approx(line["cross_entropy"] + 0.5 * line["load_balancing_loss"], abs=1e-5)


@pytest.mark.parametrize("task", NETWORK_TASKS)
def test_the_page_lists_the_values_of_validation_metric(task: str) -> None:
    (metrics,) = [names(row[1]) for row in table("Validation scores", 1) if task in names(row[0])]
    assert tuple(metrics) == TASKS[task].metrics
