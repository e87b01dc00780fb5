"""How many operations must wait for each other: the longest chain in the graph that PyTorch keeps of a result."""

from torch import Tensor
from torch.autograd.graph import Node


def longest_chain(result: Tensor) -> int:
    """Operations on the longest way from a parameter, or another leaf, to a result; each needs the one before it.

    No machine can compute the result in fewer steps by these operations, however many cores it has. What a fused kernel
    does inside counts as one operation: to count its steps, have them computed one by one.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> longest_chain(x.exp() + x.sin().cos())
    3
    """
    if result.grad_fn is None:
        return 0
    lengths: dict[Node, int] = {}
    waiting = [result.grad_fn]
    while waiting:  # a chain may be longer than Python's stack is deep
        node = waiting[-1]
        before = [earlier for earlier, _ in node.next_functions if earlier is not None]
        unknown = [earlier for earlier in before if earlier not in lengths]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        lengths[node] = max((lengths[earlier] for earlier in before), default=0) + _is_operation(node)
    return lengths[result.grad_fn]


def _is_operation(node: Node) -> bool:
    return node.name() != "torch::autograd::AccumulateGrad"  # which is where a leaf's gradient goes
