"""A decoder with the shape of GPT-2, and what each part of today's decoders changes at equal parameters and steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from regard.config import DecoderOnlyConfig
from regard.labs import Effort, LabContext, LabFigure, LabResult, LabTable, Verdict
from regard.labs.charts import dots
from regard.labs.trials import CharacterCorpus, SymbolPrediction, fit, python_docs
from regard.models import build
from regard.models.assembly import build_meta
from regard.models.summary import summarize
from regard.plotting import new_figure, plot_style

METHOD = """
The base is a small language model with the shape of GPT-2: LayerNorm before each sublayer, learned positions, GELU, a
key and value head for each query head, biases, tied embeddings. Each variant replaces one part by that of Llama-like
models: RMSNorm, rotary positions, SwiGLU, grouped-query attention (two query heads share keys and values), normalized
queries and keys. One variant has all five, and one also has a mixture of experts. The hidden units of the feed-forward
layers are then chosen so that every network has the parameters of the base; of the mixture, the parameters that a token
uses are counted, without the router.

All are trained on the same characters of the Python documentation, in the same order, with the same number of steps and
learning rate, and evaluated on validation text. A part is clearly better, or worse, if the difference of the mean
losses over the seeds is more than twice its standard error.
"""
LIMITATIONS = """
The networks are small, training is short, and the learning rate was not tuned for a variant: a part that only helps
large networks, long texts or high learning rates looks useless here. That holds for normalized queries and keys, which
stabilize the training of large networks, and for grouped-query attention, which is for a smaller cache in generation;
its saved parameters go to the feed-forward layers here. Three seeds give a rough estimate of the deviation. With equal
parameters the networks differ a little in operations.
"""

BASE, TOGETHER, EXPERTS = "GPT-2 shape", "all five", "all five, experts"
ROTARY = {"positions": {"kind": "rotary", "layout": "halves"}}
PARTS: dict[str, dict[str, Any]] = {
    "RMSNorm": {"norm": "rms"},
    "rotary positions": ROTARY,
    "SwiGLU": {"activation": "swiglu"},
    "grouped-query attention": {"kv_heads": 2},
    "normalized queries, keys": {"qk_norm": True},
}
EXPERT_SETTINGS: dict[str, Any] = {"experts": 8, "experts_per_token": 2}
QUICK_VARIANTS = (BASE, "rotary positions", TOGETHER)
STANDARD_ERRORS = 2.0  # of a difference that is clear
PARAMETER_TOLERANCE = 0.01


@dataclass(frozen=True)
class Size:
    """Size of the base network and of its training."""

    width: int
    layers: int
    length: int
    steps: int
    characters: int
    learning_rate: float


SIZES: dict[Effort, Size] = {
    "quick": Size(width=32, layers=1, length=48, steps=150, characters=100_000, learning_rate=1e-2),
    "default": Size(width=64, layers=2, length=64, steps=250, characters=10**6, learning_rate=6e-3),
    "full": Size(width=96, layers=2, length=96, steps=400, characters=10**6, learning_rate=4e-3),
}


@dataclass(frozen=True)
class Difference:
    """How much the mean loss of a variant is above that of the base, and the standard error of this difference."""

    mean: float
    error: float

    @classmethod
    def of(cls, losses: Sequence[float], base: Sequence[float]) -> "Difference":
        """Return the difference between the losses of two networks, one of each seed.

        >>> Difference.of([2.0, 2.2], [3.0, 3.0])
        Difference(mean=-0.9, error=0.1)
        """
        variance = sum(stdev(part) ** 2 / len(part) for part in (losses, base))
        return cls(round(fmean(losses) - fmean(base), 12), round(variance**0.5, 12))

    @property
    def is_better(self) -> bool:
        """Whether the variant is clearly better."""
        return self.mean < -STANDARD_ERRORS * self.error

    @property
    def is_worse(self) -> bool:
        """Whether the variant is clearly worse."""
        return self.mean > STANDARD_ERRORS * self.error


def run(context: LabContext) -> LabResult:
    """Train every variant with several seeds, and compare their losses on validation text."""
    size = SIZES[context.effort]
    seeds = range(context.by_effort(2, 3, 3))
    corpus = python_docs(size.characters)
    configs = variants(size, corpus.vocab_size)
    if context.effort == "quick":
        configs = {name: configs[name] for name in QUICK_VARIANTS}
    losses: dict[str, list[float]] = {}
    for name, config in configs.items():
        losses[name] = [_train(config, size, corpus, seed) for seed in seeds]
        context.log(f"  {name}: {', '.join(f'{loss:.3f}' for loss in losses[name])} nats per character")
    counts = {name: summarize(build_meta(config)) for name, config in configs.items()}
    differences = {name: Difference.of(losses[name], losses[BASE]) for name in configs if name != BASE}
    active = {name: counts[name].active_parameters - _routers(config) for name, config in configs.items()}
    equal = all(abs(count / active[BASE] - 1) < PARAMETER_TOLERANCE for count in active.values())
    better = [name for name in PARTS if name in differences and differences[name].is_better]
    worse = [name for name in PARTS if name in differences and differences[name].is_worse]
    return LabResult(
        holds=equal and differences[TOGETHER].is_better,
        summary=f"After {size.steps} steps the base has {_loss(losses[BASE])} nats per validation character "
        f"({active[BASE]:,} parameters, seeds: {len(seeds)}), and all five parts together {_loss(losses[TOGETHER])}. "
        f"Clearly better alone: {', '.join(better) or 'none'}. Clearly worse alone: {', '.join(worse) or 'none'}.",
        numbers={
            "losses": losses,
            "parameters": {name: count.parameters for name, count in counts.items()},
            "active_parameters": active,
            "differences": {name: [part.mean, part.error] for name, part in differences.items()},
        },
        figures=[_figure(losses)],
        tables=[_table(losses, {name: count.parameters for name, count in counts.items()}, active)],
        verdicts=_verdicts(losses, differences),
    )


def variants(size: Size, vocab_size: int) -> dict[str, DecoderOnlyConfig]:
    """Return the settings of each network, with the hidden units that give it the parameters of the base."""
    hidden = 4 * size.width
    together = {key: value for part in PARTS.values() for key, value in part.items()}
    changes = {BASE: {}, **PARTS, TOGETHER: together}
    base = _config(size, vocab_size, {}, hidden)
    configs = {name: _matched(size, vocab_size, change, base) for name, change in changes.items()}
    shared = configs[TOGETHER].feed_forward // EXPERT_SETTINGS["experts_per_token"]
    return {**configs, EXPERTS: _config(size, vocab_size, together | EXPERT_SETTINGS, shared)}


def _config(size: Size, vocab_size: int, change: Mapping[str, Any], hidden: int) -> DecoderOnlyConfig:
    shape = {"vocab_size": vocab_size, "width": size.width, "layers": size.layers, "heads": 4, "feed_forward": hidden}
    gpt2 = {
        "norm_order": "pre",
        "positions": {"kind": "learned", "max_length": size.length},
        "activation": "gelu-tanh",
        "attention_bias": True,
        "scale_embeddings": False,
        "dropout": 0.0,
    }
    return DecoderOnlyConfig.model_validate({**shape, **gpt2, **change})


def _matched(size: Size, vocab_size: int, change: Mapping[str, Any], base: DecoderOnlyConfig) -> DecoderOnlyConfig:
    """Return a variant with the number of hidden units that makes its parameters those of the base."""
    hidden, target = base.feed_forward, _parameters(base)
    smaller, larger = (_parameters(_config(size, vocab_size, change, units)) for units in (hidden, hidden + 1))
    return _config(size, vocab_size, change, hidden + round((target - smaller) / (larger - smaller)))


def _parameters(config: DecoderOnlyConfig) -> int:
    return summarize(build_meta(config)).parameters


def _routers(config: DecoderOnlyConfig) -> int:
    """Return the parameters of the routers."""
    return config.layers * config.width * config.experts


def _train(config: DecoderOnlyConfig, size: Size, corpus: CharacterCorpus, seed: int) -> float:
    """Train a network and return its cross entropy per character of validation text."""
    torch.manual_seed(seed)
    network = build(config)
    fit(network, corpus.batches(size.length, 16, seed), size.steps, learning_rate=size.learning_rate)
    batch = corpus.validation_batch(size.length, 256)
    with torch.no_grad():
        return float(SymbolPrediction(network)(batch).cross_entropy) / batch.targets


def _verdicts(losses: Mapping[str, Sequence[float]], differences: Mapping[str, Difference]) -> list[Verdict]:
    verdicts = [
        Verdict(f"{name} alone lowers the loss clearly", differences[name].is_better)
        for name in PARTS
        if name in differences
    ]
    if EXPERTS in losses:
        experts = Difference.of(losses[EXPERTS], losses[TOGETHER])
        verdicts.append(Verdict("experts lower it further, at equal parameters per token", experts.is_better))
    return verdicts


def _loss(losses: Sequence[float]) -> str:
    return f"{fmean(losses):.3f} ± {stdev(losses):.3f}"


def _figure(losses: Mapping[str, Sequence[float]]) -> LabFigure:
    with plot_style():
        figure = new_figure(7, 0.8 + 0.5 * len(losses))
        dots(figure.subplots(), losses, title="nats per validation character, lower is better", number_format=".3f")
    return LabFigure(
        "modern",
        "Loss on validation text with equal parameters and steps. Dots are means over seeds, bars their range.",
        figure,
        "Nats per validation character, mean ± standard deviation over seeds: "
        + ", ".join(f"{name} {_loss(values)}" for name, values in losses.items())
        + ".",
    )


def _table(losses: Mapping[str, Sequence[float]], parameters: Mapping[str, int], active: Mapping[str, int]) -> LabTable:
    base = losses[BASE]
    rows = []
    for name, values in losses.items():
        change = "" if name == BASE else f"{fmean(values) - fmean(base):+.3f}".replace("-", "−")
        seeds = ", ".join(f"{value:.3f}" for value in values)
        rows.append([name, f"{parameters[name]:,}", f"{active[name]:,}", _loss(values), change, seeds])
    header = ["network", "parameters", "per token", "nats per character", "change", "each seed"]
    return LabTable("Loss on validation text, mean ± standard deviation over seeds", header, rows)
