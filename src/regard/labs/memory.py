"""Memory and time of Transformers and recurrent networks by sequence length, in training and generation.

Also what they do with sequences longer than those they were trained on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable, Verdict
from regard.labs.charts import LineSeries, line_chart, two_digits
from regard.labs.distance import SYMBOLS, equal_size_configs
from regard.labs.measurements import TensorMemory, best_times
from regard.labs.steps import sequential_operations
from regard.labs.trials import FIRST_SYMBOL, SymbolBatch, accuracy, delayed_copy_task, fit
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
Language models of one layer and the same width: an RNN, an LSTM, a GRU, and a Transformer (masked self-attention with
residual connection and normalization, without a feed-forward layer). For sequences of growing length are measured: the
peak memory of tensors and the time of a training pass (forward and backward); the memory that has to be kept between
two steps of generation, which is the state of a recurrent network and the keys and values of a Transformer; the time of
one such step; and the number of sequential operations of a forward pass. The Transformer is measured with the fused
kernel that training uses, and with materialized attention weights, as in 2017. Time is the minimum over several rounds
in which the networks take turns.

Then a Transformer with sinusoidal positions and recurrent networks of at most its size learn to predict the symbol two
positions back, and are tested on sequences twice as long as those they were trained on.

Each part of the claim is judged against the LSTM at the longest length; the claim is supported if all parts are.
"""
LIMITATIONS = """
One layer without a feed-forward layer, whose memory and time are proportional to the length in all networks. The memory
of parameters is not counted, nor memory that a kernel frees before it returns. The time is that of one processor, which
gains little from independent operations; on hardware with enough of them the number of sequential operations decides,
and there the Transformer is faster. Generalization has more senses than longer sequences: with other position schemes a
Transformer does extrapolate (lab `positions`), and on held-out sentences of the trained lengths Transformers usually
are better.
"""

RNN, LSTM, GRU, TRANSFORMER, MATERIALIZED = "RNN", "LSTM", "GRU", "Transformer", "Transformer, materialized"
REFERENCE = LSTM  # what the Transformer is compared with
VOCAB_SIZE, DELAY = 16, 2
ByLength = dict[str, list[float]]


def configs(width: int) -> dict[str, ModelConfig]:
    """Return the settings of the networks that are measured."""
    return {
        RNN: RecurrentLanguageModelConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, cell="rnn", dropout=0.0),
        LSTM: RecurrentLanguageModelConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, cell="lstm", dropout=0.0),
        GRU: RecurrentLanguageModelConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, cell="gru", dropout=0.0),
        TRANSFORMER: DecoderOnlyConfig(
            vocab_size=VOCAB_SIZE, width=width, layers=1, heads=2, feed_forward=0, dropout=0.0
        ),
    }


def run(context: LabContext) -> LabResult:
    """Measure memory and time by length, and accuracy beyond the trained length."""
    lengths = context.by_effort([64, 128, 256], [2**n for n in range(7, 12)], [2**n for n in range(7, 12)])
    torch.manual_seed(0)
    networks = {name: build(config) for name, config in configs(context.by_effort(32, 128, 128)).items()}
    networks[MATERIALIZED] = networks[TRANSFORMER]
    training = {name: [training_bytes(name, net, n) / 2**20 for n in lengths] for name, net in networks.items()}
    generating = {k: [generation_bytes(net, n) / 2**10 for n in lengths] for k, net in _fused(networks).items()}
    context.log(f"  MB in training: {', '.join(f'{name} {row[-1]:.1f}' for name, row in training.items())}")
    rounds = context.by_effort(3, 5, 10)
    seconds = _times(networks, lengths, lambda name, net, n: partial(training_pass, name, net, n), rounds)
    step_seconds = _times(_fused(networks), lengths, lambda name, net, n: generation_step(net, n), rounds)
    chains = {name: [sequential_operations(net, _ids(n)) for n in lengths] for name, net in _fused(networks).items()}
    trained, beyond = _extrapolation(context)
    growth = {name: row[-1] / row[-2] for name, row in seconds.items()}
    verdicts = [
        Verdict(
            "it needs less memory than an LSTM to train, with materialized attention weights",
            training[MATERIALIZED][-1] < training[REFERENCE][-1],
        ),
        Verdict(
            "it needs less memory than an LSTM to train, with a fused kernel",
            training[TRANSFORMER][-1] < training[REFERENCE][-1],
        ),
        Verdict(
            "it needs less memory than an LSTM to generate", generating[TRANSFORMER][-1] < generating[REFERENCE][-1]
        ),
        Verdict("its training time grows more slowly with the length", growth[TRANSFORMER] < growth[REFERENCE]),
        Verdict("it needs fewer sequential operations", chains[TRANSFORMER][-1] < chains[REFERENCE][-1]),
        Verdict(
            "it is more accurate on sequences longer than those in training, with sinusoidal positions",
            fmean(beyond[TRANSFORMER]) > max(fmean(beyond[name]) for name in (LSTM, GRU)),
        ),
    ]
    return LabResult(
        holds=all(verdict.holds for verdict in verdicts),
        summary=_summary(lengths[-1], training, generating, seconds, step_seconds, growth, chains, trained, beyond),
        numbers={
            "lengths": lengths,
            "training_megabytes": training,
            "generation_kilobytes": generating,
            "training_seconds": seconds,
            "generation_step_seconds": step_seconds,
            "time_growth_per_doubling": growth,
            "sequential_operations": chains,
            "accuracy_trained_length": trained,
            "accuracy_twice_the_length": beyond,
        },
        figures=[_figure(lengths, training, generating, seconds, step_seconds)],
        tables=[_table(lengths[-1], training, generating, seconds, step_seconds, chains)],
        verdicts=verdicts,
    )


# --- measurements -----------------------------------------------------------------------------------------------------


def _fused(networks: Mapping[str, Network]) -> dict[str, Network]:
    """Return the networks that have one kernel for training and generation."""
    return {name: network for name, network in networks.items() if name != MATERIALIZED}


def _ids(length: int) -> Tensor:
    return torch.randint(VOCAB_SIZE, (1, length), generator=torch.Generator().manual_seed(length))


def training_pass(name: str, network: Network, length: int) -> None:
    """Run a forward and a backward pass."""
    network.zero_grad()
    tap = "decoder.layers.0.attention.kernel.weights"
    materialized: AbstractContextManager[Any] = open_taps(network, tap) if name == MATERIALIZED else nullcontext()
    with materialized:
        network.decode(_ids(length)).square().mean().backward()


def training_bytes(name: str, network: Network, length: int) -> int:
    """Return the peak bytes of the tensors of a training pass."""
    with TensorMemory() as memory:
        training_pass(name, network, length)
    return int(memory.peak)


@torch.no_grad()
def generation_bytes(network: Network, length: int) -> int:
    """Return the bytes that are kept after a token has been generated: the state, or keys and values."""
    tokens = _ids(length)
    with TensorMemory() as memory:
        cache = network.new_cache()
        for n in range(length):
            network.decode(tokens[:, n : n + 1], cache=cache)
        kept = int(memory.current)
    del cache
    return kept


@torch.no_grad()
def generation_step(network: Network, length: int) -> Callable[[], object]:
    """Return a function that generates one token after `length` others."""
    cache, token = network.new_cache(), torch.zeros(1, 1, dtype=torch.long)
    network.decode(_ids(length), cache=cache)

    def step() -> object:
        with torch.no_grad():
            return network.decode(token, cache=cache)

    return step


def _times(
    networks: Mapping[str, Network],
    lengths: Sequence[int],
    function: Callable[[str, Network, int], Callable[[], object]],
    rounds: int,
) -> ByLength:
    """Return the minimum seconds of each network at each length."""
    functions = [function(name, network, n) for name, network in networks.items() for n in lengths]
    seconds = best_times(functions, rounds)
    return {name: seconds[k * len(lengths) : (k + 1) * len(lengths)] for k, name in enumerate(networks)}


# --- longer sequences -------------------------------------------------------------------------------------------------


def _extrapolation(context: LabContext) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the accuracy of each seed at the end of the trained length, and beyond it."""
    length, steps, seeds = context.by_effort((12, 200, 1), (16, 400, 3), (16, 400, 3))
    vocab_size = SYMBOLS + FIRST_SYMBOL
    transformer = DecoderOnlyConfig(
        vocab_size=vocab_size, width=32, layers=1, heads=4, feed_forward=64, norm_order="pre", dropout=0.0
    )
    trained: dict[str, list[float]] = {}
    beyond: dict[str, list[float]] = {}
    for name, config in equal_size_configs(transformer).items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            network = build(config)
            fit(network, _delayed_copies(length, seed), steps, learning_rate=1e-2)
            test = next(delayed_copy_task(SYMBOLS, DELAY, 2 * length, 256, seed + 1000))
            trained.setdefault(name, []).append(accuracy(network, _part(test, length - length // 4, length)))
            beyond.setdefault(name, []).append(accuracy(network, _part(test, length, 2 * length)))
        context.log(f"  {name}: accuracy {fmean(trained[name]):.0%} within, {fmean(beyond[name]):.0%} beyond")
    return trained, beyond


def _delayed_copies(length: int, seed: int) -> Iterator[SymbolBatch]:
    return delayed_copy_task(SYMBOLS, DELAY, length, 32, seed)


def _part(batch: SymbolBatch, start: int, stop: int) -> SymbolBatch:
    """Return a batch in which only the labels from `start` to `stop` count."""
    label_mask = torch.zeros_like(batch.label_mask)
    label_mask[:, start:stop] = True
    return SymbolBatch(batch.inputs, batch.labels, label_mask)


# --- output -----------------------------------------------------------------------------------------------------------


def _summary(
    longest: int,
    training: ByLength,
    generating: ByLength,
    seconds: ByLength,
    step_seconds: ByLength,
    growth: Mapping[str, float],
    chains: Mapping[str, Sequence[int]],
    trained: Mapping[str, Sequence[float]],
    beyond: Mapping[str, Sequence[float]],
) -> str:
    def last(values: Mapping[str, Sequence[float]], digits: Callable[[float], str]) -> str:
        return ", ".join(f"{name} {digits(row[-1])}" for name, row in values.items())

    milliseconds = {name: [1000 * value for value in row] for name, row in seconds.items()}
    step_ms = {name: [1000 * value for value in row] for name, row in step_seconds.items()}
    state = generating[LSTM][-1] / generating[LSTM][0]
    cache = generating[TRANSFORMER][-1] / generating[TRANSFORMER][0]
    accuracies = ", ".join(f"{name} {fmean(trained[name]):.0%} and {fmean(beyond[name]):.0%}" for name in trained)
    return (
        f"At {longest:,} tokens a training pass needs, in MB: {last(training, two_digits)}; and in milliseconds: "
        f"{last(milliseconds, two_digits)}, which is {growth[TRANSFORMER]:.1f} times as long as at half the length for "
        f"the Transformer and {growth[LSTM]:.1f} times for the LSTM. Between two steps of generation are kept, in KB: "
        f"{last(generating, two_digits)}; from the shortest to the longest sequence this grows {cache:.0f} times for "
        f"the Transformer and {state:.0f} times for the LSTM. A step takes, in milliseconds: "
        f"{last(step_ms, two_digits)}. Sequential operations of a forward pass: {last(chains, two_digits)}. Accuracy "
        f"at the end of the trained length and beyond it: {accuracies}."
    )


def _figure(
    lengths: list[int], training: ByLength, generating: ByLength, seconds: ByLength, step_seconds: ByLength
) -> LabFigure:
    panels = {
        "training: peak memory (MB)": training,
        "generation: memory kept (KB)": generating,
        "training pass (ms)": {name: [1000 * value for value in row] for name, row in seconds.items()},
        "step of generation (ms)": {name: [1000 * value for value in row] for name, row in step_seconds.items()},
    }
    descriptions = []
    with plot_style():
        figure = new_figure(11, 7)
        for ax, (title, rows) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
            lines = {name: LineSeries(lengths, row) for name, row in rows.items()}
            descriptions.append(line_chart(ax, lines, title=title, xlabel="length", xscale="log", yscale="log"))
    return LabFigure(
        "memory",
        "Memory and time of one layer by sequence length, in training and in generation (log-log axes).",
        figure,
        f"Four line charts with log-log axes. {' '.join(descriptions)}",
    )


def _table(
    longest: int,
    training: ByLength,
    generating: ByLength,
    seconds: ByLength,
    step_seconds: ByLength,
    chains: Mapping[str, Sequence[int]],
) -> LabTable:
    header = ["network", "training, MB", "training, ms", "kept, KB", "step, ms", "sequential operations"]
    rows = []
    for name, row in training.items():
        cells = [two_digits(row[-1]), two_digits(1000 * seconds[name][-1])]
        if name in generating:
            cells += [two_digits(generating[name][-1]), two_digits(1000 * step_seconds[name][-1])]
            cells += [f"{chains[name][-1]:,}"]
        rows.append([name, *cells, *[""] * (len(header) - 1 - len(cells))])
    return LabTable(f"One layer, {longest:,} tokens", header, rows)
