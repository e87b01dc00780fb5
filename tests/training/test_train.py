"""Complete runs: models learn, the run folder has all files, distributed training, and error messages."""

import io
import json
import math
import os
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import regard
import small_runs
from regard.errors import ConfigError, DataError, ModelError, RunError
from regard.training import results
from regard.training.checkpoint import MetricsInterval, TrainingState
from regard.training.display import LinesDisplay, Progress, ProgressDisplay
from regard.training.environment import MatmulPeak
from regard.training.run_folder import RunFolder
from regard.training.runner import run_training
from regard.training.trainer import Trainer
from small_runs import lines, numbers, pairs, request, run, write_pairs

LEARN = [
    "training.steps=400",
    "training.schedule.learning_rate=0.01",
    "training.schedule.warmup_steps=50",
    "training.batch_tokens=400",
    "validation.every=200",
    "model.dropout=0.0",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv", 1500)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    data = write_pairs(folder / "pairs.tsv", 1500, longest=4)
    test = write_pairs(folder / "test.tsv", 100, seed=9, longest=4)
    settings = [
        *LEARN,
        "training.average_checkpoints=2",
        "model.width=48",
        f"data.test.files={test}",
        "validation.sentences=100",
    ]
    return run(folder / "run", data, *settings)


@pytest.mark.slow
def test_a_translator_learns_a_small_language(learned: Path) -> None:
    results = json.loads((learned / "run.json").read_text())["results"]
    assert results["test"]["bleu"] > 80
    assert results["test"]["exact"] > 0.7
    assert results["test"]["sentences"] == 100
    assert results["test"]["loss"] < 0.3


@pytest.mark.slow
def test_the_run_folder_has_all_files(learned: Path) -> None:
    info = json.loads((learned / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["task"] == "translation"
    assert info["data"]["train"]["read"] + info["data"]["valid"]["read"] == 1500
    assert info["environment"]["torch"] == torch.__version__
    assert info["signatures"]["bleu"].startswith("nrefs:1|case:mixed")
    assert tomllib.loads((learned / "config.toml").read_text())["model"]["width"] == 48
    assert {line["step"] for line in lines(learned) if "valid" in line} == {200, 400}
    assert {line["step"] for line in lines(learned, "samples.jsonl")} == {200, 400}
    assert set(json.loads((learned / "outputs.json").read_text())) == {"best", "worst", "random"}
    assert "BLEU" in (learned / "report.html").read_text()
    files = {"config.json", "domain.json", "model.safetensors", "tokenizer.json", "README.md"}
    for name in ("last", "best"):
        assert {path.name for path in (learned / name).iterdir()} == files
        with safetensors.safe_open(learned / name / "model.safetensors", "pt") as weights:
            assert "crc32" in weights.metadata(), "flipped bits are noticed on load"


def test_the_files_of_a_model_follow_from_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Linear(1, 1, bias=False)
    calls: list[float] = []

    def model_files(*_: object) -> dict[str, str]:
        calls.append(network.weight.item())
        return {"weight.txt": str(calls[-1])}

    monkeypatch.setattr(results, "task_of", lambda config: SimpleNamespace(model_files=model_files))
    trainer: Any = SimpleNamespace(network=network, config=None, task=None, check=None, run=RunFolder(tmp_path))
    for last in (2.0, 1.0):
        weights = {"best": {"weight": torch.ones(1, 1)}, "last": {"weight": torch.full((1, 1), last)}}
        for name in weights:
            (tmp_path / name).mkdir(exist_ok=True)
        results._write_model_files(trainer, weights)
        assert [(tmp_path / name / "weight.txt").read_text() for name in weights] == ["1.0", str(last)]
    assert calls == [1.0, 2.0, 1.0]  # not a second time for equal weights


@pytest.mark.slow
def test_the_best_model_can_be_loaded(learned: Path) -> None:
    sources, targets = zip(*pairs(20, seed=9, longest=4), strict=True)
    outputs = regard.load(learned).translate(sources, engine="torch")
    assert sum(output == target for output, target in zip(outputs, targets, strict=True)) >= 14


@pytest.mark.slow
def test_the_average_replaces_the_best_model_if_it_is_better(learned: Path) -> None:
    results = json.loads((learned / "run.json").read_text())["results"]
    valid = [line["valid"]["loss"] for line in lines(learned) if "valid" in line]
    assert results["best"]["loss"] == min(*valid, results["average"]["loss"])


@pytest.mark.slow
def test_a_language_model_learns(tmp_path: Path) -> None:
    draw, text = random.Random(0), tmp_path / "text.txt"
    text.write_text(
        "".join(f"{n} and {(n + 1) % 10} makes {(2 * n + 1) % 10}.\n" for n in draw.choices(range(10), k=1500))
    )
    kind = [
        "model.kind=decoder-only",
        "tokenizer.kind=character",
        "tokenizer.byte_fallback=false",
        "data.context_length=64",
        "training.batch_tokens=512",
    ]
    shape = ["model.width=64", "model.layers=2", "model.dropout=0.0", "training.label_smoothing=0.0"]
    gpt = ["model.norm_order=pre", "model.scale_embeddings=false", "model.positions=learned"]
    steps = ["training.steps=400", "training.schedule.warmup_steps=50", "validation.every=400"]
    out = run(tmp_path / "run", text, *kind, *shape, *gpt, *steps)
    best = json.loads((out / "run.json").read_text())["results"]["best"]
    # Of the 17 characters of a line only the first digit is random: 0.14 nats. Without addition it is three times that.
    assert best["loss"] < 0.3
    assert best["bits_per_byte"] == pytest.approx(best["loss"] / math.log(2), rel=0.01)
    assert all(sample["prompt"] and sample["output"] for sample in lines(out, "samples.jsonl"))


class LossRecorder(ProgressDisplay):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def progress(self, progress: Progress) -> None:
        self.losses.append(progress.loss)


def test_the_displayed_loss_is_cross_entropy_like_the_validation_loss(data: Path, tmp_path: Path) -> None:
    recorder, out = LossRecorder(), tmp_path / "run"
    run_training(request(out, data, "training.steps=3", "training.label_smoothing=0.2"), recorder)
    logged = [line for line in lines(out) if "loss" in line]
    assert recorder.losses == [line["cross_entropy"] for line in logged]
    assert recorder.losses != [line["loss"] for line in logged]


def test_separate_documents_can_be_trained_on(tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": f"number {n}\n" * (n % 7 + 1)}) + "\n" for n in range(60)))
    kind = ["model.kind=decoder-only", "tokenizer.kind=byte-level", "data.context_length=32", "data.documents=separate"]
    out = run(tmp_path / "run", text, *kind, "training.steps=30", "training.label_smoothing=0.0")
    losses = [line["loss"] for line in lines(out) if "loss" in line]
    assert losses[-1] < losses[0] - 1


@pytest.mark.slow
def test_early_stopping(data: Path, tmp_path: Path) -> None:
    still = ["training.schedule.learning_rate=1e-12", "training.patience=2", "validation.every=2", "training.steps=50"]
    out = run(tmp_path / "run", data, *still, "validation.metric=bleu")
    assert json.loads((out / "run.json").read_text())["status"] == "early stopped"
    assert lines(out)[-1]["step"] == 6  # best at step 2, then two without improvement


@pytest.mark.slow
def test_a_plateau_lowers_the_learning_rate(data: Path, tmp_path: Path) -> None:
    plateau = 'training.schedule={kind="plateau", learning_rate=1e-12, patience=0, factor=0.5, min_learning_rate=3e-13}'
    out = run(tmp_path / "run", data, "training.steps=12", "validation.every=2", "validation.metric=bleu", plateau)
    rates = [line["learning_rate"] for line in lines(out) if "learning_rate" in line]
    assert rates[:2] == [1e-13, 2e-13]  # small runs have ten warmup steps
    assert rates[10] == pytest.approx(3e-13)


@pytest.mark.slow
def test_a_moving_average_is_validated_and_saved(data: Path, tmp_path: Path) -> None:
    without = run(tmp_path / "without", data, "training.steps=20")
    moving = run(tmp_path / "moving", data, "training.steps=20", "training.ema_decay=0.9")
    train = [[line["loss"] for line in lines(out) if "loss" in line] for out in (without, moving)]
    valid = [[line["valid"]["loss"] for line in lines(out) if "valid" in line] for out in (without, moving)]
    assert train[0] == train[1]
    assert valid[0] != valid[1]


@pytest.mark.slow
def test_learned_positions_limit_the_length_of_examples(data: Path, tmp_path: Path) -> None:
    short = ["model.positions=learned", "model.positions.max_length=6", "training.steps=3"]
    out = run(tmp_path / "run", data, *short)
    counts = json.loads((out / "run.json").read_text())["data"]["train"]
    assert counts["too long"] > 0


def test_epochs_limit_a_run(data: Path, tmp_path: Path) -> None:
    out = run(tmp_path / "run", data, "training.epochs=0.25", "training.batch_tokens=400")
    assert lines(out)[-1]["epoch"] == pytest.approx(0.25, abs=0.02)


@pytest.mark.slow
def test_epochs_are_announced_as_steps_and_progress_is_shown_by_time(data: Path, tmp_path: Path) -> None:
    stream = io.StringIO()
    start = request(tmp_path / "run", data, "training.epochs=0.5", "training.log_every=1000")
    run_training(start, LinesDisplay(stream))
    steps = lines(tmp_path / "run")[-1]["step"]
    assert f"training.epochs = 0.5: {steps} steps." in stream.getvalue()
    assert f"step 1/{steps}  " in stream.getvalue()  # long before the first line of metrics.jsonl
    assert [line["step"] for line in lines(tmp_path / "run")] == [steps, steps]


def test_steps_are_announced_as_epochs(data: Path, tmp_path: Path) -> None:
    stream = io.StringIO()
    run_training(request(tmp_path / "run", data, "training.steps=3", "training.batch_tokens=400"), LinesDisplay(stream))
    epoch = lines(tmp_path / "run")[-1]["epoch"]
    assert epoch > 0.1
    assert f"training.steps = 3: {epoch:.1f} epochs.\n" in stream.getvalue()


def test_utilization_above_one_is_left_out(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.training.runner.matmul_peak", lambda *_: MatmulPeak("float32", torch.float32, 1e-6))
    stream = io.StringIO()
    run_training(request(tmp_path / "run", data, "training.steps=2"), LinesDisplay(stream))
    assert "utilization" not in stream.getvalue()
    assert "utilization" not in lines(tmp_path / "run")[0]


@pytest.mark.parametrize(("flops", "shown"), [(99.0, 0.99), (100.0, 1.0), (101.0, None), (731.0, None)])
def test_utilization_is_shown_up_to_one(flops: float, shown: float | None) -> None:
    trainer = Trainer.__new__(Trainer)  # without a run: times cannot be set exactly there
    interval = MetricsInterval(steps=1, targets=1, flops=flops, seconds=1.0)
    trainer.state, trainer.peak_flops, trainer.balancing = TrainingState(step=1, interval=interval), 100.0, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_epoch", lambda _: 0.0)
        patch.setattr(Trainer, "_learning_rate", lambda *_: 0.1)
        assert trainer._metrics().get("utilization") == shown


@pytest.mark.slow
def test_bpe_dropout_varies_the_training_data(data: Path, tmp_path: Path) -> None:
    first, second, dropped = (
        run(tmp_path / str(n), data, "training.steps=5", f"tokenizer.dropout={dropout}")
        for n, dropout in enumerate([0.0, 0.0, 0.3])
    )
    assert numbers(first) == numbers(second)
    assert lines(dropped)[0]["tokens"] > lines(first)[0]["tokens"]


def torchrun(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = [str(Path(small_runs.__file__).parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [*launcher, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=script.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
    )


SECOND_FAILS = """
import sys
from regard.errors import DataError, RegardError
from regard.training.shutdown import rank_zero_errors
from regard.training.distributed import joined_process_group
with joined_process_group() as process_group:
    for failure in (DataError("façade.tsv: not found; check the path."), ZeroDivisionError("a bug")):
        code = 0
        try:
            with rank_zero_errors(process_group.lost_process):
                with process_group.fail_together():
                    pass
                with process_group.fail_together():
                    if not process_group.is_first:
                        raise failure
        except RegardError as error:
            print(f"rank {process_group.rank}: {error}", file=sys.stderr)
            code = 1
        except SystemExit as stop:
            code = stop.code
        assert code == 1
sys.exit(code)
"""


@pytest.mark.slow
def test_the_first_process_reports_the_failure_of_another(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SECOND_FAILS)
    done = torchrun(script)
    assert done.returncode == 1
    assert done.stderr.count("rank 0: façade.tsv: not found; check the path.") == 1
    failed = r"rank 0: rank 1 \(PID \d+ on \S+\) failed with ZeroDivisionError: a bug, so that all processes stopped\."
    assert len(re.findall(failed, done.stderr)) == 1
    assert not re.search("^rank 1: ", done.stderr, re.MULTILINE)
    assert "AssertionError" not in done.stderr
    assert "DataError" not in done.stderr
    assert len(re.findall(r"^(\[rank1\]: )?ZeroDivisionError: a bug$", done.stderr, re.MULTILINE)) == 1


def test_a_diverging_run_stops_with_a_remedy(data: Path, tmp_path: Path) -> None:
    out, peak = tmp_path / "run", ["training.schedule.learning_rate=1e18", "training.schedule.warmup_steps=0"]
    with pytest.raises(RunError) as error:
        run(out, data, "training.steps=50", "training.checkpoint_minutes=0", *peak, "model.norm=none")
    message = str(error.value)
    assert message.startswith("step ")
    assert "the loss is" in message
    assert "epoch 1, batch " in message
    assert " → " in message
    assert message.endswith(
        "training was stopped and the last good checkpoint kept: lower training.schedule.learning_rate, increase "
        "training.schedule.warmup_steps or set training.max_grad_norm=1.0, and continue with --resume."
    )
    info = json.loads((out / "run.json").read_text())
    assert (info["status"], info["failure"]) == ("failed", message)
    assert "lower training.schedule.learning_rate" in (out / "report.html").read_text()
    steps = [0, *(line["step"] for line in lines(out))]
    assert [int(path.stem.removeprefix("step-")) for path in sorted((out / "checkpoints").iterdir())] == steps[-2:]


@pytest.mark.slow
def test_after_a_full_disk_the_previous_checkpoint_is_intact(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = safetensors.torch.save_file
    written: list[Path] = []

    def no_report(folder: Path) -> None:
        raise ModelError("no space for the report either")

    monkeypatch.setattr("regard.training.runner.write_report", no_report)

    def full(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        if len(written) == 5:  # the first is written before the first step
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        written.append(path)
        real(tensors, path, metadata)

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    out = tmp_path / "run"
    with pytest.raises(RunError) as error:
        run(out, data, "training.steps=9", "training.checkpoint_minutes=0")
    path = out / "checkpoints" / "step-000000005.safetensors"
    assert str(error.value) == (
        f"{path}: cannot be written (No space left on device); free some space, then continue with --resume: "
        "what was saved before is intact."
    )
    assert not list((out / "checkpoints").glob(".*"))
    monkeypatch.undo()
    run(out, data, "training.steps=9", resume=True)
    whole = run(tmp_path / "whole", data, "training.steps=9")
    assert numbers(out) == numbers(whole)


def test_a_run_folder_that_cannot_be_written_is_an_error(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as error:
        run(tmp_path / "file" / "run", data)
    assert (
        str(error.value) == f"{tmp_path / 'file' / 'run'}: cannot be written (Not a directory); choose another --out."
    )


@pytest.mark.slow
def test_prepared_data_is_shared_by_runs(data: Path, tmp_path: Path) -> None:
    store = f"data.store={tmp_path / 'store'}"
    first = run(tmp_path / "first", data, "training.steps=2", store)
    (prepared,) = (tmp_path / "store").iterdir()
    times = {path: path.stat().st_mtime_ns for path in prepared.rglob("*") if path.is_file()}
    second = run(tmp_path / "second", data, "training.steps=2", "model.width=64", store)
    assert times == {path: path.stat().st_mtime_ns for path in prepared.rglob("*") if path.is_file()}
    assert not (first / "data").exists()
    assert (second / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    run(tmp_path / "third", data, "training.steps=2", "model.vocab_size=330", store)
    assert len(list((tmp_path / "store").iterdir())) == 2


def test_missing_or_invalid_data_is_reported_before_training(data: Path, tmp_path: Path) -> None:
    def message(error: type[Exception], *settings: str, file: Path = data) -> str:
        with pytest.raises(error) as raised:
            run(tmp_path / "run", file, *settings)
        return str(raised.value)

    assert message(ConfigError, "model.kind=encoder-only") == (
        "model.kind = 'encoder-only' without a model.head predicts nothing, so it cannot be trained; "
        "set model.head to 'tokens', 'classes' or 'tags'."
    )
    assert message(ConfigError, "data.train.files=[]") == (
        "there is no training data; pass --source and --target, or --data."
    )
    assert message(ConfigError, "model.kind=decoder-only") == (
        "tokenizer.kind = 'bpe' loses line ends; use 'byte-level' or 'character' for a language model."
    )
    missing = tmp_path / "missing.tsv"
    assert message(DataError, file=missing) == f"{missing}: not found; check the path."
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert message(DataError, file=empty) == "data.train has no usable examples (it is empty); pass more text."
