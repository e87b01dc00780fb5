"""bfloat16: close gradients for every network, float32 weights, and only on processors where it is faster."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from family import DECODERS, ENCODERS, make
from regard.config import ModelConfig, load_config
from regard.errors import ConfigError
from regard.nn.embedding import OutputProjection
from regard.nn.functional import autocast
from regard.training import environment
from regard.training.batches import TokenBatch
from regard.training.display import ProgressDisplay
from regard.training.distributed import ProcessGroup
from regard.training.environment import MatmulPeak, matmul_peak, small_for_bfloat16
from regard.training.losses import CausalLMObjective, projected_cross_entropy, smoothed_cross_entropy
from regard.training.optimizers import update
from regard.training.run_folder import RunFolder
from regard.training.runner import run_training
from small_runs import numbers, request, run, write_pairs

CPU = torch.device("cpu")
TOLERANCE = 0.05  # bfloat16 has two to three digits


def sentences(network: nn.Module) -> TokenBatch:
    torch.manual_seed(3)
    source, target = torch.randint(1, 20, (6, 9)), torch.randint(1, 20, (6, 8))
    return TokenBatch(target, target.flip(1), source=source if network.encodes else None)


def gradient(config: ModelConfig, dtype: torch.dtype) -> Tensor:
    network = make(config).float().train()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    update(CausalLMObjective(network, 0.1), optimizer, [sentences(network)], 0.0, matmul_dtype=dtype)
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", [name for name in DECODERS if "syntax" not in name])  # like relative positions
def test_gradients_are_close_to_those_of_float32(name: str) -> None:
    exact, short = (gradient(DECODERS[name], dtype) for dtype in (torch.float32, torch.bfloat16))
    assert short.dtype == torch.float32
    assert 0 < (short - exact).norm() / exact.norm() < TOLERANCE


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_states_are_close_to_those_of_float32(name: str) -> None:
    network, ids = make(ENCODERS[name]).float().eval(), torch.randint(1, 20, (4, 9))
    exact = network.encode(ids).states
    with autocast(torch.bfloat16, CPU):
        short = network.encode(ids).states
    assert 0 < (short.float() - exact).norm() / exact.norm() < TOLERANCE


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("confidence", [0.0, 1.0, 3.0])
def test_the_chunked_loss_is_close_for_any_confidence(bias: bool, smoothing: float, confidence: float) -> None:
    torch.manual_seed(5)
    output, targets = OutputProjection(nn.Parameter(torch.randn(500, 16)), bias), torch.randint(0, 500, (60,))
    hidden = (torch.randn(60, 16) + confidence * output.weight[targets]).detach().requires_grad_()
    inputs = [hidden, *output.parameters()]
    expected = smoothed_cross_entropy(output(hidden), targets, smoothing)
    with autocast(torch.bfloat16, CPU):
        loss = projected_cross_entropy(hidden, output, targets, smoothing)
    assert loss.cross_entropy.dtype == torch.float32
    torch.testing.assert_close(loss.cross_entropy, expected.cross_entropy, rtol=0.03, atol=0.01)
    torch.testing.assert_close(loss.loss, expected.loss, rtol=0.005, atol=0.01)
    gradients = [torch.autograd.grad(each.loss, inputs) for each in (loss, expected)]
    assert 0 < distance(*gradients) < TOLERANCE


def distance(gradients: tuple[Tensor, ...], reference: tuple[Tensor, ...]) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(gradients, reference, strict=True))


@pytest.mark.parametrize(("bfloat16_gflops", "chosen"), [(60.0, torch.float32), (200.0, torch.bfloat16)])
def test_bfloat16_is_used_if_it_is_faster(
    bfloat16_gflops: float, chosen: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    gflops = {torch.float32: 100.0, torch.bfloat16: bfloat16_gflops}
    monkeypatch.setattr(environment, "matmul_gflops", lambda device, dtype: gflops[dtype])
    for precision in ("bfloat16", "auto"):
        peak = matmul_peak(precision, {})
        assert (peak.precision, peak.matmul_dtype, peak.gflops) == (precision, chosen, gflops[chosen])
        faster = "200 instead of 100 GFLOP/s in matrix products"
        assert peak.reason == ("bfloat16 is slower on this processor" if chosen == torch.float32 else faster)
    assert matmul_peak("float32", {}) == MatmulPeak("float32", torch.float32, 100.0)


@pytest.mark.parametrize("previous", ["float32", "bfloat16"])
def test_a_resumed_run_keeps_its_dtype_unless_the_precision_changes(
    previous: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastest_dtype(monkeypatch, torch.float32 if previous == "bfloat16" else torch.bfloat16)
    automatic = matmul_peak("auto", {"precision": "auto", "matmul_dtype": previous})
    assert automatic.facts()["matmul_dtype"] == previous
    for precision, kept in (("bfloat16", True), ("float32", False), ("auto", False)):
        peak = matmul_peak("bfloat16", {"precision": precision, "matmul_dtype": previous})
        assert (peak.facts()["matmul_dtype"] == previous) == kept
    assert matmul_peak("float32", {"precision": "bfloat16", "matmul_dtype": previous}).matmul_dtype == torch.float32


def test_all_processes_use_the_same_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    fastest_dtype(monkeypatch, torch.float32)

    class OneOfTwo(ProcessGroup):
        def any(self, value: bool) -> bool:
            return True  # bfloat16 was faster in the other process

    assert matmul_peak("bfloat16", {}, OneOfTwo()).matmul_dtype == torch.bfloat16


def test_small_networks_are_trained_in_float32_without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[torch.dtype] = []

    def measure(device: torch.device, dtype: torch.dtype) -> float:
        measured.append(dtype)
        return 100.0 if dtype == torch.bfloat16 else 50.0

    monkeypatch.setattr(environment, "matmul_gflops", measure)
    reasons = {
        "model.width=32": "model.width = 32 is below 64",
        "training.batch_tokens=100": "training.batch_tokens = 100 is below 128 for a network of width 512",
        "model={kind='recurrent-encoder-decoder', width=512}": "bfloat16 is tested with Transformers",
    }
    for setting, reason in reasons.items():
        small = small_for_bfloat16(load_config(None, [setting]))
        peak = matmul_peak("auto", {}, small=small)
        assert peak == MatmulPeak("auto", torch.float32, 50.0, reason)
        assert set(measured) == {torch.float32}
        assert matmul_peak("bfloat16", {}, small=small).matmul_dtype == torch.bfloat16  # as it was set
        measured.clear()
    assert small_for_bfloat16(load_config("tiny")) is None
    for tokens, is_small in (("512", False), ("511", True)):
        config = load_config("tiny", [f"training.batch_tokens={tokens}"])  # of width 128
        assert (small_for_bfloat16(config) is not None) is is_small


def fastest_dtype(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Simulate a machine on which this dtype is the fastest."""
    monkeypatch.setattr(environment, "matmul_gflops", lambda device, other: 100.0 if other == dtype else 50.0)


@pytest.mark.slow
def test_a_run_in_bfloat16_learns_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fastest_dtype(monkeypatch, torch.bfloat16)
    data, settings = write_pairs(tmp_path / "pairs.tsv"), ("training.precision=bfloat16", "training.steps=60")
    whole, exact = run(tmp_path / "whole", data, *settings), run(tmp_path / "exact", data, settings[1])
    assert json.loads((whole / "run.json").read_text())["environment"]["matmul_dtype"] == "bfloat16"
    assert json.loads((exact / "run.json").read_text())["environment"]["matmul_dtype"] == "float32"
    losses = [[line["loss"] for line in numbers(out) if "loss" in line] for out in (whole, exact)]
    assert losses[0][-1] < 0.8 * losses[0][0]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    halves = tmp_path / "halves"
    run(halves, data, settings[0], "training.steps=30")
    fastest_dtype(monkeypatch, torch.float32)  # another machine, or a busier one
    run(halves, data, *settings, resume=True)
    assert numbers(halves)[-1] == numbers(whole)[-1]


class NoteRecorder(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_a_note_says_that_float32_is_used_instead_of_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fastest_dtype(monkeypatch, torch.float32)
    data, recorder = write_pairs(tmp_path / "pairs.tsv"), NoteRecorder()
    done = run_training(request(tmp_path / "run", data, "training.precision=bfloat16", "training.steps=1"), recorder)
    assert RunFolder(done.folder).read_info()["environment"]["matmul_dtype"] == "float32"
    assert [note for note in recorder.notes if "bfloat16" in note] == [
        "training.precision = 'bfloat16' is slower than float32 on this processor: training in float32."
    ]


def test_a_note_says_what_auto_is(tmp_path: Path) -> None:
    data, recorder = write_pairs(tmp_path / "pairs.tsv"), NoteRecorder()
    done = run_training(request(tmp_path / "run", data, "training.steps=1"), recorder)
    recorded = RunFolder(done.folder).read_info()["environment"]
    assert (recorded["precision"], recorded["matmul_dtype"]) == ("auto", "float32")
    assert [note for note in recorder.notes if "precision" in note] == [
        "training.precision = 'auto': training in float32 (model.width = 32 is below 64)."
    ]


def test_other_dtypes_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.precision.*'auto', 'float32', 'bfloat16' or 'float16'"):
        run(tmp_path / "run", write_pairs(tmp_path / "pairs.tsv"), "training.precision=float8")
