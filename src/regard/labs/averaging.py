# ruff: noqa: E501
"""Attention without feed-forward layers: linear once its weights are given, and what it can and cannot learn so.

B texts · T tokens · C model width
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
from regard.labs.charts.lines import format_number, line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import fit
from regard.labs.trials.tasks import SymbolBatch
from regard.models import build
from regard.models.network import Network
from regard.nn import FeedForward, open_taps
from regard.nn.taps import taps_of
from regard.plotting import new_figure, plot_style

METHOD = """
Networks with attention alone, with feed-forward layers whose non-linearity was taken out, and with feed-forward layers
as they are; no normalisation, which is not linear either. Three things are measured.

First, before training: the output for the mean of two inputs is compared with the mean of their two outputs. The
attention weights are held at what they are for the mean, so that only what is done to the values is seen; then they
are let free. If the two agree, the network is a linear map of its values.

Second, before training and without residual connections: how far the vectors of 16 tokens lie from their mean, as a
share of their length, after each layer. Averages of averages draw together; and tokens that are alike have queries and
keys that are alike, so that weights become even and the next layer averages the more.

Third, by training: a token stands for three bits, whose vector is known and not learned, and the network is to say
whether their sum is even. No linear function of the bits does better at that than guessing, log 2 = 0.69 nats. Once
the token is alone, so that attention has nothing to weigh; once a token that is always the same stands before it.
"""
LIMITATIONS = """
Attention is linear in the values and not in its inputs: the weights come out of a softmax. So "only re-averages" says
what is done to the values, not which functions can be learned: with something to look at, the weights themselves may
compute. That tokens draw together is shown of networks before training and without normalisation, whose vectors also
change their length from layer to layer (Dong et al. 2021 prove it for attention in general, and that it goes faster
with each layer). What feed-forward layers bring to a large network that also remembers facts in them, three bits cannot
tell.
"""

BITS = 3
TOKENS = 2**BITS
COMPANION, EVEN, ODD = range(TOKENS, TOKENS + 3)
CHANCE = math.log(2)


@dataclass(frozen=True)
class Layers:
    """What a layer has besides attention."""

    feed_forward: bool
    activation: bool = True
    residual: bool = True


ALONE, LINEAR, WHOLE = "attention alone", "feed-forward without its non-linearity", "with feed-forward"
KINDS = {ALONE: Layers(False), LINEAR: Layers(True, activation=False), WHOLE: Layers(True)}
RESIDUAL = "with residuals"
COLLAPSING = {
    ALONE: Layers(False, residual=False),
    WHOLE: Layers(True, residual=False),
    RESIDUAL: Layers(False),
    "with both": Layers(True),
}


def run(context: LabContext) -> LabResult:
    """Compare, stack, train, draw."""
    held = {name: bend(kind) for name, kind in KINDS.items()}
    free = bend(KINDS[ALONE], hold=False)
    layers, draws = context.by_effort(4, 6, 6), context.by_effort(2, 5, 20)
    spreads = {name: [spread(kind, layers, seed) for seed in range(draws)] for name, kind in COLLAPSING.items()}
    steps, seeds = context.by_effort(120, 300, 400), context.by_effort(1, 3, 5)
    depths = context.by_effort([2], [1, 2, 4], [1, 2, 4, 8])
    tasks = [(name, False, depth) for depth in depths for name in KINDS] + [(ALONE, True, depths[0])]
    learned: dict[str, list[list[float]]] = {}
    for name, companion, depth in tasks:
        called = _called(name, companion, depth)
        learned[called] = [_learn(KINDS[name], depth, companion, steps, seed) for seed in range(seeds)]
        context.log(f"  {called}: a loss of {_mean_end(learned[called]):.3f} nats after {steps} steps")
    linear = [_called(name, False, depth) for name in (ALONE, LINEAR) for depth in depths]
    whole = [_called(WHOLE, False, depth) for depth in depths]
    helped = _called(ALONE, True, depths[0])
    drawn = {name: [format_number(fmean(layer)) for layer in zip(*runs, strict=True)] for name, runs in spreads.items()}
    return LabResult(
        holds=max(held[ALONE], held[LINEAR]) < 1e-6
        and held[WHOLE] > 0.03
        and min(run[-1] for name in linear for run in learned[name]) > 0.9 * CHANCE
        and max(run[-1] for name in whole for run in learned[name]) < 0.3 * CHANCE,
        summary=f"With the weights held, the output for a mean is off the mean of the outputs by {format_number(held[ALONE])} "
        f"of their distance in attention alone, by {format_number(held[LINEAR])} with feed-forward layers that lack their "
        f"non-linearity, and by {format_number(held[WHOLE])} with feed-forward layers; rounding is about 10⁻¹⁶. Without "
        f"residual connections tokens lie {_listed(drawn[ALONE][1:4])} of their length from their mean after one, two "
        f"and three layers of attention alone, {_listed(drawn[WHOLE][1:4])} with feed-forward layers, and with "
        f"residual connections {_listed(drawn[RESIDUAL][1:4])}. The parity of three bits of one token, of which "
        f"guessing costs {CHANCE:.3f} nats, is left with {_span([_mean_end(learned[name]) for name in linear])} nats "
        f"without feed-forward layers or without their non-linearity (layers: {_listed(depths)}), and with "
        f"{_span([_mean_end(learned[name]) for name in whole])} with them. Where the token has a companion to look at, "
        f"attention alone comes to {_mean_end(learned[helped]):.3f}: the softmax of its weights is not linear (left "
        f"free, they bend the outputs by {free:.0%}). Seeds: {seeds}.",
        numbers={
            "bend_weights_held": held,
            "bend_weights_free": {ALONE: free},
            "spread_by_layer": spreads,
            "final_loss": {name: [run[-1] for run in runs] for name, runs in learned.items()},
        },
        figures=[_draw(spreads, _some(learned, depths))],
        tables=[_bend_table(held, free), _loss_table(learned)],
    )


@torch.no_grad()
def bend(kind: Layers, *, hold: bool = True) -> float:
    """How far the output for the mean of two inputs is from the mean of their outputs, in shares of their distance.

    Zero for a network that is linear in its inputs; with `hold`, in its inputs given the attention weights.
    """
    network = _reader(kind, layers=2, seed=0)
    random = torch.Generator().manual_seed(1)
    one, other = (torch.randn(1, 16, 32, generator=random, dtype=torch.double) for _ in range(2))
    weights = [name for name in network.taps if name.endswith(".weights")]
    with open_taps(network, *weights) as seen:
        middle = _output(network, (one + other) / 2)
    with _held(network, seen) if hold else ExitStack():
        ends = [_output(network, x) for x in (one, other)]
    return float((middle - (ends[0] + ends[1]) / 2).norm() / (ends[0] - ends[1]).norm())


@torch.no_grad()
def spread(kind: Layers, layers: int, seed: int) -> list[float]:
    """How far tokens lie from their mean, as a share of their length: of the input, and after each layer."""
    network = _reader(kind, layers, seed)
    x = torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    last = "feed_forward_residual" if kind.feed_forward else "attention_residual"
    names = [f"encoder.layers.{layer}.{last}.sum" for layer in range(layers)]
    with open_taps(network, *names) as seen:
        _output(network, x)
    return [float((v - v.mean(1, keepdim=True)).norm() / v.norm()) for v in (x, *(seen[name] for name in names))]


def _reader(kind: Layers, layers: int, seed: int) -> Network:
    """An untrained encoder in double precision, so that rounding is far from everything else."""
    torch.manual_seed(seed)
    config = EncoderOnlyConfig(
        vocab_size=1,
        width=32,
        layers=layers,
        heads=4,
        feed_forward=64 if kind.feed_forward else 0,
        norm="none",
        residual=kind.residual,
        positions=NoPositionsConfig(),
        dropout=0.0,
    )
    return _without_activation(build(config), kind).double().eval()


def _output(network: Network, x: Tensor) -> Tensor:
    """What the network makes of vectors (1, T, C), put in place of embeddings."""
    hook = network.taps["encoder.embedding.sum"].register_forward_hook(lambda _module, _arguments, _sum: x)
    try:
        return network.encode(torch.zeros(x.shape[:2], dtype=torch.long)).states
    finally:
        hook.remove()


@contextmanager
def _held(network: Network, values: dict[str, Tensor]) -> Iterator[None]:
    """While it lasts, these values pass the named taps, whatever comes."""
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


def parity(companion: bool) -> SymbolBatch:
    """Every token once, asked whether its bits have an even sum; with a companion before it, or alone."""
    ids = torch.arange(TOKENS)[:, None]
    answers = torch.where(_bits().sum(1, keepdim=True) % 2 == 0, EVEN, ODD)
    if companion:
        ids = torch.cat([torch.full_like(ids, COMPANION), ids], dim=1)
        answers = torch.cat([torch.zeros_like(answers), answers], dim=1)
    asked = torch.zeros_like(ids, dtype=torch.bool)
    asked[:, -1] = True
    return SymbolBatch(ids, answers, asked)


def _learn(kind: Layers, layers: int, companion: bool, steps: int, seed: int) -> list[float]:
    torch.manual_seed(seed)
    config = DecoderOnlyConfig(
        vocab_size=TOKENS + 3,
        width=32,
        layers=layers,
        heads=4,
        feed_forward=64 if kind.feed_forward else 0,
        norm="none",
        positions=NoPositionsConfig(),
        attention_bias=True,
        tie_output=False,
        output_bias=True,
        scale_embeddings=False,
        dropout=0.0,
    )
    network = _without_activation(build(config), kind)
    _give_bits(network)
    batch = parity(companion)
    return fit(network, iter(lambda: batch, None), steps, learning_rate=5e-3).losses


@torch.no_grad()
def _give_bits(network: Network) -> None:
    """Make the bits of a token, as ±1 along directions at right angles, its vector for good.

    A learned vector could hold the answer itself, and nothing would be left for the layers to do.
    """
    table = network.get_parameter("decoder.embedding.weight")  # (V, C)
    features = torch.zeros(len(table), BITS + 1)
    features[:TOKENS, :BITS] = 2.0 * _bits() - 1
    features[COMPANION, BITS] = 1.0
    directions = torch.linalg.qr(torch.randn(table.size(1), BITS + 1)).Q.T
    table.copy_(features @ directions * math.sqrt(table.size(1) / (BITS + 1)))
    table.requires_grad_(False)


def _bits() -> Tensor:
    return torch.tensor(list(product((0, 1), repeat=BITS)))


def _without_activation(network: Network, kind: Layers) -> Network:
    for part in network.modules():
        if isinstance(part, FeedForward) and not kind.activation:
            part.activation = nn.Identity()
    return network


def _called(name: str, companion: bool, depth: int) -> str:
    return f"{name}{', with a companion' if companion else ''}, {depth} layer{'s' if depth > 1 else ''}"


def _some(learned: dict[str, list[list[float]]], depths: list[int]) -> dict[str, list[list[float]]]:
    """The curves that are drawn, under shorter names: one depth, since the others look the same."""
    names = {
        "attention alone": _called(ALONE, False, depths[0]),
        "no non-linearity": _called(LINEAR, False, depths[0]),
        "with feed-forward": _called(WHOLE, False, depths[0]),
        "attention, companion": _called(ALONE, True, depths[0]),
    }
    return {short: learned[name] for short, name in names.items()}


def _draw(spreads: dict[str, list[list[float]]], learned: dict[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(10.5, 3.4)
        left, right = figure.subplots(1, 2)
        layers = range(len(spreads[ALONE][0]))
        lines = {name: over_seeds(layers, runs) for name, runs in spreads.items()}
        apart = line_chart(
            left, lines, title="distance of tokens from their mean", xlabel="layers passed", yscale="log"
        )
        steps = range(1, len(next(iter(learned.values()))[0]) + 1)
        curves = {name: over_seeds(steps, runs) for name, runs in learned.items()}
        loss = line_chart(right, curves, title="loss of the parity of three bits, nats", xlabel="step", markers=False)
    return LabFigure(
        "averaging",
        "Left: how far the vectors of tokens lie from their mean, without residual connections and with them (shares "
        "of a vector's length, before training; 10⁻¹⁶ is rounding). Right: learning a function of one token that "
        "is not linear.",
        figure,
        f"Two charts, the first with its height by powers. {apart} {loss}",
    )


def _bend_table(held: dict[str, float], free: float) -> LabTable:
    rows = [[f"{name}, weights held", format_number(value)] for name, value in held.items()]
    rows.append([f"{ALONE}, weights free", format_number(free)])
    return LabTable("Off the straight line: output of the mean against mean of the outputs", ["", "share"], rows)


def _loss_table(learned: dict[str, list[list[float]]]) -> LabTable:
    rows = [[name, f"{_mean_end(runs):.4f}"] for name, runs in learned.items()]
    return LabTable("Parity of three bits of one token; guessing is 0.6931", ["", "loss, nats"], rows)


def _mean_end(runs: list[list[float]]) -> float:
    return fmean(run[-1] for run in runs)


def _listed(values: Sequence[object]) -> str:
    """Values as one says them: a, b and c."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"
