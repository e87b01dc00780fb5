"""One cached step of a recurrent decoder: the same numbers as `RecurrentStack.forward` with one new token per row.

PyTorch's kernels of recurrent layers are made for sequences, and a step of one token is mostly their preparation. The
step here computes the cell from two products with few rows, as the equations are written. Like the step of a
Transformer, it is prepared once, and leaves everything but a plain step to the plain code.

R rows · B sentences · K rows of each, R = B·K · C width · V vocabulary
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.nn import cpu
from regard.nn.cpu.decode_step import FewRowsLinear, PreparedModules, UnsupportedLayerError
from regard.nn.embedding import OutputProjection
from regard.nn.layout import Mask, Tokens, find_padding
from regard.nn.recurrent import AttendingLayer, EncodedSource, RecurrentCell, RecurrentLayer, RecurrentState
from regard.nn.recurrent_stack import RecurrentCache, RecurrentStack

LayerStep = Callable[[Tensor, RecurrentState], RecurrentState]
"""Input (R, I) and state to the state after the step."""


class RecurrentStep(PreparedModules):
    """The prepared step of one decoder with its output projection."""

    def __init__(self, stack: RecurrentStack, output: OutputProjection) -> None:
        if type(stack) is not RecurrentStack or type(output) is not OutputProjection:
            raise UnsupportedLayerError
        super().__init__([*stack.modules(), *output.modules()])
        self._embedding = stack.embedding
        self._layers = [_layer_step(layer) for layer in stack.layers]
        self._attends_first = isinstance(stack.layers[0], AttendingLayer)
        self._attention = stack.cross_attention
        self._combine = None if self._attention is None else FewRowsLinear.of(self._attention.output)
        self._logits = FewRowsLinear(output.weight, output.bias)
        self._cap = output.cap
        self._tokens = Tokens(torch.zeros(1, 1, dtype=torch.long), limit=1)
        self._padding: tuple[Tensor, Mask, Tensor | None] | None = None  # of the memory of the last step

    def __call__(self, ids: Tensor, cache: RecurrentCache, memory: Tensor | None, mask: Mask) -> Tensor:
        """ids (R, 1) -> logits (R, V); changes the state in the cache."""
        source = self._source(cache, memory, mask)
        tokens = self._embedding(ids, self._tokens).squeeze(1)  # (R, E)
        x, context, states = tokens, None, []
        for number, (step, state) in enumerate(zip(self._layers, cache.states, strict=True)):
            if number == 0 and self._attends_first and source is not None:
                context = source.attend(state[0])
                x = torch.cat([x, context], dim=-1)
            states.append(step(x, state))
            x = states[-1][0]
        if source is not None and self._combine is not None:
            parts = [source.attend(x), x] if context is None else [context, x, tokens]
            x = self._combine(torch.cat(parts, dim=-1)).tanh()
        cache.states, cache.length = states, cache.length + 1
        return self._cap(self._logits(x))

    def _source(self, cache: RecurrentCache, memory: Tensor | None, mask: Mask) -> EncodedSource | None:
        if self._attention is None or memory is None or cache.keys is None:
            return None
        if self._padding is None or self._padding[0] is not memory or self._padding[1] is not mask:
            padding = find_padding(mask, memory.shape[:2])
            self._padding = memory, mask, None if padding is None else padding.tokens
        return EncodedSource(self._attention, memory, self._padding[2], cache.keys)


def _layer_step(layer: torch.nn.Module) -> LayerStep:
    if type(layer) not in (RecurrentLayer, AttendingLayer):
        raise UnsupportedLayerError
    assert isinstance(layer, RecurrentLayer)
    cell, weights = layer.cells[0], layer.weights()
    if len(layer.cells) > 1 or not isinstance(cell, RecurrentCell):
        raise UnsupportedLayerError
    from_input, from_state = FewRowsLinear(weights[0], weights[2]), FewRowsLinear(weights[1], weights[3])
    compute = cell.forward
    return lambda x, state: compute(from_input(x), from_state(state[0]), state)


def recurrent_step(
    stack: RecurrentStack,
    output: OutputProjection,
    ids: Tensor,
    cache: RecurrentCache,
    memory: Tensor | None = None,
    mask: Mask = None,
) -> Tensor | None:
    """Return the logits (R, V) after one new token ids (R, 1) of each row, which is not the first.

    None: use the plain code, the cache has not changed.
    """
    if ids.dim() != 2 or ids.size(1) != 1 or not cache.length or stack.training or not cpu.enabled(ids.device):
        return None
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return None
    if memory is not None and len(ids) % len(memory):
        return None
    step = stack.prepared_step
    if not isinstance(step, RecurrentStep) or (cache.length == 1 and not step.is_current):
        try:
            step = stack.prepared_step = RecurrentStep(stack, output)
        except UnsupportedLayerError:
            return None
    return None if step.is_watched else step(ids, cache, memory, mask)
