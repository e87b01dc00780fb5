"""Attention without feed-forward layers: linear in its values for fixed weights, and what it can learn.

B batch · T tokens · C model width
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import torch
from torch import Tensor, nn

from regard.config import DecoderOnlyConfig, EncoderOnlyConfig
from regard.config.positions import NoPositionsConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import line_chart, over_seeds, two_digits
from regard.labs.trials import SymbolBatch, fit
from regard.models import build
from regard.models.network import Network
from regard.nn import FeedForward, open_taps
from regard.nn.taps import taps_of
from regard.plotting import new_figure, plot_style

METHOD = """
Networks with attention only, with feed-forward layers without their activation function, and with complete feed-forward
layers; all without normalization, which is nonlinear too. Three things are measured.

First, before training: the output for the mean of two inputs is compared with the mean of their outputs, relative to
the distance of the outputs. The attention weights are fixed at those of the mean input, so that only the effect on the
values is measured; then they are left free. The difference is zero if the network is a linear map of its values.

Second, before training and without residual connections: the distance of the vectors of 16 tokens from their mean,
relative to their norm, after each layer. Repeated averaging makes tokens similar, similar tokens get similar attention
weights, and so the next layer averages even more (rank collapse).

Third, by training: a token encodes three bits by a fixed embedding, and the network has to predict their parity. No
linear function of the bits does better than chance, log 2 = 0.69 nats. The token is either alone, so that attention has
nothing to weigh, or preceded by a constant context token.
"""
LIMITATIONS = """
Attention is linear in its values but not in its inputs, because the weights come from a softmax. "Only re-averages"
therefore describes what happens to the values, not which functions can be learned: with a second token to attend to,
the weights themselves can compute. Rank collapse is shown for untrained networks without normalization, whose vectors
also change their norm from layer to layer (Dong et al. 2021 prove it for attention in general, with a doubly
exponential rate). Three bits say nothing about what feed-forward layers store in large networks.
"""

BITS = 3
TOKENS = 2**BITS
CONTEXT_TOKEN, EVEN, ODD = range(TOKENS, TOKENS + 3)
CHANCE = math.log(2)


@dataclass(frozen=True)
class LayerParts:
    """Parts of a layer besides attention."""

    feed_forward: bool
    activation: bool = True
    residual: bool = True


ATTENTION, LINEAR, COMPLETE = "attention only", "linear feed-forward", "with feed-forward"
LAYER_VARIANTS = {
    ATTENTION: LayerParts(False),
    LINEAR: LayerParts(True, activation=False),
    COMPLETE: LayerParts(True),
}
RESIDUAL = "with residuals"
COLLAPSE_VARIANTS = {
    ATTENTION: LayerParts(False, residual=False),
    COMPLETE: LayerParts(True, residual=False),
    RESIDUAL: LayerParts(False),
    "with both": LayerParts(True),
}


def run(context: LabContext) -> LabResult:
    """Measure linearity and rank collapse, and learn parity."""
    fixed = {name: nonlinearity(parts) for name, parts in LAYER_VARIANTS.items()}
    free = nonlinearity(LAYER_VARIANTS[ATTENTION], fix_weights=False)
    layers, draws = context.by_effort(4, 6, 6), context.by_effort(2, 5, 20)
    spreads = {
        name: [token_spread(parts, layers, seed) for seed in range(draws)] for name, parts in COLLAPSE_VARIANTS.items()
    }
    steps, seeds = context.by_effort(120, 300, 400), context.by_effort(1, 3, 5)
    depths = context.by_effort([2], [1, 2, 4], [1, 2, 4, 8])
    tasks = [(name, False, depth) for depth in depths for name in LAYER_VARIANTS] + [(ATTENTION, True, depths[0])]
    losses: dict[str, list[list[float]]] = {}
    for name, with_context, depth in tasks:
        label = _run_name(name, with_context, depth)
        losses[label] = [_learn_parity(LAYER_VARIANTS[name], depth, with_context, steps, seed) for seed in range(seeds)]
        context.log(f"  {label}: loss {_mean_final(losses[label]):.3f} nats after {steps} steps")
    linear = [_run_name(name, False, depth) for name in (ATTENTION, LINEAR) for depth in depths]
    complete = [_run_name(COMPLETE, False, depth) for depth in depths]
    with_context_token = _run_name(ATTENTION, True, depths[0])
    by_layer = {name: [two_digits(fmean(layer)) for layer in zip(*runs, strict=True)] for name, runs in spreads.items()}
    return LabResult(
        holds=max(fixed[ATTENTION], fixed[LINEAR]) < 1e-6
        and fixed[COMPLETE] > 0.03
        and min(run[-1] for name in linear for run in losses[name]) > 0.9 * CHANCE
        and max(run[-1] for name in complete for run in losses[name]) < 0.3 * CHANCE,
        summary="With fixed attention weights, the output of the mean differs from the mean of the outputs by "
        f"{two_digits(fixed[ATTENTION])} (attention only), {two_digits(fixed[LINEAR])} (linear feed-forward) and "
        f"{two_digits(fixed[COMPLETE])} (with feed-forward) of their distance; rounding is about 10⁻¹⁶. Without "
        "residual connections the relative distance of tokens from their mean after one, two and three layers is "
        f"{_enumerate(by_layer[ATTENTION][1:4])} with attention only and {_enumerate(by_layer[COMPLETE][1:4])} with "
        f"feed-forward layers; with residual connections it is {_enumerate(by_layer[RESIDUAL][1:4])}. The loss of the "
        f"parity of three bits (chance: {CHANCE:.3f} nats) is {_range([_mean_final(losses[name]) for name in linear])} "
        f"nats without feed-forward layers or without their activation (layers: {_enumerate(depths)}), and "
        f"{_range([_mean_final(losses[name]) for name in complete])} with them. With a context token, attention only "
        f"reaches {_mean_final(losses[with_context_token]):.3f}, because the softmax of its weights is nonlinear (with "
        f"free weights the difference above is {free:.0%}). Seeds: {seeds}.",
        numbers={
            "nonlinearity_fixed_weights": fixed,
            "nonlinearity_free_weights": {ATTENTION: free},
            "token_spread_by_layer": spreads,
            "final_loss": {name: [run[-1] for run in runs] for name, runs in losses.items()},
        },
        figures=[_figure(spreads, _shown_curves(losses, depths))],
        tables=[_nonlinearity_table(fixed, free), _loss_table(losses)],
    )


# --- linearity and rank collapse --------------------------------------------------------------------------------------


@torch.no_grad()
def nonlinearity(parts: LayerParts, *, fix_weights: bool = True) -> float:
    """Return the difference of the output of a mean from the mean of the outputs, relative to their distance.

    It is zero for a network that is linear in its inputs or, with `fix_weights`, linear given the attention weights.
    """
    network = _untrained_encoder(parts, layers=2, seed=0)
    generator = torch.Generator().manual_seed(1)
    x1, x2 = (torch.randn(1, 16, 32, generator=generator, dtype=torch.double) for _ in range(2))
    weights = [name for name in network.taps if name.endswith(".weights")]
    with open_taps(network, *weights) as seen:
        middle = _output(network, (x1 + x2) / 2)
    with _fixed_taps(network, seen) if fix_weights else ExitStack():
        ends = [_output(network, x) for x in (x1, x2)]
    return float((middle - (ends[0] + ends[1]) / 2).norm() / (ends[0] - ends[1]).norm())


@torch.no_grad()
def token_spread(parts: LayerParts, layers: int, seed: int) -> list[float]:
    """Return the distance of tokens from their mean, relative to their norm: of the input and after each layer."""
    network = _untrained_encoder(parts, layers, seed)
    x = torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    last = "feed_forward_residual" if parts.feed_forward else "attention_residual"
    names = [f"encoder.layers.{layer}.{last}.sum" for layer in range(layers)]
    with open_taps(network, *names) as seen:
        _output(network, x)
    return [float((v - v.mean(1, keepdim=True)).norm() / v.norm()) for v in (x, *(seen[name] for name in names))]


def _untrained_encoder(parts: LayerParts, layers: int, seed: int) -> Network:
    """Return an encoder in double precision, so that rounding errors are far below the measured effects."""
    torch.manual_seed(seed)
    config = EncoderOnlyConfig(
        vocab_size=1,
        width=32,
        layers=layers,
        heads=4,
        feed_forward=64 if parts.feed_forward else 0,
        norm="none",
        residual=parts.residual,
        positions=NoPositionsConfig(),
        dropout=0.0,
    )
    return _remove_activation(build(config), parts).double().eval()


def _output(network: Network, x: Tensor) -> Tensor:
    """Return the output for vectors (1, T, C) that replace the embeddings."""
    hook = network.taps["encoder.embedding.sum"].register_forward_hook(lambda _module, _arguments, _sum: x)
    try:
        return network.encode(torch.zeros(x.shape[:2], dtype=torch.long)).states
    finally:
        hook.remove()


@contextmanager
def _fixed_taps(network: Network, values: dict[str, Tensor]) -> Iterator[None]:
    """Replace the values of the named taps inside the context."""
    taps = taps_of(network)
    hooks = [
        taps[name].register_forward_hook(lambda _module, _arguments, _x, value=value: value)
        for name, value in values.items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# --- parity -----------------------------------------------------------------------------------------------------------


def parity_batch(with_context: bool) -> SymbolBatch:
    """Return every token once, with its parity as label, optionally preceded by the context token."""
    ids = torch.arange(TOKENS)[:, None]
    labels = torch.where(_bits().sum(1, keepdim=True) % 2 == 0, EVEN, ODD)
    if with_context:
        ids = torch.cat([torch.full_like(ids, CONTEXT_TOKEN), ids], dim=1)
        labels = torch.cat([torch.zeros_like(labels), labels], dim=1)
    label_mask = torch.zeros_like(ids, dtype=torch.bool)
    label_mask[:, -1] = True
    return SymbolBatch(ids, labels, label_mask)


def _learn_parity(parts: LayerParts, layers: int, with_context: bool, steps: int, seed: int) -> list[float]:
    torch.manual_seed(seed)
    config = DecoderOnlyConfig(
        vocab_size=TOKENS + 3,
        width=32,
        layers=layers,
        heads=4,
        feed_forward=64 if parts.feed_forward else 0,
        norm="none",
        positions=NoPositionsConfig(),
        attention_bias=True,
        tie_output=False,
        output_bias=True,
        scale_embeddings=False,
        dropout=0.0,
    )
    network = _remove_activation(build(config), parts)
    _fix_embeddings(network)
    batch = parity_batch(with_context)
    return fit(network, iter(lambda: batch, None), steps, learning_rate=5e-3).losses


@torch.no_grad()
def _fix_embeddings(network: Network) -> None:
    """Embed each token as its bits, ±1 along orthogonal directions, and freeze the embedding.

    A learned embedding could store the answer itself and leave nothing for the layers to compute.
    """
    embedding = network.get_parameter("decoder.embedding.weight")  # (V, C)
    features = torch.zeros(len(embedding), BITS + 1)
    features[:TOKENS, :BITS] = 2.0 * _bits() - 1
    features[CONTEXT_TOKEN, BITS] = 1.0
    directions = torch.linalg.qr(torch.randn(embedding.size(1), BITS + 1)).Q.T
    embedding.copy_(features @ directions * math.sqrt(embedding.size(1) / (BITS + 1)))
    embedding.requires_grad_(False)


def _bits() -> Tensor:
    return torch.tensor(list(product((0, 1), repeat=BITS)))


def _remove_activation(network: Network, parts: LayerParts) -> Network:
    for module in network.modules():
        if isinstance(module, FeedForward) and not parts.activation:
            module.activation = nn.Identity()
    return network


# --- output -----------------------------------------------------------------------------------------------------------


def _run_name(name: str, with_context: bool, depth: int) -> str:
    return f"{name}{', context token' if with_context else ''}, {depth} layer{'s' if depth > 1 else ''}"


def _shown_curves(losses: dict[str, list[list[float]]], depths: list[int]) -> dict[str, list[list[float]]]:
    """Return the curves of one depth with short names; the other depths look the same."""
    names = {
        ATTENTION: _run_name(ATTENTION, False, depths[0]),
        LINEAR: _run_name(LINEAR, False, depths[0]),
        COMPLETE: _run_name(COMPLETE, False, depths[0]),
        "with context token": _run_name(ATTENTION, True, depths[0]),
    }
    return {short: losses[name] for short, name in names.items()}


def _figure(spreads: dict[str, list[list[float]]], losses: dict[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(10.5, 3.4)
        left, right = figure.subplots(1, 2)
        layers = range(len(spreads[ATTENTION][0]))
        lines = {name: over_seeds(layers, runs) for name, runs in spreads.items()}
        spread = line_chart(left, lines, title="distance of tokens from their mean", xlabel="layers", yscale="log")
        steps = range(1, len(next(iter(losses.values()))[0]) + 1)
        curves = {name: over_seeds(steps, runs) for name, runs in losses.items()}
        loss = line_chart(right, curves, title="loss of 3-bit parity (nats)", xlabel="step", markers=False)
    return LabFigure(
        "averaging",
        "Left: distance of the vectors of tokens from their mean, relative to their norm, before training, with and "
        "without residual connections (10⁻¹⁶ is rounding). Right: learning a nonlinear function of one token.",
        figure,
        f"Two line charts, the first with a log y-axis. {spread} {loss}",
    )


def _nonlinearity_table(fixed: dict[str, float], free: float) -> LabTable:
    rows = [[f"{name}, fixed weights", two_digits(value)] for name, value in fixed.items()]
    rows.append([f"{ATTENTION}, free weights", two_digits(free)])
    return LabTable("Output of the mean against mean of the outputs", ["", "relative difference"], rows)


def _loss_table(losses: dict[str, list[list[float]]]) -> LabTable:
    rows = [[name, f"{_mean_final(runs):.4f}"] for name, runs in losses.items()]
    return LabTable("Parity of the three bits of one token; chance is 0.6931", ["", "loss (nats)"], rows)


def _mean_final(runs: list[list[float]]) -> float:
    return fmean(run[-1] for run in runs)


def _enumerate(values: Sequence[object]) -> str:
    """Return values in words: a, b and c."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"
