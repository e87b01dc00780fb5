"""`regard compare`: training, table, figure and error messages."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import CommandResult, regard
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig
from regard.plotting import spread_labels
from small_runs import SETTINGS, write_pairs

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


@pytest.mark.usefixtures("trained")
def test_finished_runs_are_reused(arguments: list[str]) -> None:
    out = Path(arguments[3])
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    done = regard("compare", *arguments, "--json")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    assert [row["name"] for row in json.loads(done.out)] == ["transformer", "gru"]
    assert done.err == ""


@pytest.mark.usefixtures("trained")
def test_runs_with_more_steps_are_resumed(arguments: list[str], tmp_path: Path) -> None:
    shutil.copytree(arguments[3], tmp_path / "out")
    done = regard("compare", *arguments, "--out", tmp_path / "out", "--set", "training.steps=6", "--json")
    assert [row["steps"] for row in json.loads(done.out)] == [6, 6]


@pytest.mark.usefixtures("trained")
def test_runs_and_model_folders_are_compared_without_training(arguments: list[str], tmp_path: Path) -> None:
    saved(tmp_path / "writer", DecoderOnlyConfig(**SMALL))
    gru, out, picture = Path(arguments[3]) / "gru", tmp_path / "out", tmp_path / "a.png"
    done = regard("compare", gru, tmp_path / "writer", "--out", out, "--plot", picture)
    assert done.code == 0, done.err
    assert "recurrent encoder-decoder" in done.out
    assert "decoder-only Transformer" in done.out
    alone = regard("compare", tmp_path / "writer", "--out", tmp_path / "out")
    assert alone.out.splitlines()[-1] == "No curves: none of these models was trained here."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
