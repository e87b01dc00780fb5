# ruff: noqa: E501
"""One pass through a text, by recurrence and by attention: how many operations wait for each other, and the time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, RecurrentLanguageModelConfig
from regard.labs.charts.lines import LineSeries, line_chart
from regard.labs.gauges import best_times, longest_chain
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
Three language models of the same width and with one layer each read one text of n tokens in one pass, as in training:
an RNN, an LSTM, and masked self-attention with its residual connection and norms, but without a feed-forward layer.
Counted are the operations that must wait for each other: the longest chain, from the embeddings to the last state, in
the graph that PyTorch keeps of the computation. For this count every step is computed by itself, so that no fused
kernel hides its inside. Nothing of it is derived from a formula.

Then the time: the same passes with the kernels that training uses, forward alone and forward with backward, on this
machine. Each time is that of the fastest of several passes, and the networks take turns; with one thread it is the
processor's, with several the clock's.
"""
LIMITATIONS = """
The count says how fast a machine with cores without end could be; a machine with few has to do one after the other what
need not wait, and of such work attention has the more the longer the text. A sum over n tokens, as in a softmax or a
matrix product, counts as one operation, though adding two numbers at a time takes log n of them in a row. Further
layers change little: each can follow the one below it a token behind. With many texts in a batch, recurrent networks
also have work to share out. And all this is about reading a text that is there: when a text is written, each token
waits for the one before it, in a Transformer as well.
"""

RNN, LSTM, ATTENTION = "RNN", "LSTM", "self-attention"
NAMES = (RNN, LSTM, ATTENTION)
Pass = Literal["forward", "training"]


def run(context: LabContext) -> LabResult:
    """Count, measure, draw."""
    lengths = context.by_effort([16, 32, 64, 128], [2**n for n in range(4, 11)], [2**n for n in range(4, 13)])
    networks = _networks(width=context.by_effort(32, 256, 256))
    texts = {length: _text(length) for length in lengths}
    chains = {name: [dependent(network, texts[n]) for n in lengths] for name, network in networks.items()}
    context.log(f"  operations in a row: {', '.join(f'{name} {chains[name][-1]:,}' for name in NAMES)}")
    rounds = context.by_effort(20, 10, 20)
    times: dict[Pass, dict[str, list[float]]] = {
        "forward": _times(networks, texts, _forward, rounds),
        "training": _times(networks, texts, _forward_and_backward, rounds),
    }
    growth = {name: chains[name][-1] / chains[name][-2] for name in NAMES}  # as the length doubles
    longest, ms = lengths[-1], {name: 1000 * times["training"][name][-1] for name in NAMES}
    return LabResult(
        holds=len(set(chains[ATTENTION])) == 1 and all(1.8 < growth[name] < 2.2 for name in (RNN, LSTM)),
        summary=f"In a text of {longest:,} tokens {chains[RNN][-1]:,} operations of the RNN and {chains[LSTM][-1]:,} of "
        f"the LSTM wait for each other, {growth[RNN]:.2f} and {growth[LSTM]:.2f} times as many as in a text of half "
        f"that length; of attention {chains[ATTENTION][-1]:,}, and {chains[ATTENTION][0]:,} in a text of "
        f"{lengths[0]:,}. On this machine ({_cores()}) a training pass over {longest:,} tokens took {ms[RNN]:,.0f} ms, "
        f"{ms[LSTM]:,.0f} ms and {ms[ATTENTION]:,.0f} ms. Time depends on the machine, the chain does not.",
        numbers={
            "lengths": lengths,
            "longest_chain": chains,
            "seconds": times,
        },
        figures=[_draw(lengths, chains, times)],
        tables=[_table(lengths, chains, times)],
    )


def dependent(network: Network, text: Tensor) -> int:
    """How many operations of one pass wait for each other, each step computed by itself."""
    with open_taps(network):  # an open tap makes recurrent layers and attention go step by step
        return longest_chain(network.decode(text))


def _networks(width: int) -> Mapping[str, Network]:
    torch.manual_seed(0)
    networks: Mapping[str, Network] = {
        RNN: build(RecurrentLanguageModelConfig(vocab_size=64, width=width, layers=1, cell="rnn", dropout=0.0)),
        LSTM: build(RecurrentLanguageModelConfig(vocab_size=64, width=width, layers=1, cell="lstm", dropout=0.0)),
        ATTENTION: build(DecoderOnlyConfig(vocab_size=64, width=width, layers=1, heads=4, feed_forward=0, dropout=0.0)),
    }
    return networks


def _text(length: int) -> Tensor:
    return torch.randint(64, (1, length), generator=torch.Generator().manual_seed(length))


def _times(
    networks: Mapping[str, Network], texts: Mapping[int, Tensor], go: Callable[[Network, Tensor], None], rounds: int
) -> dict[str, list[float]]:
    """The fewest seconds of each network for each text."""
    passes = [(name, partial(go, network, text)) for text in texts.values() for name, network in networks.items()]
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for (name, _), fewest in zip(passes, best_times([one for _, one in passes], rounds), strict=True):
        seconds[name].append(fewest)
    return seconds


@torch.no_grad()
def _forward(network: Network, text: Tensor) -> None:
    network.decode(text)


def _forward_and_backward(network: Network, text: Tensor) -> None:
    network.zero_grad()
    network.decode(text).square().mean().backward()


def _draw(
    lengths: list[int], chains: Mapping[str, list[int]], times: Mapping[Pass, Mapping[str, list[float]]]
) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 3.4)
        left, middle, right = figure.subplots(1, 3)
        panels: list[tuple[str, Mapping[str, Sequence[float]]]] = [
            ("operations that wait for each other", chains),
            ("one forward pass, ms", _milliseconds(times["forward"])),
            ("one training pass, ms", _milliseconds(times["training"])),
        ]
        said = []
        for ax, (title, found) in zip((left, middle, right), panels, strict=True):
            lines = {name: LineSeries(lengths, found[name]) for name in NAMES}
            said.append(
                line_chart(ax, lines, title=title, xlabel="n, the length of the text", xscale="log", yscale="log")
            )
    return LabFigure(
        "steps",
        "Both axes by powers: the longest chain of operations, and the time on this machine, against the length.",
        figure,
        f"Three charts, both axes by powers. {' '.join(said)}",
    )


def _milliseconds(seconds: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {name: [1000 * value for value in values] for name, values in seconds.items()}


def _table(
    lengths: list[int], chains: Mapping[str, list[int]], times: Mapping[Pass, Mapping[str, list[float]]]
) -> LabTable:
    head = ["n", *(f"{name}, chain" for name in NAMES), *(f"{name}, ms" for name in NAMES)]
    rows = [
        [
            f"{length:,}",
            *(f"{chains[name][place]:,}" for name in NAMES),
            *(f"{1000 * times['training'][name][place]:,.1f}" for name in NAMES),
        ]
        for place, length in enumerate(lengths)
    ]
    return LabTable("Operations in the longest chain, and milliseconds of a training pass", head, rows)


def _cores() -> str:
    threads = torch.get_num_threads()
    return "one thread" if threads == 1 else f"{threads} threads"
