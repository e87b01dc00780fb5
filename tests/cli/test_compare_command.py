"""`regard compare`: training, table, figure and error messages."""

import csv
import io
import json
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import CommandResult, regard
from random_models import SMALL, saved
from regard.compare import ComparisonRow, ScoreBasis
from regard.compare.table import (
    comparison_notes,
    comparison_table,
    csv_table,
    incomparable_scores,
    markdown_table,
    rows_as_dicts,
)
from regard.config import DecoderOnlyConfig
from regard.plotting import spread_labels
from small_runs import SETTINGS, run, write_pairs

QUICK = ["training.steps=4", "validation.every=2"]
RECURRENT = ["model.kind=recurrent-encoder-decoder", "model.cell=gru"]


def toml(path: Path, settings: list[str]) -> Path:
    """A file with these settings."""
    values = dict(setting.split("=", 1) for setting in settings)  # the later ones win
    written = {name: value if value.replace(".", "").isdigit() else json.dumps(value) for name, value in values.items()}
    path.write_text("".join(f"{name} = {value}\n" for name, value in written.items()), "utf-8")
    return path


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two networks to train, and what they have in common."""
    folder = tmp_path_factory.mktemp("compare")
    data = write_pairs(folder / "pairs.tsv")
    common = [*SETTINGS, *QUICK, f"data.train.files={data}", "data.validation_fraction=0.1"]
    recurrent = [setting for setting in common if "heads" not in setting and "feed_forward" not in setting]
    files = [toml(folder / "transformer.toml", common), toml(folder / "gru.toml", recurrent + RECURRENT)]
    return [*map(str, files), "--out", str(folder / "out"), "--sentences", "5"]


@pytest.fixture(scope="module")
def trained(arguments: list[str]) -> CommandResult:
    """The result of training and comparing them."""
    return regard("compare", *arguments)


def test_a_stopped_run_has_the_scores_of_its_best_validation(
    trained: CommandResult, arguments: list[str], tmp_path: Path
) -> None:
    finished = Path(arguments[3]) / "gru"
    stopped = shutil.copytree(finished, tmp_path / "stopped")
    info = json.loads((stopped / "run.json").read_text())
    best = info.pop("results")["best"]
    (stopped / "run.json").write_text(json.dumps(info | {"status": "interrupted"}))
    metrics = (stopped / "metrics.jsonl").read_text().splitlines(keepends=True)
    (stopped / "metrics.jsonl").write_text("".join(line for line in metrics if json.loads(line)["step"] < 4))
    done = regard("compare", finished, stopped, "--json", "--out", tmp_path, "--sentences", "2")
    whole, row = json.loads(done.out)
    assert row["scores"] == whole["scores"]
    assert (row["steps"], row["unfinished_best"], whole["unfinished_best"]) == (4, best["step"], None)
    shown = regard("compare", stopped, "--out", tmp_path, "--sentences", "2").out
    expected = f"is at step 4; its model and scores are of step {best['step']}, the best validation so far."
    assert f"stopped: has not finished, and {expected}" in shown


def test_models_are_trained_and_compared_in_a_table(trained: CommandResult, arguments: list[str]) -> None:
    done = trained
    assert done.code == 0, done.err
    table = [line.split() for line in done.out.splitlines() if line.split()]
    assert " ".join(table[0]) == "model network parameters steps training tokens/s loss BLEU decoding tokens/s"
    assert [line[0] for line in table[2:4]] == ["transformer", "gru"]
    out = Path(arguments[3])
    assert done.out.splitlines()[-1] == f"Curves: {out / 'compare.svg'}"
    picture = (out / "compare.svg").read_text("utf-8")
    assert ">transformer<" in picture
    assert ">gru<" in picture
    rows = json.loads((out / "compare.json").read_text("utf-8"))
    for row in rows:
        run = json.loads((out / row["name"] / "run.json").read_text("utf-8"))
        assert row["parameters"] == run["parameters"]
        assert row["scores"]["loss"] == run["results"]["best"]["loss"]
        assert [step for step, _ in row["validation_curve"]] == [2, 4]
        assert row["train_tokens_per_second"] > 0
        assert row["decode_tokens_per_second"] > 0
    assert (out / "compare.md").read_text("utf-8").count("\n") == 4


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_finished_runs_are_reused(arguments: list[str]) -> None:
    out = Path(arguments[3])
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    done = regard("compare", *arguments, "--json")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    assert [row["name"] for row in json.loads(done.out)] == ["transformer", "gru"]
    assert done.err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_runs_with_more_steps_are_resumed(arguments: list[str], tmp_path: Path) -> None:
    shutil.copytree(arguments[3], tmp_path / "out")
    done = regard("compare", *arguments, "--out", tmp_path / "out", "--set", "training.steps=6", "--json")
    assert [row["steps"] for row in json.loads(done.out)] == [6, 6]


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_runs_and_model_folders_are_compared_without_training(arguments: list[str], tmp_path: Path) -> None:
    saved(tmp_path / "writer", DecoderOnlyConfig(**SMALL))
    gru, out, picture = Path(arguments[3]) / "gru", tmp_path / "out", tmp_path / "a.png"
    done = regard("compare", gru, tmp_path / "writer", "--out", out, "--plot", picture)
    assert done.code == 0, done.err
    assert "recurrent encoder-decoder" in done.out
    assert "decoder-only Transformer" in done.out
    assert "has changed" not in done.out
    alone = regard("compare", tmp_path / "writer", "--out", tmp_path / "out")
    assert alone.out.splitlines()[-1] == "No curves: none of these models was trained here."


@pytest.mark.parametrize("content", [b"[]\n", b"{}\n", b"\xff\n", b'{"source": '])
@pytest.mark.usefixtures("trained")
def test_damaged_validation_texts_are_an_error(content: bytes, arguments: list[str], tmp_path: Path) -> None:
    run = Path(shutil.copytree(Path(arguments[3]) / "gru", tmp_path / "gru"))
    (run / "data" / "valid.jsonl").write_bytes(content)
    done = regard("compare", run, "--out", tmp_path / "out")
    assert done.code == 3
    assert done.err.startswith(f"regard: {run / 'data' / 'valid.jsonl'}: is damaged (")
    assert done.err.endswith(f"); remove the folder {run / 'data'}, and resume the run.\n")


@pytest.mark.usefixtures("trained")
def test_damaged_metrics_are_reported(arguments: list[str], tmp_path: Path) -> None:
    run = Path(shutil.copytree(Path(arguments[3]) / "gru", tmp_path / "gru"))
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b'"loss": ', b'"loss": 1', 1))
    done = regard("compare", run, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    note = "gru: metrics.jsonl has changed since the last checkpoint; what is read from it may be wrong."
    assert note in done.out.splitlines()
    assert json.loads((tmp_path / "out" / "compare.json").read_text("utf-8"))[0]["changed_files"] == ["metrics.jsonl"]
    metrics.unlink()
    os.mkfifo(metrics)
    refused = regard("compare", run, "--out", tmp_path / "out")
    message = f"{metrics}: cannot be read (it is a pipe, not a regular file); restore it from a copy."
    assert (refused.code, refused.err) == (3, f"regard: {message}\n")


def row(
    name: str, loss: float, *, tokenizer: str = "t", data: str | None = "d", group: str | None = None
) -> ComparisonRow:
    basis = ScoreBasis(tokenizer, data, data, sentences=8)
    scores = {"loss": loss, "bleu": 10 * loss}
    return ComparisonRow(name, "network", 10, steps=4, scores=scores, basis=basis, seed=1, group=group)


def test_losses_of_other_data_or_tokenizers_are_marked() -> None:
    rows = [row("a", 2.0), row("b", 1.0, tokenizer="u"), row("c", 1.5, data="e"), row("d", 1.2, data=None), row("e", 1)]
    header, cells = comparison_table(rows)
    assert [line[header.index("loss")] for line in cells] == ["2.000", "1.000 *", "1.500 *", "1.200 *", "1.000"]
    assert [line[header.index("BLEU")] for line in cells] == ["20.0", "10.0", "15.0 *", "12.0 *", "10.0"]
    assert comparison_notes(rows) == [
        "* loss of b: measured with another tokenizer than a; not comparable.",
        "* loss, BLEU of c: measured on other data than a; not comparable.",
        "* loss, BLEU of d: measured on data that cannot be compared with those of a; not comparable.",
    ]
    assert rows_as_dicts(rows)[1]["not_comparable"] == {"loss": "measured with another tokenizer than a"}
    assert "1.000 *" in markdown_table(rows)


def test_bleu_of_another_number_of_sentences_is_marked() -> None:
    other = replace(row("b", 1.0), basis=ScoreBasis("t", "d", "d", sentences=9))
    assert incomparable_scores([row("a", 2.0), other]) == {
        "b": {"bleu": "measured on another number of sentences than a"}
    }


def test_seeds_are_grouped_with_mean_and_standard_deviation() -> None:
    rows = [row("big-seed1", 2.0, group="g"), row("other", 3.0, group="h"), row("big-seed2", 2.2, group="g")]
    header, cells = comparison_table(rows)
    assert [line[0] for line in cells] == ["big", "other"]
    assert [line[header.index("seeds")] for line in cells] == ["2", "–"]
    assert [line[header.index("loss")] for line in cells] == ["2.100 ± 0.141", "3.000"]
    assert cells[0][header.index("steps")] == "4"
    assert comparison_notes(rows) == ["big: mean ± standard deviation of 2 seeds (big-seed1, big-seed2)."]
    lines = list(csv.DictReader(io.StringIO(csv_table(rows))))
    assert [(line["kind"], line["model"], line["seeds"]) for line in lines] == [
        ("run", "big-seed1", "1"), ("run", "big-seed2", "1"), ("mean", "big", "2"), ("standard deviation", "big", "2"),
        ("run", "other", "1"),
    ]  # fmt: skip
    assert float(lines[2]["loss"]) == pytest.approx(2.1)
    assert float(lines[3]["loss"]) == pytest.approx(0.2 / 2**0.5)


@pytest.mark.slow
def test_runs_of_other_seeds_and_of_other_data(tmp_path: Path) -> None:
    data, other = write_pairs(tmp_path / "pairs.tsv", 60), write_pairs(tmp_path / "other.tsv", 60, seed=7)
    quick = ("training.steps=1", "validation.sentences=0")
    for name, file, *settings in (
        ("first", data), ("second", data, "training.seed=2"), ("small", data, "model.vocab_size=300"), ("new", other),
    ):  # fmt: skip
        run(tmp_path / name, file, *quick, *settings)
    folders = [tmp_path / name for name in ("first", "second", "small", "new")]
    done = regard("compare", *folders, "--out", tmp_path / "out", "--sentences", "1")
    assert done.code == 0, done.err
    assert "first: mean ± standard deviation of 2 seeds (first, second)." in done.out
    assert "* loss of small: measured with another tokenizer than first; not comparable." in done.out
    assert "* loss of new: measured on other data than first; not comparable." in done.out
    lines = csv.DictReader(io.StringIO(regard("compare", *folders, "--out", tmp_path / "out", "--csv").out))
    assert [(line["model"], line["seed"]) for line in lines if line["kind"] == "run"] == [
        ("first", "1"), ("second", "2"), ("small", "1"), ("new", "1"),
    ]  # fmt: skip
    assert "small *" in (tmp_path / "out" / "compare.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--json", "--csv"], "--json and --csv: choose one of them."),
        (
            ["tinny"],
            "'tinny' cannot be compared (did you mean tiny?); pass TOML files, presets, run or model folders.",
        ),
        (
            ["tiny", "--plot", "a.gif"],
            "--plot a.gif: should end in .png, .svg or .pdf.",
        ),
        (
            ["tiny", "--engine", "fast"],
            "--engine fast: should be auto, torch or ctranslate2.",
        ),
        (
            ["a/x.toml", "b/x.toml"],
            "a/x.toml and b/x.toml: both would be called 'x' in the table; rename one.",
        ),
    ],
)
def test_invalid_input_is_an_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = regard("compare", *arguments, "--out", tmp_path)
    assert (done.code, done.err) == (2, f"regard: {message}\n")


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_missing_file_is_an_error(name: str, tmp_path: Path) -> None:
    done = regard("compare", tmp_path / name, "--out", tmp_path / "out")
    assert done.code in (2, 3)
    assert done.err.count("\n") == 1
    assert str(tmp_path) in done.err


@given(st.lists(st.floats(0, 1), max_size=9))
def test_spread_labels_keeps_order_and_distance(heights: list[float]) -> None:
    moved = spread_labels(heights, gap=0.1)
    ranked = sorted(moved)
    assert all(high - low > 0.1 - 1e-5 for low, high in pairwise(ranked))
    for n, height in enumerate(heights):
        assert all(moved[n] < moved[m] for m in range(len(heights)) if height < heights[m])
