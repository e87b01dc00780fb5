"""The operations and the memory of one forward and backward pass, recorded without computing anything.

The network and its loss run on fake tensors, which have shapes and types but no data, so that a network of any size is
traced in seconds and without memory. What is recorded are the operations of the code that would really run: on a CPU
the fast paths of `nn/cpu/`, on other devices the plain formulas with PyTorch's fused attention.

Each operation has a kind, whose costs a device has a rate for, with its FLOPs, the bytes that it reads and writes, and
the elements that it computes. Memory is followed from allocation to release, which gives the peak of a step.
"""

import math
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from regard.config import Config, EncoderOnlyConfig
from regard.models import Network, build
from regard.models.network import EncoderNetwork
from regard.nn import Block, cpu
from regard.nn.experts import MixtureOfExperts
from regard.nn.feed_forward import FeedForward, GatedFeedForward
from regard.nn.functional import autocast
from regard.nn.multihead import MultiHeadAttention
from regard.training.batches import TokenBatch
from regard.training.losses import CausalLMObjective, smoothed_cross_entropy, training_objective

Kind = Literal["matmul", "batched matmul", "attention", "elementwise", "transcendental", "random", "gather", "view"]
MATMULS = ("mm", "addmm", "addmm_")
BATCHED_MATMULS = ("bmm", "baddbmm")
TRANSCENDENTAL = (
    "exp", "exp_", "log", "gelu", "gelu_backward", "silu", "silu_backward", "_softmax", "_log_softmax",
    "_safe_softmax", "sin", "cos", "native_layer_norm", "_fused_rms_norm",
)  # fmt: skip
RANDOM = ("random_", "bernoulli_", "native_dropout")
GATHERS = (
    "index_select", "index", "embedding", "embedding_dense_backward", "gather", "scatter_add", "scatter_add_",
    "index_add_", "index_put", "index_put_", "index_copy_",
)  # fmt: skip
FREE = (  # without a kernel
    "view", "t", "transpose", "permute", "detach", "alias", "expand", "unsqueeze", "squeeze", "slice", "select",
    "split", "split_with_sizes", "unbind", "_unsafe_view", "empty", "empty_like", "new_empty", "as_strided",
)  # fmt: skip
DIVISIBLE = (MultiHeadAttention, FeedForward, GatedFeedForward)  # what tensor parallelism divides
MASKED_FRACTION = 0.15  # of tokens that a masked language model predicts


@dataclass
class Work:
    """The operations of one kind: their number, FLOPs, bytes read and written, and elements computed."""

    calls: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    elements: float = 0.0

    def add(self, flops: float, size: float, elements: float) -> None:
        """Add one operation."""
        self.calls, self.flops = self.calls + 1, self.flops + flops
        self.bytes, self.elements = self.bytes + size, self.elements + elements

    def mix(self, other: "Work", weight: float) -> "Work":
        """Return the point at `weight` on the line through this work (0) and another (1)."""
        return Work(*(a + (b - a) * weight for a, b in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[float, float, float, float]:
        return self.calls, self.flops, self.bytes, self.elements


@dataclass
class StepTrace:
    """What one forward and backward pass of a micro-batch costs."""

    forward: dict[str, Work] = field(default_factory=lambda: defaultdict(Work))
    backward: dict[str, Work] = field(default_factory=lambda: defaultdict(Work))
    divisible: dict[str, float] = field(default_factory=dict)
    """Share of the forward operations of each kind that are inside attention and feed-forward layers."""
    block_share: float = 0.0
    """Share of the forward FLOPs that are inside blocks, which gradient checkpointing computes twice."""
    activations: float = 0.0
    """Peak bytes besides weights and their gradients."""
    peak: float = 0.0
    """Peak bytes besides weights: activations and the gradients that exist at that time."""
    saved_divisible: float = 0.0
    """Bytes saved for the backward pass inside attention and feed-forward layers."""
    saved_in_blocks: float = 0.0
    block_inputs: float = 0.0
    blocks: int = 0

    @property
    def checkpointed_activations(self) -> float:
        """Activations if each block keeps only its input, and is computed again in the backward pass."""
        if not self.blocks:
            return self.activations
        return self.activations - self.saved_in_blocks * (1 - 1 / self.blocks) + self.block_inputs

    def at(self, other: "StepTrace", weight: float) -> "StepTrace":
        """Return the trace at `weight` on the line through this trace (0) and another (1); costs grow linearly."""
        numbers: dict[str, Any] = {
            name: getattr(self, name) + (getattr(other, name) - getattr(self, name)) * weight
            for name in ("activations", "peak", "saved_divisible", "saved_in_blocks", "block_inputs")
        }
        return replace(
            self,
            forward={kind: work.mix(other.forward[kind], weight) for kind, work in self.forward.items()},
            backward={kind: work.mix(other.backward[kind], weight) for kind, work in self.backward.items()},
            **numbers,
        )


def trace_step(config: Config, rows: int, length: int, dtype: torch.dtype, *, on_cpu: bool) -> StepTrace:
    """Trace a forward and a backward pass over `rows` sequences of `length` tokens.

    Args:
        config: settings of a Transformer and of its training.
        rows: sequences; of pairs, if the network translates.
        length: tokens of each sequence, and of each source.
        dtype: type of matrix products.
        on_cpu: trace the fast paths for CPUs instead of the plain code.
    """
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode())
        network = build(config.model).train()
        for module in network.modules():
            if isinstance(module, MixtureOfExperts):  # numbers of tokens depend on data: each expert gets equally many
                vars(module)["loads"] = partial(_even_loads, len(module.experts))
        recorder = _Recorder(network, length)
        if not on_cpu:
            stack.enter_context(cpu.disabled())
            stack.enter_context(_FusedAttention(recorder))
        ids = torch.zeros(rows, length, dtype=torch.long)
        with recorder, recorder.scopes(network), autocast(dtype, torch.device("cpu")):
            loss = _loss(network, config, ids)
        recorder.phase = recorder.trace.backward
        with recorder:
            loss.backward()
        return recorder.result(network)


def _even_loads(experts: int, chosen: Tensor) -> list[int]:
    return [chosen.numel() // experts + (n < chosen.numel() % experts) for n in range(experts)]


def _loss(network: Network, config: Config, ids: Tensor) -> Tensor:
    smoothing = config.training.label_smoothing
    if isinstance(network, EncoderNetwork):
        states = network.encode(ids).states
        if not (isinstance(config.model, EncoderOnlyConfig) and config.model.fills_masks):
            return network.logits(network.pool(network.encode(ids))).sum() if network.head else states.sum()
        predicted = states[:, : math.ceil(MASKED_FRACTION * ids.size(1))]
        logits = network.logits(predicted).flatten(0, -2)
        return smoothed_cross_entropy(logits, ids.flatten()[: len(logits)], smoothing).loss
    objective = training_objective(CausalLMObjective(network, smoothing), config.training)
    loss: Tensor = objective(TokenBatch(ids, ids, source=ids if config.model.translates else None)).loss
    return loss


class _Recorder(TorchDispatchMode):
    """Records every operation, and the life of every block of memory."""

    def __init__(self, network: nn.Module, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = StepTrace()
        self.phase = self.trace.forward
        self.inside: list[str] = []  # of divisible layers and blocks, innermost last
        self._length = length
        self._weights = {_storage_id(parameter) for parameter in network.parameters()}
        self._weights |= {_storage_id(buffer) for buffer in network.buffers()}
        self._events: list[tuple[int, int]] = []  # number of a storage and bytes, negative when released
        self._watched: dict[int, tuple[int, Any]] = {}  # number of each storage that exists; addresses are used again
        self._numbers = count()
        self._divided: dict[str, Work] = defaultdict(Work)
        self._blocks: dict[str, Work] = defaultdict(Work)
        self._saved: dict[int, tuple[float, bool, bool]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:  # a number that depends on data: the longest position
            return self._length - 1 if not args[0].is_floating_point() else 0.0
        out = func(*args, **(kwargs or {}))
        if func.namespace == "aten":
            self._record(func.overloadpacket.__name__, _tensors(args), _tensors(out))
        return out

    def _record(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        for tensor in outputs:
            self._watch(tensor)
        kind, flops = _kind(name), 0.0
        if kind in ("matmul", "batched matmul"):
            flops = 2.0 * outputs[0].numel() * inputs[-1].size(-2)
        elif kind == "attention":
            flops = _attention_flops(name, inputs)
        size = 0.0 if kind == "view" else float(sum(_bytes(tensor) for tensor in (*inputs, *outputs)))
        if kind == "gather":  # of a large table, only the rows that are selected are read
            size = 2.0 * sum(_bytes(tensor) for tensor in outputs)
        self.add(kind, flops, size, float(sum(tensor.numel() for tensor in outputs)))

    def add(self, kind: Kind, flops: float, size: float, elements: float) -> None:
        """Count one operation."""
        self.phase[kind].add(flops, size, elements)
        if self.phase is self.trace.forward and "layer" in self.inside:
            self._divided[kind].add(flops, size, elements)
        if self.phase is self.trace.forward and "block" in self.inside:
            self._blocks[kind].add(flops, size, elements)

    def _watch(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._watched or key in self._weights:
            return
        size, number = storage.nbytes(), next(self._numbers)
        self._events.append((number, size))

        def release(_: Any) -> None:
            self._watched.pop(key, None)
            self._events.append((number, -size))

        self._watched[key] = number, weakref.ref(storage, release)

    @contextmanager
    def scopes(self, network: nn.Module) -> Iterator[None]:
        """Know, during the forward pass, which layer is computed, and what is saved for the backward pass."""
        hooks = []
        for module in network.modules():
            name = "layer" if isinstance(module, DIVISIBLE) else "block" if isinstance(module, Block) else None
            if name is not None:
                hooks.append(module.register_forward_pre_hook(self._enter(name)))
                hooks.append(module.register_forward_hook(self._leave))
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str) -> Any:
        def hook(module: nn.Module, arguments: Any) -> None:
            self.inside.append(name)
            if name == "block":
                self.trace.blocks += 1
                self.trace.block_inputs += _bytes(arguments[0])

        return hook

    def _leave(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self.inside.pop()

    def _save(self, tensor: Tensor) -> Tensor:
        key = _storage_id(tensor)
        if key not in self._weights and key not in self._saved:
            size = tensor.untyped_storage().nbytes()
            self._saved[key] = float(size), "layer" in self.inside, "block" in self.inside
        return tensor

    def result(self, network: nn.Module) -> StepTrace:
        """Return the trace, with the peak of memory."""
        trace = self.trace
        tensors = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        gradients = {self._watched[_storage_id(tensor)][0] for tensor in tensors}
        trace.peak = _peak(self._events, set())
        trace.activations = _peak(self._events, gradients)
        saved = self._saved.values()
        trace.saved_divisible = sum(size for size, divisible, _ in saved if divisible)
        trace.saved_in_blocks = sum(size for size, _, in_block in saved if in_block)
        forward = trace.forward
        trace.divisible = {
            kind: (self._divided[kind].flops / work.flops if work.flops else self._divided[kind].bytes / work.bytes)
            for kind, work in forward.items()
            if work.flops or work.bytes
        }
        total = sum(work.flops for work in forward.values())
        trace.block_share = sum(work.flops for work in self._blocks.values()) / total if total else 0.0
        return trace


class _FusedAttention(TorchFunctionMode):
    """Replaces attention by one operation that saves what FlashAttention saves: q, k, v, the output and a logarithm."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            is_causal = (kwargs or {}).get("is_causal", False)
            return _Fused.apply(*args[:3], is_causal, self._recorder)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, recorder: _Recorder) -> Tensor:
        out = q.new_empty(*q.shape[:3], v.size(-1))
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:3], dtype=torch.float32))
        # two products over all keys, of which a causal mask leaves half; each tensor is read or written once
        ctx.flops = 2.0 * q.shape[:3].numel() * k.size(2) * (q.size(3) + v.size(3)) / (2 if causal else 1)
        ctx.recorder = recorder
        recorder.add("attention", ctx.flops, sum(map(_bytes, (q, k, v, out))), out.numel())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, _ = ctx.saved_tensors
        gradients = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        size = sum(map(_bytes, (q, k, v, out, gradient, *gradients)))
        ctx.recorder.add("attention", 2.5 * ctx.flops, size, q.numel())  # the scores are computed again
        return (*gradients, None, None)


def _kind(name: str) -> Kind:
    if name in MATMULS:
        return "matmul"
    if name in BATCHED_MATMULS:
        return "batched matmul"
    if name.startswith("_scaled_dot_product"):
        return "attention"
    kinds: dict[Kind, tuple[str, ...]] = {
        "view": FREE, "random": RANDOM, "transcendental": TRANSCENDENTAL, "gather": GATHERS
    }  # fmt: skip
    return next((kind for kind, names in kinds.items() if name in names), "elementwise")


def _attention_flops(name: str, inputs: Sequence[Tensor]) -> float:
    """FLOPs of PyTorch's fused kernel for CPUs; its backward pass computes five products instead of two."""
    backward = "backward" in name
    q, k, v = inputs[1:4] if backward else inputs[:3]
    forward = 2.0 * q.shape[:3].numel() * k.size(2) * (q.size(3) + v.size(3))
    return 2.5 * forward if backward else forward


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_flatten(values)[0] if isinstance(value, Tensor)]


def _storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _peak(events: Sequence[tuple[int, int]], excluded: set[int]) -> float:
    live = peak = 0
    for storage, size in events:
        if storage not in excluded:
            live += size
            peak = max(peak, live)
    return float(peak)
