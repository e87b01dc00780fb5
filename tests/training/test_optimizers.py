"""Optimizers, parameter groups, and steps: accumulation, padding, clipping, and divergence before weights change."""

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import hypothesis
import pytest
import torch
from hypothesis import given
from torch import nn

from family import DECODERS, batches, make
from family import Batch as Sentences
from regard.config import (
    OPTIMIZERS,
    AdamConfig,
    AdamWConfig,
    ClassHeadConfig,
    ConfigSource,
    EncoderOnlyConfig,
    OptimizerConfig,
    ParameterGroupConfig,
    validate_sources,
)
from regard.errors import ConfigError
from regard.models import Network, build
from regard.models.folder import named_tensors
from regard.training.batches import TokenBatch
from regard.training.checkpoint import optimizer_tensors, restore_optimizer
from regard.training.losses import CausalLMObjective
from regard.training.optimizers import (
    CombinedOptimizer,
    DivergedError,
    build_optimizer,
    layer_depths,
    parameter_role,
    update,
)
from small_runs import numbers, run, write_pairs


def encoder() -> Network:
    head = ClassHeadConfig(labels=("a", "b"))
    model = EncoderOnlyConfig(
        vocab_size=20, width=8, heads=2, layers=3, feed_forward=8, head=head, pooling="first-dense"
    )
    return build(model)


def settings(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, float]]:
    """The settings of each parameter, by its name."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {
        names[id(parameter)]: {key: group[key] for key in ("lr_multiplier", "weight_decay") if key in group}
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def test_adam_has_one_group_of_all_parameters_in_order() -> None:
    network = encoder()
    (group,) = build_optimizer(network, AdamConfig()).param_groups
    assert all(a is b for a, b in zip(group["params"], network.parameters(), strict=True))
    assert group["lr_multiplier"] == 1.0


def test_adamw_decays_matrices_only() -> None:
    network = make(DECODERS["encoder-decoder, narrow keys, biases, untied"])
    decayed, free = build_optimizer(network, AdamWConfig(weight_decay=0.1)).param_groups
    assert decayed["weight_decay"] == 0.1
    assert all(parameter.dim() > 1 for parameter in decayed["params"])
    assert free["weight_decay"] == 0.0
    assert all(parameter.dim() == 1 for parameter in free["params"])
    assert len(decayed["params"]) + len(free["params"]) == len(list(network.parameters()))


def test_roles_cover_all_parameters() -> None:
    roles = {name: parameter_role(name, parameter) for name, parameter in encoder().named_parameters()}
    assert roles["encoder.embedding.weight"] == "embedding"
    assert roles["encoder.layers.0.feed_forward.inner.weight"] == "matrix"
    assert roles["encoder.layers.0.feed_forward.inner.bias"] == "norm-bias"
    assert {role for name, role in roles.items() if name.startswith(("head.", "pooling."))} == {"head"}


def test_groups_by_role_and_by_name_set_learning_rate_and_weight_decay() -> None:
    network = encoder()
    groups = {
        "head": ParameterGroupConfig(role="head", learning_rate_multiplier=10.0, weight_decay=0.5),
        "first": ParameterGroupConfig(match=r"layers\.0\.", learning_rate_multiplier=0.5),
        "norms": ParameterGroupConfig(match="norm", role="norm-bias", learning_rate_multiplier=2.0),
    }
    found = settings(network, build_optimizer(network, AdamWConfig(weight_decay=0.1), groups))
    assert found["head.dense.bias"] == {"lr_multiplier": 10.0, "weight_decay": 0.5}
    assert found["encoder.layers.0.feed_forward.inner.weight"] == {"lr_multiplier": 0.5, "weight_decay": 0.1}
    assert found["encoder.layers.0.attention_residual.norm.weight"] == {"lr_multiplier": 0.5, "weight_decay": 0.0}
    assert found["encoder.layers.1.attention_residual.norm.weight"] == {"lr_multiplier": 2.0, "weight_decay": 0.0}
    assert found["encoder.layers.1.feed_forward.inner.bias"] == {"lr_multiplier": 1.0, "weight_decay": 0.0}
    assert len(found) == len(list(network.parameters()))


def test_layer_decay_lowers_the_learning_rate_from_the_head_to_the_embeddings() -> None:
    network = encoder()
    found = settings(network, build_optimizer(network, AdamConfig(), layer_decay=0.5))
    multipliers = {name: values["lr_multiplier"] for name, values in found.items()}
    assert multipliers["head.dense.weight"] == multipliers["pooling.dense.bias"] == 1.0
    for layer, multiplier in ((2, 0.5), (1, 0.25), (0, 0.125)):
        assert multipliers[f"encoder.layers.{layer}.feed_forward.inner.weight"] == multiplier
    assert multipliers["encoder.embedding.weight"] == 0.0625


@pytest.mark.parametrize("name", DECODERS)
def test_every_stack_has_its_own_layer_depths(name: str) -> None:
    depths = layer_depths([name for name, _ in make(DECODERS[name]).named_parameters()])
    for stack in ("encoder.", "decoder."):
        layers = [depth for parameter, depth in depths.items() if parameter.startswith(f"{stack}layers.")]
        assert not layers or set(layers) == set(range(1, max(layers) + 1))


def test_a_group_without_matches_is_an_error() -> None:
    groups = {"typo": ParameterGroupConfig(match="encodr")}
    with pytest.raises(ConfigError, match=r"training\.parameter_groups\.typo: matches no parameter .* encoder\."):
        build_optimizer(encoder(), AdamConfig(), groups)


def test_a_role_that_no_parameter_has_is_an_empty_group() -> None:
    network = make(DECODERS["decoder-only"])
    groups = {"heads": ParameterGroupConfig(role="head", learning_rate_multiplier=10.0)}
    (group,) = build_optimizer(network, AdamConfig(), groups).param_groups
    assert len(group["params"]) == len(list(network.parameters()))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": {"match": "("}}, "training.parameter_groups.a.match = '(' is not a regular expression"),
        ({"a": {}}, "or match is needed, to select parameters"),
        ({"a": {"role": "heads"}}, "training.parameter_groups.a.role = 'heads' should be 'embedding', 'matrix'"),
        ({"a": {"role": "head", "rate": 2.0}}, "training.parameter_groups.a.rate is not a setting"),
        (
            {"a": {"role": "head", "weight_decay": 0.1}},
            "training.parameter_groups.a.weight_decay = 0.1 needs an optimizer with weight decay, but "
            "training.optimizer.kind = 'adam' has none: use 'adamw'",
        ),
    ],
)
def test_invalid_groups_are_reported(groups: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate_sources([ConfigSource("my.toml", {"training": {"parameter_groups": groups}})])
    assert message in str(error.value)


class PlainSGDConfig(OptimizerConfig):
    """Gradient descent with momentum, registered by a test as a package would register it."""

    builder: ClassVar = staticmethod(lambda config, groups: torch.optim.SGD(groups, lr=1.0, momentum=config.momentum))
    kind: Literal["plain-sgd"] = "plain-sgd"
    momentum: float = 0.9


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIMIZERS, "_objects", {**OPTIMIZERS._objects, "plain-sgd": PlainSGDConfig})


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_a_registered_optimizer_trains_the_matrices_and_adamw_the_rest(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    group = "training.parameter_groups.matrices"
    sets = (
        "training.steps=8",
        "validation.every=4",
        "training.optimizer.kind=adamw",
        f"{group}.role=matrix",
        f"{group}.optimizer.kind=plain-sgd",
        f"{group}.learning_rate_multiplier=0.1",
    )
    whole = run(tmp_path / "whole", data, *sets)
    assert 'parameter_groups.matrices.optimizer.kind = "plain-sgd"' in (whole / "config.toml").read_text()
    half = tmp_path / "half"
    run(half, data, *sets[1:], "training.steps=4")
    run(half, data, *sets, resume=True)
    schedule_free = [{key: line[key] for key in line if key != "learning_rate"} for line in numbers(half)]
    assert schedule_free == [{key: line[key] for key in line if key != "learning_rate"} for line in numbers(whole)]


@pytest.mark.usefixtures("registered")
def test_the_state_of_combined_optimizers_is_restored() -> None:
    def optimizers(network: nn.Module) -> torch.optim.Optimizer:
        groups = {"matrices": ParameterGroupConfig(role="matrix", optimizer=PlainSGDConfig())}
        optimizer = build_optimizer(network, AdamConfig(), groups)
        assert isinstance(optimizer, CombinedOptimizer)
        return optimizer

    def step(networks: Sequence[nn.Module], both: Sequence[torch.optim.Optimizer]) -> None:
        for network, optimizer in zip(networks, both, strict=True):
            optimizer.zero_grad()
            for parameter in network.parameters():
                parameter.grad = torch.ones_like(parameter) * 0.01
            optimizer.step()

    torch.manual_seed(0)
    first = encoder()
    one = optimizers(first)
    step([first], [one])
    second = copy.deepcopy(first)
    other = optimizers(second)
    restore_optimizer(other, second, {name: t.clone() for name, t in optimizer_tensors(one, first).items()})
    step([first, second], [one, other])
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


TOLERANCE = 1e-9


def batch_of(sentences: Sentences, network: Network) -> TokenBatch:
    source = (sentences.source, sentences.source_mask) if network.encodes else (None, None)
    return TokenBatch(
        target=sentences.target,
        labels=sentences.target.flip(1),
        target_mask=sentences.target_mask,
        source=source[0],
        source_mask=source[1],
        source_features=sentences.features if network.encodes else None,
    )


def after(network: Network, batches: list[TokenBatch], **settings: float) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    update(CausalLMObjective(network, 0.1), optimizer, batches, 0.5, **settings)  # type: ignore[arg-type]
    return named_tensors(network)


@pytest.mark.parametrize("name", DECODERS)
@given(sentences=batches(rows=5))
@hypothesis.settings(max_examples=4)
@pytest.mark.slow
def test_accumulated_batches_equal_one_large_batch(name: str, sentences: Sentences) -> None:
    whole, parts = make(DECODERS[name]), make(DECODERS[name])
    large = batch_of(sentences, whole)
    shards = [large.shard(n, 3) for n in range(3) if len(large.target[n::3])]
    assert sum(part.targets for part in shards) == large.targets
    once, accumulated = after(whole, [large]), after(parts, shards)
    for tensor in once:
        assert torch.allclose(once[tensor], accumulated[tensor], atol=TOLERANCE)


@pytest.mark.slow
@given(sentences=batches(rows=4))
def test_padding_does_not_change_the_loss(sentences: Sentences) -> None:
    network = make(DECODERS["encoder-decoder"])
    batch = batch_of(sentences, network)
    noise = torch.randint_like(batch.labels, 0, 20)
    assert batch.target_mask is not None
    other = TokenBatch(
        batch.target.where(batch.target_mask, noise),
        batch.labels.where(batch.target_mask, noise),
        batch.target_mask,
        batch.source,
        batch.source_mask,
    )
    objective = CausalLMObjective(network, 0.1)
    assert torch.allclose(objective(batch).loss, objective(other).loss, atol=TOLERANCE)


@pytest.mark.slow
@given(sentences=batches())
def test_the_reported_loss_is_the_sum_over_targets_without_padding(sentences: Sentences) -> None:
    network = make(DECODERS["encoder-decoder"])
    batch = batch_of(sentences, network)
    logits = network(batch.source, batch.target, batch.source_mask, batch.target_mask)
    log_p = logits.log_softmax(-1).gather(2, batch.labels[..., None]).squeeze(2)
    result = update(CausalLMObjective(network, 0.0), torch.optim.SGD(network.parameters()), [batch], 0.0)
    assert result.targets == int(sentences.target_mask.sum())
    assert result.cross_entropy == pytest.approx(float(-log_p.detach()[sentences.target_mask].sum()))
    assert result.loss == pytest.approx(result.cross_entropy)


def test_clipping_scales_the_gradient() -> None:
    network = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    before = network.weight.detach().clone()
    result = update(Toy(network, factor=100.0), optimizer, [EMPTY], 1.0, max_grad_norm=0.5)
    assert result.grad_norm > 50
    assert (network.weight - before).norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(("factor", "max_loss"), [(math.nan, math.inf), (math.inf, math.inf), (100.0, 20.0)])
def test_a_diverged_loss_does_not_change_the_weights(factor: float, max_loss: float) -> None:
    network = nn.Linear(2, 1, bias=False)
    before = network.weight.detach().clone()
    with pytest.raises(DivergedError):
        update(Toy(network, factor), build_optimizer(network, AdamConfig()), [EMPTY], 1.0, max_loss=max_loss)
    assert torch.equal(network.weight, before)


def test_a_gradient_that_is_nan_is_detected_although_the_loss_is_finite() -> None:
    network = nn.Linear(2, 1, bias=False)
    network.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(DivergedError, match="norm nan"):
        update(Toy(network, 1.0), build_optimizer(network, AdamConfig()), [EMPTY], 1.0)


class Toy(nn.Module):
    """The loss of one target: the factor times the sum of absolute weights."""

    def __init__(self, network: nn.Linear, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, batch: TokenBatch):  # type: ignore[no-untyped-def]
        from regard.training.losses import Loss

        loss = self.network.weight.abs().sum() * self.factor
        return Loss(loss, loss.detach(), 1)


EMPTY = TokenBatch(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long))
