"""Unbalanced labels: class weights, the majority baseline, the metric that decides, and ids taken for labels."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from commands import regard
from labeled_runs import negated_sentences, run, tagged_sentences, write_columns, write_table
from regard.data.corpus_scan import CorpusStats
from regard.errors import ConfigError
from regard.evaluation.metrics import confusion_matrix
from regard.tasks.classification import ClassificationTask
from regard.tasks.labeling import class_weights
from regard.training.automatic_settings import UserSettings
from regard.training.losses import rdrop_cross_entropy, smoothed_cross_entropy, symmetric_kl

TINY = [
    part
    for setting in ("model.width=16", "model.layers=1", "model.heads=2", "model.feed_forward=24", "training.steps=4",
                    "training.batch_tokens=256", "validation.every=2", "training.threads=1")
    for part in ("--set", setting)
]  # fmt: skip


def unbalanced(count: int, every: int = 10, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of which one in `every` is negated."""
    rows = negated_sentences(10 * count, seed)
    plain = [row for row in rows if row[0] == "plain"][: count - count // every]
    return [*plain, *[row for row in rows if row[0] == "negated"][: count // every]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_weighted_loss_is_the_sum_of_the_weighted_losses_of_the_targets(smoothing: float) -> None:
    logits, targets = torch.randn(7, 3), torch.tensor([0, 1, 2, 2, 1, 0, 0])
    weights = torch.tensor([1.0, 5.0, 0.25])
    loss = smoothed_cross_entropy(logits, targets, smoothing, weights)
    alone = [smoothed_cross_entropy(logits[n : n + 1], targets[n : n + 1], smoothing).loss for n in range(7)]
    assert loss.loss.item() == pytest.approx(
        sum(float(one * weights[y]) for one, y in zip(alone, targets, strict=True))
    )
    assert loss.cross_entropy.item() == pytest.approx(F.cross_entropy(logits, targets, reduction="sum").item())
    assert loss.targets == 7


def test_class_weights_apply_to_the_cross_entropy_of_rdrop() -> None:
    first, second, targets = torch.randn(4, 2), torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    weights = torch.tensor([1.0, 3.0])
    loss = rdrop_cross_entropy(first, second, targets, 0.0, 0.7, weights).loss
    parts = [F.cross_entropy(logits, targets, weights, reduction="sum") for logits in (first, second)]
    assert loss.item() == pytest.approx(float(sum(parts) + 0.7 * symmetric_kl(first, second)) / 2)


def test_balanced_weights_have_mean_one_over_the_examples() -> None:
    counts = np.array([70, 20, 10, 0])
    weights = class_weights(["a", "b", "c", "d"], counts, True, {})
    assert weights is not None
    assert float(counts @ np.array(weights)) == pytest.approx(counts.sum())
    assert weights[1] / weights[0] == pytest.approx(3.5)
    assert class_weights(["a", "b"], counts[:2], False, {}) is None


def test_a_weight_for_an_unknown_label_is_an_error(tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.tsv", negated_sentences(40))
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "run", data, "training.steps=1", "training.class_weights.negate=2.0")
    assert str(error.value) == (
        "training.class_weights: 'negate' is not a label of the data (did you mean negated?); "
        "the labels are 'negated', 'plain'."
    )


@pytest.mark.slow
def test_balanced_classes_find_more_of_the_rare_label(tmp_path: Path) -> None:
    data = write_table(tmp_path / "train.tsv", unbalanced(200, every=20))
    test = write_table(tmp_path / "test.tsv", negated_sentences(60, seed=1))
    settings = ("training.steps=12", "validation.every=12", f"data.test.files={test}", "model.head.dropout=0.0")
    recall = {}
    for balanced in ("false", "true"):
        folder = run(tmp_path / balanced, data, *settings, f"training.balance_classes={balanced}")
        counts = json.loads((folder / "outputs.json").read_text())["confusion"]["counts"]
        recall[balanced] = counts[0][0] / sum(counts[0])
    assert recall["true"] > recall["false"] + 0.3


def test_balanced_tags_are_counted_without_words_that_have_no_tag(tmp_path: Path) -> None:
    data = write_columns(tmp_path / "a.conll", tagged_sentences(40))
    options = ("training.steps=1", f"data.valid.files={data}", "training.balance_classes=true")
    folder = run(tmp_path / "run", data, *options, head="tags")
    words = [tag for sentence in tagged_sentences(40) for _, tag in sentence]
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert first["loss"] != pytest.approx(first["cross_entropy"], rel=1e-3)
    majority = json.loads((folder / "run.json").read_text())["results"]["majority"]
    assert majority["accuracy"] == pytest.approx(words.count("O") / len(words))


@pytest.mark.slow
def test_rare_classes_alone_in_a_batch_are_no_divergence(tmp_path: Path) -> None:
    data = write_table(
        tmp_path / "a.tsv", [*[("plain", "cat")] * 80, ("rare", "red dog " * 20), ("rare", "big fish " * 20)]
    )
    valid = write_table(tmp_path / "valid.tsv", [("plain", "cat"), ("rare", "red dog " * 20)])
    settings = ("training.batch_tokens=50", f"data.valid.files={valid}", "training.steps=40", "validation.every=40")
    folder = run(tmp_path / "run", data, *settings, "training.class_weights.rare=200.0")
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_macro_f1_decides_when_labels_are_unbalanced(tmp_path: Path) -> None:
    data = write_table(tmp_path / "train.tsv", unbalanced(200))
    done = regard("train", "classify", "--data", data, "--out", tmp_path / "run", *TINY)
    assert done.code == 0, done.err
    assert "validation.metric = macro_f1: unbalanced labels: 'plain' is 9 times as frequent as 'negated'." in done.err
    assert "Majority baseline (the most frequent label for every example): accuracy 9" in done.out
    report = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "majority baseline: the most frequent label for every example" in report
    assert "From validation, " in report  # the large numbers are not those of the baseline

    override = regard(
        "train", "classify", "--data", data, "--out", tmp_path / "b", *TINY, "--set", "validation.metric=loss"
    )
    assert "macro_f1" not in override.err

    done = regard("evaluate", tmp_path / "run", "--data", data, "--quiet")
    assert "Majority baseline, plain for every example: accuracy 90.0%  macro-F1 47.4%" in done.out
    scores = json.loads(regard("evaluate", tmp_path / "run", "--data", data, "--quiet", "--json").out)
    assert scores["majority"] == {"label": "plain", "accuracy": 0.9, "macro_f1": pytest.approx(0.9 / 1.9)}


@pytest.mark.parametrize(("labels", "metric"), [({"a": 30, "b": 10}, "macro_f1"), ({"a": 29, "b": 10}, "accuracy")])
def test_labels_are_unbalanced_from_a_ratio_of_three(labels: dict[str, int], metric: str) -> None:
    stats = CorpusStats(sum(labels.values()), 1000, labels)
    settings = {
        setting.key: setting.value for setting in ClassificationTask().automatic_settings(stats, UserSettings())
    }
    assert settings["validation.metric"] == metric


@pytest.mark.slow
def test_nearly_as_many_labels_as_texts_give_a_warning(tmp_path: Path) -> None:
    rows = [(f"id{n}", text) for n, (_, text) in enumerate(negated_sentences(60))]
    done = regard(
        "train", "classify", "--data", write_table(tmp_path / "a.tsv", rows), "--out", tmp_path / "run", *TINY
    )
    assert done.code == 0, done.err
    assert (
        f"{tmp_path / 'a.tsv'}: 60 different labels for 60 texts; if an id or a text was taken for the label, name the "
        "right column with --label-column and --text-column."
    ) in done.err
    labels = write_table(tmp_path / "b.tsv", negated_sentences(60))
    assert (
        "different labels for" not in regard("train", "classify", "--data", labels, "--out", tmp_path / "c", *TINY).err
    )


def test_the_majority_baseline_predicts_the_most_frequent_true_label() -> None:
    matrix = confusion_matrix(["a", "b", "c"], true=[0, 1, 1, 1, 2], predicted=[0, 0, 0, 0, 0])
    assert matrix.majority_label == "b"
    assert matrix.majority_scores()["accuracy"] == pytest.approx(0.6)
    assert matrix.majority_scores()["macro_f1"] == pytest.approx(0.75 / 3)
