"""Measurements of a computation: its longest dependency chain, FLOPs, peak tensor memory and running time."""

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

Shape = Sequence[int]


# --- sequential operations --------------------------------------------------------------------------------------------


def longest_chain(result: Tensor) -> int:
    """Return the number of operations on the longest path from a leaf (such as a parameter) to a result.

    Each operation on the path needs the one before it, so this is the minimum number of sequential steps on any
    hardware. A fused kernel counts as one operation; to count its steps, compute them one by one.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> longest_chain(x.exp() + x.sin().cos())
    3
    """
    if result.grad_fn is None:
        return 0
    lengths: dict[Node, int] = {}
    stack = [result.grad_fn]
    while stack:  # not recursive: a chain may be longer than Python's recursion limit
        node = stack[-1]
        inputs = [parent for parent, _ in node.next_functions if parent is not None]
        unknown = [parent for parent in inputs if parent not in lengths]
        if unknown:
            stack += unknown
            continue
        stack.pop()
        lengths[node] = max((lengths[parent] for parent in inputs), default=0) + _is_operation(node)
    return lengths[result.grad_fn]


def _is_operation(node: Node) -> bool:
    return node.name() != "torch::autograd::AccumulateGrad"  # the gradient accumulator of a leaf


# --- FLOPs ------------------------------------------------------------------------------------------------------------
# B batch · H heads · T queries · S keys · D head width · R sequences · L steps · I input width · W state width


def flop_counter() -> FlopCounterMode:
    """Return a context manager that counts the FLOPs of matrix products, including those of backward passes.

    A multiply-add is two FLOPs. PyTorch's counter does not know the fused CPU kernels of attention and LSTM; their
    formulas are registered here and tested against the same layers computed step by step.

    >>> with flop_counter() as counter:
    ...     product = torch.ones(2, 3) @ torch.ones(3, 5)
    >>> counter.get_total_flops()
    60
    """
    aten: Any = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
            aten.mkldnn_rnn_layer: _recurrent_flops,
            aten.mkldnn_rnn_layer_backward: _recurrent_backward_flops,
        },
    )


def _attention_flops(query: Shape, key: Shape, value: Shape, *_: object, **__: object) -> int:
    """Return the FLOPs of scores and weighted sums: query (B, H, T, D), key and value (B, H, S, D)."""
    return 2 * 2 * math.prod(query) * key[-2]


def _attention_backward_flops(_: Shape, query: Shape, key: Shape, value: Shape, *__: object, **___: object) -> int:
    """Return the FLOPs of recomputed scores and the gradients of queries, keys, values and weights."""
    return 5 * 2 * math.prod(query) * key[-2]


def _recurrent_flops(x: Shape, x_weight: Shape, h_weight: Shape, *_: object, **__: object) -> int:
    """Return the FLOPs of both products in every step: x (L, R, I), x_weight (G·W, I), h_weight (G·W, W)."""
    steps, sequences, _width = x
    return 2 * steps * sequences * (math.prod(x_weight) + math.prod(h_weight))


def _recurrent_backward_flops(x: Shape, x_weight: Shape, h_weight: Shape, *_: object, **__: object) -> int:
    """Return the FLOPs of the gradients of both factors of each product."""
    return 2 * _recurrent_flops(x, x_weight, h_weight)


# --- memory -----------------------------------------------------------------------------------------------------------


class TensorMemory(TorchDispatchMode):
    """Context manager that counts the bytes of tensors created inside it, including those of backward passes.

    Tensors that existed before, and memory that a kernel frees before it returns, are not counted.

    >>> with TensorMemory() as memory:
    ...     x = torch.zeros(1000)  # 4,000 bytes
    ...     y = x.view(10, 100) + 1  # 4,000 more; the view has no storage of its own
    ...     del x
    ...     z = torch.zeros(10)
    >>> memory.current, memory.peak
    (4040, 8000)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = 0
        self.peak = 0
        self._counted = weakref.WeakSet[torch.UntypedStorage]()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        inputs = [x.untyped_storage() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        result = func(*args, **(kwargs or {}))
        for output in (x for x in tree_leaves(result) if isinstance(x, Tensor)):
            storage = output.untyped_storage()
            if storage not in self._counted and not any(storage is known for known in inputs):
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self._counted.add(storage)
        self.current += size
        self.peak = max(self.peak, self.current)
        weakref.finalize(storage, self._release, size)

    def _release(self, size: int) -> None:
        self.current -= size


# --- time -------------------------------------------------------------------------------------------------------------


def best_times(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the minimum seconds of each function over several rounds, in which the functions take turns.

    Taking turns spreads slow phases of the machine over all functions, and the minimum leaves out one-time setup. With
    one thread CPU time is measured, which excludes other programs; with several threads wall-clock time.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = [[_seconds(function, clock) for function in functions] for _ in range(rounds)]
    return [min(seconds) for seconds in zip(*times, strict=True)]


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start
