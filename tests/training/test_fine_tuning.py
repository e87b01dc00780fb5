"""Fine-tuning a run: what the base model knew stays measured and mostly stays; old data can be mixed in."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import regard
from regard.config import load_sources
from regard.data.store import TokenColumn, TokenStore
from regard.errors import RunError
from regard.models.folder_files import read_config
from regard.training.display import ProgressDisplay
from regard.training.fine_tuning import mixed_store
from regard.training.run import Run
from regard.training.runner import run_training
from regard.training.setup import TrainRequest
from small_runs import SETTINGS, WORDS, numbers, pairs, request, write_pairs


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
    assert "batches of the base model's validation data: " in done.err  # the progress of scoring it
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


@pytest.mark.slow
@pytest.mark.parametrize(("by_user", "decoding"), [((), (2, 1.5, 7)), (("decoding.beam=3",), (3, 1.5, 7))])
def test_a_fine_tuned_model_decodes_as_its_base_model_unless_the_user_decides(
    by_user: tuple[str, ...], decoding: tuple[int, float, int], base: Path, other_pairs: Path, tmp_path: Path
) -> None:
    shutil.copytree(base / "best", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    content = json.loads(path.read_text("utf-8"))
    content["decoding"] = {"beam": 2, "length_penalty": 1.5, "extra_tokens": 7}
    path.write_text(json.dumps(content), "utf-8")
    settings = [*(part for one in ("training.steps=1", *by_user) for part in ("--set", one))]
    options: list[str | Path] = ["--data", other_pairs, "--from", tmp_path / "model", "--out", tmp_path / "run"]
    done = regard("train", "translation", *options, *settings)
    assert done.code == 0, done.err
    found = read_config(tmp_path / "run" / "last").decoding
    assert (found.beam, found.length_penalty, found.extra_tokens) == decoding


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


# old data mixed in


def store(columns: list[list[list[int]]]) -> TokenStore:
    token_columns = [
        TokenColumn(np.concatenate(rows).astype(np.uint16), np.cumsum([len(row) for row in rows])) for rows in columns
    ]
    return TokenStore(Path(), tuple(token_columns), {})


@pytest.mark.parametrize(("fraction", "drawn"), [(0.2, 10), (0.5, 40), (0.75, 60)])
def test_the_fraction_of_old_examples_is_exact_while_there_are_enough(fraction: float, drawn: int) -> None:
    new = store([[[n] for n in range(40)], [[n, n] for n in range(40)]])
    old = store([[[n, n, n] for n in range(100, 160)], [[n] for n in range(100, 160)]])
    mixed, count = mixed_store(new, old, fraction, np.random.default_rng(1))
    assert (len(mixed), count) == (40 + drawn, drawn)
    assert [mixed.columns[0][n].tolist() for n in range(40)] == [[n] for n in range(40)]
    added = [(mixed.columns[0][n].tolist(), mixed.columns[1][n].tolist()) for n in range(40, len(mixed))]
    assert all(first == second * 3 and first[0] >= 100 for first, second in added)  # columns stay together
    assert len({first[0] for first, _ in added}) == drawn  # none twice
    again, _ = mixed_store(new, old, fraction, np.random.default_rng(1))
    assert again.columns[0].ids.tolist() == mixed.columns[0].ids.tolist()
    other, _ = mixed_store(new, old, fraction, np.random.default_rng(2))
    assert drawn == 60 or other.columns[0].ids.tolist() != mixed.columns[0].ids.tolist()


def test_of_documents_the_fraction_of_tokens_is_exact() -> None:
    new, old = store([[[1] * 700, [2] * 299]]), store([[list(range(1000, 1900)), [5], list(range(2000, 2300))]])
    mixed, drawn = mixed_store(new, old, 0.25, np.random.default_rng(1))
    assert drawn == 333
    (column,) = mixed.columns
    assert len(column.ids) == column.ends[-1] == 999 + 333
    assert column.lengths[:2].tolist() == [700, 299]
    parts = [column[n].tolist() for n in range(2, len(mixed))]
    assert all(np.diff(part).tolist() == [1] * (len(part) - 1) for part in parts)  # each is contiguous text


def mixed_run(out: Path, base: Path, data: Path, mix: Path, *settings: str, resume: bool = False) -> Path:
    common = [setting for setting in SETTINGS if not setting.startswith("model.")]
    options = [f"data.train.files={data}", f"data.mix.files={mix}", f"training.start_from={base}", *settings]
    sets = [*common, "data.validation_fraction=0.1", "validation.sentences=0", "validation.every=3", *options]
    return run_training(TrainRequest(load_sources(None, sets), out, resume=resume), NOTES).folder


class NoteRecorder(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


NOTES = NoteRecorder()


@pytest.fixture(scope="module")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    data = write_pairs(folder / "pairs.tsv", 80)
    return run_training(request(folder / "run", data, "training.steps=2", "validation.sentences=0")).folder


@pytest.mark.slow
def test_a_resumed_run_with_old_data_equals_an_uninterrupted_one(
    small_base: Path, other_pairs: Path, tmp_path: Path
) -> None:
    old = small_base.parent / "pairs.tsv"
    NOTES.notes.clear()
    whole = mixed_run(tmp_path / "whole", small_base, other_pairs, old, "training.steps=6")
    info = json.loads((whole / "run.json").read_text("utf-8"))["data"]
    assert info["mix"]["kept"] == min(round(info["train"]["kept"] / 4), info["mix"]["read"])
    share = info["mix"]["kept"] / (info["mix"]["kept"] + info["train"]["kept"])
    message = f"mix: {info['mix']['kept']} of {info['mix']['read']} examples, {share:.1%} of the training data."
    assert message in NOTES.notes
    assert f"Scoring {small_base} on the validation data of {small_base}." in NOTES.notes
    mixed_run(tmp_path / "parts", small_base, other_pairs, old, "training.steps=4")
    parts = mixed_run(tmp_path / "parts", small_base, other_pairs, old, "training.steps=6", resume=True)
    assert numbers(parts)[-1] == numbers(whole)[-1]
    weights = [(folder / "last" / "model.safetensors").read_bytes() for folder in (whole, parts)]
    assert weights[0] == weights[1]
    old_lines = old.read_text("utf-8").splitlines(keepends=True)
    changed = tmp_path / "changed.tsv"
    changed.write_text("".join(old_lines), "utf-8")
    mixed_run(tmp_path / "third", small_base, other_pairs, changed, "training.steps=1")
    changed.write_text("".join(old_lines[1:]), "utf-8")
    with pytest.raises(RunError, match="its data files have changed since it was started"):
        mixed_run(tmp_path / "third", small_base, other_pairs, changed, "training.steps=2", resume=True)


@pytest.mark.slow
def test_old_data_keep_more_of_what_the_base_model_has_learned(base: Path, other_pairs: Path, tmp_path: Path) -> None:
    after = {}
    for name, options in (("alone", ()), ("mixed", ("--mix", base.parent / "pairs.tsv", "--mix-fraction", "0.5"))):
        arguments = ("--data", other_pairs, "--from", base, "--out", tmp_path / name, *options)
        fast = ("--set", "training.schedule.learning_rate=0.005", "--set", "training.steps=150")
        done = regard("train", "translation", *arguments, *fast)
        assert done.code == 0, done.err
        after[name] = Run(tmp_path / name).results["base_after"]["loss"]
    assert after["mixed"] < after["alone"] - 0.3, after


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--mix", "old.tsv"],
            "data.mix: is for fine-tuning; pass --from MODEL, or add the files to the training data.",
        ),
        (["--mix", "-", "--from", "BASE"], "data.mix: cannot be read from standard input; pass a file."),
        (
            ["--mix", "old.tsv", "--mix-fraction", "1", "--from", "BASE"],
            "the command: data.mix_fraction = 1.0 should be less than 1.",
        ),
        (["--mix", "/dev/null", "--from", "BASE"], "/dev/null: has no text to mix in; provide more text."),
    ],
)
def test_unusable_old_data_are_an_error(
    options: list[str], message: str, small_base: Path, other_pairs: Path, tmp_path: Path
) -> None:
    options = [str(small_base) if option == "BASE" else option for option in options]
    done = regard("train", "translation", "--data", other_pairs, "--out", tmp_path / "run", *options)
    assert done.err.splitlines()[-1] == f"regard: {message}"
    assert done.code in (2, 3)
