"""Products in bfloat16: nearly the same gradients for every network, exact weights, and only where they are faster."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from family import DECODERS, ENCODERS, make
from regard.config import ModelConfig
from regard.errors import ConfigError
from regard.nn.embedding import OutputProjection
from regard.nn.functional import autocast
from regard.training import environment
from regard.training.display import ProgressDisplay
from regard.training.distributed import ProcessGroup
from regard.training.environment import MatmulPeak, matmul_peak
from regard.training.losses import projected_cross_entropy, smoothed_cross_entropy
from regard.training.objectives import NextToken, TokenBatch
from regard.training.run_folder import RunFolder
from regard.training.runner import run_training
from regard.training.update import update
from small_runs import numbers, request, run, write_pairs

CPU = torch.device("cpu")
NEAR = 0.05  # bfloat16 keeps two to three digits, and a small random network makes of them what it can


def sentences(network: nn.Module) -> TokenBatch:
    torch.manual_seed(3)
    source, target = torch.randint(1, 20, (6, 9)), torch.randint(1, 20, (6, 8))
    return TokenBatch(target, target.flip(1), source=source if network.encodes else None)


def gradient(config: ModelConfig, products: torch.dtype) -> Tensor:
    network = make(config).float().train()
    for dropping in network.modules():
        if isinstance(dropping, nn.Dropout):
            dropping.p = 0.0
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    update(NextToken(network, 0.1), optimizer, [sentences(network)], 0.0, matmul_dtype=products)
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", [name for name in DECODERS if "syntax" not in name])  # they are relative positions
def test_gradients_are_nearly_those_of_float32(name: str) -> None:
    exact, short = (gradient(DECODERS[name], dtype) for dtype in (torch.float32, torch.bfloat16))
    assert short.dtype == torch.float32
    assert 0 < (short - exact).norm() / exact.norm() < NEAR


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_read_nearly_the_same(name: str) -> None:
    network, ids = make(ENCODERS[name]).float().eval(), torch.randint(1, 20, (4, 9))
    exact = network.encode(ids).states
    with autocast(torch.bfloat16, CPU):
        short = network.encode(ids).states
    assert 0 < (short.float() - exact).norm() / exact.norm() < NEAR


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sure", [0.0, 1.0, 3.0])
def test_the_loss_in_pieces_is_nearly_exact_however_sure_it_is(bias: bool, smoothing: float, sure: float) -> None:
    torch.manual_seed(5)
    output, targets = OutputProjection(nn.Parameter(torch.randn(500, 16)), bias), torch.randint(0, 500, (60,))
    hidden = (torch.randn(60, 16) + sure * output.weight[targets]).detach().requires_grad_()
    inputs = [hidden, *output.parameters()]
    wanted = smoothed_cross_entropy(output(hidden), targets, smoothing)
    with autocast(torch.bfloat16, CPU):
        found = projected_cross_entropy(hidden, output, targets, smoothing)
    assert found.cross_entropy.dtype == torch.float32
    torch.testing.assert_close(found.cross_entropy, wanted.cross_entropy, rtol=0.03, atol=0.01)
    torch.testing.assert_close(found.loss, wanted.loss, rtol=0.005, atol=0.01)
    gradients = [torch.autograd.grad(loss.loss, inputs) for loss in (found, wanted)]
    assert 0 < distance(*gradients) < NEAR


def distance(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("short", "taken"), [(60.0, torch.float32), (200.0, torch.bfloat16)])
def test_bfloat16_is_taken_where_it_is_faster(
    short: float, taken: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {torch.float32: 100.0, torch.bfloat16: short}
    monkeypatch.setattr(environment, "matmul_gflops", lambda device, dtype: rates[dtype])
    assert matmul_peak("bfloat16", {}) == MatmulPeak("bfloat16", taken, rates[taken])
    assert matmul_peak("float32", {}) == MatmulPeak("float32", torch.float32, 100.0)


@pytest.mark.parametrize("decided", ["float32", "bfloat16"])
def test_what_a_run_has_decided_stays_until_something_else_is_asked_for(
    decided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiplying(monkeypatch, torch.float32 if decided == "bfloat16" else torch.bfloat16)
    assert (
        matmul_peak("bfloat16", {"precision": "bfloat16", "matmul_dtype": decided}).facts()["matmul_dtype"] == decided
    )
    assert matmul_peak("bfloat16", {"precision": "float32", "matmul_dtype": decided}).facts()["matmul_dtype"] != decided
    assert matmul_peak("float32", {"precision": "bfloat16", "matmul_dtype": decided}).matmul_dtype == torch.float32


def test_processes_that_measure_different_things_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplying(monkeypatch, torch.float32)

    class OneOfTwo(ProcessGroup):
        def any(self, value: bool) -> bool:
            return True  # the other one found bfloat16 faster

    assert matmul_peak("bfloat16", {}, OneOfTwo()).matmul_dtype == torch.bfloat16


def multiplying(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Let this machine be one on which that type is the fastest."""
    monkeypatch.setattr(environment, "matmul_gflops", lambda device, other: 100.0 if other == dtype else 50.0)


def test_a_run_in_bfloat16_learns_and_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplying(monkeypatch, torch.bfloat16)
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
    multiplying(monkeypatch, torch.float32)  # another machine, or a busier one
    run(halves, data, *settings, resume=True)
    assert numbers(halves)[-1] == numbers(whole)[-1]


class Notes(ProgressDisplay):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, sentence: str) -> None:
        self.said.append(sentence)


def test_a_processor_that_is_slower_in_bfloat16_says_that_it_uses_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiplying(monkeypatch, torch.float32)
    data, notes = write_pairs(tmp_path / "pairs.tsv"), Notes()
    done = run_training(request(tmp_path / "run", data, "training.precision=bfloat16", "training.steps=1"), notes)
    assert RunFolder(done.folder).read_info()["environment"]["matmul_dtype"] == "float32"
    assert [said for said in notes.said if "bfloat16" in said] == [
        "training.precision = 'bfloat16' is slower than float32 on this processor: training in float32."
    ]


def test_other_types_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.precision.*'float32' or 'bfloat16'"):
        run(tmp_path / "run", write_pairs(tmp_path / "pairs.tsv"), "training.precision=float16")
