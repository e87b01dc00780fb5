"""`regard train classify` and `regard train tag`: from files, and fine-tuned from a model."""

import json
from pathlib import Path

import pytest

from commands import regard
from labeled_runs import negated_sentences, tagged_sentences, write_columns, write_table
from regard.cli.train import _add_builtin_splits
from regard.tasks.classification import ClassificationTask

TINY = [
    part
    for setting in ("model.width=16", "model.layers=1", "model.heads=2", "model.feed_forward=24", "training.steps=6",
                    "training.batch_tokens=256", "validation.every=3", "training.threads=1")
    for part in ("--set", setting)
]  # fmt: skip


@pytest.mark.slow
def test_classifier_from_a_file_and_fine_tuned(tmp_path: Path) -> None:
    data = write_table(tmp_path / "train.tsv", [("label", "sentence"), *negated_sentences(120)])
    done = regard("train", "classify", "--data", data, "--out", tmp_path / "first", *TINY)
    assert done.code == 0, done.err
    assert "validation.metric = accuracy: the usual metric of classifiers with balanced labels." in done.err
    assert "data.validation_fraction = 0.1: about 12 texts for validation." in done.err
    assert "macro-F1" in done.out

    more = ["--set", "training.steps=2", "--set", "model.dropout=0.0"]
    done = regard(
        "train", "classify", "--data", data, "--from", tmp_path / "first", "--out", tmp_path / "second", *more
    )
    assert done.code == 0, done.err
    assert f"Starting from {tmp_path / 'first' / 'best'}." in done.err
    assert "\nmodel.width = " not in done.err
    assert "training.schedule.learning_rate = 0.0001: keeps most of what was learned before." in done.err
    model = json.loads((tmp_path / "second" / "best" / "config.json").read_text())["model"]
    assert (model["width"], model["head"]["labels"]) == (16, ["negated", "plain"])


def test_tagger_from_columns(tmp_path: Path) -> None:
    data = write_columns(tmp_path / "train.conll", tagged_sentences(80))
    done = regard("train", "tag", "--data", data, "--valid", data, "--out", tmp_path / "run", *TINY)
    assert done.code == 0, done.err
    assert "span F1" in done.out
    head = json.loads((tmp_path / "run" / "best" / "config.json").read_text())["model"]["head"]
    assert head == {"kind": "tags", "labels": ["B-AFTER", "O"], "dropout": 0.1}


def test_builtin_topics_have_validation_and_test_splits() -> None:
    splits = {"train": {"files": ["builtin:phrasebook-topics"]}}
    assert _add_builtin_splits(ClassificationTask(), splits) == {
        **splits,
        "valid": {"files": ["builtin:phrasebook-topics-dev"]},
        "test": {"files": ["builtin:phrasebook-topics-test"]},
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["classify", "--data", "a.tsv", "--from", "nowhere"],
            3,
            "nowhere: does not exist; give the path of a model folder, or of a run.",
        ),
        (
            ["classify", "--source", "a", "--target", "b"],
            2,
            "a classifier is trained on --data; --source and --target are for translation.",
        ),
        (["tag", "--data", "/dev/null"], 3, "/dev/null: has no text to train on; provide more text."),
        (
            ["classify", "--data", "builtin:phrasebook"],
            3,
            "builtin:phrasebook: holds sentence pairs, not labeled texts; use "
            "builtin:phrasebook-topics, builtin:phrasebook-topics-dev and builtin:phrasebook-topics-test.",
        ),
        (
            ["tag", "--data", "builtin:phrasebook"],
            3,
            "builtin:phrasebook: has no tags, and neither has any other builtin corpus; pass a file.",
        ),
        (
            ["tag", "--data", "a.conll", "--set", "data.tag_column=0"],
            2,
            "--set data.tag_column=0: data.tag_column = 0 should be greater than or equal to 1.",
        ),
    ],
)
def test_invalid_input_is_an_error(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = regard("train", *arguments, "--out", "run")
    assert (done.code, done.err) == (code, f"regard: {message}\n")
