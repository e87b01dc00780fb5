"""Variants registered by other packages: position schemes, attention kernels, optimizers and schedules."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import torch
from pydantic import Field

from regard import nn as rn
from regard.config import (
    ATTENTION,
    OPTIMIZERS,
    POSITIONS,
    SCHEDULES,
    AttentionConfig,
    Config,
    OptimizerConfig,
    PositionsConfig,
    ScheduleConfig,
    TransformerConfig,
    VariantConfig,
    load_config,
    to_toml,
)
from regard.errors import ConfigError
from regard.models import build
from regard.registry import Registry
from regard.training.optimizers import build_optimizer
from regard.training.schedules import build_schedule


class ShiftedPositionsConfig(PositionsConfig):
    """Learned positions that start at an offset."""

    kind: Literal["shifted"] = "shifted"
    max_length: Annotated[int, Field(gt=0)] = 16
    """Longest sequence."""


class DoubledAttentionConfig(AttentionConfig):
    """Full attention with doubled scores."""

    causal: ClassVar[bool] = False
    kind: Literal["doubled"] = "doubled"


class SgdConfig(OptimizerConfig):
    """Plain stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    momentum: float = 0.0
    """Momentum."""


class LinearScheduleConfig(ScheduleConfig):
    """Linear decay."""

    kind: Literal["linear"] = "linear"
    learning_rate: float = 0.1
    """Peak learning rate."""


def build_positions(config: ShiftedPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    return rn.LearnedPositions(config.max_length, model.width)


def build_attention(
    config: DoubledAttentionConfig, model: TransformerConfig, *, encoder: bool
) -> Callable[[], rn.AttentionKernel]:
    return lambda: rn.FullAttention(2.0, model.attention_dropout)


def build_sgd(config: SgdConfig, parameter_groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameter_groups, momentum=config.momentum)


def build_linear(config: LinearScheduleConfig, width: int, steps: int) -> Callable[[int], float]:
    return lambda step: config.learning_rate * (1 - step / steps)


ShiftedPositionsConfig.builder = staticmethod(build_positions)
SgdConfig.builder = staticmethod(build_sgd)
LinearScheduleConfig.builder = staticmethod(build_linear)
DoubledAttentionConfig.builder = f"{__name__}:build_attention"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    variants: list[tuple[Registry[Any], type[VariantConfig]]] = [
        (POSITIONS, ShiftedPositionsConfig),
        (ATTENTION, DoubledAttentionConfig),
        (OPTIMIZERS, SgdConfig),
        (SCHEDULES, LinearScheduleConfig),
    ]
    for registry, config in variants:
        monkeypatch.setattr(registry, "_objects", dict(registry._objects))
        registry.register(config.model_fields["kind"].default)(config)


def test_registered_variants_are_loaded_from_names_and_tables() -> None:
    config = load_config(
        "tiny",
        [
            "model.positions=shifted",
            "model.positions.max_length=9",
            "training.optimizer={kind='sgd', momentum=0.9}",
            "training.schedule=linear",
        ],
    )
    assert isinstance(config.model, TransformerConfig)
    assert config.model.positions == ShiftedPositionsConfig(max_length=9)
    assert config.model.max_length == 9
    assert config.training.optimizer == SgdConfig(momentum=0.9)
    assert config.training.schedule == LinearScheduleConfig()
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert 'positions.kind = "shifted"' in to_toml(config)


def test_a_table_of_another_kind_keeps_the_settings_of_both_kinds() -> None:
    config = load_config("gpt-small", ["model.positions=shifted"])
    assert isinstance(config.model, TransformerConfig)
    assert config.model.positions == ShiftedPositionsConfig(max_length=1024)


def test_registered_positions_and_attention_are_built() -> None:
    model = load_config("tiny", ["model.positions=shifted", "model.attention=doubled", "model.vocab_size=11"]).model
    network = build(model)
    memory = network.encode(torch.tensor([[4, 5, 6]]))
    assert memory.states.shape == (1, 3, 128)
    with pytest.raises(Exception, match="16"):
        network.encode(torch.zeros(1, 17, dtype=torch.long))


def test_a_file_with_config_builder_and_module_needs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "plugin" / "src")
    path = "regard_plugin_example.positions:LogDistancePositionsConfig"
    monkeypatch.delitem(sys.modules, "regard_plugin_example.positions", raising=False)  # other tests import it
    monkeypatch.setattr(POSITIONS, "_paths", {**POSITIONS._paths, "log-distance": path})
    assert "log-distance" in POSITIONS.names()
    assert "regard_plugin_example.positions" not in sys.modules
    network = build(load_config("tiny", ["model.positions=log-distance", "model.vocab_size=11"]).model)
    assert any(name.endswith("slope") for name, _ in network.named_parameters())


def test_registered_optimizer_and_schedule_are_built() -> None:
    sets = ["training.optimizer={kind='sgd', momentum=0.9}", "training.schedule=linear"]
    training = load_config("tiny", sets).training
    optimizer = build_optimizer(torch.nn.Linear(2, 3), training.optimizer)
    assert isinstance(optimizer, torch.optim.SGD)
    assert {group["momentum"] for group in optimizer.param_groups} == {0.9}
    assert build_schedule(training.schedule, width=8, steps=10)(5) == 0.05


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            ["model.positions=shiftd"],
            "--set model.positions=shiftd: model.positions.kind = 'shiftd' should be 'alibi', 'buckets', 'learned', "
            "'none', 'relative', 'rotary', 'shifted', 'sinusoidal' or 'syntax' (did you mean shifted?).",
        ),
        (
            ["model.positions={kind='shifted', max_lenght=3}"],
            "--set model.positions={kind='shifted', max_lenght=3}: model.positions.max_lenght is not a setting; "
            "did you mean model.positions.max_length?",
        ),
        (
            ["model.positions={kind='shifted', max_length=0}"],
            "--set model.positions={kind='shifted', max_length=0}: model.positions.max_length = 0 should be greater "
            "than 0.",
        ),
        (
            ["model=decoder-only", "model.attention=doubled"],
            "--set model.attention=doubled: model.attention.kind = 'doubled' attends to later positions, which a "
            "decoder must not: use 'window' or 'full'.",
        ),
        (
            ["training.optimizer=sdg"],
            "--set training.optimizer=sdg: training.optimizer.kind = 'sdg' should be 'adam', 'adamw', 'muon' or 'sgd' "
            "(did you mean sgd?).",
        ),
        (
            ["training.schedule={kind='linear', learning_rate='high'}"],
            "--set training.schedule={kind='linear', learning_rate='high'}: training.schedule.learning_rate = 'high' "
            "should be a valid number.",
        ),
    ],
)
def test_errors_name_registered_variants_and_their_settings(sets: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config("tiny", sets)
    assert str(error.value) == message


@pytest.mark.parametrize("builder", ["", "no_such_module:build", "regard.config:no_such_function"])
def test_a_builder_that_cannot_be_loaded_is_an_error(builder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SgdConfig, "builder", builder)
    with pytest.raises(ConfigError, match=r"the builder '.*' of 'sgd' \(optimizers\) cannot be loaded"):
        SgdConfig().load_builder()


def test_a_value_error_of_a_builder_names_the_variant() -> None:
    with pytest.raises(
        ConfigError, match=r"^'sgd' \(optimizers\): Invalid momentum value: -1\.0; change its settings\.$"
    ):
        build_optimizer(torch.nn.Linear(2, 3), SgdConfig(momentum=-1.0))


@pytest.mark.parametrize("registry", [POSITIONS, ATTENTION, OPTIMIZERS, SCHEDULES], ids=lambda registry: registry.group)
def test_a_kind_is_registered_under_its_own_name(registry: Registry[type[VariantConfig]]) -> None:
    for name, config in registry.items():
        assert config.model_fields["kind"].default == name
        assert config.__doc__
        assert callable(config(kind=name).load_builder())


def test_turns_of_a_rotary_scaling_are_ordered() -> None:
    scaling = 'model.positions={kind="rotary", scaling={kind="llama3", factor=8, original_length=64, low_turns=5}}'
    with pytest.raises(ConfigError, match=r"high_turns = 4\.0 should be more than low_turns = 5: use 20"):
        load_config("llama-tiny", [scaling])
