"""Fine-tuning a run: what the base model knew stays measured and mostly stays."""

import json
import math
import shutil
from pathlib import Path

import pytest

from commands import regard
from regard.training.run import Run
from regard.training.runner import run_training
from small_runs import WORDS, pairs, request, write_pairs


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    data = write_pairs(folder / "pairs.tsv")
    return run_training(request(folder / "run", data, "training.steps=150", "training.checkpoint_minutes=5")).folder


@pytest.fixture
def other_pairs(tmp_path: Path) -> Path:
    """The same words, translated without reversing them."""
    path = tmp_path / "other.tsv"
    texts = {source: " ".join(WORDS[word] for word in source.split()) for source, _ in pairs(300, seed=5)}
    path.write_text("".join(f"{source}\t{target}\n" for source, target in texts.items()), "utf-8")
    return path


@pytest.mark.slow
def test_fine_tuning_keeps_and_measures_what_the_base_model_has_learned(
    base: Path, other_pairs: Path, tmp_path: Path
) -> None:
    done = regard("train", "translation", "--data", other_pairs, "--from", base, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert f"On the validation data of {base}, before fine-tuning: loss " in done.err
    assert "Validation data of the base model, after: loss " in done.out
    results = Run(tmp_path / "run").results
    before, after = results["base_before"]["loss"], results["base_after"]["loss"]
    assert before == pytest.approx(Run(base).results["best"]["loss"], rel=1e-4)
    assert after != before
    assert after < before + 0.3  # with the settings of a new run it rises by more than 1
    assert "validation of the base model, after fine-tuning" in (tmp_path / "run" / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_a_model_folder_without_its_run_is_enough(base: Path, other_pairs: Path, tmp_path: Path) -> None:
    shutil.copytree(base / "best", tmp_path / "model")
    options = ("--data", other_pairs, "--from", tmp_path / "model", "--out", tmp_path / "run")
    done = regard("train", "translation", *options, "--set", "training.steps=2")
    assert done.code == 0, done.err
    assert "base_before" not in Run(tmp_path / "run").results


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_text_with_new_characters_is_spelled_in_bytes_or_reported(byte_fallback: bool, tmp_path: Path) -> None:
    base, other = tmp_path / "base.txt", tmp_path / "other.txt"
    base.write_text("one two three four\n" * 60, "utf-8")
    other.write_text("uno é 二 tre\n" * 60, "utf-8")  # é and 二 are new
    settings = [
        "model.kind=decoder-only",
        "tokenizer.kind=character",
        f"tokenizer.byte_fallback={str(byte_fallback).lower()}",
        "data.context_length=16",
        "training.label_smoothing=0.0",
        "training.steps=2",
    ]
    run_training(request(tmp_path / "base", base, *settings))
    sets = ["training.steps=2", "training.threads=1", "validation.samples=0", "data.context_length=16"]
    options = [part for setting in sets for part in ("--set", setting)]
    done = regard("train", "gpt", "--data", other, "--from", tmp_path / "base", "--out", tmp_path / "run", *options)
    assert done.code == 0, done.err
    evaluated = regard("evaluate", tmp_path / "run", "--data", other, "--json")
    assert evaluated.code == 0, evaluated.err
    record, scores = json.loads(evaluated.out), Run(tmp_path / "run").results["best"]
    note = "the tokenizer has no token for their text, which the model cannot read"
    if byte_fallback:
        assert "unknown" not in f"{done.err}{evaluated.err}"
        assert record["scores"]["bits_per_byte"] == pytest.approx(
            record["scores"]["loss"] / math.log(2) * record["tokens"] / other.stat().st_size
        )
        # every token is one byte here, apart from the end of the text
        assert scores["bits_per_byte"] == pytest.approx(scores["loss"] / math.log(2), rel=0.05)
    else:
        assert f"train: 114 of 684 tokens (16.7%) are unknown: {note}." in done.err
        assert f"120 of 721 tokens (16.6%) are unknown: {note}; bits per byte are left out." in evaluated.err
        assert (record["unknown"], record["bytes"]) == (120, other.stat().st_size)
        assert "bits_per_byte" not in {**record["scores"], **scores}
