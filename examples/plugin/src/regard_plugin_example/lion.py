"""Lion (Chen et al. 2023): steps of the sign of momentum, for parameters of any shape.

    [training]
    optimizer = { kind = "lion", weight_decay = 0.1 }

    [training.parameter_groups]
    norms = { role = "norm-bias", optimizer = "adamw" }

Each entry of a step is the learning rate or its negative: Lion needs about a tenth of the learning rate of AdamW.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from regard.config import OptimizerConfig


class LionConfig(OptimizerConfig):
    """Settings of Lion."""

    kind: Literal["lion"] = "lion"
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of momentum in the direction of a step; the rest is the gradient."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Decay of momentum."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled weight decay of matrices."""
    builder: ClassVar[str] = "regard_plugin_example.lion:build"


def build(config: LionConfig, parameter_groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """Return the optimizer of these parameter groups."""
    return Lion(parameter_groups, config.beta1, config.beta2)


class Lion(torch.optim.Optimizer):
    """Lion. Its state is one tensor per parameter, so checkpoints save and restore it."""

    def __init__(self, parameter_groups: Sequence[dict[str, Any]], beta1: float, beta2: float) -> None:
        super().__init__(parameter_groups, {"lr": 1e-4, "weight_decay": 0.0, "beta1": beta1, "beta2": beta2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                direction = state["momentum"].lerp(parameter.grad, 1 - group["beta1"]).sign_()
                state["momentum"].lerp_(parameter.grad, 1 - group["beta2"])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(direction, alpha=-group["lr"])
