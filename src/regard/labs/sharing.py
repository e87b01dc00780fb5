"""Weight tying: one matrix for source embedding, target embedding and output projection, or separate ones."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from regard.labs import LabContext, LabFigure, LabResult, LabTable, Verdict
from regard.labs.charts import dots
from regard.labs.translators import (
    Settings,
    TranslatorScores,
    evaluate_translator,
    merge_settings,
    reference_perplexity,
    train_translator,
    training_settings,
    translation_data,
)
from regard.plotting import new_figure, plot_style

PAIRS = 100  # training pairs: fewer than the corpus, on which every variant would be perfect
SMOOTHING = 0.1
RESAMPLES, CONFIDENCE = 2000, 0.95
MAX_EXCESS = 0.05  # of the training perplexity over its minimum, up to which a model counts as converged
METHOD = f"""
Translation models that differ in weight tying: one matrix for the embeddings of both languages and the output
projection, as in the paper (§3.4); a separate output projection; separate embeddings for the two languages; or three
separate matrices. As a control, a model with all matrices tied whose feed-forward layers are so much wider that it has
as many parameters as the one with three matrices.

All are trained on the same {PAIRS} pairs of a generated toy corpus, with several seeds, until nothing is left to learn
from them: with label smoothing of {SMOOTHING} the perplexity of the training pairs cannot be lower than
1 / (1 − {SMOOTHING}) = {1 / (1 - SMOOTHING):.3f}, and a model counts as converged if it is at most {MAX_EXCESS:.0%}
above. So quality is compared, not the speed of learning. It is measured on test sentences: perplexity of the
references, and BLEU of greedy translations.

Tying costs nothing if all models have converged and, by both measures, the {CONFIDENCE:.0%} confidence interval of the
difference to the models with none tied (bootstrap over the seeds) is not entirely on the worse side. The same must
hold for the model with as many parameters.
"""
LIMITATIONS = """
A corpus of 26 words, with few training pairs, so that the models differ in what they generalize; on more data of this
grammar all are perfect. Both languages use the same alphabet but share only names; the savings are small because the
vocabulary is, and their fraction grows with the vocabulary: in the paper's base model 37,000 tokens of width 512 are 19
of 65 million parameters, and three matrices would be 57. The learning rate is the same for all. Before convergence a
model with tied output can look worse: after 450 steps on the whole phrasebook, less than one epoch, models with a
separate output projection had learned more. An interval that contains zero does not prove that there is no difference;
it says how large one could be.
"""

TIED, UNTIED, CONTROL = "all tied", "none tied", "all tied, as large"
TYING_VARIANTS: dict[str, Settings] = {
    TIED: {},
    "separate output": {"model": {"tie_output": False}},
    "separate source": {"model": {"share_embeddings": False}},
    UNTIED: {"model": {"share_embeddings": False, "tie_output": False}},
}
WIDTH, LAYERS, FEED_FORWARD = 32, 1, 64


@dataclass(frozen=True)
class TyingScores(TranslatorScores):
    """Scores on test sentences, and the perplexity of the training pairs."""

    train_perplexity: float

    @property
    def converged(self) -> bool:
        """Whether the training pairs are learned up to label smoothing."""
        return self.train_perplexity <= (1 + MAX_EXCESS) / (1 - SMOOTHING)


def run(context: LabContext) -> LabResult:
    """Train and evaluate every variant."""
    names = context.by_effort([TIED, UNTIED], list(TYING_VARIANTS), list(TYING_VARIANTS))
    seeds, steps = range(1, context.by_effort(2, 5, 6) + 1), context.by_effort(150, 300, 300)
    scores = {
        name: [_train(context, TYING_VARIANTS[name], f"a translation model, {name}", steps, seed) for seed in seeds]
        for name in names
    }
    wider = {"model": {"feed_forward": FEED_FORWARD + extra_units(scores[TIED][0], scores[UNTIED][0])}}
    scores[CONTROL] = [_train(context, wider, f"a translation model, {CONTROL}", steps, seed) for seed in seeds]
    saved = 1 - scores[TIED][0].parameters / scores[UNTIED][0].parameters
    perplexity, bleu = (
        {name: [getattr(score, measure) for score in row] for name, row in scores.items()}
        for measure in ("perplexity", "bleu")
    )
    intervals = {
        name: {
            "perplexity": difference_interval(perplexity[name], perplexity[UNTIED]),
            "bleu": difference_interval(bleu[name], bleu[UNTIED]),
        }
        for name in (TIED, CONTROL)
    }
    converged = all(score.converged for row in scores.values() for score in row)
    verdicts = [
        Verdict("all models have converged", converged),
        *(
            Verdict(
                f"{description}, tied weights are no worse",
                intervals[name]["perplexity"][0] <= 0 and intervals[name]["bleu"][1] >= 0,
            )
            for name, description in ((TIED, "with fewer parameters"), (CONTROL, "with as many parameters"))
        ),
    ]
    worst_fit = max(score.train_perplexity for row in scores.values() for score in row)
    return LabResult(
        holds=all(verdict.holds for verdict in verdicts),
        summary=f"Tying saves {saved:.0%} of the parameters: {scores[TIED][0].parameters:,} instead of "
        f"{scores[UNTIED][0].parameters:,}. After {steps} steps the perplexity of the training pairs is at most "
        f"{worst_fit:.3f}. On test sentences the perplexity is {_mean_and_range(perplexity[TIED], '.3f')} with all "
        f"matrices tied, {_mean_and_range(perplexity[UNTIED], '.3f')} with none tied, and "
        f"{_mean_and_range(perplexity[CONTROL], '.3f')} with all tied and {scores[CONTROL][0].parameters:,} "
        f"parameters. BLEU is {_mean_and_range(bleu[TIED], '.1f')}, {_mean_and_range(bleu[UNTIED], '.1f')} and "
        f"{_mean_and_range(bleu[CONTROL], '.1f')} (seeds: {len(seeds)}). Relative to none tied, the "
        f"{CONFIDENCE:.0%} interval of the difference is {_interval(intervals[TIED]['perplexity'], 3)} in perplexity "
        f"and {_interval(intervals[TIED]['bleu'], 1)} in BLEU; with as many parameters "
        f"{_interval(intervals[CONTROL]['perplexity'], 3)} and {_interval(intervals[CONTROL]['bleu'], 1)}.",
        numbers={
            "scores": {name: [asdict(score) for score in row] for name, row in scores.items()},
            "difference_from_none_tied": intervals,
        },
        figures=[_figure(scores)],
        tables=[_table(scores)],
        verdicts=verdicts,
    )


def difference_interval(values: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval of the difference of two means, by bootstrap over the seeds.

    >>> difference_interval([3.0, 3.0], [1.0, 1.0])
    (2.0, 2.0)
    """
    generator = np.random.default_rng(0)
    means = [generator.choice(row, size=(RESAMPLES, len(row))).mean(1) for row in (values, others)]
    low, high = np.quantile(means[0] - means[1], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _interval(interval: tuple[float, float], digits: int) -> str:
    return " to ".join(f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−") for value in interval)


def extra_units(tied: TranslatorScores, untied: TranslatorScores) -> int:
    """Return how much wider the feed-forward layers are that have as many parameters as the matrices saved.

    A unit has an input weight and an output weight for each entry of a state, and a bias.
    """
    per_unit = 2 * LAYERS * (2 * WIDTH + 1)  # in encoder and decoder
    return (untied.parameters - tied.parameters) // per_unit


def _train(context: LabContext, variant: Settings, name: str, steps: int, seed: int) -> TyingScores:
    """Return the scores of a variant; all efforts use the toy corpus, which can be learned to convergence."""
    toy = replace(context, effort="quick")
    data = translation_data(toy, PAIRS)
    size: dict[str, Any] = {"model": {"width": WIDTH, "layers": LAYERS, "feed_forward": FEED_FORWARD}}
    training = {**training_settings(steps, seed), "label_smoothing": SMOOTHING}
    model = train_translator(toy, merge_settings(size, {**variant, "training": training}), name, data)
    scores = evaluate_translator(model, data.test)
    return TyingScores(**asdict(scores), train_perplexity=reference_perplexity(model, data.train))


def _mean_and_range(values: Sequence[float], number_format: str) -> str:
    """Return the mean and the range.

    >>> _mean_and_range([1.0, 2.0], ".1f")
    '1.5 (1.0 to 2.0)'
    """
    return f"{fmean(values):{number_format}} ({min(values):{number_format}} to {max(values):{number_format}})"


def _figure(scores: Mapping[str, Sequence[TyingScores]]) -> LabFigure:
    charts = {
        "parameters": ("parameters", ",.0f"),
        "perplexity": ("perplexity (lower is better)", ".4g"),
        "bleu": ("BLEU (higher is better)", ".1f"),
    }
    with plot_style():
        figure = new_figure(11, 1 + 0.55 * len(scores))
        axes = figure.subplots(1, 3, sharey=True)
        for ax, (measure, (title, number_format)) in zip(axes, charts.items(), strict=True):
            rows = {name: [float(getattr(score, measure)) for score in row] for name, row in scores.items()}
            dots(ax, rows, title=title, number_format=number_format)
    return LabFigure(
        "sharing",
        "Parameters, perplexity and BLEU by weight tying; lines span the seeds.",
        figure,
        "Parameters, perplexity and BLEU by weight tying: "
        + "; ".join(
            f"{name} {row[0].parameters:,}, {fmean(score.perplexity for score in row):.3f} and "
            f"{fmean(score.bleu for score in row):.1f}"
            for name, row in scores.items()
        )
        + ".",
    )


def _table(scores: Mapping[str, Sequence[TyingScores]]) -> LabTable:
    rows = [
        [
            name,
            f"{row[0].parameters:,}",
            ", ".join(f"{score.perplexity:.3f}" for score in row),
            ", ".join(f"{score.bleu:.1f}" for score in row),
            ", ".join(f"{score.train_perplexity:.3f}" for score in row),
        ]
        for name, row in scores.items()
    ]
    header = ["variant", "parameters", "perplexity of each seed", "BLEU of each seed", "training perplexity"]
    return LabTable("By weight tying", header, rows)
