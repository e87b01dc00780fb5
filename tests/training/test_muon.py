"""Muon: its orthogonalization against the singular value decomposition, its steps against torch's, and runs with it."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from family import DECODERS, make
from regard.config import AdamConfig, Config, FsdpConfig, MuonConfig, ParameterGroupConfig, TensorConfig, TrainingConfig
from regard.errors import ConfigError
from regard.models import Network
from regard.training.checkpoint import optimizer_tensors, restore_optimizer
from regard.training.muon import COEFFICIENTS, Muon, layer_matrices, orthogonalize
from regard.training.optimizers import build_optimizer, single_optimizers
from regard.training.parallel import check_sharding
from small_runs import numbers, run, write_pairs

SWIGLU = "encoder-decoder, pre-norm, RMS, SwiGLU"


def by_decomposition(matrix: Tensor, iterations: int) -> Tensor:
    """The polynomial, applied to the singular values."""
    a, b, c = COEFFICIENTS
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.norm()
    for _ in range(iterations):
        s = a * s + b * s**3 + c * s**5
    product: Tensor = u @ s.diag() @ v
    return product


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_orthogonalization_is_a_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    expected = torch.stack([by_decomposition(matrix, 3) for matrix in matrices])
    torch.testing.assert_close(orthogonalize(matrices, 3), expected, rtol=0, atol=1e-9)


def test_singular_values_are_about_one_in_bfloat16_too() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(2, 16, 40)
    for dtype in (torch.float32, torch.bfloat16):
        values = torch.linalg.svdvals(orthogonalize(matrices, dtype=dtype))
        assert 0.6 < values.min() < values.max() < 1.3


def test_a_matrix_without_gradient_signal_stays_finite() -> None:
    assert torch.equal(orthogonalize(torch.zeros(1, 3, 3)), torch.zeros(1, 3, 3))


def randomized(network: Network) -> dict[str, Tensor]:
    """Random gradients for all parameters, by name."""
    gradients = {name: torch.randn_like(parameter) for name, parameter in network.named_parameters()}
    for name, parameter in network.named_parameters():
        parameter.grad = gradients[name].clone()
    return gradients


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_multiplier"]


def test_steps_equal_those_of_torch_for_each_projection() -> None:
    torch.manual_seed(0)
    network = make(DECODERS[SWIGLU]).float()
    sizes = layer_matrices(network)
    weights = dict(network.named_parameters())
    parts = {name: [nn.Parameter(p.detach().clone()) for p in weights[name].split(sizes[name])] for name in sizes}
    theirs = torch.optim.Muon(
        [part for split in parts.values() for part in split],
        lr=0.01,
        weight_decay=0.1,
        momentum=0.9,
        adjust_lr_fn="match_rms_adamw",
    )
    config = MuonConfig(momentum=0.9, weight_decay=0.1)
    ours = build_optimizer(network, config, matmul_dtype=torch.bfloat16)
    before = {name: weights[name].detach().clone() for name in sizes}
    for _ in range(2):
        gradients = randomized(network)
        for name, split in parts.items():
            for part, gradient in zip(split, gradients[name].split(sizes[name]), strict=True):
                part.grad = gradient
        set_learning_rate(ours, 0.01)
        ours.step()
        theirs.step()
    for name, split in parts.items():
        expected = torch.cat([part.detach() for part in split])
        error = (weights[name].detach() - expected).norm() / (expected - before[name]).norm()
        assert error < 0.03, name  # both compute in bfloat16, in another order


def test_fused_projections_are_separate_matrices() -> None:
    sizes = layer_matrices(make(DECODERS["encoder-decoder, grouped-query"]))
    assert sizes["encoder.layers.0.attention.query_key_value.weight"] == (12, 6, 8)  # 4 heads of 3, 2 of 3, 2 of 4
    assert sizes["decoder.layers.1.cross_attention.key_value.weight"] == (6, 8)
    assert sizes["decoder.layers.1.cross_attention.query.weight"] == (12,)
    gated = layer_matrices(make(DECODERS[SWIGLU]))
    assert gated["decoder.layers.0.feed_forward.inner.weight"] == (24, 24)
    assert gated["decoder.layers.0.feed_forward.output.weight"] == (16,)


@pytest.mark.parametrize("name", ["encoder-decoder, relative", "decoder-only, learned positions", SWIGLU])
def test_all_other_parameters_have_adamw(name: str) -> None:
    network = make(DECODERS[name])
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    muon, adamw = sorted(
        single_optimizers(build_optimizer(network, MuonConfig(beta2=0.95))), key=type_name, reverse=True
    )
    of_muon, of_adamw = (
        {names[id(p)] for group in each.param_groups for p in group["params"]} for each in (muon, adamw)
    )
    assert isinstance(muon, Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    assert adamw.defaults["betas"] == (0.9, 0.95)
    assert of_muon == set(layer_matrices(network))
    assert of_muon | of_adamw == set(names.values())
    assert not of_muon & of_adamw
    assert all(any(part in name for part in ("embedding", "norm", "bias", "positions", "output")) for name in of_adamw)


def type_name(value: object) -> str:
    return type(value).__name__


def test_groups_and_multipliers_apply_to_both() -> None:
    network = make(DECODERS["decoder-only"])
    groups = {
        "first": ParameterGroupConfig(match=r"layers\.0\.", learning_rate_multiplier=0.5, weight_decay=0.3),
        "rest": ParameterGroupConfig(match="embedding", optimizer=AdamConfig()),
    }
    optimizer = build_optimizer(network, MuonConfig(learning_rate_multiplier=4.0, weight_decay=0.1), groups)
    found = {
        name: (group["lr_multiplier"], group.get("weight_decay"))
        for name, parameter in network.named_parameters()
        for group in optimizer.param_groups
        if any(parameter is member for member in group["params"])
    }
    assert found["decoder.layers.0.attention.output.weight"] == (2.0, 0.3)
    assert found["decoder.layers.1.attention.output.weight"] == (4.0, 0.1)
    assert found["decoder.layers.1.attention_residual.norm.weight"] == (1.0, 0.0)
    assert found["decoder.embedding.weight"] == (1.0, 0)  # of Adam
    kinds = {type(single).__name__ for single in single_optimizers(optimizer)}
    assert kinds == {"Muon", "AdamW", "Adam"}


def test_the_state_is_restored_exactly() -> None:
    torch.manual_seed(0)
    network = make(DECODERS["decoder-only"]).float()
    optimizer = build_optimizer(network, MuonConfig())
    randomized(network)
    set_learning_rate(optimizer, 0.01)
    optimizer.step()
    other = copy.deepcopy(network)
    resumed = build_optimizer(other, MuonConfig())
    restore_optimizer(resumed, other, {k: v.clone() for k, v in optimizer_tensors(optimizer, network).items()})
    for name, gradient in randomized(network).items():
        dict(other.named_parameters())[name].grad = gradient
    for each in (optimizer, resumed):
        set_learning_rate(each, 0.01)
        each.step()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))


def test_an_update_has_the_root_mean_square_of_adamw() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(64, 16))
    weight.grad = torch.randn(64, 16)
    Muon([{"params": [weight], "fused_sizes": (32, 32), "matmul_dtype": torch.float32}], lr=1.0).step()
    rms = float(weight.detach().square().mean().sqrt())
    assert rms == pytest.approx(0.2 * math.sqrt(32) / math.sqrt(32), rel=0.25)


def test_networks_without_transformer_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.optimizer = 'muon' is for .* Transformer layers.*use 'adamw'"):
        build_optimizer(make(DECODERS["recurrent language model, GRU"]), MuonConfig())


@pytest.mark.parametrize("parallel", [FsdpConfig(), TensorConfig()])
@pytest.mark.parametrize("in_group", [False, True])
def test_divided_networks_are_refused(parallel: FsdpConfig | TensorConfig, in_group: bool) -> None:
    settings: Mapping[str, object] = {"optimizer": MuonConfig()}
    if in_group:
        settings = {"parameter_groups": {"m": ParameterGroupConfig(role="matrix", optimizer=MuonConfig())}}
    training = TrainingConfig.model_validate({"parallel": parallel, **settings})
    with pytest.raises(ConfigError, match=rf"'{parallel.kind}'.*'muon' needs whole matrices; use .*'ddp', or 'adamw'"):
        check_sharding(Config(training=training))


@pytest.mark.slow
def test_a_run_learns_and_resumes_exactly(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    sets = ("training.optimizer.kind=muon", "validation.every=10")
    whole = run(tmp_path / "whole", data, *sets, "training.steps=30")
    losses = [line["loss"] for line in numbers(whole) if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    run(tmp_path / "halves", data, *sets, "training.steps=15")
    halves = run(tmp_path / "halves", data, *sets, "training.steps=30", resume=True)
    assert numbers(halves)[-1] == numbers(whole)[-1]
