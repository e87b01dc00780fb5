"""Optimizers, parameter groups with their own learning rate, weight decay or optimizer, and one optimizer step.

`training.parameter_groups` selects parameters by name or role; `training.layer_decay` lowers the learning rate layer by
layer. Without them, all parameters have one optimizer, and weight decay applies to matrices only.

`update` takes one step: it accumulates the gradients of some batches, checks, clips and applies them. The loss is a sum
over targets, divided by the number of targets in the whole update. So several small batches, or several processes with
a part of each batch, give the gradient of one large batch.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, overload

import torch
from torch import Tensor, nn

from regard.config import AdamConfig, AdamWConfig, OptimizerConfig, ParameterGroupConfig, ParameterRole
from regard.errors import ConfigError
from regard.nn.functional import autocast
from regard.training.batches import Batch
from regard.training.distributed import (
    SINGLE_PROCESS,
    ProcessGroup,
    canonical_name,
    clip_gradients,
    gradient_norm,
    mesh_of,
    no_sync,
)
from regard.training.load_balancing import LoadBalancing
from regard.training.muon import layer_matrices

ParameterGroup = dict[str, Any]
HEADS = ("head.", "pooling.", "mixing.", "output.")
FUSED_DEVICES = ("cpu", "cuda", "mps")
LAYER = re.compile(r"(?P<stack>.*?)\.?(?:layers|forwards|backwards)\.(?P<layer>\d+)\.")


def build_optimizer(
    network: nn.Module,
    config: OptimizerConfig,
    groups: Mapping[str, ParameterGroupConfig] | None = None,
    layer_decay: float = 1.0,
    matmul_dtype: torch.dtype = torch.float32,
) -> torch.optim.Optimizer:
    """The optimizer of all parameters of a network; a `CombinedOptimizer` if they have several.

    `update` sets the learning rate of each parameter group to the scheduled one times its `lr_multiplier`. Optimizers
    for whole matrices compute in `matmul_dtype`; in float32 instead of float16, whose range is too small.
    """
    dtype = torch.float32 if matmul_dtype == torch.float16 else matmul_dtype
    parameters = list(_assign(network, config, groups or {}, layer_decay, dtype))
    optimizers = []
    for optimizer in dict.fromkeys(parameter.optimizer for parameter in parameters):
        own = [parameter for parameter in parameters if parameter.optimizer == optimizer]
        optimizers.append(optimizer.build(_parameter_groups(own)))
    return optimizers[0] if len(optimizers) == 1 else CombinedOptimizer(optimizers)


@cache
def _without_compiler(optimizer: type[torch.optim.Adam]) -> type[torch.optim.Adam]:
    """The same optimizer without the import of `torch._dynamo`, which takes as long as that of torch itself.

    PyTorch imports it in methods that compiled programs must not contain, to mark them. No compiled program of ours
    contains an optimizer. Where PyTorch marks them in another way, nothing changes.
    """
    for method in vars(torch.optim.Optimizer).values():
        function = getattr(method, "__wrapped__", None)
        if function is not None and getattr(method, "__globals__", {}).get("__name__") == "torch._compile":
            vars(function).setdefault("__dynamo_disable", function)
    return type(optimizer.__name__, (optimizer,), {"step": torch.no_grad()(inspect.unwrap(optimizer.step))})


def build_adam(config: AdamConfig, parameter_groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
    """Builder of `adam`."""
    betas = (config.beta1, config.beta2)
    fused = supports_fused(parameter_groups)
    return _without_compiler(torch.optim.Adam)(parameter_groups, betas=betas, eps=config.epsilon, fused=fused)


def build_adamw(config: AdamWConfig, parameter_groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
    """Builder of `adamw`."""
    betas = (config.beta1, config.beta2)
    fused = supports_fused(parameter_groups)
    return _without_compiler(torch.optim.AdamW)(parameter_groups, betas=betas, eps=config.epsilon, fused=fused)


def supports_fused(parameter_groups: Sequence[ParameterGroup]) -> bool:
    """Whether PyTorch has kernels that update many parameters at once on the device of these."""
    return all(parameter.device.type in FUSED_DEVICES for group in parameter_groups for parameter in group["params"])


def parameter_role(name: str, parameter: Tensor) -> ParameterRole:
    """The role of a parameter: part of a head, an embedding, a norm or a bias, or any other matrix.

    >>> parameter_role("encoder.layers.0.attention_residual.norm.weight", torch.ones(4))
    'norm-bias'
    """
    if name.startswith(HEADS):
        return "head"
    if "embedding." in name:
        return "embedding"
    return "norm-bias" if parameter.dim() <= 1 else "matrix"


def layer_depths(names: Sequence[str]) -> dict[str, int]:
    """How many layers below the top each parameter is: 0 for heads, 1 for the top layer, the most for embeddings.

    >>> layer_depths(["encoder.embedding.weight", "encoder.layers.0.w", "encoder.layers.1.w", "head.w"])
    {'encoder.embedding.weight': 3, 'encoder.layers.0.w': 2, 'encoder.layers.1.w': 1, 'head.w': 0}
    """
    layers = {name: (match["stack"], int(match["layer"])) for name in names if (match := LAYER.match(name))}
    sizes: dict[str, int] = {}
    for stack, layer in layers.values():
        sizes[stack] = max(sizes.get(stack, 0), layer + 1)
    depths = {}
    for name in names:
        if name in layers:
            stack, layer = layers[name]
            depths[name] = sizes[stack] - layer
        elif "embedding." in name:
            stack = name.partition(".embedding.")[0]
            depths[name] = sizes.get(stack, max(sizes.values(), default=0)) + 1
        else:
            depths[name] = 0
    return depths


class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimizers, each for some of the parameters, that step together."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)  # the base class is not initialized: it would need parameters of its own

    @property
    def param_groups(self) -> list[ParameterGroup]:  # type: ignore[override]
        """The parameter groups of all optimizers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:  # type: ignore[override]
        """The state of all optimizers; `restore_optimizer` writes to theirs."""
        return {parameter: state for optimizer in self.optimizers for parameter, state in optimizer.state.items()}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Step all optimizers."""
        if closure is not None:
            raise NotImplementedError("optimizers that call a closure cannot be combined")
        for optimizer in self.optimizers:
            optimizer.step()
        return None


def single_optimizers(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The optimizers that a combined one consists of, or the optimizer itself."""
    return optimizer.optimizers if isinstance(optimizer, CombinedOptimizer) else [optimizer]


@dataclass(frozen=True)
class _Assignment:
    """A parameter with its optimizer and the settings of its parameter group."""

    parameter: nn.Parameter
    optimizer: OptimizerConfig
    settings: Mapping[str, object]


def _assign(
    network: nn.Module,
    default: OptimizerConfig,
    groups: Mapping[str, ParameterGroupConfig],
    layer_decay: float,
    matmul_dtype: torch.dtype,
) -> Iterator[_Assignment]:
    named = [(canonical_name(name), parameter) for name, parameter in network.named_parameters()]
    names = [name for name, _ in named]
    depths = layer_depths(names) if layer_decay != 1 else dict.fromkeys(names, 0)
    unmatched = {key: group for key, group in groups.items() if group.match is not None}  # a role may be absent
    matrices: dict[str, tuple[int, ...]] | None = None  # of Transformer layers, if an optimizer is for them
    for name, parameter in named:
        key = next((key for key, group in groups.items() if _matches(group, name, parameter)), None)
        group = groups[key] if key is not None else ParameterGroupConfig.model_construct()
        unmatched.pop(key or "", None)
        if not parameter.requires_grad:
            continue
        optimizer = group.optimizer or default
        settings: dict[str, object] = {}
        if optimizer.whole_matrices:
            matrices = _layer_matrices(network, optimizer) if matrices is None else matrices
            if name in matrices:
                settings = {"fused_sizes": matrices[name], "matmul_dtype": matmul_dtype}
            else:
                optimizer = optimizer.for_others
        own_multiplier = getattr(optimizer, "learning_rate_multiplier", 1.0)
        settings["lr_multiplier"] = group.learning_rate_multiplier * own_multiplier * layer_decay ** depths[name]
        decay = getattr(optimizer, "weight_decay", None)
        if decay is not None:
            default_decay = decay if parameter.dim() > 1 else 0.0
            settings["weight_decay"] = default_decay if group.weight_decay is None else group.weight_decay
        yield _Assignment(parameter, optimizer, settings)
    if unmatched:
        raise ConfigError(
            f"training.parameter_groups.{next(iter(unmatched))}: matches no parameter of the network that an earlier "
            f"group does not match; the names are such as {', '.join(names[:3])}."
        )


def _layer_matrices(network: nn.Module, optimizer: OptimizerConfig) -> dict[str, tuple[int, ...]]:
    matrices = layer_matrices(network)
    if not matrices:
        raise ConfigError(
            f"training.optimizer = {optimizer.kind!r} is for the matrices of Transformer layers, and this network has "
            "none; use 'adamw'."
        )
    return matrices


def _matches(group: ParameterGroupConfig, name: str, parameter: nn.Parameter) -> bool:
    by_name = group.match is None or re.search(group.match, name) is not None
    return by_name and (group.role is None or group.role == parameter_role(name, parameter))


def _parameter_groups(parameters: Sequence[_Assignment]) -> list[ParameterGroup]:
    """Parameters with equal settings together, as torch's optimizers take them; matrices before vectors.

    Parameters that are divided among processes in different ways are in different groups.
    """
    groups: dict[tuple[object, tuple[tuple[str, object], ...]], list[nn.Parameter]] = {}
    decay = any("weight_decay" in parameter.settings for parameter in parameters)
    in_order = sorted(parameters, key=lambda assignment: assignment.parameter.dim() <= 1) if decay else parameters
    for assignment in in_order:
        key = (mesh_of(assignment.parameter), tuple(assignment.settings.items()))
        groups.setdefault(key, []).append(assignment.parameter)
    return [{"params": members, **dict(settings)} for (_, settings), members in groups.items()]


@dataclass(frozen=True)
class UpdateResult:
    """Sums over the targets of an update, and the norm of its gradient."""

    loss: float  # what was minimized
    cross_entropy: float  # negative log-likelihood in nats
    targets: int
    grad_norm: float  # before clipping
    balance: float = 0.0  # load-balancing loss of a mixture of experts, without its weight


class DivergedError(Exception):
    """The loss or its gradient is not finite, or the loss is too large; the weights were not changed."""


def update(
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    learning_rate: float,
    *,
    max_grad_norm: float = 0.0,
    max_loss: float = math.inf,
    matmul_dtype: torch.dtype = torch.float32,
    scaler: "LossScaler | None" = None,
    process_group: ProcessGroup = SINGLE_PROCESS,
    balancing: LoadBalancing | None = None,
) -> UpdateResult:
    """Take one optimizer step on these batches; a loss per target above `max_loss` raises DivergedError.

    Matrix products are computed in `matmul_dtype`; weights, updates and losses keep the dtype of the weights. With
    float16, `scaler` keeps gradients from underflowing; a step whose gradients overflow is skipped.

    Of a GPU only a few numbers are read, all at once, before the weights are changed.
    """
    optimizer.zero_grad(set_to_none=True)
    targets, device = sum(total_targets(batch, process_group) for batch in batches), process_group.device
    number_type = torch.float32 if device.type == "mps" else torch.float64
    sums = torch.zeros(2 if balancing is None else 3, dtype=number_type, device=device)
    for number, batch in enumerate(batches, start=1):
        shard = batch.local(process_group.rank, process_group.world_size, device)
        weight = process_group.world_size / targets  # gradients are averaged over processes, and should be summed
        if shard.examples == 0:  # fewer examples than processes: take part with weight 0
            shard, weight = batch.local(0, process_group.world_size, device), 0.0
        with no_sync(objective) if number < len(batches) else nullcontext():
            with autocast(matmul_dtype, process_group.device), balancing.recording() if balancing else nullcontext():
                loss = objective(shard)
            minimized, parts = loss.loss, [loss.cross_entropy]
            if balancing is not None:
                total = total_targets(batch, process_group)
                balance = balancing.loss(total, process_group, counts=weight > 0)
                minimized, parts = minimized + balance.weighted, [loss.cross_entropy, balance.value]
            scaled = minimized * weight
            (scaled if scaler is None else scaler.scale(scaled)).backward()
        if weight:
            sums += torch.stack([minimized.detach(), *parts]).to(sums.dtype)
    sums = process_group.sum(sums)
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if scaler is not None:
        scaler.unscale(optimizer)
    norm = gradient_norm(parameters)
    total_loss, cross_entropy, *balance_sum, grad_norm = torch.cat([sums, norm.to(sums.dtype)[None]]).tolist()
    overflow = scaler is not None and not math.isfinite(grad_norm) and scaler.can_shrink()
    # Some kernels hide a NaN from the loss, but none from every gradient: check the norm too.
    if not (math.isfinite(grad_norm) or overflow) or not total_loss / targets < max_loss:
        raise DivergedError(f"the loss is {total_loss / targets:.4g} and the gradient norm {grad_norm:.4g}")
    if scaler is not None:
        scaler.update()
    if overflow:
        return UpdateResult(total_loss, cross_entropy, targets, 0.0, sum(balance_sum))
    if max_grad_norm:
        clip_gradients(parameters, max_grad_norm, norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_multiplier", 1.0)
    optimizer.step()
    return UpdateResult(total_loss, cross_entropy, targets, grad_norm, sum(balance_sum))


def total_targets(batch: Batch, process_group: ProcessGroup) -> int:
    """The number of targets of a whole batch; where only its rows tell, processes add those of the rows they read."""
    if batch.known_targets is not None:
        return batch.known_targets
    if "targets" not in batch.memo:
        rows = batch.local(process_group.rank, process_group.world_size, process_group.device)
        targets = (rows.host or rows).targets
        if process_group.world_size > 1:
            targets = int(process_group.sum(torch.tensor(targets, device=process_group.device)))
        batch.memo["targets"] = targets
    return int(batch.memo["targets"])


class LossScaler(torch.amp.GradScaler):
    """Scales the loss so that gradients do not underflow in float16 (Micikevicius et al. 2018).

    The scale is halved after a step whose gradients overflow, and doubled after 2,000 steps without one.
    """

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of all parameters by the scale."""
        for single in single_optimizers(optimizer):
            self.unscale_(single)

    def can_shrink(self) -> bool:
        """Whether a smaller scale may help against an overflow; below 1 the gradients themselves overflow."""
        return self.get_scale() > 1.0

    def tensors(self) -> dict[str, Tensor]:
        """The state, for a checkpoint."""
        state = self.state_dict()
        return {
            "scale": torch.tensor(state["scale"], dtype=torch.float64),
            "growth_tracker": torch.tensor(state["_growth_tracker"]),
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the state of a checkpoint; without one, from the initial scale."""
        if tensors:
            scale, tracker = float(tensors["scale"]), int(tensors["growth_tracker"])
            self.load_state_dict({**self.state_dict(), "scale": scale, "_growth_tracker": tracker})
