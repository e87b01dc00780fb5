"""Muon (Jordan et al. 2024) for matrices, by `torch.optim.Muon`. Other parameters need a group with another optimizer:

    [training]
    optimizer = { kind = "muon", momentum = 0.95 }

    [training.parameter_groups]
    embeddings = { role = "embedding", optimizer = "adamw" }
    heads = { role = "head", optimizer = "adamw" }
    norms = { role = "norm-bias", optimizer = "adamw" }

A role that the network has no parameters of, such as `head` with a tied output projection, is an empty group.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from regard.config import OptimizerConfig


class MuonConfig(OptimizerConfig):
    """Settings of Muon."""

    kind: Literal["muon"] = "muon"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Momentum of the gradient before it is orthogonalized."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled weight decay."""
    builder: ClassVar[str] = "regard_plugin_example.muon:build"


def build(config: MuonConfig, parameter_groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """Return the optimizer of these parameter groups."""
    groups = [{"weight_decay": config.weight_decay, **group} for group in parameter_groups]
    return torch.optim.Muon(groups, momentum=config.momentum)
