"""Plan training on several devices: memory, communication and time of each layout, and which one to use.

    ddp            every device has the whole network, and a part of each batch; gradients are all-reduced
    fsdp           weights, gradients and optimizer state are divided too, and gathered block by block
    tensor         the devices share the heads and hidden units of each block, and have the same batch
    fsdp + tensor  groups of `tensor` devices share each block; the batch and the rest are divided among the groups

The cost model is a roofline: operations that `step_trace` records take the time of their FLOPs or of their memory
traffic (`device_specs`). Collectives are rings: of n devices, each sends (n − 1)/n of the data to gather or to reduce
it, and twice that for an all-reduce. On GPUs, up to `OVERLAP` of the computation hides the collectives of ddp and fsdp;
those of tensor parallelism are needed at once, and a CPU that copies messages does not compute.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from regard.config import Config, ModelConfig, TransformerConfig
from regard.errors import ConfigError
from regard.models import Network
from regard.models.assembly import build_meta
from regard.models.summary import summarize
from regard.nn import Block, MixtureOfExperts
from regard.training.device_specs import DEVICES_PER_NODE, DTYPES, GIB, Device
from regard.training.environment import small_for_bfloat16
from regard.training.layout_plan import DeviceLayout, LayoutPlan, Plan, layout_settings
from regard.training.parallel import sharding_obstacle, tensor_obstacle
from regard.training.step_trace import DIVISIBLE, StepTrace, Work, trace_step

WEIGHT_BYTES = GRADIENT_BYTES = AVERAGE_BYTES = 4  # per parameter, float32
OPTIMIZER_BYTES = 8  # per parameter: two float32 moments of Adam
UPDATE_BYTES = 32  # per parameter that an update reads and writes: weight, gradient twice, both moments
ALLOCATOR_OVERHEAD = {True: 1.4, False: 1.1}  # freed blocks whose size does not fit the next tensors, by `is_cpu`
RESERVED_BYTES = 1.0 * GIB  # of a GPU, by its driver and libraries
OVERLAP = 0.8
BUCKET_BYTES = 25e6  # of gradients that ddp reduces at once
SIMPLEST_WITHIN = 1.03  # a simpler layout is preferred if it takes at most this much longer


def make_plan(config: Config, device: Device, count: int, length: int) -> Plan:
    """Plan the training of these settings on `count` devices, with sequences of `length` tokens."""
    model = config.model
    if not isinstance(model, TransformerConfig):
        raise ConfigError(f"regard plan is for Transformers, and this network is of kind {model.kind}; pass another.")
    if model.max_length is not None and length > model.max_length:
        raise ConfigError(f"--length {length}: the network has {model.max_length:,} positions; use at most that.")
    costs = _Costs(config, device, count, length)
    layouts, notes = _layouts(config, count)
    if config.training.precision not in ("auto", costs.precision):
        notes.append(f"{device.name} is not faster in {config.training.precision}, so float32 is used.")
    if config.training.optimizer.whole_matrices:
        notes.append(f"Memory and time of training.optimizer = {config.training.optimizer.kind!r} are those of Adam.")
    if costs.rows < count:
        notes.append(f"A batch has {costs.rows:,} sequences of {length:,} tokens for {count:,} devices.")
    plans = tuple(costs.plan(layout) for layout in layouts)
    recommended, reason, settings = _recommend(costs, plans)
    return Plan(
        config,
        device,
        count,
        length,
        costs.sizes.total,
        costs.active_parameters,
        costs.precision,
        plans,
        recommended,
        reason,
        settings,
        tuple(notes),
    )


def optimizer_bytes(config: Config, parameters: float) -> float:
    """Bytes of the optimizer's state, and of the moving average of the weights."""
    return (OPTIMIZER_BYTES + (AVERAGE_BYTES if config.training.ema_decay else 0)) * parameters


def optimizer_seconds(config: Config, parameters: float, device: Device) -> float:
    """Time of an update, which reads and writes memory."""
    return device.stream_seconds((UPDATE_BYTES + (3 * AVERAGE_BYTES if config.training.ema_decay else 0)) * parameters)


def all_reduce_bytes(size: float, devices: int) -> float:
    """Bytes that each device sends to sum `size` bytes over all of them: 2 (n − 1) / n · size.

    >>> all_reduce_bytes(100, 4)
    150.0
    """
    return 2 * gather_bytes(size, devices)


def gather_bytes(size: float, devices: int) -> float:
    """Bytes that each device sends to gather, or to sum and divide, `size` bytes: (n − 1) / n · size."""
    return (devices - 1) / devices * size


@dataclass(frozen=True)
class _Sizes:
    """Numbers of parameters: all, those that tensor parallelism divides, and those of blocks."""

    total: int
    divisible: int
    in_blocks: int
    largest_block: int
    blocks: int
    sublayers: int
    outputs: int
    """Sublayers whose output is as large as a batch: of the experts of a layer, as many as a token uses."""

    @classmethod
    def of(cls, network: Network) -> "_Sizes":
        blocks = [module for module in network.modules() if isinstance(module, Block)]
        layers = [module for module in network.modules() if isinstance(module, DIVISIBLE)]
        sizes = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
        divisible = sum(parameter.numel() for layer in layers for parameter in layer.parameters())
        idle = sum(len(part.idle_experts) for part in network.modules() if isinstance(part, MixtureOfExperts))
        return cls(
            summarize(network).parameters,
            divisible,
            sum(sizes),
            max(sizes, default=0),
            len(blocks),
            len(layers),
            len(layers) - idle,
        )


class _Costs:
    """Costs of layouts for one network, batch and device."""

    def __init__(self, config: Config, device: Device, count: int, length: int, accumulation: int = 1) -> None:
        """`accumulation` divides the batches further: that many more of them make up an update."""
        self.config, self.device, self.count, self.length = config, device, count, length
        self.rows = max(1, config.training.batch_tokens // accumulation // length)
        self.accumulation = config.training.gradient_accumulation * accumulation
        precision = config.training.precision
        if precision == "auto":
            precision = "float32" if small_for_bfloat16(config) else "bfloat16"
        self.precision = device.precision(precision)
        network = build_meta(config.model)
        self.sizes = _Sizes.of(network)
        summary = summarize(network, length)
        self.flops_per_token, self.active_parameters = summary.training_flops, summary.active_parameters
        self._trace = cache(self._make_trace)

    def with_accumulation(self, factor: int) -> "_Costs":
        """Return the costs with smaller batches."""
        return _Costs(self.config, self.device, self.count, self.length, factor)

    def _make_trace(self, rows: int) -> StepTrace:
        """Trace a batch; costs grow linearly, so those between the smallest and the largest batch are interpolated."""
        smallest, largest = math.ceil(self.rows / self.count), self.rows
        if self.device.is_cpu or rows in (smallest, largest):
            return trace_step(self.config, rows, self.length, DTYPES[self.precision], on_cpu=self.device.is_cpu)
        return self._trace(smallest).at(self._trace(largest), (rows - smallest) / (largest - smallest))

    def plan(self, layout: DeviceLayout) -> LayoutPlan:
        """Return the costs of a layout."""
        sizes, training, device = self.sizes, self.config.training, self.device
        rows = max(1, math.ceil(self.rows / layout.data))
        trace = self._trace(rows)
        held = sizes.divisible / layout.tensor + sizes.total - sizes.divisible
        if layout.shards:
            held /= layout.data
        forward, backward = (
            device.seconds(_divided(work, trace.divisible, layout.tensor), self.precision)
            for work in (trace.forward, trace.backward)
        )
        saved = trace.saved_divisible * (1 - 1 / layout.tensor)
        overhead = ALLOCATOR_OVERHEAD[device.is_cpu]
        activations = overhead * (trace.activations - saved)
        checkpointed = min(activations, overhead * (trace.checkpointed_activations - saved / sizes.blocks))
        volume, seconds, exposed = self._communication(layout, rows, forward, backward)
        passes = 2 if training.rdrop else 1
        tokens = self.rows * self.length * self.accumulation
        return LayoutPlan(
            layout,
            parameters=held,
            weights=WEIGHT_BYTES * held,
            gradients=GRADIENT_BYTES * held,
            optimizer=optimizer_bytes(self.config, held),
            buffers=self._buffers(layout),
            activations=activations,
            checkpointed_activations=checkpointed,
            communication=volume,
            compute_seconds=self.accumulation * (forward + backward),
            recompute_seconds=self.accumulation * forward * trace.block_share,
            communication_seconds=seconds,
            exposed_seconds=exposed,
            optimizer_seconds=optimizer_seconds(self.config, held, device),
            tokens=tokens,
            flops=float(self.flops_per_token) * tokens * passes,
            peak_flops=device.peaks[self.precision] * (1 if device.is_cpu else self.count),
            capacity=device.memory / self.count if device.is_cpu else device.memory - RESERVED_BYTES,
        )

    @property
    def _gathered_bytes(self) -> int:
        """Bytes per parameter of gathered weights."""
        return 4 if self.precision == "float32" else 2

    def _buffers(self, layout: DeviceLayout) -> float:
        """Bytes of ddp's buckets; with fsdp of two gathered blocks, the gradients of one, and all outside of blocks."""
        sizes = self.sizes
        if layout.kind == "ddp":
            return GRADIENT_BYTES * sizes.total
        if not layout.shards:
            return 0.0
        block = sizes.largest_block / layout.tensor
        rest = sizes.total - sizes.in_blocks
        return block * (2 * self._gathered_bytes + GRADIENT_BYTES) + rest * (WEIGHT_BYTES + GRADIENT_BYTES)

    def _communication(
        self, layout: DeviceLayout, rows: int, forward: float, backward: float
    ) -> tuple[float, float, float]:
        """Return bytes sent per device, the time they take, and the part of it that nothing hides."""
        sizes, volume, seconds, exposed = self.sizes, 0.0, 0.0, 0.0
        overlap = 0.0 if self.device.is_cpu else OVERLAP
        if layout.tensor > 1:  # the output of each layer is summed, and so is the gradient of its input
            size = rows * self.length * self.config.model.width * self._gathered_bytes
            messages = 2 * sizes.sublayers * self.accumulation
            volume += 2 * sizes.outputs * self.accumulation * all_reduce_bytes(size, layout.tensor)
            seconds += self._ring(volume, 2 * messages, layout.tensor)
            exposed += seconds
        if layout.data > 1:
            divided = sizes.divisible / layout.tensor + sizes.total - sizes.divisible
            if layout.kind == "ddp":  # once per update, during the last backward pass
                sent = all_reduce_bytes(GRADIENT_BYTES * divided, layout.data)
                messages, hidden = 2 * math.ceil(GRADIENT_BYTES * divided / BUCKET_BYTES), overlap * backward
            else:  # weights are gathered for the forward and for the backward pass, gradients summed and divided
                per_batch = 2 * self._gathered_bytes + GRADIENT_BYTES
                sent = self.accumulation * gather_bytes(per_batch * divided, layout.data)
                messages = 3 * (sizes.blocks + 1) * self.accumulation
                hidden = overlap * self.accumulation * (forward + backward)
            time = self._ring(sent, messages, layout.data, rings=layout.tensor)
            volume, seconds, exposed = volume + sent, seconds + time, exposed + max(0.0, time - hidden)
        return volume, seconds, exposed

    def _ring(self, size: float, messages: float, devices: int, rings: int = 1) -> float:
        """Time to send `size` bytes around a ring in some messages; `rings` of them share the network of a node."""
        device = self.device
        across_nodes = devices * rings > DEVICES_PER_NODE
        rate = min(device.link, device.network / rings) if across_nodes else device.link
        return size / rate + messages * (devices - 1) * device.link_latency


def _divided(work: Mapping[str, Work], divisible: Mapping[str, float], tensor: int) -> dict[str, Work]:
    """Return the work of one of `tensor` devices; each still starts every operation."""
    divided = {}
    for kind, item in work.items():
        part = 1 - divisible.get(kind, 0.0) * (1 - 1 / tensor)
        divided[kind] = Work(item.calls, item.flops * part, item.bytes * part, item.elements * part)
    return divided


def _layouts(config: Config, count: int) -> tuple[list[DeviceLayout], list[str]]:
    """Return the layouts of a number of devices that `regard train` accepts, simplest first, and why others are not."""
    if count == 1:
        return [DeviceLayout("single device")], []
    layouts, notes = [DeviceLayout("ddp", count)], []
    obstacle = sharding_obstacle(config)
    if obstacle is not None:
        return layouts, [f"No fsdp or tensor layout: {obstacle.reason}."]
    layouts.append(DeviceLayout("fsdp", count))
    for size in _divisors(count):
        reason = _tensor_obstacle(config.model, size)
        if reason is None:
            layouts.append(
                DeviceLayout("tensor", 1, size) if size == count else DeviceLayout("fsdp+tensor", count // size, size)
            )
        elif size == count:
            notes.append(f"No tensor layout: {reason}.")
    return layouts, notes


def _divisors(count: int) -> Iterator[int]:
    """Yield the sizes of tensor groups: all devices first, then smaller groups."""
    yield from (size for size in (count, *range(2, count)) if count % size == 0)


def _tensor_obstacle(model: ModelConfig, size: int) -> str | None:
    if size > DEVICES_PER_NODE:
        return f"{size} devices are on several nodes, whose network is too slow for it"
    obstacle = tensor_obstacle(model, size, "devices")
    return None if obstacle is None else obstacle.reason


def _recommend(costs: _Costs, plans: tuple[LayoutPlan, ...]) -> tuple[LayoutPlan | None, str, tuple[str, ...]]:
    """Return the layout to use, why, and the settings that it needs besides its own."""
    best = _fastest(plans, lambda plan: plan.fits)
    if best is not None:
        return best, _why(best, plans), layout_settings(best.layout)
    factor = 2
    while factor < costs.rows * 2:  # smaller batches, more of them
        smaller = costs.with_accumulation(factor)
        best = _fastest(tuple(smaller.plan(plan.layout) for plan in plans), lambda plan: plan.fits)
        if best is not None and smaller.rows >= best.layout.data:
            batch = f"training.batch_tokens={smaller.rows * costs.length}"
            settings = (batch, f"training.gradient_accumulation={smaller.accumulation}")
            reason = (
                "no layout fits with batches of this size; with smaller ones, of which more make up an update, the "
                f"result is the same and {best.layout.name} is the fastest that fits"
            )
            return best, reason, (*settings, *layout_settings(best.layout))
        factor *= 2
    least = min(plans, key=lambda plan: plan.checkpointed_memory)
    if least.checkpointed_memory <= least.capacity:
        return None, f"no layout fits without gradient checkpointing, with which {least.layout.name} does", ()
    need = least.memory / GIB
    return None, f"no layout fits: {least.layout.name} needs {need:.1f} GiB per device; use more or larger devices", ()


def _fastest(plans: tuple[LayoutPlan, ...], accept: Callable[[LayoutPlan], bool]) -> LayoutPlan | None:
    """Return the fastest acceptable layout, or a simpler one that is nearly as fast."""
    accepted = [plan for plan in plans if accept(plan)]
    if not accepted:
        return None
    limit = SIMPLEST_WITHIN * min(plan.seconds for plan in accepted)
    return next(plan for plan in accepted if plan.seconds <= limit)


def _why(best: LayoutPlan, plans: tuple[LayoutPlan, ...]) -> str:
    if len(plans) == 1:
        return "it fits" if best.layout.data > 1 else "it fits on one device"
    too_large = [plan.layout.name for plan in plans if not plan.fits and plan.seconds < best.seconds]
    faster = [plan for plan in plans if plan.fits and plan.seconds < best.seconds]
    reason = "it is the fastest layout that fits"
    if faster:
        reason = "it is the simplest layout that fits, and within 3% of the fastest"
    return f"{reason}; {', '.join(too_large)} would be faster, but does not fit" if too_large else reason


def with_precision(config: Config, precision: str) -> Config:
    """Return the settings with another `training.precision`."""
    training = config.training.model_copy(update={"precision": precision})
    return config.model_copy(update={"training": training})


def faster_precision(plan: Plan) -> LayoutPlan | None:
    """Return the recommended layout in bfloat16, if the settings choose float32 and a step is faster in bfloat16."""
    is_automatic = plan.config.training.precision == "auto"
    if (
        is_automatic
        or plan.recommended is None
        or plan.precision != "float32"
        or plan.device.precision("bfloat16") == "float32"
    ):
        return None
    costs = _Costs(with_precision(plan.config, "bfloat16"), plan.device, plan.count, plan.length)
    faster = costs.plan(plan.recommended.layout)
    return faster if faster.seconds < plan.recommended.seconds else None
