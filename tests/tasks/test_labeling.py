"""Classifiers and taggers: training, resuming, fine-tuning, and error messages."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from labeled_runs import SMALL, negated_sentences, run, tagged_sentences, word_pairs, write_columns, write_table
from regard.config import ClassHeadConfig, load_sources
from regard.errors import ConfigError, DataError, InterruptedRun
from regard.models.folder import read_tensors
from regard.training.run import Run
from regard.training.runner import run_training
from regard.training.setup import TrainRequest
from regard.training.start_from import copy_weights_from
from regard.training.trainer import Trainer
from small_runs import SETTINGS, lines, numbers, write_pairs
from small_runs import run as train_translator

STEPS = ["training.steps=120", "validation.every=60"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    test = write_table(folder / "test.tsv", negated_sentences(60, seed=1))
    data = write_table(folder / "train.tsv", negated_sentences(500))
    return run(folder / "run", data, *STEPS, f"data.test.files={test}", "validation.metric=accuracy")


def results(folder: Path) -> dict[str, Any]:
    scores: dict[str, Any] = json.loads((folder / "run.json").read_text())["results"]
    return scores


def test_a_classifier_learns(classifier: Path) -> None:
    assert results(classifier)["test"]["accuracy"] > 0.95
    assert results(classifier)["test"]["macro_f1"] > 0.95
    assert results(classifier)["test"]["sentences"] == 60


def test_the_model_folder_has_the_labels_in_alphabetical_order(classifier: Path) -> None:
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


@pytest.mark.slow
def test_a_classifier_of_text_pairs_learns(tmp_path: Path) -> None:
    data = write_table(tmp_path / "pairs.tsv", word_pairs(400))
    valid = write_table(tmp_path / "valid.tsv", word_pairs(60, seed=1))
    folder = run(
        tmp_path / "run", data, "training.steps=200", "validation.every=200", "model.segments=2",
        "training.batch_tokens=200", "model.layers=2", f"data.valid.files={valid}",
    )  # fmt: skip
    assert results(folder)["best"]["accuracy"] > 0.9
    assert regard.load(folder).classify([("cat", "cat"), ("cat", "dog")]) == ["same", "different"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    data = write_columns(folder / "train.conll", tagged_sentences(400))
    return run(
        folder / "run", data, *STEPS, "training.steps=200", "model.layers=2", "validation.metric=macro_f1", head="tags"
    )


@pytest.mark.slow
def test_a_tagger_learns_tags_that_depend_on_the_previous_word(tagger: Path) -> None:
    best = results(tagger)["best"]
    assert best["accuracy"] > 0.95
    assert best["macro_f1"] > 0.9
    assert best["span_f1"] > 0.9
    assert regard.load(tagger).tag(["red cat a dog"]) == [
        [("red", "O"), ("cat", "B-AFTER"), ("a", "O"), ("dog", "O")]
    ]  # fmt: skip


def interrupt_at(step: int, train: Callable[[], object]) -> None:
    """Start a run, and stop it after a step, as a kill would."""
    original = Trainer.step

    def step_and_stop(trainer: Trainer) -> None:
        if trainer.state.step == step:
            raise InterruptedRun("stopped")
        original(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", step_and_stop)
        with pytest.raises(InterruptedRun):
            train()


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.tsv", negated_sentences(80))
    few = ["training.steps=8", "validation.every=4", "model.dropout=0.1"]
    whole = run(tmp_path / "whole", data, *few)
    interrupt_at(5, lambda: run(tmp_path / "parts", data, *few))
    parts = run(tmp_path / "parts", data, *few, resume=True)
    assert numbers(parts) == numbers(whole)
    tensors = [(folder / "best" / "model.safetensors").read_bytes() for folder in (whole, parts)]
    assert tensors[0] == tensors[1]


def test_long_texts_are_truncated_and_counted(tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.tsv", [*negated_sentences(80), ("plain", "cat " * 40)])
    folder = run(tmp_path / "run", data, "training.steps=1", "data.max_length=16")
    counts = json.loads((folder / "run.json").read_text())["data"]
    assert counts["train"].get("cut", 0) + counts["valid"].get("cut", 0) <= 1
    assert counts["train"]["read"] == counts["train"]["kept"]


def test_long_sentences_are_split_and_every_word_is_scored(tmp_path: Path) -> None:
    data = write_columns(tmp_path / "a.conll", [*tagged_sentences(40), [("cat", "O")] * 30])
    folder = run(
        tmp_path / "run", data, "training.steps=1", "model.positions.kind=learned", "model.positions.max_length=16",
        f"data.valid.files={data}", head="tags",
    )  # fmt: skip
    counts = json.loads((folder / "run.json").read_text())["data"]
    assert counts["valid"] == {"read": 41, "kept": 41, "divided": 1}
    words = sum(map(len, tagged_sentences(40))) + 30
    assert sum(map(sum, json.loads((folder / "outputs.json").read_text())["confusion"]["counts"])) == words


# fine-tuning

SHORT = [
    "training.steps=15",
    "validation.every=15",
    "training.schedule.learning_rate=0.001",
    "training.schedule.warmup_steps=2",
]


def test_fine_tuning_is_better_than_training_from_scratch(classifier: Path, tmp_path: Path) -> None:
    renamed = [("no" if label == "negated" else "yes", text) for label, text in negated_sentences(300, seed=5)]
    data = write_table(tmp_path / "b.tsv", renamed)
    scratch = run(tmp_path / "scratch", data, *SHORT)
    sets = [*SHORT, f"training.start_from={classifier}", "model.head.labels=[]"]
    better = run(tmp_path / "tuned", data, *sets, "model.vocab_size=17")
    assert results(better)["best"]["accuracy"] > results(scratch)["best"]["accuracy"] + 0.1
    assert json.loads((better / "best" / "config.json").read_text())["model"]["head"]["labels"] == ["no", "yes"]


def fine_tune(out: Path, data: Path, start: Path, *settings: str, head: str = "classes", resume: bool = False) -> Run:
    """A short run that starts from a model, with no network settings but the head."""
    common = [setting for setting in SMALL if not setting.startswith(("model.", "tokenizer."))]
    sets = [*common, *SHORT, f"data.train.files={data}", f"training.start_from={start}", *settings]
    sets += [f"model.head={head}"] if head else []
    return run_training(TrainRequest(load_sources(None, sets), out, resume=resume))


def test_a_resumed_run_does_not_need_its_start_model(classifier: Path, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(classifier / "best", start)
    data = write_table(tmp_path / "a.tsv", negated_sentences(80))
    interrupt_at(5, lambda: fine_tune(tmp_path / "run", data, start))
    shutil.rmtree(start)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    finished = run_training(TrainRequest([], tmp_path / "moved", resume=True))
    assert results(finished.folder)["best"]["step"] == 15


@pytest.mark.slow
def test_a_head_with_the_same_labels_is_copied_and_another_is_new(
    classifier: Path, tagger: Path, tmp_path: Path
) -> None:
    start = regard.load(classifier).config
    same = read_tensors(classifier / "best" / "model.safetensors")
    for labels, equal in ((["negated", "plain"], True), (["no", "yes"], False)):
        model = start.model.model_copy(update={"head": ClassHeadConfig(labels=tuple(labels))})
        training = start.training.model_copy(update={"start_from": str(classifier)})
        config = start.model_copy(update={"model": model, "training": training})
        network = regard.build(model)
        message = copy_weights_from(network, config)
        assert message.endswith("best." if equal else "best, with a new head.")
        assert torch.equal(network.state_dict()["encoder.embedding.weight"], same["encoder.embedding.weight"])
        assert torch.equal(network.state_dict()["head.dense.weight"], same["head.dense.weight"]) == equal


def test_with_a_frozen_encoder_only_the_head_changes(classifier: Path, tmp_path: Path) -> None:
    renamed = [("no" if label == "negated" else "yes", text) for label, text in negated_sentences(200, seed=5)]
    data = write_table(tmp_path / "b.tsv", renamed)
    folder = fine_tune(
        tmp_path / "run", data, classifier, "training.freeze_encoder=true", "model.head.labels=[]", "training.steps=40"
    ).folder
    before, after = (read_tensors(path / "best" / "model.safetensors") for path in (classifier, folder))
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"head.dense.weight", "head.dense.bias"}
    assert results(folder)["best"]["accuracy"] > 0.9


def test_translators_can_be_fine_tuned(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", 60)
    first = train_translator(tmp_path / "first", pairs, "training.steps=2", "validation.sentences=0")
    common = [setting for setting in SETTINGS if not setting.startswith("model.")]
    sets = [*common, f"data.train.files={pairs}", "data.validation_fraction=0.1", f"training.start_from={first}"]
    second = run_training(
        TrainRequest(load_sources(None, [*sets, "training.steps=1", "validation.sentences=0"]), tmp_path / "second")
    )
    assert (second.folder / "tokenizer.json").read_text() == (first / "tokenizer.json").read_text()
    assert regard.load(second.folder).config.model == regard.load(first).config.model


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["model.width=64"],
            "--set model.width=64: model.width = 64 differs from START, which training starts from and which has 32; "
            "leave it out.",
        ),
        (
            ["model.kind=decoder-only"],
            "START: has model.kind = 'encoder-only', but model.kind = 'decoder-only' is set; start from a model "
            "of that kind.",
        ),
        (
            ["tokenizer.file=t.json"],
            "tokenizer.file: the tokenizer comes with START, which training starts from; leave it out.",
        ),
    ],
)
def test_invalid_fine_tuning_settings_are_errors(
    settings: list[str], message: str, classifier: Path, tmp_path: Path
) -> None:
    data = write_table(tmp_path / "a.tsv", negated_sentences(20))
    with pytest.raises(ConfigError) as error:
        fine_tune(tmp_path / "run", data, classifier, *settings, head="")
    assert str(error.value).replace(str(classifier / "best"), "START") == message


def test_dropout_can_change_in_fine_tuning(classifier: Path, tmp_path: Path) -> None:
    data = write_table(tmp_path / "a.tsv", negated_sentences(60))
    folder = fine_tune(tmp_path / "run", data, classifier, "model.dropout=0.3", "training.steps=1").folder
    assert regard.load(folder).config.model.dropout == 0.3


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("x\ta\nx\tb\n", [], "train.tsv: the only label is 'x'; a classifier needs at least two labels."),
        (
            "x\ta b\ny\tb a\n",
            ["data.valid.files=valid.tsv"],
            "valid.tsv:2: unknown label 'z', the labels are x, y; correct it, or skip such lines with --skip-invalid.",
        ),
        (
            "x\ta b\ny\tb a\n",
            ["model.head.labels=['x', 'w']", "data.valid.files=train.tsv"],
            "train.tsv:2: unknown label 'y', the labels are x, w; correct it, or skip such lines with --skip-invalid.",
        ),
        (
            "x\ta b\ny\tb a\n",
            ["data.validation_fraction=0.000001"],
            "no text was held out for validation, because there are too few different ones; raise "
            "data.validation_fraction, "
            "which is 1e-06, or pass --valid.",
        ),
    ],
)
def test_invalid_labels_are_errors(
    content: str, settings: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.tsv").write_text(content)
    Path("valid.tsv").write_text("x\tc\nz\td\n")
    with pytest.raises(DataError) as error:
        run(tmp_path / "run", Path("train.tsv"), *settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["training.freeze_encoder=true"],
            "--set training.freeze_encoder=true: training.freeze_encoder = True needs training.start_from: frozen "
            "weights must be trained already.",
        ),
        (
            ["validation.metric=accuracy", "model.kind=decoder-only"],
            "--set model.kind=decoder-only: validation.metric = 'accuracy' is not measured where model.kind = "
            "'decoder-only' is trained for gpt: use loss.",
        ),
        (["model.head.labels=['a', 'a']", "model.head.kind=tags"], "model.head.labels = ['a', 'a'] has 'a' twice."),
        (
            ["model.kind=encoder-only", "model.head=tags", "data.train.source=a", "data.train.target=b"],
            "a tagger is trained on --data; --source and --target are for translation.",
        ),
        (
            ["model.kind=encoder-only", "model.head=classes", "data.test.source=a", "data.test.target=b"],
            "a classifier is tested on --test; --test-source and --test-target are for translation.",
        ),
    ],
)
def test_settings_that_contradict_labels_are_errors(settings: list[str], message: str, tmp_path: Path) -> None:
    if "model.head.kind=tags" in settings:
        settings = ["model.kind=encoder-only", "model.head.kind=tags", settings[0]]
    with pytest.raises(ConfigError) as error:
        run_training(TrainRequest(load_sources(None, [*settings, "data.train.files=a.tsv"]), tmp_path / "run"))
    assert str(error.value).endswith(message)
