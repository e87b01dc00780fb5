"""float16: the loss is scaled, a step whose gradients overflow is skipped, and the scale is in checkpoints."""

from pathlib import Path

import pytest
import torch

from device_checks import objective_and_batch
from family import DECODERS
from regard.config import AdamWConfig
from regard.errors import ConfigError
from regard.training import environment
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.distributed import ProcessGroup
from regard.training.environment import matmul_peak
from regard.training.optimizers import DivergedError, LossScaler, build_optimizer, update
from small_runs import run, write_pairs


def one_step(scaler: LossScaler | None, dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
    """The gradients and weights after a step, and the gradient norm."""
    torch.manual_seed(0)
    objective, batch = objective_and_batch(DECODERS["decoder-only"], meta=False)
    objective.eval()  # no dropout
    optimizer = build_optimizer(objective.network, AdamWConfig())
    result = update(objective, optimizer, [batch, batch], 0.01, matmul_dtype=dtype, scaler=scaler)
    parameters = list(objective.network.parameters())
    return (
        [p.grad.clone() for p in parameters if p.grad is not None],
        [p.detach() for p in parameters],
        result.grad_norm,
    )


def test_gradients_are_unscaled_and_close_to_those_of_float32() -> None:
    exact, _, norm = one_step(None, torch.float32)
    scaled, _, scaled_norm = one_step(LossScaler("cpu", init_scale=256.0), torch.float16)
    assert scaled_norm == pytest.approx(norm, rel=0.02)
    difference = torch.cat([(a - b).flatten() for a, b in zip(scaled, exact, strict=True)]).norm()
    assert 0 < difference / torch.cat([a.flatten() for a in exact]).norm() < 0.02


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    scaler = LossScaler("cpu", init_scale=2.0**120)
    _, before, _ = one_step(LossScaler("cpu", init_scale=2.0**120), torch.float16)
    _, untouched, norm = one_step(scaler, torch.float16)
    assert all(torch.equal(a, b) for a, b in zip(before, untouched, strict=True))
    assert norm == 0.0
    assert scaler.get_scale() == 2.0**119
    _, trained, _ = one_step(None, torch.float32)
    assert not torch.equal(trained[0], untouched[0])


def test_an_overflow_without_a_scale_is_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda gradients: torch.tensor(torch.inf))
    with pytest.raises(DivergedError, match="gradient norm inf"):
        one_step(LossScaler("cpu", init_scale=1.0), torch.float16)


@pytest.mark.slow
def test_the_scale_is_restored() -> None:
    scaler = LossScaler("cpu", init_scale=64.0)
    for _ in range(3):
        one_step(scaler, torch.float16)
    tensors = scaler.tensors()
    assert {name: float(tensor) for name, tensor in tensors.items()} == {"scale": 64.0, "growth_tracker": 3.0}
    checkpoint = Checkpoint(TrainingState(), {f"scaler/{name}": tensor for name, tensor in tensors.items()})
    resumed = LossScaler("cpu")
    resumed.restore(checkpoint.part("scaler"))
    one_step(resumed, torch.float16)
    one_step(scaler, torch.float16)
    assert resumed.state_dict() == scaler.state_dict()
    fresh = LossScaler("cpu")
    fresh.restore({})  # a run that changes to float16 when it is resumed
    assert fresh.get_scale() == 2.0**16


def test_float16_is_for_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"training\.precision = 'float16' is for CUDA GPUs, but the device is cpu; use 'bfloat16' or 'float32'"
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", write_pairs(tmp_path / "pairs.tsv", count=60), "training.precision=float16")
    monkeypatch.setattr(environment, "matmul_gflops", lambda device, dtype: 7.0)
    peak = matmul_peak("float16", {}, ProcessGroup(device=torch.device("cuda", 0)))
    assert (peak.matmul_dtype, peak.gflops) == (torch.float16, 7.0)
