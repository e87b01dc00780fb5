"""Usual names of concepts and networks lead to the right lab and the right task."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from commands import regard
from regard.cli.plot import ALIASES, PLOTS, PlotRequest
from regard.config import load_config
from regard.labs import LABS
from regard.registry import TASK_REGISTRY
from small_runs import SETTINGS, pairs

LAB_NAMES = {
    "vanishing": "gradients",
    "exploding gradients": "gradients",
    "long-range-dependencies": "distance",
    "masking": "peeking",
    "causal_mask": "peeking",
    "teacher-forcing": "peeking",
    "loss-landscape": "depth",
    "layer-norm": "depth",
    "weight-tying": "sharing",
    "positional-encoding": "positions",
    "multi-head": "heads",
    "BigBird": "quadratic",
    "beam-search": "beams",
    "softmax": "scaling",
    "KV cache": "memory",
}
TASK_NAMES = {
    "BERT": "masked",
    "mlm": "masked",
    "transformer": "translation",
    "nmt": "translation",
    "GPT": "gpt",
    "language-model": "gpt",
    "ner": "tag",
    "sentiment": "classify",
    "skip-gram": "word2vec",
    "bilm": "elmo",
}


PLOT_NAMES = {"Causal mask": "mask", "BigBird": "pattern", "soft-lookup": "lookup", "lstm_cell": "lstm", "rnn": "graph"}


def test_usual_names_of_plots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = list[str]()

    def draw(request: PlotRequest) -> Figure:
        drawn.append(request.plot)
        return Figure()

    for usual, name in PLOT_NAMES.items():
        monkeypatch.setitem(PLOTS, name, replace(PLOTS[name], draw=draw))
        assert regard("plot", usual, "-o", tmp_path / "a.png").code == 0
    assert drawn == list(PLOT_NAMES.values())
    assert set(ALIASES.values()) <= {*PLOTS}
    assert not {*ALIASES} & {*PLOTS}


@pytest.mark.parametrize(("usual", "name"), LAB_NAMES.items())
def test_usual_names_of_labs(usual: str, name: str) -> None:
    assert LABS.resolve(usual) == name


def test_aliases_lead_to_registered_names_and_hide_none() -> None:
    for registry in (LABS, TASK_REGISTRY):
        for alias, name in registry.aliases.items():
            assert name in registry, alias
            assert alias not in registry, alias
            assert registry.resolve(alias) == name


@pytest.mark.slow
def test_lab_of_an_alias_runs(tmp_path: Path) -> None:
    done = regard("lab", "by-hand", "--out", tmp_path)
    assert done.code == 0
    assert done.err.startswith("by-hand: this is the lab worked-example\nworked-example: ")
    assert (tmp_path / "worked-example" / "lab.html").exists()
    assert "this is the lab" not in regard("lab", "worked-example", "--out", tmp_path).err


def test_misspelled_alias_is_suggested() -> None:
    done = regard("lab", "vanishing-gradient")
    assert done.code == 2
    assert done.err.startswith(
        "regard: there is no lab 'vanishing-gradient' (did you mean vanishing-gradients?); the labs are worked-example,"
    )


@pytest.mark.parametrize(("usual", "task"), TASK_NAMES.items())
def test_usual_names_of_tasks(usual: str, task: str, tmp_path: Path) -> None:
    done = regard("train", usual, "--out", tmp_path / "run")
    note = f"{usual}: this is the task {task}\n"
    assert done.code == 2
    assert done.err.startswith(f"{note}regard: there is no training data; pass --")
    assert not regard("train", usual, "--quiet", "--out", tmp_path / "run").err.startswith(note)


def test_a_file_comes_before_an_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bert").write_text("nonsense = true\n", "utf-8")
    done = regard("train", "bert", "--out", "run")
    assert done.code == 2
    assert done.err.startswith("regard: bert:1: ")


@pytest.mark.parametrize("cell", ["rnn", "LSTM", "gru"])
def test_recurrent_network_without_pairs_names_both_commands(cell: str, tmp_path: Path) -> None:
    done = regard("train", cell, "--data", "book.txt", "--out", tmp_path / "run")
    network = f"--set model.cell={cell.lower()} --set model.kind=recurrent"
    assert done.code == 2
    assert done.err == (
        f"regard: {cell.lower()!r} is a network, not a task: for a language model run "
        f"`regard train gpt {network}-language-model --data TEXT`, for a translator "
        f"`regard train translation {network}-encoder-decoder --data PAIRS`.\n"
    )
    for command in re.findall(r"`regard (.+?) --data \w+`", done.err):
        missing = regard(*command.split(), "--out", tmp_path / "run")
        assert missing.err.startswith("regard: there is no training data; pass --")


def test_recurrent_network_with_pairs_is_a_translator(tmp_path: Path) -> None:
    for side, name in enumerate(("en", "it")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs(60)), "utf-8")
    small = [setting for setting in SETTINGS if "heads" not in setting and "feed_forward" not in setting]
    settings = [part for setting in (*small, "training.steps=1") for part in ("--set", setting)]
    files: list[str | Path] = ["--source", tmp_path / "en", "--target", tmp_path / "it"]
    done = regard("train", "gru", *files, "--out", tmp_path / "run", *settings)
    assert done.code == 0, done.err
    assert done.err.startswith("gru: this is the task translation\n")
    model = load_config(tmp_path / "run" / "config.toml").model
    assert (model.kind, getattr(model, "cell", None)) == ("recurrent-encoder-decoder", "gru")
