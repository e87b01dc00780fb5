"""Labs: claims of "Attention Is All You Need" and related work, each tested by an experiment on small networks.

One file per lab: a module with a description of its method (`METHOD`), its limitations (`LIMITATIONS`) and a function
`run`. It is imported on first use, so that listing the labs is fast. Shared parts: `trials` (tasks and short training
runs), `translators` (trained translation models), `measurements` (time, memory, FLOPs), `charts` (figures).
Other packages add labs by an entry point of the group `regard.labs` that names a `Lab`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from regard.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "LABS",
    "REPORT",
    "Effort",
    "Experiment",
    "Lab",
    "LabContext",
    "LabFigure",
    "LabResult",
    "LabTable",
    "Verdict",
    "all_labs",
    "conclusion",
    "separate_conclusion",
]

Effort = Literal["quick", "default", "full"]
T = TypeVar("T")
REPORT = Path(__file__).parent / "book.html"
"""The results of all built-in labs with full effort, on one page."""


@dataclass(frozen=True)
class LabContext:
    """Options of one lab run: the effort, the folder of trained models, and a function that logs progress."""

    effort: Effort
    models_folder: Path
    log: Callable[[str], None] = lambda message: None

    def by_effort(self, quick: T, default: T, full: T) -> T:
        """Return the value for this effort: quick takes seconds, default a few minutes, full up to half an hour."""
        return {"quick": quick, "default": default, "full": full}[self.effort]


@dataclass(frozen=True)
class LabFigure:
    """A figure with its file name, caption and alternative text."""

    name: str
    caption: str
    figure: "Figure"
    alt_text: str


@dataclass(frozen=True)
class LabTable:
    """A table of results; the first column names the rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Verdict:
    """A part of the claim, or a related claim, and whether the numbers support it."""

    claim: str
    holds: bool


@dataclass(frozen=True)
class LabResult:
    """Result of an experiment: whether the numbers support the claim, a summary, the numbers, figures and tables."""

    holds: bool
    summary: str
    numbers: Mapping[str, Any]
    figures: Sequence[LabFigure] = ()
    tables: Sequence[LabTable] = ()
    verdicts: Sequence[Verdict] = ()
    """Parts of the claim and related claims that are judged separately."""
    text: str = field(default="", repr=False)
    """Preformatted text, such as worked arithmetic."""


def conclusion(holds: bool) -> str:
    """Return the conclusion about a claim in words."""
    return "The claim is supported." if holds else "The claim is not supported."


def separate_conclusion(verdict: Verdict) -> str:
    """Return a verdict in words.

    >>> separate_conclusion(Verdict("Wide beams hurt", False))
    'Not supported: Wide beams hurt.'
    """
    return f"{'Supported' if verdict.holds else 'Not supported'}: {verdict.claim}."


class Experiment(Protocol):
    """Interface of an experiment module."""

    METHOD: str
    LIMITATIONS: str

    def run(self, context: LabContext) -> LabResult:
        """Run the experiment."""
        ...


@dataclass(frozen=True)
class Lab:
    """A lab: its name, title, claim, the source of the claim, and the module of its experiment.

    Without `module`, the experiment is the module of the same name in `regard.labs`.
    """

    name: str
    title: str
    claim: str
    source: str
    module: str = ""

    @property
    def experiment(self) -> Experiment:
        """The module of the experiment, imported on first use."""
        return cast("Experiment", import_module(self.module or f"regard.labs.{self.name.replace('-', '_')}"))


LABS: Registry[Lab] = Registry(
    "labs",
    aliases={
        "attention": "worked-example",
        "by-hand": "worked-example",
        "self-attention": "worked-example",
        "parallelization": "steps",
        "sequential-operations": "steps",
        "exploding": "gradients",
        "exploding-gradients": "gradients",
        "gradient-flow": "gradients",
        "vanishing": "gradients",
        "interaction-distance": "complexity",
        "path-length": "complexity",
        "table-1": "complexity",
        "cache": "memory",
        "key-value-cache": "memory",
        "kv-cache": "memory",
        "vanishing-gradients": "gradients",
        "long-distance-dependencies": "distance",
        "long-range-dependencies": "distance",
        "recall": "distance",
        "permutation": "order",
        "permutation-equivariance": "order",
        "permutation-invariance": "order",
        "word-order": "order",
        "feed-forward": "averaging",
        "non-linearity": "averaging",
        "nonlinearity": "averaging",
        "re-averaging": "averaging",
        "saturation": "scaling",
        "scaled-dot-product": "scaling",
        "softmax": "scaling",
        "sqrt-d-k": "scaling",
        "causal-mask": "peeking",
        "cheating": "peeking",
        "look-ahead-mask": "peeking",
        "mask": "peeking",
        "masking": "peeking",
        "teacher-forcing": "peeking",
        "layer-norm": "depth",
        "layer-normalization": "depth",
        "loss-landscape": "depth",
        "residual": "depth",
        "residual-connections": "depth",
        "skip-connections": "depth",
        "multi-head": "heads",
        "multi-head-attention": "heads",
        "alibi": "positions",
        "extrapolation": "positions",
        "length-extrapolation": "positions",
        "positional-encoding": "positions",
        "positional-encodings": "positions",
        "rotary": "positions",
        "sinusoidal": "positions",
        "bigbird": "quadratic",
        "linformer": "quadratic",
        "quadratic-cost": "quadratic",
        "sparse-attention": "quadratic",
        "beam": "beams",
        "beam-search": "beams",
        "greedy": "beams",
        "greedy-decoding": "beams",
        "explanation": "alignment",
        "interpretability": "alignment",
        "attention-is-not-explanation": "alignment",
        "word-alignment": "alignment",
        "shared-weights": "sharing",
        "tying": "sharing",
        "weight-sharing": "sharing",
        "weight-tying": "sharing",
        "ablation": "ablations",
        "dropout": "ablations",
        "label-smoothing": "ablations",
        "table-3": "ablations",
        "grouped-query-attention": "modern",
        "llama": "modern",
        "mixture-of-experts": "modern",
        "qk-norm": "modern",
        "rmsnorm": "modern",
        "swiglu": "modern",
    },
)


def all_labs() -> list[Lab]:
    """Return the built-in labs in the order of the report, then the others by name."""
    added = sorted(set(LABS.names()) - {lab.name for lab in _BUILTIN})
    return [*_BUILTIN, *(LABS[name] for name in added)]


_BUILTIN = [
    Lab(
        "worked-example",
        "Attention worked by hand",
        "Self-attention and the causal mask, computed on numbers small enough to check by hand.",
        "a classroom example; Vaswani et al. (2017), eq. 1 and §3.2.3",
    ),
    Lab(
        "steps",
        "Sequential operations",
        "A recurrent layer needs O(n) sequential operations for n tokens, self-attention O(1).",
        "Vaswani et al. (2017), §4 and Table 1",
    ),
    Lab(
        "complexity",
        "Complexity per layer",
        "Table 1 of the paper: operations, sequential operations and maximum path length of self-attention, recurrent "
        "layers, convolutions and restricted self-attention.",
        "Vaswani et al. (2017), §4 and Table 1",
    ),
    Lab(
        "gradients",
        "Vanishing and exploding gradients",
        "Gradients vanish or explode with distance in an RNN, less so in an LSTM, and not in self-attention.",
        "Bengio et al. (1994); Hochreiter & Schmidhuber (1997), §3; Vaswani et al. (2017), §4",
    ),
    Lab(
        "distance",
        "Long-range dependencies",
        "Long-range dependencies are hard to learn for an RNN, less so for gated networks, and not for self-attention.",
        "Bengio et al. (1994); Vaswani et al. (2017), §1 and §4",
    ),
    Lab(
        "order",
        "Permutation equivariance",
        "Without positions self-attention is permutation-equivariant and cannot distinguish the orders of a sentence.",
        "Vaswani et al. (2017), §3.5; some textbooks say invariant instead of equivariant",
    ),
    Lab(
        "averaging",
        "The role of feed-forward layers",
        "Without feed-forward layers, stacked attention only averages values: for fixed weights it is linear.",
        "course notes on Vaswani et al. (2017), §3.3; Dong et al. (2021)",
        module="regard.labs.feed_forward",
    ),
    Lab(
        "scaling",
        "Scaled dot-product attention",
        "Without division by √d_k the softmax saturates for wide keys and its gradient vanishes.",
        "Vaswani et al. (2017), §3.2.1",
    ),
    Lab(
        "peeking",
        "The causal mask",
        "Without the causal mask a decoder sees its labels: its training loss collapses, and it cannot generate.",
        "Vaswani et al. (2017), §3.2.3",
    ),
    Lab(
        "depth",
        "Residual connections and normalization",
        "With standard initialization, residual connections and layer normalization make deep networks trainable; "
        "residual connections widen the basin of the loss.",
        "Vaswani et al. (2017), §3.1; He et al. (2016); the loss surface: Li et al. (2018)",
    ),
    Lab(
        "heads",
        "Multi-head attention",
        "Several heads are better than one of equal total size, and heads of a layer attend to different positions.",
        "Vaswani et al. (2017), §3.2.2 and Table 3, rows A; Michel et al. (2019)",
    ),
    Lab(
        "positions",
        "Length extrapolation",
        "Learned positions do not extrapolate beyond the trained length; clipped relative positions and ALiBi do.",
        "Vaswani et al. (2017), §3.5; Shaw et al. (2018); Press et al. (2022)",
    ),
    Lab(
        "quadratic",
        "Attention complexity",
        "The cost of full attention is quadratic in the length; Linformer, BigBird and a sliding window are linear.",
        "Vaswani et al. (2017), Table 1; Wang et al. (2020), Linformer; Zaheer et al. (2020), BigBird",
    ),
    Lab(
        "memory",
        "Memory and time by length",
        "A Transformer needs less memory than a recurrent network, scales better with the length of sequences and "
        "generalizes better.",
        "course notes on Vaswani et al. (2017), §4",
    ),
    Lab(
        "beams",
        "Beam width",
        "Beam search finds more probable and better translations than greedy decoding.",
        "Vaswani et al. (2017), §6.1; Koehn and Knowles (2017), §3.6",
    ),
    Lab(
        "alignment",
        "Attention as word alignment",
        "The cross-attention of some heads can be read as word alignment, but the output need not depend on it.",
        "Bahdanau et al. (2015), §5.2; Vaswani et al. (2017), §4; Jain and Wallace (2019)",
    ),
    Lab(
        "diagonal",
        "The diagonal of self-attention",
        "Without projections (Q = K = V = X) a token attends most to itself; in trained heads it need not.",
        "course notes on self-attention, which expect the highest values on the diagonal",
    ),
    Lab(
        "sharing",
        "Weight tying",
        "Tying both embeddings and the output projection saves parameters at no loss in quality.",
        "Vaswani et al. (2017), §3.4; Press and Wolf (2017)",
    ),
    Lab(
        "ablations",
        "Ablations of Table 3",
        "Larger models are better and smaller ones worse, and label smoothing increases perplexity.",
        "Vaswani et al. (2017), §6.2 and Table 3",
    ),
    Lab(
        "modern",
        "Parts of modern decoders",
        "RMSNorm, rotary positions, SwiGLU, grouped-query attention and normalized queries and keys together lower the "
        "loss of a decoder with the shape of GPT-2 at equal parameters and steps.",
        "Zhang & Sennrich (2019); Su et al. (2021); Shazeer (2020); Ainslie et al. (2023); Henry et al. (2020); as "
        "combined by Touvron et al. (2023)",
    ),
]
for _lab in _BUILTIN:
    LABS.register(_lab.name)(_lab)
