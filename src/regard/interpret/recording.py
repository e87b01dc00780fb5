"""Record activations while a network processes one text, layer by layer, on demand.

The target is processed in one pass, as in training, which gives the same numbers as decoding it token by token. The
taps of one layer are open at a time and recorded layers are cached up to a bound, so that the trace of a large network
does not fill the memory; a layer that was evicted is recorded again when it is needed.

S source length · T target length
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.network import EncoderNetwork, Memory, Network
from regard.nn.taps import Point

MAX_CACHED = 2**26  # numbers of all cached layers together

Hook = Callable[[Tensor, Any], Any]
"""Called with a module's first input and its output; a return value other than None replaces the output.

The output is a tensor, except for recurrent layers, which return a tuple with their state.
"""


@contextmanager
def thread_hooks(pairs: Sequence[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Register forward hooks that act only in the current thread, so that other threads can use the network."""
    owner = threading.get_ident()

    def bind(hook: Hook) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
        return lambda _module, inputs, output: hook(inputs[0], output) if threading.get_ident() == owner else None

    handles = [module.register_forward_hook(bind(hook)) for module, hook in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Recording:
    """Activations of one forward pass; call it with a point.

    `source_ids` are the encoder's, `input_ids` the decoder's (None if the network has no such stack); `features` are
    those of the source tokens, by name.
    """

    def __init__(
        self,
        network: Network,
        source_ids: Sequence[int] | None,
        input_ids: Sequence[int] | None,
        features: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        device = next(network.parameters()).device
        self.network = network
        self._arguments = source_ids, input_ids, features
        self._source = None if source_ids is None else torch.tensor([source_ids], device=device)  # (1, S)
        self._input = None if input_ids is None else torch.tensor([input_ids], device=device)  # (1, T)
        self.features = {name: torch.tensor([values], device=device) for name, values in (features or {}).items()}
        self._memory: Memory | None = None
        self._groups: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self._lock = threading.RLock()

    @cached_property
    def points(self) -> dict[str, Point]:
        """The points of the network, by their addresses."""
        return self.network.points()

    def __call__(self, point: Point) -> Tensor:
        """Return the activation of a point without its batch dimension: the axes are the point's."""
        if point.reads == "nothing" and point.transform is not None:
            return point.transform(torch.empty(0))
        with self._lock:
            value = self._cached(point)
        return value if point.transform is None else point.transform(value)

    def _cached(self, point: Point) -> Tensor:
        if point.group not in self._groups:
            self._groups[point.group] = self._record(point.group)
            while len(self._groups) > 1 and self._size() > MAX_CACHED:
                self._groups.popitem(last=False)
        self._groups.move_to_end(point.group)
        return self._groups[point.group][_key(point)]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Return the logits of all predictions, one row each.

        (T, V) for decoders; for encoder heads (1, L) of a text label, (S, L) of tags, (S, V) of masked tokens, and
        (2 S, V) of bidirectional language models: forward and backward prediction of each position in turn.
        """
        return self.differentiable_logits()

    def differentiable_logits(self) -> Tensor:
        """Return `logits` with gradients; only valid on a recording that has recorded nothing else."""
        states = self._head_input() if self._input is None else self._decode()
        return self.network.logits(states).float().flatten(0, -2)

    def fresh(self) -> "Recording":
        """Return a recording of the same ids with an empty cache, for a network that was changed in between."""
        return Recording(self.network, *self._arguments)

    def _size(self) -> int:
        return sum(tensor.numel() for group in self._groups.values() for tensor in group.values())

    @torch.no_grad()
    def _record(self, group: str) -> dict[str, Tensor]:
        members = {_key(point): point for point in self.points.values() if point.group == group}
        members = {key: point for key, point in members.items() if point.reads != "nothing"}
        recorded: dict[str, list[Tensor]] = {key: [] for key in members}
        if not group.startswith("encoder"):
            self._encode()  # before any tap is open
        with thread_hooks([(point.module, _recorder(point, recorded[key])) for key, point in members.items()]):
            match group.split(".")[0]:
                case "encoder":
                    self._memory = None
                    self._encode()
                case "decoder":
                    self._decode()
                case "output":
                    self.network.logits(self._decode())
                case "pooling":
                    self._pool()
                case "head":
                    self.network.logits(self._head_input())
        return {key: _stack(members[key], values) for key, values in recorded.items()}

    def _encode(self) -> Memory | None:
        if self._memory is None:
            self._memory = self._run_encoder()
        return self._memory

    def _run_encoder(self) -> Memory | None:
        return None if self._source is None else self.network.encode(self._source, features=self.features or None)

    def _decode(self) -> Tensor:
        assert self._input is not None
        return self.network.decode(self._input, self._encode())

    def _pool(self) -> Tensor:
        memory = self._encode()
        assert isinstance(self.network, EncoderNetwork)
        assert memory is not None
        return self.network.pool(memory)

    def _head_input(self) -> Tensor:
        """What an encoder's head reads.

        The last states of a bidirectional language model are not those of a point, so they come from a pass of their
        own with all taps of the encoder closed.
        """
        assert isinstance(self.network, EncoderNetwork)
        memory = self._encode() if "head.logits" in self.points else self._run_encoder()
        assert memory is not None
        return self.network.head_input(memory)


def _key(point: Point) -> str:
    """Points that read the same module share one recorded tensor."""
    return f"{point.reads} {id(point.module)}"


def _recorder(point: Point, values: list[Tensor]) -> Hook:
    if point.reads == "input":
        return lambda input_, _: values.append(input_.detach())
    return lambda _, output: values.append(output.detach())


def _stack(point: Point, values: list[Tensor]) -> Tensor:
    """Remove the batch: (1, …) -> (…) if recorded at once; (1, W) or (1, …, 1, W) per step -> (…, T, W)."""
    if len(values) == 1 and values[0].dim() > 2:
        return values[0][0]
    if point.axes == ("layer",):  # the same for every text, without a batch
        return values[0]
    if not any(axis.startswith(("source", "target")) for axis in point.axes):  # one vector for the text
        return values[0][0]
    if values[0].dim() > 2:  # a recurrent decoder that attends before each step
        return torch.cat(values, dim=-2)[0]
    steps = torch.cat(values)
    return steps.flip(0) if point.reversed else steps
