"""Classifiers and taggers learn, resume exactly, and start from what was learned before."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from labelled_runs import followers, likenesses, negations, run, write_columns, write_table
from regard.errors import ConfigError, DataError, InterruptedRun
from regard.training.display import Display
from regard.training.loop import Loop
from small_runs import lines, numbers

STEPS = ["training.steps=200", "validation.every=100"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    test = write_table(folder / "test.tsv", negations(60, seed=1))
    data = write_table(folder / "train.tsv", negations(500))
    return run(folder / "run", data, *STEPS, f"data.test.files={test}", "validation.metric=accuracy")


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())["results"]
    return found


def test_a_classifier_learns_what_its_labels_tell(classifier: Path) -> None:
    assert results(classifier)["test"]["accuracy"] > 0.95
    assert results(classifier)["test"]["macro_f1"] > 0.95
    assert results(classifier)["test"]["sentences"] == 60


def test_labels_end_up_in_the_model_folder_in_alphabetical_order(classifier: Path) -> None:
    head = json.loads((classifier / "best" / "config.json").read_text())["model"]["head"]
    assert head["labels"] == ["negated", "plain"]
    assert head["kind"] == "classes"


def test_outputs_samples_and_report_show_labels_and_the_confusion_matrix(classifier: Path) -> None:
    outputs = json.loads((classifier / "outputs.json").read_text())
    assert outputs["confusion"]["labels"] == ["negated", "plain"]
    assert sum(map(sum, outputs["confusion"]["counts"])) == 60
    assert set(outputs["worst"][0]) == {"source", "reference", "output", "probability"}
    sample = lines(classifier, "samples.jsonl")[-1]
    assert re.fullmatch(r"(plain|negated) \(\d+%\)", sample["output"])
    report = (classifier / "report.html").read_text()
    assert 'class="confusion"' in report
    assert "macro-F1" in report
    assert "Accuracy and macro-F1" in report


def test_a_classifier_of_pairs_compares_them(tmp_path: Path) -> None:
    data = write_table(tmp_path / "pairs.tsv", likenesses(400))
    valid = write_table(tmp_path / "valid.tsv", likenesses(60, seed=1))
    folder = run(
        tmp_path / "run", data, "training.steps=300", "validation.every=300", "model.segments=2",
        "model.layers=2", f"data.valid.files={valid}",
    )  # fmt: skip
    assert results(folder)["best"]["accuracy"] > 0.9
    assert regard.load(folder).classify([("cat", "cat"), ("cat", "dog")]) == ["same", "different"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    data = write_columns(folder / "train.conll", followers(400))
    return run(folder / "run", data, *STEPS, "model.layers=2", "validation.metric=macro_f1", head="tags")


def test_a_tagger_learns_tags_that_depend_on_a_neighbour(tagger: Path) -> None:
    best = results(tagger)["best"]
    assert best["accuracy"] > 0.95
    assert best["macro_f1"] > 0.9
    assert best["span_f1"] > 0.9
    assert regard.load(tagger).tag(["red cat a dog"]) == [
        [("red", "O"), ("cat", "B-AFTER"), ("a", "O"), ("dog", "O")]
    ]  # fmt: skip


class _StopAt:
    """Stops a run after some step, as a kill would."""

    def __init__(self, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
        original = Loop.step

        def step_and_stop(loop: Loop) -> None:
            if loop.state.step == step:
                raise InterruptedRun("stopped")
            original(loop)

        monkeypatch.setattr(Loop, "step", step_and_stop)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.tsv", negations(80))
    few = ["training.steps=8", "validation.every=4", "model.dropout=0.1"]
    whole = run(tmp_path / "whole", data, *few)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedRun):
        _StopAt(5, patch)
        run(tmp_path / "parts", data, *few)
    parts = run(tmp_path / "parts", data, *few, resume=True)
    assert numbers(parts) == numbers(whole)
    tensors = [(folder / "best" / "model.safetensors").read_bytes() for folder in (whole, parts)]
    assert tensors[0] == tensors[1]


def test_texts_that_are_too_long_are_cut_and_counted(tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.tsv", [*negations(80), ("plain", "cat " * 40)])
    folder = run(tmp_path / "run", data, "training.steps=1", "data.longest=16")
    counts = json.loads((folder / "run.json").read_text())["data"]
    assert counts["train"].get("cut", 0) + counts["valid"].get("cut", 0) <= 1
    assert counts["train"]["read"] == counts["train"]["kept"]


def test_sentences_that_are_too_long_are_divided_and_every_word_is_scored(tmp_path: Path) -> None:
    data = write_columns(tmp_path / "a.conll", [*followers(40), [("cat", "O")] * 30])
    folder = run(
        tmp_path / "run", data, "training.steps=1", "model.positions.kind=learned", "model.positions.length=16",
        f"data.valid.files={data}", head="tags",
    )  # fmt: skip
    counts = json.loads((folder / "run.json").read_text())["data"]
    assert counts["valid"] == {"read": 41, "kept": 41, "divided": 1}
    words = sum(map(len, followers(40))) + 30
    assert sum(map(sum, json.loads((folder / "outputs.json").read_text())["confusion"]["counts"])) == words


# fine-tuning

SHORT = ["training.steps=15", "validation.every=15", "training.schedule.peak=0.001", "training.schedule.warmup=2"]


def test_fine_tuning_beats_training_from_nothing(classifier: Path, tmp_path: Path) -> None:
    renamed = [("no" if label == "negated" else "yes", text) for label, text in negations(300, seed=5)]
    data = write_table(tmp_path / "b.tsv", renamed)
    scratch = run(tmp_path / "scratch", data, *SHORT)
    sets = [*SHORT, f"training.start_from={classifier}", "model.head.labels=[]"]
    tuned = run(tmp_path / "tuned", data, *sets, "model.vocabulary=17")
    assert results(tuned)["best"]["accuracy"] > results(scratch)["best"]["accuracy"] + 0.1
    assert json.loads((tuned / "best" / "config.json").read_text())["model"]["head"]["labels"] == ["no", "yes"]


class _Notes(Display):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, sentence: str) -> None:
        self.said.append(sentence)
