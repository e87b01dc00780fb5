"""Sequential operations of a forward pass, and its time, for recurrent networks and self-attention."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, RecurrentLanguageModelConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import LineSeries, line_chart
from regard.labs.measurements import best_times, longest_chain
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
Three language models of one layer and the same width process one sequence of n tokens in one pass, as in training: an
RNN, an LSTM, and masked self-attention with residual connection and normalization but no feed-forward layer. The number
of sequential operations is the longest path from the embeddings to the last state in the autograd graph. For this count
every step is computed separately, so that no fused kernel hides its steps. Nothing is derived from a formula.

Then the same passes are timed with the kernels that training uses, forward only and forward plus backward. Each time is
the minimum over several rounds in which the networks take turns; CPU time with one thread, wall-clock time with more.
"""
LIMITATIONS = """
The count bounds the speed on hardware with unlimited parallelism; few cores have to do independent operations one after
the other, and attention has the more of them the longer the sequence. A sum over n tokens, as in a softmax or a matrix
product, counts as one operation although a tree reduction takes log n steps. More layers change little, because each
layer can run one token behind the layer below. With large batches recurrent networks have independent work too. The
count is about processing a given sequence: generation is sequential in a Transformer as well.
"""

RNN, LSTM, ATTENTION = "RNN", "LSTM", "self-attention"
LAYER_KINDS = (RNN, LSTM, ATTENTION)
PassKind = Literal["forward", "training"]


def run(context: LabContext) -> LabResult:
    """Count the sequential operations and time the passes."""
    lengths = context.by_effort([16, 32, 64, 128], [2**n for n in range(4, 11)], [2**n for n in range(4, 13)])
    networks = _networks(width=context.by_effort(32, 256, 256))
    sequences = {length: _random_sequence(length) for length in lengths}
    chains = {
        name: [sequential_operations(network, sequences[n]) for n in lengths] for name, network in networks.items()
    }
    context.log(f"  sequential operations: {', '.join(f'{name} {chains[name][-1]:,}' for name in LAYER_KINDS)}")
    rounds = context.by_effort(20, 10, 20)
    times: dict[PassKind, dict[str, list[float]]] = {
        "forward": _times(networks, sequences, _forward, rounds),
        "training": _times(networks, sequences, _forward_and_backward, rounds),
    }
    growth = {name: chains[name][-1] / chains[name][-2] for name in LAYER_KINDS}  # when the length doubles
    longest, ms = lengths[-1], {name: 1000 * times["training"][name][-1] for name in LAYER_KINDS}
    return LabResult(
        holds=len(set(chains[ATTENTION])) == 1 and all(1.8 < growth[name] < 2.2 for name in (RNN, LSTM)),
        summary=f"For {longest:,} tokens the RNN needs {chains[RNN][-1]:,} sequential operations and the LSTM "
        f"{chains[LSTM][-1]:,}, {growth[RNN]:.2f} and {growth[LSTM]:.2f} times as many as for half the length. "
        f"Self-attention needs {chains[ATTENTION][-1]:,}, and {chains[ATTENTION][0]:,} for {lengths[0]:,} tokens. On "
        f"this machine ({_thread_count()}) a training pass over {longest:,} tokens took {ms[RNN]:,.0f} ms (RNN), "
        f"{ms[LSTM]:,.0f} ms (LSTM) and {ms[ATTENTION]:,.0f} ms (self-attention); the time depends on the machine, the "
        "count does not.",
        numbers={
            "lengths": lengths,
            "longest_chain": chains,
            "seconds": times,
        },
        figures=[_figure(lengths, chains, times)],
        tables=[_table(lengths, chains, times)],
    )


def sequential_operations(network: Network, sequence: Tensor) -> int:
    """Return the number of sequential operations of a forward pass, with every step computed separately."""
    with open_taps(network):  # open taps disable the fused kernels of recurrent layers and attention
        return longest_chain(network.decode(sequence))


def _networks(width: int) -> Mapping[str, Network]:
    torch.manual_seed(0)
    networks: Mapping[str, Network] = {
        RNN: build(RecurrentLanguageModelConfig(vocab_size=64, width=width, layers=1, cell="rnn", dropout=0.0)),
        LSTM: build(RecurrentLanguageModelConfig(vocab_size=64, width=width, layers=1, cell="lstm", dropout=0.0)),
        ATTENTION: build(DecoderOnlyConfig(vocab_size=64, width=width, layers=1, heads=4, feed_forward=0, dropout=0.0)),
    }
    return networks


def _random_sequence(length: int) -> Tensor:
    return torch.randint(64, (1, length), generator=torch.Generator().manual_seed(length))


def _times(
    networks: Mapping[str, Network],
    sequences: Mapping[int, Tensor],
    run_pass: Callable[[Network, Tensor], None],
    rounds: int,
) -> dict[str, list[float]]:
    """Return the minimum seconds of each network for each sequence."""
    passes = [(name, partial(run_pass, network, x)) for x in sequences.values() for name, network in networks.items()]
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for (name, _), best in zip(passes, best_times([function for _, function in passes], rounds), strict=True):
        seconds[name].append(best)
    return seconds


@torch.no_grad()
def _forward(network: Network, sequence: Tensor) -> None:
    network.decode(sequence)


def _forward_and_backward(network: Network, sequence: Tensor) -> None:
    network.zero_grad()
    network.decode(sequence).square().mean().backward()


def _figure(
    lengths: list[int], chains: Mapping[str, list[int]], times: Mapping[PassKind, Mapping[str, list[float]]]
) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 3.4)
        panels: list[tuple[str, Mapping[str, Sequence[float]]]] = [
            ("sequential operations", chains),
            ("forward pass (ms)", _milliseconds(times["forward"])),
            ("training pass (ms)", _milliseconds(times["training"])),
        ]
        descriptions = []
        for ax, (title, values) in zip(figure.subplots(1, 3), panels, strict=True):
            lines = {name: LineSeries(lengths, values[name]) for name in LAYER_KINDS}
            description = line_chart(ax, lines, title=title, xlabel="sequence length n", xscale="log", yscale="log")
            descriptions.append(description)
    return LabFigure(
        "steps",
        "Longest chain of sequential operations, and time on this machine, by sequence length (log-log axes).",
        figure,
        f"Three line charts with log-log axes. {' '.join(descriptions)}",
    )


def _milliseconds(seconds: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {name: [1000 * value for value in values] for name, values in seconds.items()}


def _table(
    lengths: list[int], chains: Mapping[str, list[int]], times: Mapping[PassKind, Mapping[str, list[float]]]
) -> LabTable:
    header = ["n", *(f"{name}, operations" for name in LAYER_KINDS), *(f"{name}, ms" for name in LAYER_KINDS)]
    rows = [
        [
            f"{length:,}",
            *(f"{chains[name][n]:,}" for name in LAYER_KINDS),
            *(f"{1000 * times['training'][name][n]:,.1f}" for name in LAYER_KINDS),
        ]
        for n, length in enumerate(lengths)
    ]
    return LabTable("Sequential operations, and milliseconds of a training pass", header, rows)


def _thread_count() -> str:
    threads = torch.get_num_threads()
    return "one thread" if threads == 1 else f"{threads} threads"
