"""Resume: killed, stopped and damaged runs continue with the same numbers."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

import small_runs
from commands import regard
from regard.errors import ConfigError, DataError, InterruptedRun, RegardError, RunError
from regard.tasks.translation import BoundTranslation
from regard.training.display import ProgressDisplay
from regard.training.run_folder import AppendedFiles, RunFolder
from regard.training.runner import run_training
from regard.training.setup import config_of
from regard.training.shutdown import stop_on_signal
from regard.training.task import Check, ValidationResult
from regard.training.trainer import Trainer
from small_runs import lines, numbers, write_pairs

STEPS = "training.steps=60"
EVERY = "validation.every=25"
Result = TypeVar("Result")


def with_checkpoints(function: Callable[..., Result]) -> Callable[..., Result]:
    """Save a checkpoint after every step, unless the settings say otherwise."""
    return lambda out, data, *settings, **options: function(
        out, data, "training.checkpoint_minutes=0", *settings, **options
    )


command, request = with_checkpoints(small_runs.command), with_checkpoints(small_runs.request)
run, start = with_checkpoints(small_runs.run), with_checkpoints(small_runs.start)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    return run(tmp_path_factory.mktemp("runs") / "whole", data, STEPS, EVERY, "training.gradient_accumulation=2")


def wait_until(process: subprocess.Popen[str], out: Path, step: int) -> bool:
    """Wait for a step; False if the run ended before it."""
    while process.poll() is None:
        if any(line["step"] >= step for line in lines(out)):
            return True
        time.sleep(0.002)
    assert process.returncode == 0, process.communicate()[1]
    return False


@pytest.mark.slow
def test_a_run_killed_at_random_moments_equals_an_uninterrupted_run(whole: Path, data: Path, tmp_path: Path) -> None:
    draw, out, kills = random.Random(7), tmp_path / "killed", 0
    settings = (STEPS, EVERY, "training.gradient_accumulation=2")
    # No checkpoint after some steps: the run must return to an earlier one, in the middle of an epoch.
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


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_a_checkpoint_and_exits_130(
    number: signal.Signals, whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, settings = (
        tmp_path / "stopped",
        (STEPS, EVERY, "training.gradient_accumulation=2", "training.checkpoint_minutes=60"),
    )
    step = Trainer.step

    def step_and_signal(trainer: Trainer) -> None:
        step(trainer)
        if trainer.state.step == 7:
            for _ in range(2 if number == signal.SIGHUP else 1):  # a closed terminal may send two
                signal.raise_signal(number)

    with monkeypatch.context() as patch, default_handler(number):
        patch.setattr(Trainer, "step", step_and_signal)
        done = regard(*command(out, data, *settings)[3:])
    assert (done.code, done.err) == (130, f"regard: {out}: stopped at step 7, all saved; continue with --resume.\n")
    assert (out / "checkpoints" / f"step-{7:09d}.safetensors").exists()
    run(out, data, *settings, resume=True)
    assert numbers(out) == numbers(whole)


@contextmanager
def default_handler(number: signal.Signals) -> Iterator[None]:
    """Restore the default handler of a signal, which the process that started the tests may ignore."""
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.slow
def test_sigterm_saves_a_checkpoint(whole: Path, data: Path, tmp_path: Path) -> None:
    out, settings = (
        tmp_path / "stopped",
        (STEPS, EVERY, "training.gradient_accumulation=2", "training.checkpoint_minutes=60"),
    )
    process = start(out, data, *settings)
    assert wait_until(process, out, 7)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate()
    last = lines(out)[-1]["step"]
    assert process.returncode == 130
    assert stderr == f"regard: {out}: stopped at step {last}, all saved; continue with --resume.\n"
    assert (out / "checkpoints" / f"step-{last:09d}.safetensors").exists()
    run(out, data, *settings, resume=True)
    assert numbers(out) == numbers(whole)


def test_under_nohup_a_closed_terminal_does_not_stop_a_run() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_losses_and_another_seed_others(whole: Path, data: Path, tmp_path: Path) -> None:
    same = run(tmp_path / "same", data, "training.steps=10", "training.gradient_accumulation=2")
    other = run(tmp_path / "other", data, "training.steps=10", "training.gradient_accumulation=2", "training.seed=2")
    first = [line["loss"] for line in numbers(whole)[:10]]
    assert [line["loss"] for line in numbers(same)[:10]] == first
    assert [line["loss"] for line in numbers(other)[:10]] != first


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps."""
    return run(tmp_path_factory.mktemp("runs") / "finished", data, "training.steps=6")


@pytest.fixture
def half(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be resumed."""
    return shutil.copytree(finished, tmp_path / "half")


@pytest.fixture(scope="module")
def longer(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with more steps."""
    return run(tmp_path_factory.mktemp("runs") / "longer", data, "training.steps=9")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_checkpoint_is_skipped(damage: str, half: Path, data: Path, longer: Path) -> None:
    checkpoints = sorted((half / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["step-000000005.safetensors", "step-000000006.safetensors"]
    content = bytearray(checkpoints[-1].read_bytes())
    content[-9] ^= 1
    damaged: dict[str, bytes] = {"truncated": bytes(content[:-100]), "flipped": bytes(content), "empty": b""}
    checkpoints[-1].write_bytes(damaged[damage])
    run(half, data, "training.steps=9", resume=True)
    assert [line["step"] for line in lines(half) if "loss" in line] == [*range(1, 10)]
    assert [line["loss"] for line in numbers(half) if "loss" in line] == [
        line["loss"] for line in numbers(longer) if "loss" in line
    ]


class NoteRecorder(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_a_checkpoint_that_is_a_pipe_is_skipped(half: Path, data: Path) -> None:
    newest = max((half / "checkpoints").glob("step-*"))
    newest.unlink()
    os.mkfifo(newest)
    display = NoteRecorder()
    run_training(request(half, data, resume=True), display)
    assert f"{newest}: cannot be read (it is a pipe, not a regular file); resuming from the checkpoint before it." in (
        display.notes
    )


@pytest.mark.parametrize("name", [".lock", "run.json", "tokenizer.json", "outputs.json", "report.html"])
def test_a_pipe_in_the_run_folder_is_refused(name: str, half: Path, data: Path) -> None:
    path = half / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(RegardError, match=r"pipe, not a regular file"):
        run(half, data, "training.steps=6", resume=True)


def test_a_run_whose_checkpoints_are_all_damaged_cannot_be_resumed(half: Path, data: Path) -> None:
    _, newer = sorted((half / "checkpoints").iterdir())
    newer.write_bytes(b"")
    display, again = NoteRecorder(), request(half, data, "training.steps=6", resume=True)
    run_training(again, display)
    skipped = r".*step-000000006\.safetensors: is damaged \(.*\); resuming from the checkpoint before it\."
    assert re.fullmatch(skipped, next(note for note in display.notes if "damaged" in note))
    for path in (half / "checkpoints").iterdir():
        path.write_bytes(b"")
    display = NoteRecorder()
    with pytest.raises(RunError) as error:
        run_training(again, display)
    assert error.value.exit_code == 3
    message = rf"{newer}: is damaged \(.*\), and there is no intact checkpoint before it; start a new run .*--out\."
    assert re.fullmatch(message, str(error.value))
    assert not any("resuming" in note for note in display.notes)


def _flip_digit(content: bytes) -> bytes:
    """Another number in the second line: still valid JSON."""
    first, second, rest = content.split(b"\n", 2)
    start = second.index(b'"loss": ') + len(b'"loss": ')
    digit = b"7" if second[start : start + 1] != b"7" else b"8"
    return b"\n".join([first, second[:start] + digit + second[start + 1 :], rest])


@pytest.mark.parametrize(
    ("damage", "kept_steps"),
    [
        (_flip_digit, [1, 2, 3, 4, 5, 6]),
        (lambda content: content[:20] + b"\0\xff" + content[22:], [2, 3, 4, 5, 6]),
        (lambda content: content[: len(content) // 2], None),
        (lambda content: b"", []),
        (lambda content: b"[1]\n" + content, None),
        (lambda content: content.replace(b"\n", b" "), []),
    ],
)
def test_damaged_metrics_are_reported_and_kept(
    damage: Callable[[bytes], bytes], kept_steps: list[int] | None, half: Path, data: Path
) -> None:
    path = half / "metrics.jsonl"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    display = NoteRecorder()
    run_training(request(half, data, "training.steps=9", resume=True), display)
    note = next(note for note in display.notes if "metrics.jsonl" in note)
    assert note.startswith(f"{path}: is damaged, its bytes have changed since the checkpoint; it is kept as metrics")
    assert (half / "metrics.jsonl.damaged").read_bytes() == damaged
    steps = [line["step"] for line in lines(half) if "loss" in line]
    assert steps[-3:] == [7, 8, 9]
    if kept_steps is not None:
        assert steps[:-3] == kept_steps
    display = NoteRecorder()  # what continues is intact
    run_training(request(half, data, "training.steps=10", resume=True), display)
    assert not any("damaged" in note for note in display.notes)


def test_metrics_that_are_damaged_twice_are_kept_twice(half: Path, data: Path) -> None:
    for steps, kept in ((7, "metrics.jsonl.damaged"), (8, "metrics.jsonl.damaged-2")):
        (half / "metrics.jsonl").write_bytes(b"")
        run_training(request(half, data, f"training.steps={steps}", resume=True))
        assert (half / kept).exists()


def test_missing_metrics_are_reported(half: Path, data: Path) -> None:
    (half / "metrics.jsonl").unlink()
    display = NoteRecorder()
    run_training(request(half, data, "training.steps=8", resume=True), display)
    assert f"{half / 'metrics.jsonl'}: is missing, and so are its lines before this step." in display.notes
    assert [line["step"] for line in lines(half) if "loss" in line] == [7, 8]


def test_damage_while_a_run_is_stopped_between_checkpoints_is_noticed(half: Path, data: Path) -> None:
    """Checksums are continued from the bytes that were written, not computed from what the file holds later."""
    files = AppendedFiles(half.parent)
    files.append("metrics.jsonl", {"step": 1})
    files.flush()
    path = half.parent / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    files.append("metrics.jsonl", {"step": 3})
    sizes, checksums = files.flush()
    assert len(list(AppendedFiles(half.parent).restore(sizes, checksums))) == 1
    assert [*AppendedFiles(half.parent).restore({}, {})] == []
    assert path.read_bytes() == b""


def test_metrics_that_are_a_pipe_are_refused(half: Path, data: Path) -> None:
    (half / "metrics.jsonl").unlink()
    os.mkfifo(half / "metrics.jsonl")
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot be read \(it is a pipe, not a regular"):
        run_training(request(half, data, "training.steps=8", resume=True))


def test_a_run_is_not_overwritten(half: Path, data: Path) -> None:
    with pytest.raises(RunError) as error:
        run(half, data)
    assert str(error.value) == f"{half}: already holds a run; add --resume to continue it, or choose another --out."


@pytest.mark.slow
def test_other_data_is_an_error_and_removed_data_is_not(half: Path, data: Path, tmp_path: Path) -> None:
    other = write_pairs(tmp_path / "other.tsv", seed=1)
    with pytest.raises(ConfigError, match=r"data.train.files cannot be changed"):
        run(half, other, resume=True)
    moved = tmp_path / "moved.tsv"
    shutil.copy(data, moved)
    started = run(tmp_path / "moving", moved, "training.steps=3")
    write_pairs(moved, seed=2)
    with pytest.raises(RunError) as error:
        run(started, moved, "training.steps=4", resume=True)
    assert str(error.value) == (
        f"{started}: its data files have changed since it was started; restore them, or start a new run."
    )
    moved.unlink()
    run(started, moved, "training.steps=4", resume=True)
    assert lines(started)[-1]["step"] == 4


@pytest.mark.slow
def test_a_run_from_before_split_punctuation_keeps_its_tokenizer(data: Path, tmp_path: Path) -> None:
    old = run(tmp_path / "old", data, "training.steps=3", "tokenizer.split_punctuation=false")
    settings, tokenizer = old / "config.toml", (old / "data" / "tokenizer.json").read_bytes()
    text = settings.read_text()
    settings.write_text(re.sub("split_punctuation.*\n", "", text))
    assert settings.read_text() != text
    assert not config_of(RunFolder(old)).tokenizer.split_punctuation
    run(old, data, "training.steps=4", resume=True)
    assert lines(old)[-1]["step"] == 4
    assert (old / "data" / "tokenizer.json").read_bytes() == tokenizer
    assert "split_punctuation = false" in settings.read_text()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.width=64", "model.width cannot be changed from 32 to 64"),
        ("training.seed=5", "training.seed cannot be changed from 1 to 5"),
        ("training.batch_tokens=100", "training.batch_tokens cannot be changed from 120 to 100"),
        ("training.optimizer.kind=adamw", "training.optimizer.kind cannot be changed from 'adam' to 'adamw'"),
        ("training.ema_decay=0.9", "training.ema_decay cannot be changed from 0.0 to 0.9"),
        ("tokenizer.lowercase=true", "tokenizer.lowercase cannot be changed from False to True"),
    ],
)
def test_settings_that_cannot_change_are_errors(setting: str, message: str, half: Path, data: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run(half, data, setting, resume=True)
    assert str(error.value) == (
        f"--set {setting}: {message} when a run is resumed; leave it as it was, or start a new run with another --out."
    )


def test_settings_that_can_change_take_effect(half: Path, data: Path) -> None:
    peak, warmup = "training.schedule.learning_rate=0.1", "training.schedule.warmup_steps=1"
    run(half, data, peak, warmup, "training.steps=8", "testing.beam=3", resume=True)
    assert "beam = 3 " in (half / "config.toml").read_text("utf-8")  # testing does not affect training
    learning_rates = {line["step"]: line["learning_rate"] for line in lines(half) if "learning_rate" in line}
    assert learning_rates[6] == pytest.approx(0.005 * 6 / 10)
    assert learning_rates[8] == pytest.approx(0.1 / 8**0.5)


@pytest.mark.slow
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


def test_temporary_files_of_a_killed_process_are_removed(half: Path, data: Path) -> None:
    temporary = [half / ".best-x1y2", half / "checkpoints" / ".step-000000007.safetensors", half / ".run.json"]
    temporary[0].mkdir()
    for path in temporary[1:]:
        path.write_text("half")
    run(half, data, "training.steps=7", resume=True)
    assert not any(path.exists() for path in temporary)
    assert os.listdir(half / "checkpoints") != []


RESTORE = "restore it from a copy, or start a new run with another --out."


def resume_error(out: Path, data: Path, *settings: str) -> str:
    """The error message of a run that cannot be resumed because of its files."""
    with pytest.raises((RunError, DataError)) as error:
        run(out, data, *settings, resume=True)
    assert error.value.exit_code == 3
    return str(error.value)


def test_a_run_without_its_config_is_not_started_anew(half: Path, data: Path) -> None:
    path = half / "config.toml"
    path.unlink()
    assert (
        resume_error(half, data, "training.seed=2") == f"{path}: cannot be read (No such file or directory); {RESTORE}"
    )
    path.write_text("[model\n")
    assert resume_error(half, data).startswith(f"{path}: is damaged (")
    for text, table in (("", "model"), ("[model]\nwidth = 32\n", "data")):
        path.write_text(text)
        assert resume_error(half, data) == f"{path}: is damaged (it has no table [{table}]); {RESTORE}"
    path.write_text("[model]\nwidht = 3\n[data]\n[training]\n")
    assert resume_error(half, data) == f"{path}:2: model.widht is not a setting; did you mean model.width?"


def test_a_damaged_run_json_is_an_error(half: Path, data: Path) -> None:
    path = half / "run.json"
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert resume_error(half, data).startswith(f"{path}: is damaged (")
    assert resume_error(half, data).endswith(f"); {RESTORE}")
    for other in ("[]", "{}"):
        path.write_text(other)
        assert resume_error(half, data) == f"{path}: was not written by regard; {RESTORE}"
    path.unlink()
    assert resume_error(half, data) == f"{path}: cannot be read (No such file or directory); {RESTORE}"


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_tokenizer_is_an_error_and_can_be_prepared_again(damage: str, half: Path, data: Path) -> None:
    path = half / "data" / "tokenizer.json"
    content = path.read_bytes()
    path.write_bytes(content[:-50] if damage == "truncated" else content.replace(b"uno", b"unp", 1))
    assert (
        resume_error(half, data) == f"{path}: is damaged; remove the folder {half / 'data'}, and it is prepared again."
    )
    shutil.rmtree(half / "data")
    run(half, data, "training.steps=7", resume=True)
    assert path.read_bytes() == content


def test_a_flipped_bit_in_the_data_is_an_error_and_the_data_can_be_prepared_again(
    half: Path, data: Path, longer: Path
) -> None:
    path = half / "data" / "train" / "1.ids"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert resume_error(half, data) == (
        f"{path}: is damaged, its bytes have changed since it was written; "
        f"remove the folder {path.parent}, and it is prepared again."
    )
    shutil.rmtree(path.parent)
    run(half, data, "training.steps=9", resume=True)
    assert path.read_bytes() == (longer / "data" / "train" / "1.ids").read_bytes()


def test_a_run_without_its_checkpoints_is_not_started_anew(half: Path, data: Path) -> None:
    before = lines(half)
    shutil.rmtree(half / "checkpoints")
    assert resume_error(half, data) == (
        f"{half / 'checkpoints'}: has no checkpoint, though this run has trained; "
        "restore the checkpoints, or start a new run with another --out."
    )
    assert lines(half) == before


LONG = ("training.steps=6", "validation.every=3", "training.ema_decay=0.5")


@pytest.mark.slow
def test_a_removed_best_model_is_written_again_if_its_weights_are_saved(data: Path, tmp_path: Path) -> None:
    worse_later = ("training.schedule.learning_rate=0.01", "training.schedule.warmup_steps=1", "validation.metric=bleu")
    for name, settings in {
        "last": LONG,
        "saved": (*LONG, "training.average_checkpoints=2", *worse_later),
    }.items():
        out = run(tmp_path / name, data, *settings)
        best = {path.name: path.read_bytes() for path in (out / "best").iterdir()}
        shutil.rmtree(out / "best")
        run(out, data, *settings, resume=True)
        assert {path.name: path.read_bytes() for path in (out / "best").iterdir()} == best


def test_a_removed_best_model_without_saved_weights_is_an_error(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = count(1.0)  # the first is the best
    monkeypatch.setattr(BoundTranslation, "validate", lambda task, check: ValidationResult({"loss": next(losses)}))
    out = run(tmp_path / "run", data, *LONG)
    shutil.rmtree(out / "best")
    assert resume_error(out, data, *LONG) == (
        f"{out / 'best'}: is missing, and no checkpoint has the weights of step 3, which were the best; "
        "restore it from a copy, or use last/ instead."
    )


def test_run_json_has_the_failure_until_the_run_is_resumed(
    half: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status() -> tuple[str, str | None]:
        info = json.loads((half / "run.json").read_text())
        return info["status"], info["failure"]

    assert status() == ("finished", None)
    path = half / "data" / "tokenizer.json"
    path.rename(tmp_path / "tokenizer.json")
    path.write_text("{}")
    message = resume_error(half, data, "training.steps=7")
    assert status() == ("failed", message)
    (tmp_path / "tokenizer.json").rename(path)

    def broken(task: BoundTranslation, check: Check) -> ValidationResult:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(BoundTranslation, "validate", broken)
    with pytest.raises(ZeroDivisionError):
        run(half, data, "training.steps=7", resume=True)
    assert status() == ("failed", "ZeroDivisionError: a bug")
    monkeypatch.undo()
    run(half, data, "training.steps=7", resume=True)
    assert status() == ("finished", None)


def test_no_step_is_repeated_after_an_interrupted_validation(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("training.steps=3", "validation.every=2", "training.checkpoint_minutes=60")

    def stopped(task: BoundTranslation, check: Check) -> ValidationResult:
        raise InterruptedRun("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(BoundTranslation, "validate", stopped)
        with pytest.raises(InterruptedRun):
            run(tmp_path / "run", data, *settings)
    taken: list[int] = []
    step = Trainer.step

    def counted(trainer: Trainer) -> None:
        step(trainer)
        taken.append(trainer.state.step)

    monkeypatch.setattr(Trainer, "step", counted)
    run(tmp_path / "run", data, *settings, resume=True)
    assert taken == [3]


@pytest.mark.slow
def test_an_interrupted_final_test_exits_130_and_is_repeated(
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
    assert str(error.value) == f"{out}: stopped at step 4, all saved; continue with --resume."
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    monkeypatch.undo()
    run(out, data, *settings, resume=True)
    whole = run(tmp_path / "whole", data, *settings)
    results = [json.loads((folder / "run.json").read_text())["results"] for folder in (out, whole)]
    assert results[0] == results[1]
    assert "test" in results[0]


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Run as an unprivileged user: permissions do not restrict root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def world_readable_folder() -> Iterator[Path]:
    """A folder that all users can enter; those of pytest are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_without_write_permission_is_an_error(world_readable_folder: Path) -> None:
    data, closed = write_pairs(world_readable_folder / "pairs.tsv"), world_readable_folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    with ordinary_user(), pytest.raises(RunError) as error:
        run(closed / "run", data)
    assert error.value.exit_code == 3
    assert str(error.value) == f"{closed / 'run'}: cannot be written (Permission denied); choose another --out."


def test_files_without_write_permission_are_errors(world_readable_folder: Path) -> None:
    data, out = write_pairs(world_readable_folder / "pairs.tsv"), world_readable_folder / "run"
    run(out, data, "training.steps=2")
    (out / ".lock").chmod(0o666)

    def error_with(modes: dict[Path, int]) -> str:
        for path, mode in modes.items():
            path.chmod(mode)
        with ordinary_user():
            return resume_error(out, data, "training.steps=3")

    assert error_with({out: 0o555}) == (
        f"{out / 'config.toml'}: cannot be written (Permission denied); make it writable."
    )
    then = "make it writable, then continue with --resume"
    metrics, checkpoints = out / "metrics.jsonl", out / "checkpoints"
    assert error_with({out: 0o777, checkpoints: 0o555, metrics: 0o444}) == (
        f"{metrics}: cannot be written (Permission denied); {then}."
    )
    assert error_with({metrics: 0o666, out / "samples.jsonl": 0o666}) == (
        f"{checkpoints / 'step-000000003.safetensors'}: cannot be written (Permission denied); "
        f"{then}: what was saved before is intact."
    )
    for path in checkpoints.iterdir():
        path.chmod(0o600 if os.geteuid() == 0 else 0o000)
    assert error_with({}).startswith(
        f"{checkpoints / 'step-000000002.safetensors'}: cannot be read (Permission denied)"
    )


def test_all_files_of_a_run_have_the_same_permissions(half: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in half.rglob("*.*") if path.is_file() and path.name != ".lock"}
    assert modes == {stat.S_IMODE((half / "run.json").stat().st_mode)}


@pytest.mark.slow
def test_missing_weights_are_left_out_of_the_average(data: Path, tmp_path: Path) -> None:
    def average(folder: Path) -> dict[str, float]:
        scores: dict[str, float] = json.loads((folder / "run.json").read_text())["results"]["average"]
        return scores

    settings = ("training.steps=6", "validation.every=2")
    out = run(tmp_path / "run", data, *settings, "training.average_checkpoints=3")
    two = run(tmp_path / "two", data, *settings, "training.average_checkpoints=2")
    assert average(out) != average(two)
    first, *_ = sorted((out / "weights").iterdir())
    first.unlink()
    run(out, data, *settings, "training.average_checkpoints=3", resume=True)
    assert average(out) == average(two)


def test_damaged_texts_are_an_error(half: Path, data: Path) -> None:
    texts = half / "data" / "valid.jsonl"
    texts.write_text('{"source": ')
    with pytest.raises(DataError) as error:
        run(half, data, "training.steps=8", resume=True)
    assert str(error.value) == f"{texts}: is damaged; remove the folder {half / 'data'}, and it is prepared again."


@pytest.mark.parametrize("name", ["valid.jsonl", "tokenizer.json"])
def test_a_pipe_among_prepared_data_is_an_error(name: str, half: Path, data: Path) -> None:
    path = half / "data" / name
    path.unlink()
    os.mkfifo(path)
    message = f"{path}: is damaged; remove the folder {half / 'data'}, and it is prepared again."
    assert resume_error(half, data, "training.steps=8") == message


@pytest.mark.slow
def test_a_batch_ramp_takes_the_batches_in_order_and_resumes_exactly(data: Path, tmp_path: Path) -> None:
    ramp = ("training.gradient_accumulation=4", "training.batch_ramp_steps=8")  # 1 1 1 2 2 2 3 3 4 …
    whole = run(tmp_path / "whole", data, "training.steps=10", *ramp)
    single = run(tmp_path / "single", data, "training.steps=23")
    tokens = [{line["step"]: line["tokens"] for line in lines(out) if "tokens" in line} for out in (whole, single)]
    batches = {1: 1, 3: 3, 6: 9, 8: 15, 10: 23}
    assert {step: tokens[0][step] for step in batches} == {step: tokens[1][count] for step, count in batches.items()}
    run(tmp_path / "halves", data, "training.steps=5", *ramp)
    halves = run(tmp_path / "halves", data, "training.steps=10", *ramp, resume=True)
    assert numbers(halves)[-1] == numbers(whole)[-1]
