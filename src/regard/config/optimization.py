"""Settings of optimizers, parameter groups and learning-rate schedules."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Count, NonNegativeFloat, PositiveFloat, Probability, VariantConfig
from regard.registry import Registry

ParameterRole = Literal["embedding", "matrix", "norm-bias", "head"]


class OptimizerConfig(VariantConfig):
    """An optimizer.

    The builder is called as `build(config, parameter_groups)` and returns a `torch.optim.Optimizer`.
    """

    default_kind: ClassVar[str] = "adam"
    whole_matrices: ClassVar[bool] = False
    """Whether it is for the matrices of Transformer layers only, each with one entry of `fused_sizes` for each matrix
    that it fuses; other parameters have the optimizer `for_others`."""

    @property
    def for_others(self) -> "OptimizerConfig":
        """The optimizer of parameters that this one is not for."""
        return self


OPTIMIZERS: Registry[type[OptimizerConfig]] = Registry("optimizers")
OptimizerConfig.registry = OPTIMIZERS


@OPTIMIZERS.register("adam")
class AdamConfig(OptimizerConfig):
    """Adam with the settings of the paper (§5.3)."""

    builder: ClassVar = "regard.training.optimizers:build_adam"
    kind: Literal["adam"] = "adam"
    """Name of the optimizer."""
    beta1: Probability = 0.9
    """Decay of the running mean of gradients."""
    beta2: Probability = 0.98
    """Decay of the running mean of squared gradients."""
    epsilon: PositiveFloat = 1e-9
    """Added to the denominator for numerical stability."""


@OPTIMIZERS.register("adamw")
class AdamWConfig(OptimizerConfig):
    """Adam with decoupled weight decay, applied to matrices only (Loshchilov & Hutter 2019)."""

    builder: ClassVar = "regard.training.optimizers:build_adamw"
    kind: Literal["adamw"] = "adamw"
    """Name of the optimizer."""
    beta1: Probability = 0.9
    """Decay of the running mean of gradients."""
    beta2: Probability = 0.98
    """Decay of the running mean of squared gradients."""
    epsilon: PositiveFloat = 1e-8
    """Added to the denominator for numerical stability."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of matrices; biases and norms have none."""


@OPTIMIZERS.register("muon")
class MuonConfig(OptimizerConfig):
    """Muon for the matrices of attention and feed-forward layers (Jordan et al. 2024), AdamW for everything else.

    Momentum is orthogonalized, queries, keys and values each on their own. Its updates are scaled to the size of those
    of AdamW (Liu et al. 2025), so that both use the same learning rate.
    """

    builder: ClassVar = "regard.training.muon:build_muon"
    whole_matrices: ClassVar[bool] = True
    kind: Literal["muon"] = "muon"
    """Name of the optimizer."""
    momentum: Probability = 0.95
    """Decay of the running mean of gradients, which is orthogonalized."""
    iterations: Annotated[int, Field(ge=1, le=20)] = 5
    """Newton-Schulz iterations of the orthogonalization."""
    learning_rate_multiplier: PositiveFloat = 1.0
    """Factor of the scheduled learning rate for the matrices."""
    beta1: Probability = 0.9
    """AdamW: decay of the running mean of gradients."""
    beta2: Probability = 0.98
    """AdamW: decay of the running mean of squared gradients."""
    epsilon: PositiveFloat = 1e-8
    """AdamW: added to the denominator for numerical stability."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of matrices, embeddings included; biases and norms have none."""

    @property
    def for_others(self) -> OptimizerConfig:
        """AdamW, for embeddings, heads, norms and biases."""
        return AdamWConfig(beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, weight_decay=self.weight_decay)


class ParameterGroupConfig(BaseConfig):
    """Settings of the parameters that a name pattern or a role selects; with both, parameters must match both."""

    match: str | None = None
    """Regular expression that is searched in parameter names, such as `encoder\\.layers\\.[01]\\.`."""
    role: ParameterRole | None = Field(default=None, validate_default=True)
    """`embedding`, `matrix`, `norm-bias` (vectors) or `head` (head, pooling, layer mixing and output projection)."""
    learning_rate_multiplier: NonNegativeFloat = 1.0
    """Factor of the scheduled learning rate."""
    weight_decay: NonNegativeFloat | None = None
    """Weight decay of all parameters of the group; by default that of the optimizer, for matrices only."""
    optimizer: OptimizerConfig | None = None
    """Optimizer of the group; by default `training.optimizer`."""

    @field_validator("match")
    @classmethod
    def _check_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @field_validator("role")
    @classmethod
    def _check_selection(cls, role: str | None, info: ValidationInfo) -> str | None:
        if role is None and info.data.get("match", "") is None:
            raise ValueError("or match is needed, to select parameters")
        return role


class ScheduleConfig(VariantConfig):
    """A learning-rate schedule: linear warmup, then what the variant says.

    The builder is called as `build(config, width, steps)` with the width of the network and the number of steps, and
    returns a function from the step, counted from 1, to the learning rate.
    """

    default_kind: ClassVar[str] = "inverse-sqrt"
    learning_rate: PositiveFloat | None = None
    """Peak learning rate, reached at the end of warmup."""
    warmup_steps: Count = 0
    """Steps of linear warmup."""


SCHEDULES: Registry[type[ScheduleConfig]] = Registry("schedules")
ScheduleConfig.registry = SCHEDULES


@SCHEDULES.register("inverse-sqrt")
class InverseSqrtScheduleConfig(ScheduleConfig):
    """Decay with the inverse square root of the step, as in the paper (§5.3)."""

    builder: ClassVar = "regard.training.schedules:build_inverse_sqrt"
    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    """Name of the schedule."""
    learning_rate: PositiveFloat | None = None
    """Peak learning rate, reached at the end of warmup; the default is the paper's, (width · warmup_steps)^-½."""
    warmup_steps: Count = 4000
    """Steps of linear warmup."""

    @field_validator("warmup_steps")
    @classmethod
    def _check_peak_is_defined(cls, steps: int, info: ValidationInfo) -> int:
        if steps == 0 and info.data.get("learning_rate", 1.0) is None:
            raise ValueError(
                "needs training.schedule.learning_rate: the paper's peak learning rate depends on the warmup"
            )
        return steps


@SCHEDULES.register("cosine")
class CosineScheduleConfig(ScheduleConfig):
    """Decay along a half cosine until the last step."""

    builder: ClassVar = "regard.training.schedules:build_cosine"
    kind: Literal["cosine"] = "cosine"
    """Name of the schedule."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate, reached at the end of warmup."""
    warmup_steps: Count = 100
    """Steps of linear warmup."""
    min_learning_rate: NonNegativeFloat = 0.0
    """Learning rate at the last step."""


@SCHEDULES.register("wsd")
class WsdScheduleConfig(ScheduleConfig):
    """Warmup, constant learning rate, then linear decay (warmup-stable-decay, Hu et al. 2024)."""

    builder: ClassVar = "regard.training.schedules:build_wsd"
    kind: Literal["wsd"] = "wsd"
    """Name of the schedule."""
    learning_rate: PositiveFloat = 1e-3
    """Learning rate after warmup."""
    warmup_steps: Count = 100
    """Steps of linear warmup."""
    decay_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Fraction of all steps in which the learning rate decays, at the end."""
    min_learning_rate: NonNegativeFloat = 0.0
    """Learning rate at the last step."""


@SCHEDULES.register("constant")
class ConstantScheduleConfig(ScheduleConfig):
    """Constant learning rate."""

    builder: ClassVar = "regard.training.schedules:build_constant"
    kind: Literal["constant"] = "constant"
    """Name of the schedule."""
    learning_rate: PositiveFloat = 1e-3
    """Learning rate after warmup."""
    warmup_steps: Count = 0
    """Steps of linear warmup."""


@SCHEDULES.register("plateau")
class PlateauScheduleConfig(ScheduleConfig):
    """Constant learning rate that is reduced each time validation stops improving."""

    builder: ClassVar = "regard.training.schedules:build_constant"
    kind: Literal["plateau"] = "plateau"
    """Name of the schedule."""
    learning_rate: PositiveFloat = 1e-3
    """Learning rate after warmup."""
    warmup_steps: Count = 0
    """Steps of linear warmup."""
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Factor of each reduction."""
    patience: Count = 2
    """Validations without improvement before a reduction."""
    min_learning_rate: NonNegativeFloat = 1e-6
    """Lower bound of the learning rate."""
