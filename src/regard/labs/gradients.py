"""Gradient of the last state with respect to earlier tokens: vanishing and exploding with distance."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.interpret.forward_pass import thread_hooks
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import line_chart, over_seeds, two_digits
from regard.models import build
from regard.models.network import Network
from regard.nn.recurrent import RecurrentLayer
from regard.plotting import new_figure, plot_style

METHOD = """
Untrained networks of one layer process random tokens. The state of the last token is multiplied by random numbers and
summed, and the gradient of this sum with respect to the embedding of each earlier token is taken. The reported norm is
the root mean square over sequences and random numbers, by the distance of the token from the last one. Everything is
computed in double precision, so that small values are not lost.

The RNN is measured with its default initialization, an orthogonal recurrent matrix, and with four times these weights.
The LSTM is measured with its default initialization, a forget-gate bias of 1 (σ(1) = 0.73), and with a bias of 5, which
leaves the gate almost open (σ(5) = 0.99). Both LSTMs are also measured with their recurrent matrix set to zero, so that
the forget gate is the only path between steps. The factor in the table is the change of the gradient per step: the
slope of the least-squares line through the logarithms, without the first eighth of the distances.
"""
LIMITATIONS = """
These networks are untrained. An LSTM that has to remember learns to open its forget gate, and an RNN may learn weights
that preserve some directions. Between one and four times the default weights there is a scale at which the gradient of
an RNN neither vanishes nor explodes for a while; it has to be found and depends on the input. In attention the gradient
is divided among all tokens: at initialization each of n tokens gets about 1/n of it. Gradients through many layers are
the subject of the lab `depth`.
"""

CONSTANT_WITHIN = 0.02  # a factor closer to 1 than this is reported as constant
RNN, RNN_LARGE = "RNN", "RNN, weights × 4"
LSTM, LSTM_OPEN, GRU, TRANSFORMER = "LSTM", "LSTM, forget bias 5", "GRU", "Transformer"
VOCAB_SIZE, SEQUENCES = 64, 16


@dataclass(frozen=True)
class MeasuredNetwork:
    """Settings of a network by width, and a change of its recurrent layers after initialization."""

    config: Callable[[int], ModelConfig]
    change: Callable[[RecurrentLayer], None] = lambda layer: None


def run(context: LabContext) -> LabResult:
    """Measure the gradient norms by distance."""
    length, width, seeds = context.by_effort((48, 32, 2), (64, 128, 5), (128, 256, 10))
    norms: dict[str, list[list[float]]] = {}
    for name, network in NETWORKS.items():
        norms[name] = [gradient_norms_by_distance(_build(network, width, seed), length, seed) for seed in range(seeds)]
        context.log(f"  {name}: × {factor_per_step(norms[name][0]):.2f} per step")
    factors = {name: [factor_per_step(run) for run in runs] for name, runs in norms.items()}
    mean = {name: geometric_mean(values) for name, values in factors.items()}
    ratios = {name: geometric_mean([run[-1] / run[1] for run in runs]) for name, runs in norms.items()}
    gate_factors = {
        name: geometric_mean(
            [factor_per_step(gradient_norms_by_distance(_build(network, width, n), length, n)) for n in range(seeds)]
        )
        for name, network in GATE_ONLY_NETWORKS.items()
    }
    ratio_texts = [two_digits(ratios[name]) for name in (RNN, RNN_LARGE, LSTM, GRU, TRANSFORMER)]
    return LabResult(
        holds=max(factors[RNN]) < 0.8
        and min(factors[RNN_LARGE]) > 1.2
        and min(factors[LSTM]) > max(factors[RNN])
        and min(factors[LSTM_OPEN]) > max(factors[LSTM])
        and all(0.95 < factor < 1.05 for factor in factors[TRANSFORMER]),
        summary=f"Per step of distance the gradient is multiplied by {mean[RNN]:.2f} in the RNN, {mean[RNN_LARGE]:.2f} "
        f"in the RNN with four times the weights, {mean[LSTM]:.2f} in the LSTM, {mean[GRU]:.2f} in the GRU and "
        f"{mean[TRANSFORMER]:.2f} in the Transformer. Relative to the previous token, the gradient at distance "
        f"{length - 1} is {', '.join(ratio_texts[:-1])} and {ratio_texts[-1]} times as large. At initialization the "
        f"gradient of the LSTM {_trend(mean[LSTM])}; through the forget gate alone the factor is "
        f"{gate_factors[LSTM]:.2f}, and the path through the hidden state "
        f"{'increases' if mean[LSTM] > gate_factors[LSTM] else 'decreases'} it. With a forget bias of 5 the factor is "
        f"{mean[LSTM_OPEN]:.2f} and the gradient {_trend(mean[LSTM_OPEN])} (through the gate alone "
        f"{gate_factors[LSTM_OPEN]:.2f}): gating allows the gradient to be preserved but does not guarantee it (seeds: "
        f"{seeds}).",
        numbers={
            "distance": list(range(length)),
            "gradient_norm": norms,
            "factor_per_step": factors,
            "factor_forget_gate_only": gate_factors,
        },
        figures=[_figure(norms)],
        tables=[_table(norms, mean)],
    )


def gradient_norms_by_distance(network: Network, length: int, seed: int) -> list[float]:
    """Return the gradient norms of the last state with respect to the token at distance 0, 1, ..."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCAB_SIZE, (SEQUENCES, length), generator=generator)
    embeddings: list[Tensor] = []

    def detach(_: Tensor, vectors: Tensor) -> Tensor:
        embeddings.append(vectors.detach().requires_grad_())
        return embeddings[0]

    with thread_hooks([(network.taps["decoder.embedding.sum"], detach)]):
        last = network.decode(ids)[:, -1]  # (B, C)
    projected = last * torch.randn(last.shape, generator=generator, dtype=last.dtype)
    (gradient,) = torch.autograd.grad(projected.sum() / math.sqrt(last.size(-1)), embeddings)  # (B, T, C)
    norms: list[float] = gradient.square().sum(-1).mean(0).sqrt().flip(0).tolist()
    return norms


def factor_per_step(norms: Sequence[float]) -> float:
    """Return the factor by which the norms change per step: the slope of a least-squares fit of their logarithms.

    >>> round(factor_per_step([8.0, 4.0, 2.0, 1.0]), 3)
    0.5
    """
    logs = torch.tensor(norms, dtype=torch.float64).log()[len(norms) // 8 :]
    distances = torch.arange(len(logs), dtype=torch.float64)
    distances -= distances.mean()
    return math.exp(float((distances @ logs) / (distances @ distances)))


def _build(network: MeasuredNetwork, width: int, seed: int) -> Network:
    torch.manual_seed(seed)
    built = build(network.config(width)).double().eval()
    with torch.no_grad():
        for layer in (module for module in built.modules() if isinstance(module, RecurrentLayer)):
            network.change(layer)
    return built


def _recurrent(cell: Literal["rnn", "lstm", "gru"]) -> Callable[[int], ModelConfig]:
    return lambda width: RecurrentLanguageModelConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, cell=cell)


def _transformer(width: int) -> ModelConfig:
    return DecoderOnlyConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, heads=4, feed_forward=4 * width)


def _scale_recurrent_weights(layer: RecurrentLayer) -> None:
    _, h_weight, _, _ = layer.weights()
    h_weight *= 4


def _open_forget_gate(layer: RecurrentLayer) -> None:
    _, _, x_bias, _ = layer.weights()
    x_bias[layer.width : 2 * layer.width] = 5.0  # the forget gate is the second in PyTorch's order


def _remove_recurrent_weights(layer: RecurrentLayer) -> None:
    _, h_weight, _, _ = layer.weights()
    h_weight *= 0


def _keep_only_open_gate(layer: RecurrentLayer) -> None:
    _open_forget_gate(layer)
    _remove_recurrent_weights(layer)


NETWORKS = {
    RNN: MeasuredNetwork(_recurrent("rnn")),
    RNN_LARGE: MeasuredNetwork(_recurrent("rnn"), _scale_recurrent_weights),
    LSTM: MeasuredNetwork(_recurrent("lstm")),
    LSTM_OPEN: MeasuredNetwork(_recurrent("lstm"), _open_forget_gate),
    GRU: MeasuredNetwork(_recurrent("gru")),
    TRANSFORMER: MeasuredNetwork(_transformer),
}
GATE_ONLY_NETWORKS = {
    LSTM: MeasuredNetwork(_recurrent("lstm"), _remove_recurrent_weights),
    LSTM_OPEN: MeasuredNetwork(_recurrent("lstm"), _keep_only_open_gate),
}


def _figure(norms: Mapping[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 4.6)
        distances = range(len(norms[RNN][0]))
        lines = {name: over_seeds(distances, runs, mean=geometric_mean) for name, runs in norms.items()}
        title, xlabel = "gradient norm of the last state with respect to a token", "distance from the last token"
        description = line_chart(figure.subplots(), lines, title=title, xlabel=xlabel, yscale="log", markers=False)
    return LabFigure(
        "gradients",
        "Gradient norm by distance before training (log scale). Lines are geometric means over seeds, bands their "
        "range.",
        figure,
        f"A line chart with a log y-axis. {description}",
    )


def _trend(factor: float) -> str:
    if abs(factor - 1) < CONSTANT_WITHIN:
        return "stays about constant"
    return "decreases" if factor < 1 else "increases"


def _table(norms: Mapping[str, list[list[float]]], mean: Mapping[str, float]) -> LabTable:
    length = len(norms[RNN][0])
    distances = [1, *(length * quarter // 4 for quarter in (1, 2, 3)), length - 1]
    rows = [
        [name, *(two_digits(geometric_mean([run[n] for run in runs])) for n in distances), f"{mean[name]:.2f}"]
        for name, runs in norms.items()
    ]
    return LabTable("Gradient norm by distance", ["distance", *map(str, distances), "factor per step"], rows)
