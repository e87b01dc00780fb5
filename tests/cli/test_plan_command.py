"""`regard plan` prints a table, a recommendation and a command; wrong input gives one message."""

import json
from pathlib import Path

import pytest

from commands import regard

SETTINGS = ["--set", "model.width=32", "--set", "model.layers=1", "--set", "model.vocab_size=64"]
CUSTOM = ["--devices", "2xmine", "--device-memory", "4", "--device-tflops", "10", "--link-gbps", "80"]


@pytest.mark.slow
def test_table_recommendation_and_command() -> None:
    done = regard("plan", "tiny", *SETTINGS, "--devices", "4xL4")
    assert (done.code, done.err) == (0, "")
    for name in ("ddp", "fsdp", "tensor", "fsdp 2 × tensor 2"):
        assert f"\n {name} " in done.out
    assert "Use ddp," in done.out
    command = done.out.splitlines()[-1]
    assert command.startswith("torchrun --nproc-per-node 4 -m regard train translation --preset tiny --data FILES")
    assert command.endswith("--set model.vocab_size=64 --set training.parallel=ddp")


@pytest.mark.slow
def test_active_parameters_of_experts() -> None:
    settings = ["--set", "model.experts=8"]
    out = regard("plan", "tiny", "--devices", "2xA100-80GB", *settings).out
    assert out.startswith("tiny: 6.3 million parameters (3.1 active), 4,096 tokens per update in sequences of 32")
    out = regard("model", "tiny", *settings).out
    assert out.startswith(
        "tiny: encoder-decoder Transformer, 6.3 million parameters, of which a token uses 3.1 million"
    )


def test_json_of_a_custom_device() -> None:
    plan = json.loads(regard("plan", "tiny", *SETTINGS, *CUSTOM, "--json", "--length", "8").out)
    assert (plan["devices"], plan["device"], plan["length"]) == (2, "mine", 8)
    first = plan["layouts"][0]
    assert first["layout"]["name"] == "ddp"
    assert first["memory"] == sum(
        first[name] for name in ("weights", "gradients", "optimizer", "buffers", "activations")
    )
    assert first["communication"] == 4 * plan["parameters"]  # 2 (n − 1) / n · 4 bytes
    assert plan["command"].startswith("torchrun --nproc-per-node 2")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tiny", "--devices", "8xA1000"], 2, "--devices A1000: is not a known device (did you mean A100"),
        (["tiny", "--devices", "0xA100-80GB"], 2, "--devices 0xA100-80GB: the number of devices is 0"),
        (["missing", "--devices", "T4"], 2, "'missing' is not a preset, TOML file or model folder"),
        (["missing.toml", "--devices", "T4"], 2, "missing.toml"),
        (["lstm-lm", "--devices", "T4"], 2, "regard plan is for Transformers"),
    ],
)
def test_wrong_input(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    done = regard("plan", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1
