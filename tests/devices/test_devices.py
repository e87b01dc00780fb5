"""The same numbers on every device: a training step, checkpoints and decoding. Skipped where there is no such device.

CUDA_VISIBLE_DEVICES=0 pytest tests/devices
"""

from pathlib import Path

import pytest
import torch

import regard
from device_checks import objective_and_batch
from family import FAMILY
from regard.config import AdamWConfig
from regard.training.batches import TokenBatch, prefetched
from regard.training.checkpoint import optimizer_tensors, restore_optimizer
from regard.training.distributed import ProcessGroup
from regard.training.optimizers import build_optimizer, update
from small_runs import numbers, request, write_pairs

NAMES = [
    "encoder-decoder",
    "encoder-decoder, rotary",
    "encoder-decoder, ALiBi",
    "encoder-decoder, relative",
    "encoder-decoder, BigBird",
    "decoder-only, learned positions",
    "decoder-only, window",
    "encoder-only, hidden tokens",
    "encoder-only, classes",
    "recurrent language model, LSTM",
    "recurrent encoder-decoder, Bahdanau",
    "bidirectional, GRU, untied",
]


@pytest.fixture(params=["cpu", "cuda", "mps"])
def device(request: pytest.FixtureRequest) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[request.param]:
        pytest.skip(f"there is no {request.param} device")
    return torch.device(request.param)


def step(name: str, device: torch.device) -> tuple[float, list[torch.Tensor]]:
    """The loss of a step without dropout, and the weights after it."""
    torch.manual_seed(0)
    objective, batch = objective_and_batch(FAMILY[name], meta=False)
    objective.eval().to(device)
    optimizer = build_optimizer(objective.network, AdamWConfig())
    result = update(objective, optimizer, [batch], 0.01, max_grad_norm=1.0, process_group=ProcessGroup(device=device))
    return result.loss, [parameter.detach().cpu() for parameter in objective.network.parameters()]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_that_of_the_cpu(name: str, device: torch.device) -> None:
    loss, weights = step(name, device)
    expected, expected_weights = step(name, torch.device("cpu"))
    assert loss == pytest.approx(expected, rel=1e-4)
    for a, b in zip(weights, expected_weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=2e-3)


def test_the_optimizer_is_restored_on_the_device(device: torch.device) -> None:
    objective, batch = objective_and_batch(FAMILY["decoder-only"], meta=False)
    network, group = objective.to(device).network, ProcessGroup(device=device)
    optimizer = build_optimizer(network, AdamWConfig())
    update(objective, optimizer, [batch], 0.01, process_group=group)
    saved = {name: tensor.cpu() for name, tensor in optimizer_tensors(optimizer, network).items()}
    resumed = build_optimizer(network, AdamWConfig())
    restore_optimizer(resumed, network, saved)
    assert {tensor.device.type for tensor in optimizer_tensors(resumed, network).values()} == {device.type}
    update(objective, resumed, [batch], 0.01, process_group=group)


def test_batches_arrive_on_the_device(device: torch.device) -> None:
    _, batch = objective_and_batch(FAMILY["decoder-only"], meta=False)
    assert isinstance(batch, TokenBatch)
    items = prefetched(iter([(None, batch)]), 2, 0, 1, device)  # type: ignore[list-item]
    local = next(items)[1].local(0, 1, device)
    assert isinstance(local, TokenBatch)
    assert local.target.device.type == device.type
    assert torch.equal(local.target.cpu(), batch.target)


def test_decoding_is_that_of_the_cpu(device: torch.device, translator: Path) -> None:
    sentences = ["w4 w5 w6", "w7", "w8 w9 w4 w5"]
    expected = regard.load(translator).translate(sentences, engine="torch")
    assert regard.load(translator, device=device.type).translate(sentences, engine="torch") == expected


@pytest.mark.slow
def test_a_run_learns(device: torch.device, tmp_path: Path) -> None:
    if device.type == "cpu":
        pytest.skip("the runs of all other tests are on the CPU")
    from dataclasses import replace

    from regard.training.runner import run_training

    data = write_pairs(tmp_path / "pairs.tsv")
    for precision in ("float32", "bfloat16", "float16") if device.type == "cuda" else ("float32",):
        wanted = request(tmp_path / precision, data, "training.steps=60", f"training.precision={precision}")
        out = run_training(replace(wanted, device=device.type)).folder
        losses = [line["loss"] for line in numbers(out) if "loss" in line]
        assert losses[-1] < 0.8 * losses[0]
