"""Table 1 of the paper, computed: operations, sequential operations and maximum path length of four kinds of layers.

n length · d width · k kernel of a convolution · r reach of restricted attention
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.config import EncoderOnlyConfig, RecurrentLanguageModelConfig, WindowAttentionConfig
from regard.interpret.forward_pass import thread_hooks
from regard.labs import LabContext, LabFigure, LabResult, LabTable, Verdict
from regard.labs.charts import LineSeries, line_chart
from regard.labs.measurements import flop_counter, longest_chain
from regard.models import build
from regard.models.network import Network
from regard.nn.taps import Tap, open_taps
from regard.plotting import new_figure, plot_style

METHOD = """
One layer of each kind in the paper's Table 1: encoder self-attention (with its projections, without a feed-forward
layer), an RNN, a convolution with kernel k, and self-attention restricted to keys at most r tokens away. An LSTM is
added.

Operations: the FLOPs of matrix products in a forward pass are counted for several n, d, k and r, and written as a sum
of the terms n²·d, n·d², k·n·d² and r·n·d by least squares; the sum has to be exact. Sequential operations: the longest
path in the autograd graph of a forward pass, with every step computed separately. Maximum path length: the number of
layers, or of recurrent steps, after which the gradient of the last output with respect to the first input is not zero.
Convolutions are measured with dilations 1, k, k², … and without dilation.

A row is supported if the paper's term is in the sum, the sequential operations grow with the length only in recurrent
layers, and the path length equals the paper's at every measured length, up to rounding to whole layers.
"""
LIMITATIONS = """
Table 1 leaves out the projections of queries, keys, values and outputs, which cost 8 n·d² FLOPs here; with them
self-attention needs more operations than an RNN at every length, and fewer than an LSTM below a certain one. Restricted
attention is computed in blocks of r tokens, three blocks for each query, so that its factor is larger than needed. A
path says that information can pass, not that a network learns to pass it. Counts are those of processing a given
sequence; when a text is generated, every network has to take one step per token.
"""

ATTENTION, RECURRENT, LSTM = "self-attention", "recurrent (RNN)", "recurrent (LSTM)"
CONVOLUTION, CONTIGUOUS, RESTRICTED = "convolution, dilated", "convolution", "self-attention, restricted"
KERNEL, WINDOW = 3, 8  # where they do not vary
TERMS: dict[str, Callable[[int, int, int], float]] = {  # of length, width, and kernel or reach
    "n²·d": lambda n, d, size: n * n * d,
    "n·d²": lambda n, d, size: n * d * d,
    "k·n·d²": lambda n, d, size: size * n * d * d,
    "r·n·d": lambda n, d, size: size * n * d,
}
VOCAB_SIZE = 8


class CausalConvolutions(nn.Module):
    """A stack of causal convolutions, dilated or not; returns the states after each layer."""

    def __init__(self, width: int, kernel: int, layers: int, dilated: bool) -> None:
        super().__init__()
        dilations = [kernel**layer if dilated else 1 for layer in range(layers)]
        self.layers = nn.ModuleList(nn.Conv1d(width, width, kernel, dilation=dilation) for dilation in dilations)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the states (n, d) after each layer, for inputs (n, d)."""
        states = []
        for layer in self.layers:
            assert isinstance(layer, nn.Conv1d)
            x = layer(pad(x.T, (layer.dilation[0] * (layer.kernel_size[0] - 1), 0))[None])[0].T
            states.append(x)
        return states


# --- measurements -----------------------------------------------------------------------------------------------------


def encoder(width: int, layers: int = 1, window: int | None = None) -> Network:
    """Return self-attention layers; with a window, restricted ones."""
    torch.manual_seed(0)
    config = EncoderOnlyConfig(vocab_size=VOCAB_SIZE, width=width, layers=layers, heads=2, feed_forward=0, dropout=0.0)
    return build(config if window is None else config.model_copy(update={"attention": _window(window)}))


def _window(window: int) -> WindowAttentionConfig:
    return WindowAttentionConfig(window=window)


def rnn(width: int) -> Network:
    """Return an RNN of one layer."""
    torch.manual_seed(0)
    return build(RecurrentLanguageModelConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, cell="rnn", dropout=0.0))


def lstm(width: int) -> Network:
    """Return an LSTM of one layer."""
    torch.manual_seed(0)
    return build(RecurrentLanguageModelConfig(vocab_size=VOCAB_SIZE, width=width, layers=1, cell="lstm", dropout=0.0))


def _states(network: Network, length: int) -> Tensor:
    ids = torch.zeros(1, length, dtype=torch.long)
    return network.encode(ids).states if network.encodes else network.decode(ids)


def flops_of(network: Network, length: int) -> int:
    """Return the FLOPs of a forward pass."""
    with torch.no_grad(), flop_counter() as counter:
        _states(network, length)
    return int(counter.get_total_flops())


def convolution_flops(length: int, width: int, kernel: int) -> int:
    """Return the FLOPs of a convolution."""
    with torch.no_grad(), flop_counter() as counter:
        CausalConvolutions(width, kernel, 1, dilated=False)(torch.zeros(length, width))
    return int(counter.get_total_flops())


def chain_of(network: Network, length: int) -> int:
    """Return the sequential operations of a forward pass, every step computed separately."""
    with open_taps(network):
        return longest_chain(_states(network, length))


def convolution_chain(length: int) -> int:
    """Return the sequential operations of a convolution."""
    (states,) = CausalConvolutions(4, KERNEL, 1, dilated=False)(torch.zeros(length, 4))
    return longest_chain(states)


def first_connected(states: Sequence[Tensor], first: Tensor) -> float:
    """Return how many states there are up to the first that depends on `first`; infinite if none does.

    >>> x = torch.ones(1, requires_grad=True)
    >>> first_connected([torch.ones(1, requires_grad=True) * 2, x * 2], x)
    2
    """
    for count, state in enumerate(states, start=1):
        weighted = state @ torch.arange(
            1, len(state) + 1, dtype=state.dtype
        )  # the sum of a normalized state is constant
        (gradient,) = torch.autograd.grad(weighted, first, retain_graph=True, allow_unused=True)
        if gradient is not None and bool(gradient.ne(0).any()):
            return count
    return math.inf


def attention_path(length: int, window: int | None = None) -> float:
    """Return the layers of self-attention between the first and the last of `length` tokens."""
    layers = 1 if window is None else math.ceil(length / window) + 1
    network = encoder(16, layers, window).double()
    generator = torch.Generator().manual_seed(0)
    leaf = torch.randn(16, generator=generator, dtype=torch.double, requires_grad=True)
    rest = torch.randn(length - 1, 16, generator=generator, dtype=torch.double)
    names = [f"encoder.layers.{layer}.attention_residual.normed" for layer in range(layers)]
    last: list[Tensor] = []

    def keep_last(_: Tap, value: Tensor) -> Tensor:
        last.append(value[0, -1])
        return value

    hooks = [(network.taps["encoder.embedding.sum"], lambda _, __: torch.cat([leaf[None], rest])[None])]
    hooks += [(network.taps[name], keep_last) for name in names]
    with thread_hooks(hooks):
        _states(network, length)
    return first_connected(last, leaf)


def convolution_path(length: int, dilated: bool) -> float:
    """Return the layers of convolutions between the first and the last of `length` tokens."""
    torch.manual_seed(0)
    stack = CausalConvolutions(4, KERNEL, length, dilated) if not dilated else CausalConvolutions(4, KERNEL, 8, True)
    leaf = torch.randn(4, dtype=torch.double, requires_grad=True)
    inputs = torch.cat([leaf[None], torch.randn(length - 1, 4, dtype=torch.double)])
    return first_connected([states[-1] for states in stack.double()(inputs)], leaf)


def recurrent_path(network: Network, length: int) -> float:
    """Return the recurrent steps between the first and the last token: those whose state depends on the first."""
    network = network.double()
    cache, leaves, steps = network.new_cache(), list[Tensor](), 0

    def keep(_: object, vectors: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[-1]

    with thread_hooks([(network.taps["decoder.embedding.sum"], keep)]):
        for _ in range(length):
            state = network.decode(torch.zeros(1, 1, dtype=torch.long), cache=cache)[0, -1]
            steps += first_connected([state], leaves[0]) == 1
    return steps if first_connected([state], leaves[0]) == 1 else math.inf


# --- Table 1 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableRow:
    """A row of Table 1 as the paper has it, and how each of its columns is measured."""

    operations: str
    sequential: str
    path: str
    term: str  # the paper's term of the operations
    terms: tuple[str, ...]  # all terms that are fitted
    sizes: tuple[int, ...]  # kernels or reaches for which FLOPs are counted
    flops: Callable[[int, int, int], int]  # of length, width, and kernel or reach
    chain: Callable[[int], int]
    measured_path: Callable[[int], float]
    paper_path: Callable[[int], int]


ROWS: dict[str, TableRow] = {
    ATTENTION: TableRow(
        *("O(n²·d)", "O(1)", "O(1)", "n²·d", ("n²·d", "n·d²"), (0,)),
        flops=lambda n, d, _: flops_of(encoder(d), n),
        chain=lambda n: chain_of(encoder(16), n),
        measured_path=attention_path,
        paper_path=lambda n: 1,
    ),
    RECURRENT: TableRow(
        *("O(n·d²)", "O(n)", "O(n)", "n·d²", ("n²·d", "n·d²"), (0,)),
        flops=lambda n, d, _: flops_of(rnn(d), n),
        chain=lambda n: chain_of(rnn(16), n),
        measured_path=lambda n: recurrent_path(rnn(16), n),
        paper_path=lambda n: n,
    ),
    LSTM: TableRow(
        *("O(n·d²)", "O(n)", "O(n)", "n·d²", ("n²·d", "n·d²"), (0,)),
        flops=lambda n, d, _: flops_of(lstm(d), n),
        chain=lambda n: chain_of(lstm(16), n),
        measured_path=lambda n: recurrent_path(lstm(16), n),
        paper_path=lambda n: n,
    ),
    CONVOLUTION: TableRow(
        *("O(k·n·d²)", "O(1)", "O(log_k n)", "k·n·d²", ("n²·d", "n·d²", "k·n·d²"), (2, 3, 5)),
        flops=convolution_flops,
        chain=convolution_chain,
        measured_path=lambda n: convolution_path(n, dilated=True),
        paper_path=lambda n: math.ceil(round(math.log(n, KERNEL), 9)),
    ),
    CONTIGUOUS: TableRow(
        *("O(k·n·d²)", "O(1)", "O(n/k)", "k·n·d²", ("n²·d", "n·d²", "k·n·d²"), (2, 3, 5)),
        flops=convolution_flops,
        chain=convolution_chain,
        measured_path=lambda n: convolution_path(n, dilated=False),
        paper_path=lambda n: math.ceil((n - 1) / (KERNEL - 1)),
    ),
    RESTRICTED: TableRow(
        *("O(r·n·d)", "O(1)", "O(n/r)", "r·n·d", ("n²·d", "n·d²", "r·n·d"), (32, 64)),
        flops=lambda n, d, r: flops_of(encoder(d, window=r), n),
        chain=lambda n: chain_of(encoder(16, window=WINDOW), n),
        measured_path=lambda n: attention_path(n, WINDOW),
        paper_path=lambda n: math.ceil((n - 1) / WINDOW),
    ),
}


@dataclass(frozen=True)
class RowMeasurement:
    """What was measured of a row: the factor of each term, and per length the chain and the path."""

    factors: dict[str, float]
    exact: bool  # whether the terms add up to every count
    chains: list[int]
    paths: list[float]

    @property
    def formula(self) -> str:
        """The FLOPs as a formula.

        >>> RowMeasurement({"n²·d": 4.0, "n·d²": 8.0, "r·n·d": 0.0}, True, [], []).formula
        '4 n²·d + 8 n·d²'
        """
        return " + ".join(f"{factor:g} {term}" for term, factor in self.factors.items() if factor)


def fit_terms(row: TableRow, lengths: Sequence[int], widths: Sequence[int]) -> tuple[dict[str, float], bool]:
    """Return the factor of each term in the FLOPs of a layer, and whether their sum is exact."""
    points = [(n, d, size) for n in lengths for d in widths for size in row.sizes]
    counts = torch.tensor([float(row.flops(*point)) for point in points], dtype=torch.double)
    values = torch.tensor([[TERMS[term](*point) for term in row.terms] for point in points], dtype=torch.double)
    factors = torch.linalg.lstsq(values / counts[:, None], torch.ones(len(points), 1, dtype=torch.double)).solution[
        :, 0
    ]
    exact = bool(((values @ factors - counts).abs() < 1e-6 * counts).all())
    return {term: round(float(factor), 4) + 0.0 for term, factor in zip(row.terms, factors, strict=True)}, exact


def run(context: LabContext) -> LabResult:
    """Measure every row."""
    lengths = context.by_effort([16, 32], [16, 32, 64, 128], [16, 32, 64, 128, 256])
    counted, widths = context.by_effort([256, 512], [256, 512, 1024], [256, 512, 1024]), [16, 32, 64]
    measured: dict[str, RowMeasurement] = {}
    for name, row in ROWS.items():
        chains, paths = [row.chain(n) for n in lengths], [row.measured_path(n) for n in lengths]
        measured[name] = RowMeasurement(*fit_terms(row, counted, widths), chains, paths)
        context.log(f"  {name}: {measured[name].formula} FLOPs, paths {', '.join(f'{path:g}' for path in paths)}")
    verdicts = [
        Verdict(
            f"{name}: {row.operations} operations, {row.sequential} sequential, path length {row.path}",
            row_holds(row, measured[name], lengths),
        )
        for name, row in ROWS.items()
    ]
    n = lengths[-1]
    return LabResult(
        holds=all(verdict.holds for verdict in verdicts),
        summary=f"FLOPs of a layer: {'; '.join(f'{name} {row.formula}' for name, row in measured.items())}. The terms "
        f"n·d² of self-attention are its projections, which Table 1 leaves out. {_crossing(measured)} Sequential "
        f"operations for {n} tokens: {', '.join(f'{name} {row.chains[-1]:,}' for name, row in measured.items())}. "
        f"Maximum path length for {n} tokens, in layers or recurrent steps: "
        f"{', '.join(f'{name} {row.paths[-1]:g}' for name, row in measured.items())} (k = {KERNEL}, r = {WINDOW}).",
        numbers={
            "lengths": lengths,
            "flops": {name: row.factors for name, row in measured.items()},
            "sequential_operations": {name: row.chains for name, row in measured.items()},
            "path_length": {name: [_finite(path) for path in row.paths] for name, row in measured.items()},
        },
        figures=[_figure(lengths, measured)],
        tables=[_table(lengths, measured)],
        verdicts=verdicts,
    )


def row_holds(row: TableRow, measured: RowMeasurement, lengths: Sequence[int]) -> bool:
    """Return whether the measurements of a row agree with the paper."""
    growth = measured.chains[-1] / measured.chains[0]
    sequential = growth > 0.8 * lengths[-1] / lengths[0] if row.sequential == "O(n)" else growth == 1
    path = measured.paths == [row.paper_path(n) for n in lengths]
    higher = [term for term in ("n²·d",) if term != row.term and measured.factors.get(term, 0) > 0]
    return measured.exact and measured.factors[row.term] > 0 and not higher and sequential and path


def _crossing(measured: Mapping[str, RowMeasurement]) -> str:
    """Return the lengths below which self-attention needs fewer operations than recurrent layers."""
    attention = measured[ATTENTION].factors
    texts = []
    for name in (RECURRENT, LSTM):
        ratio = (measured[name].factors["n·d²"] - attention["n·d²"]) / attention["n²·d"]
        texts.append(f"a {name} layer {f'below n = {ratio:g} d' if ratio > 0 else 'at no length'}")
    return f"With them self-attention needs fewer operations than {' and than '.join(texts)}."


def _finite(path: float) -> float | None:
    return None if math.isinf(path) else path


def _figure(lengths: list[int], measured: Mapping[str, RowMeasurement]) -> LabFigure:
    panels: dict[str, Callable[[RowMeasurement], Sequence[float]]] = {
        "sequential operations": lambda row: row.chains,
        "maximum path length": lambda row: row.paths,
    }
    with plot_style():
        figure = new_figure(11, 4)
        descriptions = []
        for ax, (title, values) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            lines = {name: LineSeries(lengths, values(row)) for name, row in measured.items()}
            descriptions.append(line_chart(ax, lines, title=title, xlabel="length n", xscale="log", yscale="log"))
    return LabFigure(
        "complexity",
        "Sequential operations of one layer, and layers or steps between the first and the last token (log-log axes).",
        figure,
        f"Two line charts with log-log axes. {' '.join(descriptions)}",
    )


def _table(lengths: Sequence[int], measured: Mapping[str, RowMeasurement]) -> LabTable:
    first, last = lengths[0], lengths[-1]
    ends = f"n = {first} and {last}"
    header = ["layer", "operations", "FLOPs counted", "sequential", ends, "path", ends]
    rows = [
        [
            name,
            ROWS[name].operations,
            row.formula,
            ROWS[name].sequential,
            f"{row.chains[0]:,}, {row.chains[-1]:,}",
            ROWS[name].path,
            f"{row.paths[0]:g}, {row.paths[-1]:g}",
        ]
        for name, row in measured.items()
    ]
    return LabTable("Table 1 of the paper, and what was counted", header, rows)
