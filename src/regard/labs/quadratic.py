"""Cost of one layer by sequence length: full, sparse and low-rank attention, and an LSTM."""

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
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import LineSeries, line_chart, two_digits
from regard.labs.measurements import TensorMemory, best_times, flop_counter
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
One layer processes one sequence of n tokens, forward and backward. The layers are encoder self-attention (with
projections, residual connection and normalization but no feed-forward layer, whose cost is the same for all) with full
attention, Linformer, BigBird and a sliding window; and a unidirectional LSTM of the same width. Full attention is
measured twice: with the fused kernel that training uses, which computes the weights in blocks and never stores all of
them, and with materialized weights, as in the formula.

Measured are the FLOPs of matrix products and the peak memory of tensors during a pass, and the minimum time over
several rounds in which the layers take turns (CPU time with one thread, wall-clock time with more). Growth is the cost
of the longest sequence divided by that of half its length.
"""
LIMITATIONS = """
Cost is not quality: Linformer, BigBird and the window use less context than full attention, and the effect depends on
the task. Their linear cost holds for a fixed projected length, number of blocks and window. On short sequences full
attention is no disadvantage, because the projections cost more than the scores. Fused kernels of attention and LSTM are
counted with the FLOPs that their formulas need. Memory that a kernel frees before it returns is not counted, nor are
the parameters. The sequential steps of the LSTM are the subject of the lab `steps`.
"""

FULL, LINFORMER, BIGBIRD, WINDOW, LSTM = "full", "Linformer", "BigBird", "window", "LSTM"
MATERIALIZED = "full, materialized"
LINEAR = (LINFORMER, BIGBIRD, WINDOW, LSTM)
MAX_MATERIALIZED = 4096  # tokens; the weights of longer sequences may not fit in memory
VOCAB_SIZE = 16
CostByLength = dict[str, dict[int, float]]  # by layer and sequence length


@dataclass(frozen=True)
class LayerSizes:
    """Width of the layers, Linformer's projected length, BigBird's block size and the window."""

    width: int
    projected_length: int
    block_size: int
    window: int


def run(context: LabContext) -> LabResult:
    """Count FLOPs and memory, and measure the time."""
    lengths = context.by_effort([256, 512, 1024], [2**n for n in range(9, 14)], [2**n for n in range(9, 15)])
    sizes = context.by_effort(LayerSizes(64, 64, 16, 32), LayerSizes(128, 256, 64, 128), LayerSizes(128, 256, 64, 128))
    passes = [
        LayerPass(name, length, _network(config(length)))
        for length in lengths
        for name, config in _configs(sizes).items()
        if name != MATERIALIZED or length <= MAX_MATERIALIZED
    ]
    costs = [layer_pass.cost() for layer_pass in passes]
    flops = _by_layer(passes, (cost.flops / 1e9 for cost in costs))
    memory = _by_layer(passes, (cost.bytes / 2**20 for cost in costs))
    context.log(f"  memory: {', '.join(f'{name} {_longest(values):,.0f} MB' for name, values in memory.items())}")
    times = best_times([layer_pass.run for layer_pass in passes], rounds=context.by_effort(5, 3, 5))
    seconds = _by_layer(passes, times)
    growth = {
        measure: {name: _growth(values) for name, values in layers.items()}
        for measure, layers in (("flops", flops), ("memory", memory), ("time", seconds))
    }
    slowest = max(_longest(seconds[name]) for name in LINEAR if name != LSTM)
    return LabResult(
        holds=min(growth["flops"][FULL], growth["flops"][MATERIALIZED], growth["memory"][MATERIALIZED]) > 3.2
        and all(growth[measure][name] < 2.4 for measure in ("flops", "memory") for name in LINEAR)
        and (context.effort == "quick" or _longest(seconds[FULL]) > 1.5 * slowest),
        summary=_summary(lengths[-1], growth, memory, seconds),
        numbers={
            "lengths": lengths,
            "gigaflops": flops,
            "megabytes": memory,
            "seconds": seconds,
            "growth_per_doubling": growth,
        },
        figures=[_figure(flops, memory, seconds)],
        tables=[_table(flops, memory, seconds, growth)],
    )


@dataclass(frozen=True)
class PassCost:
    """FLOPs of the matrix products of a pass, and the peak bytes of its tensors."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class LayerPass:
    """Forward and backward pass of a layer over a sequence of this length."""

    name: str
    length: int
    network: Network

    def run(self) -> None:
        """Run the pass once."""
        self.network.zero_grad()
        with self._materialized():
            self._states().square().mean().backward()

    def cost(self) -> PassCost:
        """Return the cost of one pass."""
        memory, counter = TensorMemory(), flop_counter()
        with memory, counter:
            self.run()
        return PassCost(counter.get_total_flops(), memory.peak)

    def _states(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.length)
        ids = torch.randint(VOCAB_SIZE, (1, self.length), generator=generator)
        return self.network.encode(ids).states if self.network.encodes else self.network.decode(ids)

    def _materialized(self) -> AbstractContextManager[Any]:
        """Open the tap of the weights, which disables the fused kernel, where they are to be materialized."""
        tap = "encoder.layers.0.attention.kernel.weights"
        return open_taps(self.network, tap) if self.name == MATERIALIZED else nullcontext()


def _configs(sizes: LayerSizes) -> dict[str, Callable[[int], ModelConfig]]:
    """Return the settings of each layer by sequence length."""

    def encoder(
        attention: FullAttentionConfig | LinformerAttentionConfig | BigBirdAttentionConfig | WindowAttentionConfig,
    ) -> ModelConfig:
        return EncoderOnlyConfig(
            vocab_size=VOCAB_SIZE,
            width=sizes.width,
            layers=1,
            heads=2,
            feed_forward=0,
            dropout=0.0,
            attention=attention,
        )

    return {
        FULL: lambda length: encoder(FullAttentionConfig()),
        LINFORMER: lambda length: encoder(
            LinformerAttentionConfig(projected_length=sizes.projected_length, max_length=length)
        ),
        BIGBIRD: lambda length: encoder(BigBirdAttentionConfig(block_size=sizes.block_size)),
        WINDOW: lambda length: encoder(WindowAttentionConfig(window=sizes.window)),
        LSTM: lambda length: RecurrentLanguageModelConfig(
            vocab_size=VOCAB_SIZE, width=sizes.width, layers=1, dropout=0.0
        ),
        MATERIALIZED: lambda length: encoder(FullAttentionConfig()),
    }


def _network(config: ModelConfig) -> Network:
    torch.manual_seed(0)
    return build(config)


def _by_layer(passes: Iterable[LayerPass], values: Iterable[float]) -> CostByLength:
    costs: CostByLength = {}
    for layer_pass, value in zip(passes, values, strict=True):
        costs.setdefault(layer_pass.name, {})[layer_pass.length] = value
    return costs


def _longest(values: Mapping[int, float]) -> float:
    return values[max(values)]


def _growth(values: Mapping[int, float]) -> float:
    """Return the cost of the longest sequence divided by that of half its length."""
    return _longest(values) / values[max(values) // 2]


def _summary(
    longest: int, growth: Mapping[str, Mapping[str, float]], memory: CostByLength, seconds: CostByLength
) -> str:
    def linear(measure: str) -> str:
        return ", ".join(f"{name} {growth[measure][name]:.1f}" for name in LINEAR)

    length = max(memory[MATERIALIZED])
    times = ", ".join(f"{name} {1000 * _longest(seconds[name]):,.0f}" for name in (FULL, *LINEAR))
    return (
        f"When the length doubles, the FLOPs of full attention grow {growth['flops'][FULL]:.1f} times "
        f"({linear('flops')}), and its memory with materialized weights {growth['memory'][MATERIALIZED]:.1f} times "
        f"({linear('memory')}). The fused kernel never stores all weights: it needs {memory[FULL][length]:,.0f} MB for "
        f"{length:,} tokens instead of {memory[MATERIALIZED][length]:,.0f} MB, and its memory grows "
        f"{growth['memory'][FULL]:.1f} times. Milliseconds for {longest:,} tokens on this machine: {times}."
    )


def _figure(flops: CostByLength, memory: CostByLength, seconds: CostByLength) -> LabFigure:
    ms = {name: {n: 1000 * value for n, value in values.items()} for name, values in seconds.items()}
    panels = (("GFLOPs", flops), ("peak memory (MB)", memory), ("time (ms)", ms))
    descriptions = []
    with plot_style():
        figure = new_figure(12, 4)
        for ax, (title, costs) in zip(figure.subplots(1, 3), panels, strict=True):
            lines = {name: LineSeries(list(values), list(values.values())) for name, values in costs.items()}
            description = line_chart(ax, lines, title=title, xlabel="sequence length n", xscale="log", yscale="log")
            descriptions.append(description)
    return LabFigure(
        "quadratic",
        "Cost of one layer, forward and backward, by sequence length (log-log axes).",
        figure,
        f"Three line charts with log-log axes. {' '.join(descriptions)}",
    )


def _table(
    flops: CostByLength, memory: CostByLength, seconds: CostByLength, growth: Mapping[str, Mapping[str, float]]
) -> LabTable:
    header = ["layer", "tokens", "GFLOPs", "growth", "MB", "growth", "ms", "growth"]
    rows = [
        [
            name,
            f"{max(values):,}",
            two_digits(_longest(values)),
            f"{growth['flops'][name]:.1f}",
            two_digits(_longest(memory[name])),
            f"{growth['memory'][name]:.1f}",
            two_digits(1000 * _longest(seconds[name])),
            f"{growth['time'][name]:.1f}",
        ]
        for name, values in flops.items()
    ]
    return LabTable("Cost of the longest sequence, and its growth over half the length", header, rows)
