"""A task outside regard is one file that registers itself: `regard --plugin` trains it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import commands
from regard.config import load_config
from regard.data.data_key import data_key
from regard.registry import TASK_REGISTRY

TASK_FILE = '''
"""Copying: pieces of text in, a network out that repeats what it has read."""

from typing import ClassVar

import numpy as np

from regard.data.batching import DataPosition
from regard.data.prepare_documents import prepare_documents
from regard.data.corpus_scan import document_stats
from regard.training.automatic_settings import AutomaticSetting
from regard.training.task import TASKS, NetworkTask, ValidationResult

PIECE, ROWS = 4, 8  # tokens to copy, examples of a batch


@TASKS.register("toy")
class ToyTask(NetworkTask):
    name = "toy"
    title = "copying"
    help = "a network that copies text"
    noun = "copier"
    metrics = ("loss", "copied")
    model: ClassVar = {"kind": "decoder-only"}

    def abilities(self, config):
        return ("generate",)

    def check(self, config):
        pass

    def corpus_stats(self, corpus, skip_invalid, report):
        return document_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats, user):
        return [
            AutomaticSetting("model.width", 16, "enough to copy"),
            AutomaticSetting("model.layers", 2, "one finds the token, one copies it"),
            AutomaticSetting("tokenizer.kind", "character", "short texts"),
            AutomaticSetting("validation.metric", "copied", "what the network is for"),
        ]

    def prepare(self, folder, key, config, report):
        return prepare_documents(folder, key, config, report)

    def bind(self, config, prepared, network):
        return BoundToy(config, prepared, network)


class BoundToy:
    unit = "tokens"
    batches_per_epoch = 10

    def __init__(self, config, prepared, network):
        self.config, self.network = config, network
        self.train_ids, self.valid_ids = (split.store.columns[0].ids for split in (prepared.train, prepared.valid))

    def objective(self):
        from regard.training.losses import CausalLMObjective

        return CausalLMObjective(self.network, self.config.training.label_smoothing)

    def batches(self, position):
        epoch, batch = position.epoch, position.batch
        while True:
            following = DataPosition(epoch, batch + 1)
            random = np.random.default_rng([self.config.training.seed, epoch, batch])
            yield following, self.batch(self.train_ids, random)
            epoch, batch = (epoch, batch + 1) if batch + 1 < self.batches_per_epoch else (epoch + 1, 0)

    def batch(self, ids, random):
        """Rows of the start token and a piece of text, twice."""
        import torch

        from regard.training.batches import TokenBatch

        starts = random.integers(len(ids) - PIECE, size=ROWS)
        pieces = [[self.config.tokens.start, *ids[start : start + PIECE].tolist()] * 2 for start in starts]
        rows = torch.tensor([[*piece, self.config.tokens.end] for piece in pieces])
        return TokenBatch(target=rows[:, :-1], labels=rows[:, 1:])

    def flops(self, batch):
        return 0.0

    def describe(self, position, batch):
        return f"batch {position.batch}"

    def validate(self, check):
        import torch

        check()
        with torch.no_grad():
            batch = self.batch(self.valid_ids, np.random.default_rng([0]))
            loss = self.objective()(batch)
            predicted = self.network.logits(self.network.decode(batch.target)).argmax(-1)
        copied = (predicted == batch.labels)[:, PIECE + 1 :].double().mean()
        return ValidationResult({"loss": float(loss.cross_entropy) / loss.targets, "copied": float(copied)})

    def test(self, check):
        return None
'''
SETTINGS = [
    "model.vocab_size=40",
    "model.heads=2",
    "model.feed_forward=16",
    "training.steps=4",
    "training.log_every=1",
    "training.threads=1",
    "training.schedule.warmup_steps=2",
    "validation.every=2",
    "data.validation_fraction=0.2",
]


def regard_with_plugin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the plugin in a folder, in a process of its own: the registry of this process has no toy."""
    command = [sys.executable, "-m", "regard", "--plugin", "toy_task", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of the task, some text, and the run that `regard train toy` has made of it."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy_task.py").write_text(TASK_FILE, "utf-8")
    (folder / "text.txt").write_text("a dog barked at the sun\n\n" * 30, "utf-8")
    sets = [part for setting in SETTINGS for part in ("--set", setting)]
    done = regard_with_plugin(folder, "train", "toy", "--data", "text.txt", "--out", "run", *sets)
    assert done.returncode == 0, done.stderr
    assert "validation.metric = copied: what the network is for." in done.stderr
    return folder


@pytest.mark.slow
def test_the_run_has_metrics_and_a_model_folder(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    assert [(line["step"], set(line["valid"])) for line in lines if "valid" in line] == [
        (2, {"loss", "copied"}),
        (4, {"loss", "copied"}),
    ]
    info = json.loads((folder / "run" / "run.json").read_text("utf-8"))
    assert info["status"] == "finished"
    assert info["task"] == "copying"
    assert "copied" in info["results"]["best"]
    names = {path.name for path in (folder / "run" / "best").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert (folder / "run" / "report.html").is_file()


@pytest.mark.slow
def test_the_model_generates_without_the_plugin(folder: Path) -> None:
    done = commands.regard("generate", folder / "run", "--prompt", "a dog", "--max-tokens", "3")
    assert done.code == 0, done.err


@pytest.mark.slow
def test_help_and_messages_list_the_task(folder: Path) -> None:
    done = regard_with_plugin(folder, "train", "--help")
    assert "toy, translation" in done.stdout
    done = regard_with_plugin(folder, "train", "tyo")
    assert done.returncode == 2
    assert "did you mean toy?" in done.stderr


@pytest.mark.slow
def test_without_the_plugin_the_task_is_unknown(folder: Path) -> None:
    done = commands.regard("train", "toy", "--data", folder / "text.txt", "--out", folder / "other")
    assert done.code == 2
    assert "'toy' is not a task" in done.err
    assert not (folder / "other").exists()


def test_prepared_data_of_another_task_for_the_same_network_has_another_key() -> None:
    own, default, other = (
        load_config("tiny", ["model.vocab_size=100", *settings])
        for settings in ([], ["training.task=translation"], ["training.task=gpt"])
    )
    assert data_key(own) == data_key(default)
    assert data_key(own) != data_key(other)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the toy task, which is registered in this process until the test ends."""
    monkeypatch.setattr(TASK_REGISTRY, "_objects", dict(TASK_REGISTRY._objects))
    attributes = """
    suggested_for = "documents"
    uses_chat_template = True
    reads_aligned_files = True
    chooses_size = True
"""
    exec(TASK_FILE.replace('    noun = "copier"\n', f'    noun = "copier"{attributes}'), {"__name__": "toy_task"})
    return "toy"


def test_a_task_file_says_that_prepared_data_depend_on_the_chat_template(registered: str, tmp_path: Path) -> None:
    def key(task: str, template: str) -> str:
        (tmp_path / "chat_template.jinja").write_text(template, "utf-8")
        settings = ["model.kind=decoder-only", f"training.task={task}", "data.train.files=['builtin:phrasebook']"]
        return data_key(load_config(None, [*settings, f"tokenizer.file={tmp_path / 'tokenizer.json'}"]))

    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    assert key(registered, "a") == key(registered, "a") != key(registered, "b")
    assert key("gpt", "a") == key("gpt", "b")


def test_a_task_file_says_which_data_and_options_it_is_for(registered: str, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("a dog\n", "utf-8")
    done = commands.regard("train", text)
    assert done.code == 2
    assert f"`regard train {registered} --data {text}` (text)" in done.err
    done = commands.regard("train", registered, "--source", text)
    assert "--target is missing" in done.err
    done = commands.regard("train", registered, "--resume", "--size", "tiny")
    assert "is for a new run of regard train gpt or toy; set model.width" in done.err
