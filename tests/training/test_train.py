"""Whole runs: models learn, the folder holds what it should, and what goes wrong is one sentence."""

import json
import math
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import safetensors.torch
import torch

import regard
from regard.errors import ConfigError, DataError, ModelError, RunError
from regard.training import runner
from regard.training.display import Progress, ProgressDisplay
from small_runs import command, lines, numbers, pairs, request, run, write_pairs

LEARN = [
    "training.steps=800",
    "training.schedule.warmup_steps=50",
    "training.batch_tokens=400",
    "validation.every=400",
    "model.dropout=0.0",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv", 1500)


@pytest.fixture(scope="module")
def learned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    test = write_pairs(data.with_name("test.tsv"), 100, seed=9)
    settings = [
        *LEARN,
        "training.average_checkpoints=2",
        "model.width=64",
        f"data.test.files={test}",
        "validation.sentences=100",
    ]
    return run(tmp_path_factory.mktemp("runs") / "learned", data, *settings)


def test_a_translator_learns_a_small_language(learned: Path) -> None:
    results = json.loads((learned / "run.json").read_text())["results"]
    assert results["test"]["bleu"] > 80
    assert results["test"]["exact"] > 0.7
    assert results["test"]["sentences"] == 100
    assert results["test"]["loss"] < 0.3


def test_the_run_folder_holds_everything(learned: Path) -> None:
    about = json.loads((learned / "run.json").read_text())
    assert about["status"] == "finished"
    assert about["task"] == "translation"
    assert about["data"]["train"]["read"] + about["data"]["valid"]["read"] == 1500
    assert about["environment"]["torch"] == torch.__version__
    assert about["signatures"]["bleu"].startswith("nrefs:1|case:mixed")
    assert tomllib.loads((learned / "config.toml").read_text())["model"]["width"] == 64
    assert {line["step"] for line in lines(learned) if "valid" in line} == {400, 800}
    assert {line["step"] for line in lines(learned, "samples.jsonl")} == {400, 800}
    assert set(json.loads((learned / "outputs.json").read_text())) == {"best", "worst", "random"}
    assert "BLEU" in (learned / "report.html").read_text()
    for name in ("best", "last"):
        assert {path.name for path in (learned / name).iterdir()} == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "README.md",
        }


def test_the_best_model_translates_by_itself(learned: Path) -> None:
    sources, targets = zip(*pairs(20, seed=9), strict=True)
    found = regard.load(learned).translate(sources, engine="torch")
    assert sum(output == target for output, target in zip(found, targets, strict=True)) >= 14


def test_the_average_is_kept_where_it_is_better(learned: Path) -> None:
    results = json.loads((learned / "run.json").read_text())["results"]
    valid = [line["valid"]["loss"] for line in lines(learned) if "valid" in line]
    assert results["best"]["loss"] == min(*valid, results["average"]["loss"])


def test_a_language_model_learns(tmp_path: Path) -> None:
    draw, text = random.Random(0), tmp_path / "text.txt"
    text.write_text(
        "".join(f"{n} and {(n + 1) % 10} makes {(2 * n + 1) % 10}.\n" for n in draw.choices(range(10), k=1500))
    )
    kind = [
        "model.kind=decoder-only",
        "tokenizer.kind=character",
        "data.context_length=64",
        "training.batch_tokens=512",
    ]
    shape = ["model.width=64", "model.layers=2", "model.dropout=0.0", "training.label_smoothing=0.0"]
    gpt = ["model.norm_order=pre", "model.scale_embeddings=false", "model.positions=learned"]
    steps = ["training.steps=400", "training.schedule.warmup_steps=50", "validation.every=400"]
    out = run(tmp_path / "run", text, *kind, *shape, *gpt, *steps)
    best = json.loads((out / "run.json").read_text())["results"]["best"]
    # of the 17 characters of a line only the first digit is free: 0.14 nats; who cannot add pays three times as much
    assert best["loss"] < 0.3
    assert best["bits_per_byte"] == pytest.approx(best["loss"] / math.log(2), rel=0.01)
    assert all(sample["prompt"] and sample["output"] for sample in lines(out, "samples.jsonl"))


class Seen(ProgressDisplay):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def progress(self, now: Progress) -> None:
        self.losses.append(now.loss)


def test_the_loss_that_is_shown_is_of_the_same_kind_as_that_of_validation(data: Path, tmp_path: Path) -> None:
    shown, out = Seen(), tmp_path / "run"
    runner.run_training(request(out, data, "training.steps=3", "training.label_smoothing=0.2"), shown)
    logged = [line for line in lines(out) if "loss" in line]
    assert shown.losses == [line["cross_entropy"] for line in logged]
    assert shown.losses != [line["loss"] for line in logged]


def test_documents_that_are_kept_apart_train_too(tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": f"number {n}\n" * (n % 7 + 1)}) + "\n" for n in range(60)))
    kind = ["model.kind=decoder-only", "tokenizer.kind=byte-level", "data.context_length=32", "data.documents=separate"]
    out = run(tmp_path / "run", text, *kind, "training.steps=30", "training.label_smoothing=0.0")
    losses = [line["loss"] for line in lines(out) if "loss" in line]
    assert losses[-1] < losses[0] - 1


def test_early_stopping_stops(data: Path, tmp_path: Path) -> None:
    still = ["training.schedule.learning_rate=1e-12", "training.patience=2", "validation.every=2", "training.steps=50"]
    out = run(tmp_path / "run", data, *still, "validation.metric=bleu")
    assert json.loads((out / "run.json").read_text())["status"] == "early stopped"
    assert lines(out)[-1]["step"] == 6  # best at 2, then two that are no better


def test_a_plateau_shrinks_the_rate(data: Path, tmp_path: Path) -> None:
    plateau = 'training.schedule={kind="plateau", peak=1e-12, patience=0, factor=0.5, floor=3e-13}'
    out = run(tmp_path / "run", data, "training.steps=12", "validation.every=2", "validation.metric=bleu", plateau)
    rates = [line["learning_rate"] for line in lines(out) if "learning_rate" in line]
    assert rates[:2] == [1e-13, 2e-13]  # the warm-up of the small runs is ten steps
    assert rates[10] == pytest.approx(3e-13)


def test_a_moving_average_is_validated_and_saved(data: Path, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", data, "training.steps=20")
    moving = run(tmp_path / "moving", data, "training.steps=20", "training.ema_decay=0.9")
    train = [[line["loss"] for line in lines(out) if "loss" in line] for out in (plain, moving)]
    valid = [[line["valid"]["loss"] for line in lines(out) if "valid" in line] for out in (plain, moving)]
    assert train[0] == train[1]
    assert valid[0] != valid[1]


def test_learned_positions_bound_what_is_read_and_written(data: Path, tmp_path: Path) -> None:
    short = ["model.positions=learned", "model.positions.max_length=6", "training.steps=3"]
    out = run(tmp_path / "run", data, *short)
    counts = json.loads((out / "run.json").read_text())["data"]["train"]
    assert counts["too long"] > 0


def test_epochs_end_a_run(data: Path, tmp_path: Path) -> None:
    out = run(tmp_path / "run", data, "training.epochs=0.25", "training.batch_tokens=400")
    assert lines(out)[-1]["epoch"] == pytest.approx(0.25, abs=0.02)


def test_bpe_dropout_varies_the_training_data(data: Path, tmp_path: Path) -> None:
    plain, again, dropped = (
        run(tmp_path / str(n), data, "training.steps=5", f"tokenizer.dropout={rate}")
        for n, rate in enumerate([0.0, 0.0, 0.3])
    )
    assert numbers(plain) == numbers(again)
    assert lines(dropped)[0]["tokens"] > lines(plain)[0]["tokens"]


def test_two_processes_equal_one(data: Path, tmp_path: Path) -> None:
    settings = ["training.steps=12", "model.dropout=0.0", "training.gradient_accumulation=2", "validation.every=6"]
    one = run(tmp_path / "one", data, *settings)
    done = torchrun(command(tmp_path / "two", data, *settings), 29517)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model:  ") == 1
    alone, shared = numbers(one), numbers(tmp_path / "two")
    assert [line["step"] for line in alone] == [line["step"] for line in shared]
    for left, right in zip(alone, shared, strict=True):
        left, right = left.get("valid", left), right.get("valid", right)
        assert right["loss"] == pytest.approx(left["loss"], abs=1e-5)
        assert right.get("tokens") == left.get("tokens")


def torchrun(call: list[str], port: int) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    return subprocess.run([*launcher, *call[1:]], capture_output=True, text=True, timeout=300, check=False)


def test_of_two_processes_only_the_first_says_what_is_wrong(data: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tb\nno tab\n")
    line = f"{bad}:2: no tab; write source, tab, target, or skip such lines with --skip-invalid."
    steep = ["training.schedule.learning_rate=1e18", "training.schedule.warmup_steps=0", "model.norm=none"]
    for number, (file, settings, sentence) in enumerate(
        [
            (bad, [], line),  # found by the first alone, while the other waits
            (data, ["model.widht=3"], "--set model.widht=3: model.widht is not a setting; did you mean model.width?"),
            (data, steep, "training was stopped and the last good checkpoint kept"),  # found by both
        ]
    ):
        done = torchrun(command(tmp_path / f"run{number}", file, *settings), 29520 + number)
        ours = done.stderr.partition("torch/distributed/elastic")[0]  # torchrun adds a report of its own
        assert done.returncode == 1
        assert ours.count(sentence) == 1
        assert "Traceback" not in ours


SECOND_FAILS = """
import sys
from regard.errors import DataError, RegardError
from regard.training.rank_zero import one_voice
from regard.training.distributed import joined
try:
    with joined() as process_group, one_voice():
        with process_group.fail_together():
            pass
        with process_group.fail_together():
            if not process_group.is_first:
                raise {failure}
except RegardError as error:
    print(f"rank {{process_group.rank}}: {{error}}", file=sys.stderr)
    sys.exit(1)
"""


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("DataError('façade.tsv: not found; check the path.')", "rank 0: façade.tsv: not found; check the path."),
        ("ZeroDivisionError('a bug')", "rank 0: another of the processes has failed, and says why; mend that,"),
    ],
)
def test_the_first_process_speaks_for_another_that_fails(failure: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SECOND_FAILS.format(failure=failure))
    done = torchrun([sys.executable, str(script)], 29525)
    assert done.stderr.count(said) == 1
    assert "rank 1: " not in done.stderr
    assert ("ZeroDivisionError: a bug" in done.stderr) == failure.startswith("Zero")


def test_a_diverging_run_stops_with_advice(data: Path, tmp_path: Path) -> None:
    out, peak = tmp_path / "run", ["training.schedule.learning_rate=1e18", "training.schedule.warmup_steps=0"]
    with pytest.raises(RunError) as error:
        run(out, data, "training.steps=50", *peak, "model.norm=none")
    said = str(error.value)
    assert said.startswith("step ")
    assert "the loss is" in said
    assert "epoch 1, batch " in said
    assert " → " in said
    assert said.endswith(
        "training was stopped and the last good checkpoint kept: lower training.schedule.learning_rate, lengthen "
        "training.schedule.warmup_steps or set training.max_grad_norm=1.0, and go on with --resume."
    )
    about = json.loads((out / "run.json").read_text())
    assert (about["status"], about["failure"]) == ("failed", said)
    assert "lower training.schedule.learning_rate" in (out / "report.html").read_text()
    steps = [0, *(line["step"] for line in lines(out))]
    assert [int(path.stem.removeprefix("step-")) for path in sorted((out / "checkpoints").iterdir())] == steps[-2:]


def test_a_full_disk_leaves_the_checkpoint_before_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = safetensors.torch.save_file
    written: list[Path] = []

    def no_report(folder: Path) -> None:
        raise ModelError("there is no room for a report either")

    monkeypatch.setattr(runner, "write_report", no_report)

    def full(tensors: dict[str, torch.Tensor], path: Path, about: dict[str, str]) -> None:
        if len(written) == 5:  # the first is from before the first step
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        written.append(path)
        real(tensors, path, about)

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    out = tmp_path / "run"
    with pytest.raises(RunError) as error:
        run(out, data, "training.steps=9")
    path = out / "checkpoints" / "step-000000005.safetensors"
    assert str(error.value) == (
        f"{path}: cannot be written (No space left on device); free some space, then go on with --resume: "
        "what was saved before it is still good."
    )
    assert not list((out / "checkpoints").glob(".*"))
    monkeypatch.undo()
    run(out, data, "training.steps=9", resume=True)
    whole = run(tmp_path / "whole", data, "training.steps=9")
    assert numbers(out) == numbers(whole)


def test_a_folder_that_cannot_be_written_is_a_sentence(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as error:
        run(tmp_path / "file" / "run", data)
    assert (
        str(error.value) == f"{tmp_path / 'file' / 'run'}: cannot be written (Not a directory); choose another --out."
    )


def test_prepared_data_is_shared_by_runs_and_made_once(data: Path, tmp_path: Path) -> None:
    store = f"data.store={tmp_path / 'store'}"
    first = run(tmp_path / "first", data, "training.steps=2", store)
    (made,) = (tmp_path / "store").iterdir()
    times = {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}
    second = run(tmp_path / "second", data, "training.steps=2", "model.width=64", store)
    assert times == {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}
    assert not (first / "data").exists()
    assert (second / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    run(tmp_path / "third", data, "training.steps=2", "model.vocab_size=330", store)
    assert len(list((tmp_path / "store").iterdir())) == 2


def test_what_is_missing_or_wrong_is_said_before_anything_long_begins(data: Path, tmp_path: Path) -> None:
    def refused(error: type[Exception], *settings: str, file: Path = data) -> str:
        with pytest.raises(error) as found:
            run(tmp_path / "run", file, *settings)
        return str(found.value)

    assert refused(ConfigError, "model.kind=encoder-only") == (
        "model.kind = 'encoder-only' without a model.head predicts nothing, so it cannot be trained; "
        "set model.head to 'tokens', 'classes' or 'tags'."
    )
    assert refused(ConfigError, "data.train.files=[]") == (
        "there is nothing to learn from; give --source and --target, or --data."
    )
    assert refused(ConfigError, "model.kind=decoder-only") == (
        "tokenizer.kind = 'bpe' loses line ends; use 'byte-level' or 'character' for a language model."
    )
    missing = tmp_path / "missing.tsv"
    assert refused(DataError, file=missing) == f"{missing}: not found; check the path."
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert refused(DataError, file=empty) == "data.train has no usable examples (it is empty); pass more text."
