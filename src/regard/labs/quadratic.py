"""What one layer costs as the text grows: full attention, its sparse and low-rank relatives, and an LSTM."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.config import (
    BigBirdAttentionConfig,
    EncoderOnlyConfig,
    FullAttentionConfig,
    LinformerAttentionConfig,
    ModelConfig,
    RecurrentLanguageModelConfig,
    WindowAttentionConfig,
)
from regard.labs.charts.lines import LineSeries, format_number, line_chart
from regard.labs.gauges import TensorMemory, best_times, flop_counter
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
One layer reads one text of n tokens and is trained on it for a step: forward and backward. The layers are
self-attention of an encoder (projections, residual connection and norm, but no feed-forward layer, which costs all of
them the same) with full attention, with Linformer's mixtures, with BigBird's blocks and with a window; and an LSTM of
the same width, in one direction. Full attention comes twice: with the fused kernel that training uses, which computes
scores piece by piece and never writes them all down, and with the weights kept, as the formula is written.

Counted are, while a pass is made, the floating-point operations in matrix products that it asks for and the bytes that
its tensors hold at most; then the time of the fastest of several passes, in which the layers take turns: with one
thread the processor's, with several the clock's. Growth is from the longest text but one to the longest, which is twice
as long.
"""
LIMITATIONS = """
Cost is not quality: Linformer, BigBird and the window see less than full attention, and what they miss depends on the
task. Their cost in proportion to n holds for a fixed number of mixtures, blocks, or neighbours. Short texts are no
reason to leave full attention: there the projections cost more than the scores. Kernels that do several products at
once, the fused attention and the LSTM's, are taken to do those that their formulas need for the matrices they are
given. Memory that a kernel uses inside and gives back before it ends is not counted, nor are the parameters. Of the
LSTM the picture says nothing about its steps, which wait for each other.
"""

FULL, LINFORMER, BIGBIRD, WINDOW, LSTM, KEPT = "full", "Linformer", "BigBird", "window", "LSTM", "full, weights kept"
LEAN = (LINFORMER, BIGBIRD, WINDOW, LSTM)
LARGEST_KEPT = 4096  # the weights of longer texts would fill an ordinary machine's memory
VOCABULARY = 16
Found = dict[str, dict[int, float]]  # by layer and length


@dataclass(frozen=True)
class Sizes:
    """Of the layers: the model's width, Linformer's mixtures, BigBird's blocks, and how far the window reaches."""

    width: int
    mixtures: int
    block: int
    reach: int


def run(context: LabContext) -> LabResult:
    """Count, measure, draw."""
    lengths = context.by_effort([256, 512, 1024], [2**n for n in range(9, 14)], [2**n for n in range(9, 15)])
    sizes = context.by_effort(Sizes(64, 64, 16, 32), Sizes(128, 256, 64, 128), Sizes(128, 256, 64, 128))
    passes = [
        Pass(name, length, _network(settings(length)))
        for length in lengths
        for name, settings in _layers(sizes).items()
        if name != KEPT or length <= LARGEST_KEPT
    ]
    costs = [one.costs() for one in passes]
    work = _by_layer(passes, (cost.operations / 1e9 for cost in costs))
    memory = _by_layer(passes, (cost.bytes / 2**20 for cost in costs))
    context.log(f"  memory: {', '.join(f'{name} {_last(found):,.0f} MB' for name, found in memory.items())}")
    seconds = _by_layer(passes, best_times([one.go for one in passes], rounds=context.by_effort(5, 3, 5)))
    growth = {
        what: {name: _growth(found) for name, found in layers.items()}
        for what, layers in (("operations", work), ("memory", memory), ("time", seconds))
    }
    slowest = max(_last(seconds[name]) for name in LEAN if name != LSTM)
    return LabResult(
        holds=min(growth["operations"][FULL], growth["operations"][KEPT], growth["memory"][KEPT]) > 3.2
        and all(growth[what][name] < 2.4 for what in ("operations", "memory") for name in LEAN)
        and (context.effort == "quick" or _last(seconds[FULL]) > 1.5 * slowest),
        summary=_said(lengths[-1], growth, memory, seconds),
        numbers={
            "lengths": lengths,
            "gigaflops": work,
            "megabytes": memory,
            "seconds": seconds,
            "growth_when_length_doubles": growth,
        },
        figures=[_draw(work, memory, seconds)],
        tables=[_table(work, memory, seconds, growth)],
    )


@dataclass(frozen=True)
class Costs:
    """Of a pass: floating-point operations in its matrix products, and the bytes that its tensors hold at most."""

    operations: int
    bytes: int


@dataclass(frozen=True)
class Pass:
    """A layer that reads a text of this length, forward and backward."""

    name: str
    length: int
    network: Network

    def go(self) -> None:
        """Once."""
        self.network.zero_grad()
        with self._keeping():
            self._states().square().mean().backward()

    def costs(self) -> Costs:
        """What one pass asks for."""
        held, products = TensorMemory(), flop_counter()
        with held, products:
            self.go()
        return Costs(products.get_total_flops(), held.peak)

    def _states(self) -> Tensor:
        random = torch.Generator().manual_seed(self.length)
        ids = torch.randint(VOCABULARY, (1, self.length), generator=random)
        return self.network.encode(ids).states if self.network.encodes else self.network.decode(ids)

    def _keeping(self) -> AbstractContextManager[Any]:
        """An open tap on the weights has them written down."""
        return (
            open_taps(self.network, "encoder.layers.0.attention.kernel.weights") if self.name == KEPT else nullcontext()
        )


def _layers(sizes: Sizes) -> dict[str, Callable[[int], ModelConfig]]:
    """The settings of each layer, for texts of a length."""

    def encoder(
        attention: FullAttentionConfig | LinformerAttentionConfig | BigBirdAttentionConfig | WindowAttentionConfig,
    ) -> ModelConfig:
        return EncoderOnlyConfig(
            vocab_size=VOCABULARY,
            width=sizes.width,
            layers=1,
            heads=2,
            feed_forward=0,
            dropout=0.0,
            attention=attention,
        )

    return {
        FULL: lambda length: encoder(FullAttentionConfig()),
        LINFORMER: lambda length: encoder(LinformerAttentionConfig(projected_length=sizes.mixtures, max_length=length)),
        BIGBIRD: lambda length: encoder(BigBirdAttentionConfig(block_size=sizes.block)),
        WINDOW: lambda length: encoder(WindowAttentionConfig(window=sizes.reach)),
        LSTM: lambda length: RecurrentLanguageModelConfig(
            vocab_size=VOCABULARY, width=sizes.width, layers=1, dropout=0.0
        ),
        KEPT: lambda length: encoder(FullAttentionConfig()),
    }


def _network(settings: ModelConfig) -> Network:
    torch.manual_seed(0)
    return build(settings)


def _by_layer(passes: Iterable[Pass], values: Iterable[float]) -> Found:
    found: Found = {}
    for one, value in zip(passes, values, strict=True):
        found.setdefault(one.name, {})[one.length] = value
    return found


def _last(found: Mapping[int, float]) -> float:
    return found[max(found)]


def _growth(found: Mapping[int, float]) -> float:
    """How many times as much the longest text costs as the one of half its length."""
    return _last(found) / found[max(found) // 2]


def _said(longest: int, growth: Mapping[str, Mapping[str, float]], memory: Found, seconds: Found) -> str:
    def listed(costs: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {costs[name]:.1f}" for name in LEAN)

    kept = max(memory[KEPT])
    times = ", ".join(f"{name} {1000 * _last(seconds[name]):,.0f}" for name in (FULL, *LEAN))
    return (
        f"When the text doubles, full attention takes {growth['operations'][FULL]:.1f} times the operations "
        f"({listed(growth['operations'])}), and with its weights kept {growth['memory'][KEPT]:.1f} times the memory "
        f"({listed(growth['memory'])}). The fused kernel never has all weights at once: it needs "
        f"{memory[FULL][kept]:,.0f} MB for {kept:,} tokens where keeping them needs {memory[KEPT][kept]:,.0f} MB, and "
        f"{growth['memory'][FULL]:.1f} times as much for twice the text. Milliseconds for {longest:,} tokens on this "
        f"machine: {times}."
    )


def _draw(work: Found, memory: Found, seconds: Found) -> LabFigure:
    ms = {name: {n: 1000 * value for n, value in found.items()} for name, found in seconds.items()}
    panels = (("operations, 10⁹", work), ("memory at most, MB", memory), ("time, ms", ms))
    said = []
    with plot_style():
        figure = new_figure(12, 4)
        for ax, (title, costs) in zip(figure.subplots(1, 3), panels, strict=True):
            lines = {name: LineSeries(list(found), list(found.values())) for name, found in costs.items()}
            said.append(
                line_chart(ax, lines, title=title, xlabel="n, the length of the text", xscale="log", yscale="log")
            )
    return LabFigure(
        "quadratic",
        "Both axes by powers: what one layer costs, forward and backward, as the text grows.",
        figure,
        f"Three charts, both axes by powers. {' '.join(said)}",
    )


def _table(work: Found, memory: Found, seconds: Found, growth: Mapping[str, Mapping[str, float]]) -> LabTable:
    head = ["layer", "tokens", "10⁹ operations", "×", "MB", "×", "ms", "×"]
    rows = [
        [
            name,
            f"{max(found):,}",
            format_number(_last(found)),
            f"{growth['operations'][name]:.1f}",
            format_number(_last(memory[name])),
            f"{growth['memory'][name]:.1f}",
            format_number(1000 * _last(seconds[name])),
            f"{growth['time'][name]:.1f}",
        ]
        for name, found in work.items()
    ]
    return LabTable("The longest text of each, and how many times as much it costs as half of it", head, rows)
