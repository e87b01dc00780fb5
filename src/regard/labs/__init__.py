"""Labs: claims of "Attention Is All You Need" and related work, each tested by an experiment on small networks.

One file per lab. Shared parts: `trials` (tasks and short training runs), `gauges` (measurements), `charts` (figures).
Other packages add labs by an entry point of the group `regard.labs` that names a `Lab`.
"""

from pathlib import Path

from regard.labs.lab import Effort, Lab, LabContext, LabFigure, LabResult, LabTable
from regard.registry import Registry

__all__ = ["BOOK", "LABS", "Effort", "Lab", "LabContext", "LabFigure", "LabResult", "LabTable", "all_labs"]

BOOK = Path(__file__).parent / "book.html"
"""The results of all built-in labs with full effort, on one page."""

LABS: Registry[Lab] = Registry("labs")


def all_labs() -> list[Lab]:
    """Return the built-in labs in the order of the book, then the others by name."""
    added = sorted(set(LABS.names()) - {lab.name for lab in _BUILTIN})
    return [*_BUILTIN, *(LABS[name] for name in added)]


_BUILTIN = [
    Lab(
        "worked-example",
        "Attention by hand",
        "Self-attention and the look-ahead mask on numbers small enough to check by hand.",
        "a classroom example; Vaswani et al. (2017), eq. 1 and §3.2.3",
    ),
    Lab(
        "steps",
        "Steps that wait for each other",
        "A recurrent network takes O(n) operations one after the other to read n tokens, self-attention O(1).",
        "Vaswani et al. (2017), §4 and Table 1",
    ),
    Lab(
        "gradients",
        "Gradients over a distance",
        "Through an RNN gradients vanish or explode with distance, through an LSTM less, through attention not.",
        "Bengio et al. (1994); Hochreiter & Schmidhuber (1997), §3; Vaswani et al. (2017), §4",
    ),
    Lab(
        "distance",
        "Remembering over a distance",
        "What lies far back is hard to learn for an RNN, less so for gated networks, and not for attention.",
        "Bengio et al. (1994); Vaswani et al. (2017), §1 and §4",
    ),
    Lab(
        "order",
        "Why order must be told",
        "Without positions self-attention cannot tell a sentence from its reordering: outputs only move along with "
        "the words.",
        "Vaswani et al. (2017), §3.5; textbooks, some of which say invariant where it is equivariant",
    ),
    Lab(
        "averaging",
        "What feed-forward layers are for",
        "Without feed-forward layers stacked attention only re-averages values: given its weights, it is linear.",
        "course notes on Vaswani et al. (2017), §3.3; Dong et al. (2021)",
    ),
    Lab(
        "scaling",
        "Why scores are divided by √d_k",
        "Without ÷√d_k the softmax saturates as keys grow longer, and its gradient dies.",
        "Vaswani et al. (2017), §3.2.1",
    ),
    Lab(
        "peeking",
        "What the look-ahead mask prevents",
        "Without the look-ahead mask a decoder cheats: its training loss collapses, and it cannot write.",
        "Vaswani et al. (2017), §3.2.3",
    ),
    Lab(
        "depth",
        "What makes depth trainable",
        "With first weights of the usual size, residual connections and layer normalisation make depth trainable; "
        "residual connections widen the basin of the loss.",
        "Vaswani et al. (2017), §3.1; He et al. (2016); the loss surface: Li et al. (2018)",
    ),
    Lab(
        "heads",
        "One head or several",
        "Several heads beat one that costs as much, and single heads do different things.",
        "Vaswani et al. (2017), §3.2.2 and Table 3, rows A; Michel et al. (2019)",
    ),
    Lab(
        "positions",
        "Past the trained length",
        "Learned positions cannot go on past the length they were trained at; clipped relative ones and ALiBi can.",
        "Vaswani et al. (2017), §3.5; Shaw et al. (2018); Press et al. (2022)",
    ),
    Lab(
        "quadratic",
        "What length costs",
        "Full attention costs the square of the length; Linformer, BigBird and a window cost in proportion to it.",
        "Vaswani et al. (2017), Table 1; Wang et al. (2020), Linformer; Zaheer et al. (2020), BigBird",
    ),
    Lab(
        "beams",
        "How wide to search",
        "Beam search finds more probable translations than greedy decoding, and better ones, up to a point: "
        "wide beams hurt, most of all without a length penalty.",
        "Vaswani et al. (2017), §6.1; Koehn and Knowles (2017), §3.6",
    ),
    Lab(
        "alignment",
        "Attention as alignment",
        "Cross-attention can be read as an alignment of words, in some heads; but what it shows need not be what "
        "the output depends on.",
        "Bahdanau et al. (2015), §5.2; Vaswani et al. (2017), §4; Jain and Wallace (2019)",
    ),
    Lab(
        "sharing",
        "One matrix for three",
        "Sharing the embeddings of both languages and the weights before the softmax saves parameters at no loss.",
        "Vaswani et al. (2017), §3.4; Press and Wolf (2017)",
    ),
    Lab(
        "ablations",
        "Table 3, in small",
        "Larger models are better and smaller ones worse, and label smoothing costs perplexity.",
        "Vaswani et al. (2017), §6.2 and Table 3",
    ),
]
for _lab in _BUILTIN:
    LABS.register(_lab.name)(_lab)
