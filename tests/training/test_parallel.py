"""Several processes: all layouts give the losses of one process, resume from each other, and survive kills."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import parallel_runs
from parallel_runs import outputs
from small_runs import command, lines, numbers, pairs, run, write_pairs

SHAPE = ["model.heads=4", "model.dropout=0.0", "validation.every=2", "training.checkpoint_minutes=60"]
TRANSLATION = [  # all that works on parameters and gradients
    *SHAPE,
    "model.kv_heads=2",
    "training.gradient_accumulation=2",
    "training.ema_decay=0.9",
    "training.max_grad_norm=0.5",
    "training.average_checkpoints=2",
    "training.optimizer=adamw",
    "training.parameter_groups.embeddings.role=embedding",
    "training.parameter_groups.embeddings.learning_rate_multiplier=0.5",
]
GPT = [
    *SHAPE,
    "model.kind=decoder-only",
    "model.activation=swiglu",
    "model.positions=rotary",
    "model.attention_bias=true",
    "tokenizer.kind=byte-level",
    "data.context_length=16",
]
MASKED = [  # whose pooling has no gradient
    *SHAPE,
    "model.kind=encoder-only",
    "model.head=tokens",
    "model.pooling=first-dense",
    "tokenizer.kind=word",
    "training.gradient_accumulation=2",
    "data.context_length=16",
]
ALIBI = [*(setting for setting in GPT if "positions" not in setting), "model.positions=alibi"]
RELATIVE = [*TRANSLATION, "model.positions=relative", "model.positions.max_distance=3"]
RDROP = ["model.dropout=0.1", "training.rdrop=1.0"]
STEEP = ["training.schedule.learning_rate=1e18", "training.schedule.warmup_steps=0", "model.norm=none"]
LAYOUTS = {
    "ddp": [],
    "fsdp": ["training.parallel=fsdp"],
    "tensor": ["training.parallel=tensor"],
    "both": ["training.parallel=fsdp", "training.parallel.tensor_size=2"],
}
TWO = [("translation", "ddp"), ("translation", "fsdp"), ("translation", "tensor"), ("gpt", "fsdp"), ("gpt", "tensor")]
TWO += [("relative", "tensor"), ("alibi", "tensor"), ("masked", "ddp")]
COMPILED = ["training.compile=true", "training.gradient_checkpointing=true"]
NETWORKS = {  # of every row in the table of docs/how-to/train-distributed.md that is not in the runs above
    "ddp": {"encoder-decoder, three of five experts": ["training.gradient_checkpointing=true"]},
    "fsdp": {
        "encoder-decoder, syntax per head, window": [],
        "encoder-decoder, BigBird": [],
        "encoder-only, hidden tokens": COMPILED,
        "encoder-decoder, Linformer": [],
        "decoder-only, relative per head": COMPILED,
        "decoder-only, wide heads, YaRN, window in some layers": [],
        "decoder-only, experts of SwiGLU, rotary": [],
        "encoder-only, two of three experts, hidden tokens": COMPILED,
        "recurrent encoder-decoder, Bahdanau": [],
        "bidirectional, LSTM": [],
    },
    "tensor": {
        "encoder-only, hidden tokens": [],
        "encoder-decoder, narrow keys, biases, untied": [],
        "decoder-only, window": COMPILED,
        "decoder-only, no feed-forward": [],
        "decoder-only, experts of SwiGLU, rotary": [],
        "encoder-decoder, three of five experts": COMPILED,
    },
}
HALF, WHOLE = "training.steps=2", "training.steps=4"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    text = folder / "text.txt"
    text.write_text("".join(f"{source} {target}\n\n" for source, target in pairs(200)))
    pairs_file = write_pairs(folder / "pairs.tsv")
    return {"translation": pairs_file, "gpt": text, "relative": pairs_file, "alibi": text, "masked": text}


SETTINGS = {"translation": TRANSLATION, "gpt": GPT, "relative": RELATIVE, "alibi": ALIBI, "masked": MASKED}


@pytest.fixture(scope="module")
def folder(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of two and of four processes, and of processes that were killed."""
    out = tmp_path_factory.mktemp("runs")
    bad = out / "bad.tsv"
    bad.write_text("a\tb\nno tab\n")
    pairs_file = data["translation"]

    def call(name: str, network: str, *settings: str, resume: bool = False) -> dict[str, Any]:
        arguments = command(out / name, data[network], *SETTINGS[network], *settings, resume=resume)
        return {"regard": arguments[3:]}

    run(out / "half-single", pairs_file, *TRANSLATION, HALF)
    resumed = {"half-fsdp": "fsdp", "half-single": "tensor", "half-tensor": "fsdp"}
    two: dict[str, Any] = {
        "invalid data": {"regard": command(out / "invalid data", bad)[3:]},
        "unknown setting": {"regard": command(out / "unknown setting", pairs_file, "model.widht=3")[3:]},
        "diverging": {"regard": command(out / "diverging", pairs_file, *STEEP)[3:]},
        **{
            f"{network}-{layout}-2": call(f"{network}-{layout}-2", network, WHOLE, *LAYOUTS[layout])
            for network, layout in TWO
        },
        "half-fsdp": call("half-fsdp", "translation", HALF, *LAYOUTS["fsdp"]),
        "half-tensor": call("half-tensor", "translation", HALF, *LAYOUTS["tensor"]),
    }
    for source, layout in resumed.items():
        name = f"{source}-to-{layout}"
        two[name] = call(name, "translation", WHOLE, f"training.parallel={layout}", resume=True)
        two[name]["copy"] = [str(out / source), str(out / name)]
    for layout in ("ddp", "fsdp", "tensor"):
        two[f"rdrop-{layout}"] = call(f"rdrop-{layout}", "gpt", HALF, *RDROP, *LAYOUTS[layout])
    for layout in ("ddp", "fsdp"):
        two[f"bfloat16-{layout}"] = call(f"bfloat16-{layout}", "gpt", HALF, *LAYOUTS[layout]) | {"bfloat16": True}
    two["full disk"] = call("full disk", "gpt", HALF, *LAYOUTS["fsdp"]) | {"full": True}
    for layout, networks in NETWORKS.items():
        calls = {name: [*settings, *LAYOUTS[layout]] for name, settings in networks.items()}
        two[f"networks-{layout}"] = {"networks": calls}
    slow = call("slow", "gpt", HALF, "training.collective_timeout_minutes=0.02")
    two["slow"] = slow | {"slow": 1.5}
    four = {
        "gpt-both-4": call("gpt-both-4", "gpt", WHOLE, *LAYOUTS["both"]),
        "half-fsdp-to-both": call("half-fsdp-to-both", "translation", WHOLE, *LAYOUTS["both"], resume=True),
    }
    four["half-fsdp-to-both"]["copy"] = [str(out / "half-fsdp"), str(out / "half-fsdp-to-both")]
    elastic = call("elastic", "translation", WHOLE, "training.checkpoint_minutes=0", *LAYOUTS["fsdp"], resume=True)
    elastic["kill"] = [[0, 1, 1], [1, 0, 3]]
    jobs = [
        {"processes": 2, "calls": two},
        {"processes": 4, "calls": four},
        {"processes": 2, "restarts": 2, "calls": {"elastic": elastic}},
    ]
    done = parallel_runs.start(out, jobs)
    (out / "stderr.txt").write_text(done.stderr)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def single(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same runs of one process."""
    out = tmp_path_factory.mktemp("single")
    return {network: run(out / network, data[network], *SETTINGS[network], WHOLE) for network in SETTINGS}


def assert_same_losses(left: Path, right: Path) -> None:
    """Losses, gradient norms and validation losses of two runs are equal up to rounding."""
    assert [line["step"] for line in numbers(left)] == [line["step"] for line in numbers(right)]
    for first, second in zip(numbers(left), numbers(right), strict=True):
        first, second = first.get("valid", first), second.get("valid", second)
        assert second["loss"] == pytest.approx(first["loss"], abs=1e-5)
        assert second.get("grad_norm", 0) == pytest.approx(first.get("grad_norm", 0), rel=1e-4)  # Adam hides its scale
        assert second.get("tokens") == first.get("tokens")


@pytest.mark.parametrize("name", [*(f"{network}-{layout}-2" for network, layout in TWO), "gpt-both-4"])
def test_every_layout_has_the_losses_of_one_process(name: str, folder: Path, single: dict[str, Path]) -> None:
    codes, out, _ = outputs(folder, name, int(name[-1]))
    assert codes == [0] * int(name[-1])
    assert out.count("Model:  ") == 1
    assert_same_losses(single[name.split("-")[0]], folder / name)
    assert (folder / name / "best" / "model.safetensors").is_file()


@pytest.mark.parametrize("layout", NETWORKS)
def test_other_networks_have_the_losses_of_one_process(layout: str, folder: Path) -> None:
    for rank in range(2):
        differences = json.loads((folder / f"networks-{layout}.{rank}.json").read_text())
        assert differences.keys() == NETWORKS[layout].keys()
        assert max(differences.values()) < 1e-5, differences


def test_dropout_and_rdrop_are_those_of_the_same_process(folder: Path, data: dict[str, Path], tmp_path: Path) -> None:
    """Masks follow from the part of the batch; processes that share layers draw the masks of one process."""
    assert_same_losses(folder / "rdrop-ddp", folder / "rdrop-fsdp")
    one = run(tmp_path / "one", data["gpt"], *GPT, HALF, *RDROP)
    assert_same_losses(one, folder / "rdrop-tensor")
    assert lines(one)[1]["loss"] != pytest.approx(lines(folder / "rdrop-ddp")[1]["loss"], abs=1e-5)


def test_weights_are_gathered_in_16_bits(folder: Path, single: dict[str, Path]) -> None:
    """The same products as with autocast, but gradients are added in another order."""
    for name in ("bfloat16-ddp", "bfloat16-fsdp"):
        loss, exact = (lines(out)[1]["loss"] for out in (folder / name, single["gpt"]))
        assert 1e-6 < abs(loss - exact) < 0.02
    first, second = (lines(folder / f"bfloat16-{layout}")[1] for layout in ("ddp", "fsdp"))
    assert second["loss"] == pytest.approx(first["loss"], abs=1e-3)
    assert second["grad_norm"] == pytest.approx(first["grad_norm"], rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "half-fsdp-to-both",  # two processes to four; fused projections to split ones
        "half-tensor-to-fsdp",  # split projections to fused ones
        "half-single-to-tensor",  # one process to two
    ],
)
def test_a_run_resumes_with_another_layout(name: str, folder: Path, single: dict[str, Path]) -> None:
    assert_same_losses(single["translation"], folder / name)


def test_a_divided_run_resumes_in_one_process(
    folder: Path, single: dict[str, Path], data: dict[str, Path], tmp_path: Path
) -> None:
    for source in ("half-fsdp", "half-tensor"):
        out = shutil.copytree(folder / source, tmp_path / source)
        run(out, data["translation"], *TRANSLATION, WHOLE, resume=True)
        assert_same_losses(single["translation"], out)
        assert (out / "checkpoints" / "step-000000004.safetensors").is_file()


def test_the_same_layout_resumes_bit_by_bit(folder: Path) -> None:
    assert numbers(folder / "half-fsdp-to-fsdp") == numbers(folder / "translation-fsdp-2")
    for name in ("best", "last"):
        first, second = (
            (folder / out / name / "model.safetensors").read_bytes()
            for out in ("half-fsdp-to-fsdp", "translation-fsdp-2")
        )
        assert first == second


def test_processes_that_are_killed_are_restarted_and_lose_nothing(folder: Path) -> None:
    """Each was killed while a checkpoint was being written: the one before it is used."""
    assert numbers(folder / "elastic") == numbers(folder / "translation-fsdp-2")
    checkpoints = sorted(path.name for path in (folder / "elastic" / "checkpoints").iterdir())
    assert checkpoints == ["step-000000003", "step-000000004"]
    stderr = (folder / "stderr.txt").read_text()
    assert stderr.count(" on ") >= 1
    assert "rank 1 (PID " in stderr
    assert "ended without a message, so that all processes stopped." in stderr
    assert "rank 0 (PID " in stderr  # reported by the other process


def test_a_checkpoint_folder_has_no_pickle_and_damage_is_noticed(
    folder: Path, data: dict[str, Path], single: dict[str, Path], tmp_path: Path
) -> None:
    out = shutil.copytree(folder / "half-fsdp", tmp_path / "damaged")
    newest = out / "checkpoints" / "step-000000002"
    suffixes = {"".join(path.suffixes) for path in newest.iterdir()}
    assert suffixes == {".safetensors", ".safetensors.blake2b", ".json"}
    shard = next(newest.glob("shard-00002*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-9] ^= 1
    shard.write_bytes(content)
    notes = json.loads((out / "run.json").read_text())
    assert notes["status"] == "finished"
    run(out, data["translation"], *TRANSLATION, WHOLE, resume=True)
    assert [line["step"] for line in lines(out) if "loss" in line] == [*range(1, 5)]
    assert_same_losses(single["translation"], out)


def test_long_work_of_the_first_process_does_not_time_out(folder: Path) -> None:
    codes, _, err = outputs(folder, "slow")
    assert (codes, err) == ([0, 0], "")


@pytest.mark.parametrize(
    ("name", "codes", "message"),
    [
        # raised in the first process, while the other waits
        (
            "invalid data",
            [3, 1],
            "bad.tsv:2: no tab; write source, tab, target, or skip such lines with --skip-invalid.",
        ),
        (
            "unknown setting",
            [2, 1],
            "--set model.widht=3: model.widht is not a setting; did you mean model.width?",
        ),
        ("full disk", [3, 3], "step-000000000: cannot be written (No space left on device); free some space, then"),
        ("diverging", [1, 1], "training was stopped and the last good checkpoint kept"),  # raised in both
    ],
)
def test_only_the_first_process_prints_errors(folder: Path, name: str, codes: list[int], message: str) -> None:
    exit_codes, _, err = outputs(folder, name)
    assert exit_codes == codes
    assert err.count(message) == 1
    assert "Traceback" not in err
