"""Figures of attention that need no trained model: look-ahead mask, sparse patterns, soft lookup.

Each figure has a function that returns its numbers, which come from the modules that networks run: the taps of the
attention kernels.

T tokens · S keys · D width of a query or key · E width of a value
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.config import (
    AttentionConfig,
    BigBirdAttentionConfig,
    EncoderDecoderConfig,
    FullAttentionConfig,
    LinformerAttentionConfig,
    WindowAttentionConfig,
)
from regard.errors import InputError
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.interventions import Intervention
from regard.nn import AttentionKernel, FullAttention, make_layout, open_taps
from regard.plotting import BLUE, GREEN, INK, ORANGE, SOFT, heat_map, new_figure, plot_style, value_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CELLS = 1024  # of a grid whose cells have numbers

# The scores of a classroom example, and its scaled scores under the look-ahead mask
GRID_WORDS = ["Hi", "how", "are", "you"]
GRID_SCORES = [[98, 27, 10, 12], [27, 89, 31, 67], [10, 31, 91, 54], [12, 67, 54, 92]]
GRID_KEY_WIDTH = 64  # d_k of the paper's heads
MASK_WORDS = ["<start>", "I", "am", "fine"]
MASK_SCALED_SCORES = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]]


# --- mask -------------------------------------------------------------------------------------------------------------


def attention_steps(
    scores: Sequence[Sequence[float]], *, scale: float = 1.0, causal: bool = False
) -> dict[str, Tensor]:
    """Return scores, scaled and masked scores and weights of the attention kernel for a table of scores (T, T).

    >>> attention_steps(MASK_SCALED_SCORES, causal=True)["weights"]
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.3775, 0.6225, 0.0000, 0.0000],
            [0.2584, 0.3156, 0.4260, 0.0000],
            [0.2144, 0.2619, 0.2619, 0.2619]])
    """
    table = torch.tensor(scores, dtype=torch.float32)
    kernel, keys = FullAttention(scale), torch.eye(len(table))[None, None]  # with the identity for keys, q kᵀ is q
    with open_taps(kernel) as seen:
        kernel(table[None, None], keys, keys, make_layout(torch.zeros(1, len(table)), causal=causal))
    return {name: value[0, 0] for name, value in seen.items()}


@plot_style()
def plot_mask(trace: ForwardPass | None = None, at: str | None = None) -> "Figure":
    """Plot scores, scaled scores, look-ahead mask and weights: of a classroom example, or of one head of a trace."""
    figure = new_figure(13, 3.5 if trace is not None else 6.8)
    if trace is not None:
        words, steps, name = _traced_steps(trace, at)
        _step_panels(figure.subplots(1, 4), words, steps, ("scores", "scaled", "masked", "weights"))
        figure.suptitle(f"{name}: one row per query", x=0.01, ha="left", fontsize=11)
        return figure
    rows = figure.subplots(2, 4)
    scale = 1 / math.sqrt(GRID_KEY_WIDTH)
    full = attention_steps(GRID_SCORES, scale=scale)
    masked = attention_steps(GRID_SCORES, scale=scale, causal=True)
    steps = {"scores": full["scores"], "scaled": full["scaled"], "weights": full["weights"]}
    _step_panels(rows[0][:3], GRID_WORDS, steps, ("scores", "scaled", "weights"), divisor=f"√{GRID_KEY_WIDTH}")
    _step_panels(rows[0][3:], GRID_WORDS, masked, ("weights",), suffix=", look-ahead mask")
    causal = attention_steps(MASK_SCALED_SCORES, causal=True)
    causal["mask"] = torch.zeros_like(causal["masked"]).masked_fill(causal["masked"] == -math.inf, -math.inf)
    _step_panels(rows[1], MASK_WORDS, causal, ("scaled", "mask", "masked", "weights"))
    figure.suptitle("Self-attention, one row per query", x=0.01, ha="left", fontsize=11)
    return figure


STEP_TITLES = {
    "scores": "scores q · k",
    "scaled": "scaled scores",
    "mask": "+ look-ahead mask",
    "masked": "= masked scores",
    "weights": "softmax of each row",
}


def _step_panels(
    axes: "Sequence[Axes]",
    words: list[str],
    steps: Mapping[str, Tensor],
    names: Sequence[str],
    *,
    divisor: str = "",
    suffix: str = "",
) -> None:
    for ax, name in zip(axes, names, strict=True):
        values = steps[name].tolist()
        finite = [abs(value) for row in values for value in row if math.isfinite(value)]
        largest = 1.0 if name == "weights" else max(finite) or 1.0
        shades = [[max(0.0, value) / largest if math.isfinite(value) else 0.0 for value in row] for row in values]
        title = f"{STEP_TITLES[name]}: scores / {divisor}" if name == "scaled" and divisor else STEP_TITLES[name]
        color = GREEN if name == "weights" else BLUE
        decimals = 4 if name == "weights" else 2
        texts = (
            [[format_cell(value, decimals) for value in row] for row in values] if len(words) ** 2 <= MAX_CELLS else ()
        )
        value_grid(ax, shades, words, words, title=title + suffix, texts=texts, color=color)
        ax.set_aspect("equal")
        if any(len(word) > 7 for word in words) or len(words) > 6:
            ax.tick_params(axis="x", rotation=60)


def _traced_steps(trace: ForwardPass, at: str | None) -> tuple[list[str], dict[str, Tensor], str]:
    """The words and the steps of one head: that of `at`, or the first self-attention of the last stack."""
    if at is None:
        points = [point for point in trace.points.values() if point.point == "masked" and point.part == "attention"]
        if not points:
            raise InputError("This network has no self-attention, so it has no mask to plot.")
        first = next(point for point in points if point.stack == points[-1].stack)
        at = f"{first.stack}.{first.layer}.{first.part}"
    place = Intervention.parse(at)
    head, name = place.head or 0, str(place).partition("[")[0]
    axes = trace.point(f"{name}.masked").axes
    if axes[1].split("_")[0] != axes[2].split("_")[0]:
        raise InputError(f"{name}: is not self-attention over tokens, so it has no look-ahead mask; choose another.")
    heads = len(trace.activation(f"{name}.masked"))
    if head >= heads:
        raise InputError(f"{place}: there is no head {head}; the heads are 0 to {heads - 1}.")
    names = ("scores", "scaled", "masked", "weights")
    steps = {step: trace.activation(f"{name}.{step}")[head].float().cpu() for step in names}
    return trace.labels(axes[1]) or [], steps, f"{name}[{head}]"


def format_cell(value: float, decimals: int) -> str:
    """Format a number for a cell: integers as such, masked scores as −∞.

    >>> format_cell(98.0, 2), format_cell(0.3775407, 4), format_cell(-1.5, 2), format_cell(-math.inf, 2)
    ('98', '0.3775', '−1.50', '−∞')
    """
    if value == -math.inf:
        return "−∞"
    text = str(round(value)) if value == round(value) else f"{value:.{decimals}f}"
    return text.replace("-", "−")


# --- patterns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttentionPattern:
    """Which query attends to which key, and which part of the pattern says so."""

    title: str
    allowed: Tensor  # (T, S), True where a query attends to a key
    parts: Mapping[str, Tensor]  # (T, S) each: window, global and random; together they are `allowed`

    @property
    def share(self) -> str:
        """How many pairs of query and key are computed."""
        return f"{int(self.allowed.sum()):,} of {self.allowed.numel():,} pairs"


@torch.no_grad()
def kernel_mask(kernel: AttentionKernel, length: int, *, causal: bool = False) -> Tensor:
    """Return where the queries of a kernel attend (T, S), from the masked scores at its tap."""
    x = torch.zeros(1, 1, length, 8)
    layout = make_layout(torch.zeros(1, length, dtype=torch.long), causal=causal)
    with open_taps(kernel, "masked") as seen:
        kernel(x, x, x, layout)
    return seen["masked"][0, 0] > -math.inf


def build_kernel(attention: AttentionConfig, *, encoder: bool = True) -> AttentionKernel:
    """Build one kernel with seeded weights, for one head."""
    model = EncoderDecoderConfig(width=8, heads=1, feed_forward=0, attention=attention, dropout=0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kernel: AttentionKernel = attention.build(model, encoder=encoder)()
    return kernel.eval()


def attention_pattern(title: str, attention: AttentionConfig, length: int, *, causal: bool = False) -> AttentionPattern:
    """Return the pattern of a kernel; `causal`: in a decoder, under the look-ahead mask."""
    allowed = kernel_mask(build_kernel(attention, encoder=not causal), length, causal=causal)
    if causal or not isinstance(attention, BigBirdAttentionConfig):
        return AttentionPattern(title, allowed, {"window": allowed})
    only_window, only_global = (
        kernel_mask(build_kernel(attention.model_copy(update={**changes, "random_blocks": 0})), length)
        for changes in ({"global_blocks": 0}, {"window_blocks": 1})
    )
    parts = {
        "window": only_window,
        "global": only_global & ~only_window,
        "random": allowed & ~only_global & ~only_window,
    }
    return AttentionPattern(title, allowed, parts)


def example_patterns(length: int) -> list[AttentionPattern]:
    """Return full, causal, window, random, global and BigBird attention over `length` tokens."""
    window = WindowAttentionConfig(window=2)

    def bigbird(window: int, globals: int, random: int) -> BigBirdAttentionConfig:
        return BigBirdAttentionConfig(block_size=1, window_blocks=window, global_blocks=globals, random_blocks=random)

    return [
        attention_pattern("full", FullAttentionConfig(), length),
        attention_pattern("causal: look-ahead mask", FullAttentionConfig(), length, causal=True),
        attention_pattern("window, 2 on each side", window, length),
        attention_pattern("window in a decoder", window, length, causal=True),
        attention_pattern("itself and 2 random", bigbird(1, 0, 2), length),
        attention_pattern("global: first and last", bigbird(1, 2, 0), length),
        attention_pattern("BigBird: all three", bigbird(3, 2, 2), length),
    ]


@plot_style()
def plot_patterns(length: int, attention: AttentionConfig | None = None) -> "Figure":
    """Plot which query attends to which key: the usual patterns and Linformer's projection, or one kernel's."""
    patterns: list[AttentionPattern] = []
    linformer: AttentionConfig | None = None
    if attention is None:
        patterns = example_patterns(length)
        linformer = LinformerAttentionConfig(projected_length=4, max_length=length)
    elif not attention.keeps_positions:
        linformer = attention
    else:
        patterns.append(attention_pattern(f"{attention.kind}, encoder", attention, length))
        if attention.causal:
            patterns.append(attention_pattern(f"{attention.kind}, decoder", attention, length, causal=True))
    panels = len(patterns) + (linformer is not None)
    across = min(4, panels)
    figure = new_figure(max(5.2, 3.1 * across), 3.5 * math.ceil(panels / across))
    axes = figure.subplots(math.ceil(panels / across), across, squeeze=False).flatten()
    for ax, pattern in zip(axes, patterns, strict=False):
        _draw_pattern(ax, pattern)
    if linformer is not None:
        weights = length_projection(linformer, length)
        heat_map(
            axes[-1],
            weights.tolist(),
            title=f"Linformer: {length} keys → {len(weights)} mixtures",
            xlabel="key",
            ylabel="mixture",
        )
        axes[-1].set_aspect("auto")
    title = f"Attention over {length} tokens: one row per query, one column per key"
    if any(len(pattern.parts) > 1 for pattern in patterns):
        title += f"{'; ' if across > 2 else chr(10)}window blue, global green, random orange"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def length_projection(attention: AttentionConfig, length: int) -> Tensor:
    """Return Linformer's projection of keys along the length, with seeded weights (mixtures, length)."""
    kernel = build_kernel(attention)
    for name, weight in kernel.named_parameters():
        if name == "keys.weight":
            if length > weight.size(-1):
                raise InputError(f"The projection is for {weight.size(-1)} tokens at most; lower --length.")
            return weight.detach().reshape(-1, weight.size(-1))[:, :length]
    raise InputError(f"Attention of the kind {attention.kind} has neither a pattern nor a projection to plot.")


PART_COLORS = {"global": GREEN, "window": BLUE, "random": ORANGE}


def _draw_pattern(ax: "Axes", pattern: AttentionPattern) -> None:
    from matplotlib.patches import Rectangle

    length, keys = pattern.allowed.shape
    for name, part in pattern.parts.items():
        for i, j in part.nonzero().tolist():
            ax.add_patch(Rectangle((j + 0.05, i + 0.05), 0.9, 0.9, facecolor=PART_COLORS[name], linewidth=0))
    ax.set_xlim(0, keys)
    ax.set_ylim(length, 0)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_color(SOFT)
    ax.set_title(f"{pattern.title}\n{pattern.share}")


# --- lookup -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lookup:
    """A query, and what a hash table and attention return for it."""

    query: Tensor  # (D,)
    keys: Tensor  # (S, D)
    values: Tensor  # (S, E)
    match: int  # the key that equals the query
    weights: Tensor  # (S,)
    output: Tensor  # (E,): weights · values


def soft_lookup() -> Lookup:
    """Return a query that equals the second of four keys: a hash table finds its value, attention a weighted sum."""
    keys = torch.tensor([[2.0, 0.0], [1.0, 2.0], [0.0, 2.0], [-2.0, 1.0]])
    values = torch.tensor([[10.0, 0.0], [0.0, 10.0], [4.0, 8.0], [-6.0, 2.0]])
    query = keys[1]
    table = {tuple(key): n for n, key in enumerate(keys.tolist())}
    kernel = FullAttention(1 / math.sqrt(keys.size(1)))
    with open_taps(kernel, "weights") as seen:
        layout = make_layout(torch.zeros(1, len(keys)))
        queries = query.expand(len(keys), -1)  # the same query from every token
        output = kernel(queries[None, None], keys[None, None], values[None, None], layout)[0, 0, 0]
    return Lookup(query, keys, values, table[tuple(query.tolist())], seen["weights"][0, 0, 0], output)


@plot_style()
def plot_lookup() -> "Figure":
    """Plot a hash table next to attention: one key that equals the query, and a weight for every key."""
    lookup = soft_lookup()
    hard = [float(n == lookup.match) for n in range(len(lookup.keys))]
    figure = new_figure(11.5, 3.6)
    left, right = figure.subplots(1, 2)
    _draw_lookup(left, lookup, hard, lookup.values[lookup.match], "Hash table: the query must equal a key")
    title = "Attention: softmax(q · k / √d_k) for every key"
    _draw_lookup(right, lookup, lookup.weights.tolist(), lookup.output, title)
    return figure


def _draw_lookup(ax: "Axes", lookup: Lookup, weights: list[float], output: Tensor, title: str) -> None:
    """Draw the query at the left, a line to each key as thick as its weight, the values, and the output."""
    ax.set_xlim(0, 10)
    ax.set_ylim(4.4, -0.4)
    ax.axis("off")
    ax.set_title(title)
    middle = (len(weights) - 1) / 2 + 0.6
    _box(ax, 0.9, middle, f"query\n{_vector(lookup.query)}", ORANGE)
    for n, weight in enumerate(weights):
        y = n + 0.6
        if weight:
            ax.plot([1.35, 3.5], [middle, y], color=ORANGE, linewidth=0.6 + 5 * weight, solid_capstyle="butt", zorder=0)
            ax.plot([7.6, 8.7], [y, middle], color=GREEN, linewidth=0.6 + 5 * weight, solid_capstyle="butt", zorder=0)
        _box(ax, 4.2, y, f"key {_vector(lookup.keys[n])}", BLUE)
        ax.text(5.4, y, f"{weight:.2f}", ha="center", va="center", fontsize=9, color=INK if weight else SOFT)
        _box(ax, 6.8, y, f"value {_vector(lookup.values[n])}", GREEN)
    ax.text(5.4, 0.0, "weight", ha="center", va="center", fontsize=8, color=SOFT)
    _box(ax, 9.2, middle, f"output\n{_vector(output)}", GREEN)


def _box(ax: "Axes", x: float, y: float, text: str, color: str) -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": "#ffffff", "edgecolor": color, "linewidth": 1.2}
    ax.text(x, y, text, ha="center", va="center", fontsize=8, bbox=box)


def _vector(values: Tensor) -> str:
    return "(" + ", ".join(f"{value:.1f}".removesuffix(".0").replace("-", "−") for value in values.tolist()) + ")"
