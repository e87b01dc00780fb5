"""Runs that are killed, stopped or damaged go on as if nothing had happened."""

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from commands import regard
from regard.errors import ConfigError, DataError, InterruptedRun, RunError
from regard.tasks.translation import BoundTranslation
from regard.training.display import ProgressDisplay
from regard.training.interrupts import stop_on_signal
from regard.training.runner import run_training
from regard.training.task import Check, ValidationResult
from regard.training.trainer import Trainer
from small_runs import command, lines, numbers, request, run, start, write_pairs

STEPS = "training.steps=60"
EVERY = "validation.every=25"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    return run(tmp_path_factory.mktemp("runs") / "whole", data, STEPS, EVERY, "training.gradient_accumulation=2")


def wait_until(process: subprocess.Popen[str], out: Path, step: int) -> bool:
    """Wait for a step; False if the run ended before it."""
    while process.poll() is None:
        if any(line["step"] >= step for line in lines(out)):
            return True
        time.sleep(0.002)
    assert process.returncode == 0, process.communicate()[1]
    return False


def test_a_run_killed_at_random_moments_equals_an_uninterrupted_run(whole: Path, data: Path, tmp_path: Path) -> None:
    draw, out, kills = random.Random(7), tmp_path / "killed", 0
    settings = (STEPS, EVERY, "training.gradient_accumulation=2")
    # no checkpoint after some steps: the run must also go back to an earlier one, in the middle of an epoch
    for minutes in ("0.002", "0", "1"):
        done = max([line["step"] for line in lines(out)], default=0)
        process = start(out, data, *settings, f"training.checkpoint_minutes={minutes}", resume=True)
        if wait_until(process, out, done + draw.randint(3, 12)):
            time.sleep(draw.random() * 0.03)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
    assert kills == 3
    run(out, data, *settings, resume=True)
    assert numbers(out) == numbers(whole)
    for name in ("best", "last"):
        weights = [(folder / name / "model.safetensors").read_bytes() for folder in (out, whole)]
        assert weights[0] == weights[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_first_and_exits_130(
    number: signal.Signals, whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, settings = (
        tmp_path / "stopped",
        (STEPS, EVERY, "training.gradient_accumulation=2", "training.checkpoint_minutes=60"),
    )
    step = Trainer.step

    def step_and_signal(loop: Trainer) -> None:
        step(loop)
        if loop.state.step == 7:
            for _ in range(2 if number == signal.SIGHUP else 1):  # of a closed terminal there may come two
                signal.raise_signal(number)

    with monkeypatch.context() as patch, heeded(number):
        patch.setattr(Trainer, "step", step_and_signal)
        done = regard(*command(out, data, *settings)[3:])
    assert (done.code, done.err) == (130, f"regard: {out}: stopped at step 7, all saved; go on with --resume.\n")
    assert (out / "checkpoints" / f"step-{7:09d}.safetensors").exists()
    run(out, data, *settings, resume=True)
    assert numbers(out) == numbers(whole)


@contextmanager
def heeded(number: signal.Signals) -> Iterator[None]:
    """While it lasts, a signal is heeded even where whoever started the tests ignores it."""
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_a_process_that_is_told_to_end_saves_first(whole: Path, data: Path, tmp_path: Path) -> None:
    out, settings = (
        tmp_path / "stopped",
        (STEPS, EVERY, "training.gradient_accumulation=2", "training.checkpoint_minutes=60"),
    )
    process = start(out, data, *settings)
    assert wait_until(process, out, 7)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    last = lines(out)[-1]["step"]
    assert process.returncode == 130
    assert said == f"regard: {out}: stopped at step {last}, all saved; go on with --resume.\n"
    assert (out / "checkpoints" / f"step-{last:09d}.safetensors").exists()
    run(out, data, *settings, resume=True)
    assert numbers(out) == numbers(whole)


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_same_seed_gives_the_same_losses_and_another_does_not(whole: Path, data: Path, tmp_path: Path) -> None:
    same = run(tmp_path / "same", data, "training.steps=10", "training.gradient_accumulation=2")
    other = run(tmp_path / "other", data, "training.steps=10", "training.gradient_accumulation=2", "training.seed=2")
    first = [line["loss"] for line in numbers(whole)[:10]]
    assert [line["loss"] for line in numbers(same)[:10]] == first
    assert [line["loss"] for line in numbers(other)[:10]] != first


@pytest.fixture
def half(data: Path, tmp_path: Path) -> Path:
    """A run of a few steps, which may go on."""
    return run(tmp_path / "half", data, "training.steps=6")


@pytest.mark.parametrize("damage", ["cut off", "flipped", "empty"])
def test_a_damaged_checkpoint_is_passed_over(damage: str, half: Path, data: Path, tmp_path: Path) -> None:
    checkpoints = sorted((half / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["step-000000005.safetensors", "step-000000006.safetensors"]
    content = bytearray(checkpoints[-1].read_bytes())
    content[-9] ^= 1
    damaged: dict[str, bytes] = {"cut off": bytes(content[:-100]), "flipped": bytes(content), "empty": b""}
    checkpoints[-1].write_bytes(damaged[damage])
    run(half, data, "training.steps=9", resume=True)
    assert [line["step"] for line in lines(half) if "loss" in line] == [*range(1, 10)]
    whole = run(tmp_path / "whole", data, "training.steps=9")
    assert [line["loss"] for line in numbers(half) if "loss" in line] == [
        line["loss"] for line in numbers(whole) if "loss" in line
    ]


class Noting(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def test_when_every_checkpoint_is_damaged_none_is_said_to_be_gone_on_from(half: Path, data: Path) -> None:
    _, newer = sorted((half / "checkpoints").iterdir())
    newer.write_bytes(b"")
    display, again = Noting(), request(half, data, "training.steps=6", resume=True)
    run_training(again, display)
    passed_over = r".*step-000000006\.safetensors: is damaged \(.*\); going on from the one before it\."
    assert re.fullmatch(passed_over, next(note for note in display.notes if "damaged" in note))
    for path in (half / "checkpoints").iterdir():
        path.write_bytes(b"")
    display = Noting()
    with pytest.raises(RunError) as error:
        run_training(again, display)
    assert error.value.exit_code == 3
    said = rf"{newer}: is damaged \(.*\), and there is no good one before it; start a new run with another --out\."
    assert re.fullmatch(said, str(error.value))
    assert not any("going on" in note for note in display.notes)


def test_a_run_is_not_overwritten(half: Path, data: Path) -> None:
    with pytest.raises(RunError) as error:
        run(half, data)
    assert str(error.value) == f"{half}: holds a run already; add --resume to go on with it, or choose another --out."


def test_other_data_is_refused_and_missing_data_is_not_missed(half: Path, data: Path, tmp_path: Path) -> None:
    other = write_pairs(tmp_path / "other.tsv", seed=1)
    with pytest.raises(ConfigError, match=r"data.train.files cannot be changed"):
        run(half, other, resume=True)
    moved = tmp_path / "moved.tsv"
    shutil.copy(data, moved)
    begun = run(tmp_path / "moving", moved, "training.steps=3")
    write_pairs(moved, seed=2)
    with pytest.raises(RunError) as error:
        run(begun, moved, "training.steps=4", resume=True)
    assert str(error.value) == (
        f"{begun}: its data files are not what they were when it began; put them back, or start a new run."
    )
    moved.unlink()
    run(begun, moved, "training.steps=4", resume=True)
    assert lines(begun)[-1]["step"] == 4


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.width=64", "model.width cannot be changed from 32 to 64"),
        ("training.seed=5", "training.seed cannot be changed from 1 to 5"),
        ("training.batch_tokens=100", "training.batch_tokens cannot be changed from 120 to 100"),
        ("training.optimizer.kind=adamw", "training.optimizer.kind cannot be changed from 'adam' to 'adamw'"),
        ("training.ema_decay=0.9", "training.ema_decay cannot be changed from 0.0 to 0.9"),
        ("tokenizer.lowercase=true", "tokenizer.lowercase cannot be changed from False to True"),
    ],
)
def test_settings_that_cannot_change_are_refused_by_name(setting: str, sentence: str, half: Path, data: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run(half, data, setting, resume=True)
    assert str(error.value) == (
        f"--set {setting}: {sentence} in a run that is under way; "
        "leave it as it was, or start a new run with another --out."
    )


def test_settings_that_can_change_are_honoured(half: Path, data: Path) -> None:
    peak, warmup = "training.schedule.learning_rate=0.1", "training.schedule.warmup_steps=1"
    run(half, data, peak, warmup, "training.steps=8", "testing.beam=3", resume=True)
    assert "beam = 3 " in (half / "config.toml").read_text("utf-8")  # how it is tested changes nothing that it learned
    rates = {line["step"]: line["learning_rate"] for line in lines(half) if "learning_rate" in line}
    assert rates[6] == pytest.approx(0.005 * 6 / 10)
    assert rates[8] == pytest.approx(0.1 / 8**0.5)


def test_two_processes_cannot_train_in_one_folder(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "busy"
    process = start(out, data, "training.steps=100000")
    try:
        assert wait_until(process, out, 1)
        with pytest.raises(RunError) as error:
            run(out, data, resume=True)
        assert str(error.value) == f"{out}: another process is training here; wait for it, or stop it."
    finally:
        process.kill()
        process.communicate()


def test_leftovers_of_a_killed_process_are_removed(half: Path, data: Path) -> None:
    drafts = [half / ".best-x1y2", half / "checkpoints" / ".step-000000007.safetensors", half / ".run.json"]
    drafts[0].mkdir()
    for draft in drafts[1:]:
        draft.write_text("half")
    run(half, data, "training.steps=7", resume=True)
    assert not any(draft.exists() for draft in drafts)
    assert os.listdir(half / "checkpoints") != []


BACK = "put it back from a copy, or start a new run with another --out."


def refusal(out: Path, data: Path, *settings: str) -> str:
    """Why a run cannot go on, because of what is in its folder."""
    with pytest.raises((RunError, DataError)) as error:
        run(out, data, *settings, resume=True)
    assert error.value.exit_code == 3
    return str(error.value)


def test_a_run_without_its_settings_is_not_taken_for_a_new_one(half: Path, data: Path) -> None:
    path = half / "config.toml"
    path.unlink()
    said = refusal(half, data, "training.seed=2")
    assert said == f"{path}: cannot be read (No such file or directory); {BACK}"
    path.write_text("[model\n")
    assert refusal(half, data).startswith(f"{path}: is damaged (")
    path.write_text("[model]\nwidht = 3\n")
    assert refusal(half, data) == f"{path}:2: model.widht is not a setting; did you mean model.width?"


def test_a_damaged_account_of_a_run_is_a_sentence(half: Path, data: Path) -> None:
    path = half / "run.json"
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert refusal(half, data).startswith(f"{path}: is damaged (")
    assert refusal(half, data).endswith(f"); {BACK}")
    for other in ("[]", "{}"):
        path.write_text(other)
        assert refusal(half, data) == f"{path}: is not what regard wrote there; {BACK}"
    path.unlink()
    assert refusal(half, data) == f"{path}: cannot be read (No such file or directory); {BACK}"


@pytest.mark.parametrize("damage", ["cut off", "flipped"])
def test_a_damaged_tokenizer_is_a_sentence_and_is_made_again(damage: str, half: Path, data: Path) -> None:
    path = half / "data" / "tokenizer.json"
    content = path.read_bytes()
    path.write_bytes(content[:-50] if damage == "cut off" else content.replace(b"uno", b"unp", 1))
    assert refusal(half, data) == f"{path}: is damaged; remove the folder {half / 'data'}, and it is prepared again."
    shutil.rmtree(half / "data")
    run(half, data, "training.steps=7", resume=True)
    assert path.read_bytes() == content


def test_a_flipped_bit_in_the_data_is_a_sentence_and_the_data_is_made_again(
    half: Path, data: Path, tmp_path: Path
) -> None:
    path = half / "data" / "train" / "1.ids"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert refusal(half, data) == (
        f"{path}: is damaged, its bytes have changed since it was written; "
        f"remove the folder {path.parent}, and it is prepared again."
    )
    shutil.rmtree(path.parent)
    run(half, data, "training.steps=9", resume=True)
    whole = run(tmp_path / "whole", data, "training.steps=9")
    assert path.read_bytes() == (whole / "data" / "train" / "1.ids").read_bytes()


def test_a_run_without_its_checkpoints_does_not_begin_anew(half: Path, data: Path) -> None:
    before = lines(half)
    shutil.rmtree(half / "checkpoints")
    assert refusal(half, data) == (
        f"{half / 'checkpoints'}: has no checkpoint, though this run has trained; "
        "put them back, or start a new run with another --out."
    )
    assert lines(half) == before


LONG = ("training.steps=6", "validation.every=3", "training.ema_decay=0.5")


def test_a_best_model_that_was_removed_is_written_again_where_its_weights_are_known(data: Path, tmp_path: Path) -> None:
    worse_later = ("training.schedule.learning_rate=0.01", "training.schedule.warmup_steps=1", "validation.metric=bleu")
    for name, settings in {
        "the last": LONG,
        "a kept one": (*LONG, "training.average_checkpoints=2", *worse_later),
    }.items():
        out = run(tmp_path / name, data, *settings)
        best = {path.name: path.read_bytes() for path in (out / "best").iterdir()}
        shutil.rmtree(out / "best")
        run(out, data, *settings, resume=True)
        assert {path.name: path.read_bytes() for path in (out / "best").iterdir()} == best


def test_a_best_model_that_was_removed_and_is_nowhere_else_is_a_sentence(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = count(1.0)  # none is better than the first
    monkeypatch.setattr(BoundTranslation, "validate", lambda task, check: ValidationResult({"loss": next(losses)}))
    out = run(tmp_path / "run", data, *LONG)
    shutil.rmtree(out / "best")
    assert refusal(out, data, *LONG) == (
        f"{out / 'best'}: is missing, and no checkpoint has the weights of step 3, which were the best; "
        "put it back from a copy, or use last/ instead."
    )


def test_a_run_that_fails_says_so_until_it_goes_on(
    half: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def about() -> tuple[str, str | None]:
        said = json.loads((half / "run.json").read_text())
        return said["status"], said["failure"]

    assert about() == ("finished", None)
    path = half / "data" / "tokenizer.json"
    path.rename(tmp_path / "tokenizer.json")
    path.write_text("{}")
    said = refusal(half, data, "training.steps=7")
    assert about() == ("failed", said)
    (tmp_path / "tokenizer.json").rename(path)

    def broken(task: BoundTranslation, check: Check) -> ValidationResult:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(BoundTranslation, "validate", broken)
    with pytest.raises(ZeroDivisionError):
        run(half, data, "training.steps=7", resume=True)
    assert about() == ("failed", "ZeroDivisionError: a bug")
    monkeypatch.undo()
    run(half, data, "training.steps=7", resume=True)
    assert about() == ("finished", None)


def test_an_interruption_of_the_final_test_exits_130_and_the_test_is_made_up_for(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = write_pairs(tmp_path / "test.tsv", 20, seed=5)
    settings = ("training.steps=4", f"data.test.files={test}")
    real = BoundTranslation.test

    def stopped(task: BoundTranslation, check: Check) -> ValidationResult | None:
        signal.raise_signal(signal.SIGINT)
        return real(task, check)

    monkeypatch.setattr(BoundTranslation, "test", stopped)
    out = tmp_path / "stopped"
    with pytest.raises(InterruptedRun) as error:
        run(out, data, *settings)
    assert error.value.exit_code == 130
    assert str(error.value) == f"{out}: stopped at step 4, all saved; go on with --resume."
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    monkeypatch.undo()
    run(out, data, *settings, resume=True)
    whole = run(tmp_path / "whole", data, *settings)
    results = [json.loads((folder / "run.json").read_text())["results"] for folder in (out, whole)]
    assert results[0] == results[1]
    assert "test" in results[0]


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions mean nothing to root; while it lasts, this process is nobody."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that everyone may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_a_user_may_not_write_is_a_sentence(reachable: Path) -> None:
    data, closed = write_pairs(reachable / "pairs.tsv"), reachable / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    with ordinary_user(), pytest.raises(RunError) as error:
        run(closed / "run", data)
    assert error.value.exit_code == 3
    assert str(error.value) == f"{closed / 'run'}: cannot be written (Permission denied); choose another --out."


def test_files_that_a_user_may_not_write_are_a_sentence_each(reachable: Path) -> None:
    data, out = write_pairs(reachable / "pairs.tsv"), reachable / "run"
    run(out, data, "training.steps=2")
    (out / ".lock").chmod(0o666)

    def said_with(modes: dict[Path, int]) -> str:
        for path, mode in modes.items():
            path.chmod(mode)
        with ordinary_user():
            return refusal(out, data, "training.steps=3")

    assert said_with({out: 0o555}) == (
        f"{out / 'config.toml'}: cannot be written (Permission denied); make it writable."
    )
    then = "make it writable, then go on with --resume"
    metrics, checkpoints = out / "metrics.jsonl", out / "checkpoints"
    assert said_with({out: 0o777, checkpoints: 0o555, metrics: 0o444}) == (
        f"{metrics}: cannot be written (Permission denied); {then}."
    )
    assert said_with({metrics: 0o666, out / "samples.jsonl": 0o666}) == (
        f"{checkpoints / 'step-000000003.safetensors'}: cannot be written (Permission denied); "
        f"{then}: what was saved before it is still good."
    )
    for path in checkpoints.iterdir():
        path.chmod(0o600 if os.geteuid() == 0 else 0o000)
    assert said_with({}).startswith(f"{checkpoints / 'step-000000002.safetensors'}: cannot be read (Permission denied)")


def test_others_may_read_what_a_run_has_written(half: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in half.rglob("*.*") if path.is_file() and path.name != ".lock"}
    assert modes == {stat.S_IMODE((half / "run.json").stat().st_mode)}


def test_lost_weights_are_left_out_of_the_average(data: Path, tmp_path: Path) -> None:
    out = run(tmp_path / "run", data, "training.steps=6", "validation.every=2", "training.average_checkpoints=3")
    next((out / "weights").iterdir()).unlink()
    run(out, data, "training.steps=6", "validation.every=2", "training.average_checkpoints=3", resume=True)


def test_damaged_texts_are_a_sentence(half: Path, data: Path) -> None:
    texts = half / "data" / "valid.jsonl"
    texts.write_text('{"source": ')
    with pytest.raises(DataError) as error:
        run(half, data, "training.steps=8", resume=True)
    assert str(error.value) == f"{texts}: is damaged; remove the folder {half / 'data'}, and it is prepared again."
