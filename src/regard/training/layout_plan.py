"""What a plan consists of: layouts of devices with their costs, the recommended one, and its settings and command."""

from dataclasses import asdict, dataclass
from typing import Any

from regard.config import Config
from regard.training.device_specs import DEVICES_PER_NODE, Device


@dataclass(frozen=True)
class DeviceLayout:
    """How devices are arranged: `data` groups, among which batches are divided, of `tensor` devices each."""

    kind: str
    data: int = 1
    tensor: int = 1

    @property
    def name(self) -> str:
        """Name in the table."""
        return f"fsdp {self.data} × tensor {self.tensor}" if self.kind == "fsdp+tensor" else self.kind

    @property
    def shards(self) -> bool:
        """Whether FSDP divides weights, gradients and optimizer state."""
        return self.kind.startswith("fsdp")


@dataclass(frozen=True)
class LayoutPlan:
    """Costs of one layout, per device."""

    layout: DeviceLayout
    parameters: float
    """Parameters that a device stores."""
    weights: float
    gradients: float
    optimizer: float
    buffers: float
    """Bytes of gathered weights or of gradient buckets."""
    activations: float
    checkpointed_activations: float
    communication: float
    """Bytes that a device sends in a step."""
    compute_seconds: float
    recompute_seconds: float
    """Additional time with gradient checkpointing."""
    communication_seconds: float
    exposed_seconds: float
    """Communication that no computation hides."""
    optimizer_seconds: float
    tokens: float
    """Tokens of a step, of all devices."""
    flops: float
    """FLOPs of the model in a step, of all devices."""
    peak_flops: float
    """Of all devices, per second."""
    capacity: float
    """Bytes that a device has for training."""

    @property
    def memory(self) -> float:
        """Bytes that a device needs."""
        return self.weights + self.gradients + self.optimizer + self.buffers + self.activations

    @property
    def checkpointed_memory(self) -> float:
        """Bytes that a device needs with gradient checkpointing."""
        return self.memory - self.activations + self.checkpointed_activations

    @property
    def fits(self) -> bool:
        """Whether it fits without gradient checkpointing."""
        return self.memory <= self.capacity

    @property
    def seconds(self) -> float:
        """Time of a step."""
        return self.compute_seconds + self.exposed_seconds + self.optimizer_seconds

    @property
    def utilization(self) -> float:
        """FLOPs of the model per second, as a fraction of the peak."""
        return self.flops / self.seconds / self.peak_flops

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        derived = {name: getattr(self, name) for name in ("memory", "checkpointed_memory", "fits", "seconds")}
        layout = {"name": self.layout.name, **asdict(self.layout)}
        return {**asdict(self), **derived, "layout": layout, "utilization": self.utilization}


@dataclass(frozen=True)
class Plan:
    """All layouts that are possible, and the one that is recommended."""

    config: Config
    device: Device
    count: int
    length: int
    parameters: int
    active_parameters: int
    """Parameters that a token uses; fewer than all in a mixture of experts."""
    precision: str
    layouts: tuple[LayoutPlan, ...]
    recommended: LayoutPlan | None
    reason: str
    settings: tuple[str, ...] = ()
    """Settings that the recommendation needs, as for `--set`."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "parameters": self.parameters,
            "active_parameters": self.active_parameters,
            "device": self.device.name,
            "devices": self.count,
            "length": self.length,
            "precision": self.precision,
            "layouts": [plan.as_dict() for plan in self.layouts],
            "recommended": self.recommended.as_dict() if self.recommended else None,
            "reason": self.reason,
            "settings": list(self.settings),
            "notes": list(self.notes),
        }


def layout_settings(layout: DeviceLayout) -> tuple[str, ...]:
    """Return the settings of a layout, as for `--set`."""
    match layout.kind:
        case "ddp":
            return ("training.parallel=ddp",)
        case "fsdp":
            return ("training.parallel=fsdp",)
        case "tensor":
            return ("training.parallel=tensor",)
        case "fsdp+tensor":
            return ("training.parallel=fsdp", f"training.parallel.tensor_size={layout.tensor}")
        case _:
            return ()


def launch_command(plan: Plan, arguments: str) -> str:
    """Return the command that trains with the recommended layout; `arguments` are those of `regard train`."""
    settings = "".join(f" --set {setting}" for setting in plan.settings)
    if plan.count == 1:
        return f"regard train {arguments}{settings}"
    nodes, per_node = -(-plan.count // DEVICES_PER_NODE), min(plan.count, DEVICES_PER_NODE)
    rendezvous = f" --nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint HOST:29500" if nodes > 1 else ""
    return f"torchrun{rendezvous} --nproc-per-node {per_node} -m regard train {arguments}{settings}"
