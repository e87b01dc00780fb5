"""Taps, and what modules expose to interpretation: points where values can be read, and learned matrices.

A tap is an identity module at a named step of a computation. An ordinary PyTorch forward hook on it reads the value, or
replaces it by returning another. Traces, head ablation and patching all work this way; there is no second model for
display.

Every module declares its own points and matrices, under names relative to itself; a container adds the name under which
it holds the module. `Network.points()` and `Network.matrices()` have the full addresses, such as
`decoder.0.cross_attention.weights`. So code that shows a network never asks for the class of a module, and a new module
appears by itself: taps that have axes need no further declaration.

Axes: "token" (tokens of the stack), "key" (the same tokens as keys of attention), "memory" (tokens of the encoder as
keys), "head", "unit" (entry of a vector), "vocabulary", "label", "layer", "mixture", "position", "depth". The network
replaces the first three by "source", "target", "source_key" and "target_key".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.lora import linear_weight

Reads = Literal["output", "input", "nothing"]
Role = Literal["embedding", "weight", "bias", "mixing"]
Transform = Callable[[Tensor], Tensor]


class Tap(nn.Module):
    """Identity module. It is open while a hook is registered on it; a closed tap costs one `if`.

    `axes` name the dimensions of the value after the batch dimension, and `description` says what it is; a tap with
    axes is a point that traces show.

    >>> import torch
    >>> tap = Tap()
    >>> hook = tap.register_forward_hook(lambda module, arguments, x: x * 0)
    >>> tap(torch.ones(2))
    tensor([0., 0.])
    >>> hook.remove()
    >>> tap(torch.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, *axes: str, description: str = "") -> None:
        super().__init__()
        self.axes = axes
        self.description = description

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if self.is_open else x

    def forward(self, x: Tensor) -> Tensor:
        """Return the value as it is; hooks see it."""
        return x

    @property
    def is_open(self) -> bool:
        return bool(self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks)


def taps_of(module: nn.Module) -> dict[str, Tap]:
    """Return every tap below a module, by its name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, Tap)}


@contextmanager
def open_taps(module: nn.Module, *names: str) -> Iterator[dict[str, Tensor]]:
    """Record the values at the named taps (by default all taps) while the context is open.

    The yielded dict holds the last value of each tap, detached.
    """
    taps = taps_of(module)
    unknown = [name for name in names if name not in taps]
    if unknown:
        raise InputError(f"There is no tap {unknown[0]!r}; network.taps lists all taps.")
    record: dict[str, Tensor] = {}

    def keep(name: str, tap: Tap):  # type: ignore[no-untyped-def]  # torch's RemovableHandle has no public name
        return tap.register_forward_hook(lambda _module, _arguments, x: record.__setitem__(name, x.detach()))

    hooks = [keep(name, taps[name]) for name in names or taps]
    try:
        yield record
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def record_taps(module: nn.Module, *names: str) -> Iterator[dict[str, list[Tensor]]]:
    """Record all values at the named taps, in order: a recurrent layer passes its taps at every step."""
    record: dict[str, list[Tensor]] = {}
    with open_taps(module, *names):
        taps = taps_of(module)
        hooks = [
            taps[name].register_forward_hook(
                lambda _module, _arguments, x, name=name: record.setdefault(name, []).append(x.detach())
            )
            for name in names or taps
        ]
        try:
            yield record
        finally:
            for hook in hooks:
                hook.remove()


@dataclass(frozen=True)
class MatrixProduct:
    """The addresses of the factors of a value: left · right + bias, with `transposed` left · rightᵀ.

    Factors are points or matrices. A name that begins with "/" is a full address; others are relative to the module.
    """

    left: str
    right: str
    bias: str | None = None
    transposed: bool = False

    def under(self, prefix: str) -> Self:
        """Return the product with its relative names below `prefix`."""
        bias = None if self.bias is None else _join(prefix, self.bias)
        return replace(self, left=_join(prefix, self.left), right=_join(prefix, self.right), bias=bias)


@dataclass(frozen=True)
class Point:
    """A value that can be read while a network runs.

    `module` is the module whose output or input is hooked; with `reads="nothing"` the value is `transform` of an empty
    tensor, such as a learned gain. `transform` takes the hooked tensor without its batch dimension.
    """

    name: str
    axes: tuple[str, ...]
    description: str
    module: nn.Module = field(repr=False, compare=False)
    reads: Reads = "output"
    transform: Transform | None = field(default=None, repr=False, compare=False)
    reversed: bool = False  # recorded from the last token to the first
    product: MatrixProduct | None = None

    def under(self, prefix: str) -> Self:
        """Return the point below `prefix`."""
        product = None if self.product is None else self.product.under(prefix)
        return replace(self, name=_join(prefix, self.name), product=product)

    @property
    def stack(self) -> str:
        """First part of the address, such as "encoder", "output" or "head"."""
        return self._address[0]

    @property
    def layer(self) -> int | None:
        """Number of the layer, if the point is in one."""
        return self._address[1]

    @property
    def part(self) -> str:
        """Sub-layer, such as "attention" or "feed_forward_residual"; may be empty."""
        return self._address[2]

    @property
    def point(self) -> str:
        """Last part of the address."""
        return self._address[3]

    @property
    def group(self) -> str:
        """Stack and layer: points of a group are recorded in one forward pass."""
        return f"{self.stack}.{'' if self.layer is None else self.layer}"

    @property
    def heads(self) -> bool:
        """Whether there is a value for each attention head."""
        return self.axes[0] == "head"

    @property
    def _address(self) -> tuple[str, int | None, str, str]:
        stack, *middle, point = self.name.split(".")
        layer = int(middle.pop(0)) if middle and middle[0].isdigit() else None
        return stack, layer, ".".join(middle), point


@dataclass(frozen=True)
class Matrix:
    """A learned matrix or bias, laid out so that x · W reads as in the paper; with `heads`, one for each head.

    `take` returns the current value, in the shape that `axes` names.
    """

    name: str
    axes: tuple[str, ...]
    take: Callable[[], Tensor] = field(repr=False, compare=False)
    heads: int | None = None
    role: Role = "weight"

    def under(self, prefix: str) -> Self:
        """Return the matrix below `prefix`."""
        return replace(self, name=_join(prefix, self.name))


Exposed = TypeVar("Exposed", Point, Matrix)


def _join(prefix: str, name: str) -> str:
    return name if name.startswith("/") or not prefix else f"{prefix}.{name}"


def under(prefix: str, items: Iterable[Exposed]) -> Iterator[Exposed]:
    """Yield points or matrices below `prefix`."""
    return (item.under(prefix) for item in items)


def rename_axes(points: Iterable[Point], names: Mapping[str, str]) -> Iterator[Point]:
    """Yield points with some axes renamed."""
    return (replace(point, axes=tuple(names.get(axis, axis) for axis in point.axes)) for point in points)


class ExposedModule(nn.Module):
    """A module that declares what it exposes; by default its taps and what its children expose, in order."""

    def points(self) -> Iterator[Point]:
        """Yield the points of this module, named relative to it."""
        return child_points(self)

    def matrices(self) -> Iterator[Matrix]:
        """Yield the learned matrices of this module, named relative to it."""
        return child_matrices(self)


def points_of(module: nn.Module) -> Iterator[Point]:
    """Yield the points that a module exposes, named relative to it."""
    if isinstance(module, ExposedModule):
        return module.points()
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return norm_points(module)
    return child_points(module)


def child_points(module: nn.Module) -> Iterator[Point]:
    """Yield the points of a module's taps and children, in the order of their registration."""
    for name, child in module.named_children():
        if not isinstance(child, Tap):
            yield from under(name, points_of(child))
        elif child.axes:
            yield tap_point(name, child)


def tap_point(name: str, tap: Tap, product: MatrixProduct | None = None, transform: Transform | None = None) -> Point:
    """Return the point of a tap, with the axes and the description that the tap was made with."""
    return Point(name, tap.axes, tap.description, tap, transform=transform, product=product)


def norm_points(norm: nn.LayerNorm | nn.RMSNorm) -> Iterator[Point]:
    """Yield the steps of (x − mean) / deviation · gain + bias; an RMS norm has neither mean nor bias."""
    epsilon = norm.eps if norm.eps is not None else torch.finfo(norm.weight.dtype).eps

    def statistic(name: str, description: str, transform: Transform) -> Point:
        return Point(name, ("token",), description, norm, "input", transform)

    yield Point("norm_input", ("token", "unit"), "input of the normalization", norm, "input")
    if isinstance(norm, nn.LayerNorm):
        yield statistic("mean", "mean of each token's vector", lambda x: x.mean(-1))
        description = "√(variance + ε) of each token's vector"
        yield statistic("deviation", description, lambda x: (x.var(-1, unbiased=False) + epsilon).sqrt())
    else:
        description = "√(mean square + ε) of each token's vector"
        yield statistic("deviation", description, lambda x: (x.square().mean(-1) + epsilon).sqrt())
    for name, parameter in (("gain", norm.weight), ("bias", getattr(norm, "bias", None))):
        if parameter is not None:
            yield Point(name, ("unit",), f"learned {name}", norm, "nothing", _constant(parameter))


def _constant(parameter: Tensor) -> Transform:
    return lambda _: parameter.detach()


def matrices_of(module: nn.Module) -> Iterator[Matrix]:
    """Yield the learned matrices that a module exposes, named relative to it."""
    if isinstance(module, ExposedModule):
        return module.matrices()
    if isinstance(module, nn.Linear):
        return linear_matrices(module)
    return child_matrices(module)


def child_matrices(module: nn.Module) -> Iterator[Matrix]:
    """Yield the matrices of a module's children, in the order of their registration."""
    for name, child in module.named_children():
        yield from under(name, matrices_of(child))


def linear_matrices(linear: nn.Linear, suffix: str = "", columns: str = "unit") -> Iterator[Matrix]:
    """Yield W and b of a linear layer, with `suffix` W_suffix and b_suffix; `columns` is the axis of its outputs."""
    ending = f"_{suffix}" if suffix else ""
    yield Matrix(f"W{ending}", ("unit", columns), lambda: linear_weight(linear).mT)
    if linear.bias is not None:
        yield Matrix(f"b{ending}", (columns,), lambda: linear.bias, role="bias")


def bias_name(linear: nn.Linear, suffix: str) -> str | None:
    """Return the name of the bias of a linear layer, or None if it has none."""
    return None if linear.bias is None else f"b_{suffix}"
