"""Weight tying: one matrix for source embedding, target embedding and output projection, or separate ones."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

from regard.labs.charts import dots
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.translators import (
    TRANSLATION_SETUP,
    Settings,
    TranslatorScores,
    comparison_steps,
    evaluate_translator,
    merge_settings,
    train_translator,
    training_settings,
    translation_data,
)
from regard.plotting import new_figure, plot_style

QUICK_PAIRS = 60  # training pairs with quick effort
METHOD = f"""
Translation models that differ only in weight tying: one matrix for the embeddings of both languages and the output
projection, as in the paper (§3.4); a separate output projection; separate embeddings for the two languages; or three
separate matrices. All are trained for the same number of steps on the same batches, the first and the last with several
seeds, and evaluated on test sentences: perplexity of the references, and BLEU of greedy translations. With quick effort
they are trained on {QUICK_PAIRS} pairs only, because on the whole toy corpus all of them would be perfect.

Tying costs nothing if, by both measures, the mean with all matrices tied is no worse than the worst seed with none
tied.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
Both languages here use the same alphabet and share names and subwords; tying their embeddings makes less sense for
languages that do not. The vocabularies are small, and so are the savings; their fraction grows with the vocabulary and
shrinks with depth: in the paper's base model 37,000 tokens of width 512 are 19 of 65 million parameters, and three
matrices would be 57. The models are compared before convergence: one that learns more slowly looks worse than it would
in the end. One reason for slower learning is removed here: an untrained decoder with tied output predicts the token it
was just given, unless the last normalization weights start with both signs, as they do in regard.
"""

TIED, UNTIED = "all tied", "none tied"
TYING_VARIANTS: dict[str, Settings] = {
    TIED: {},
    "separate output": {"model": {"tie_output": False}},
    "separate source": {"model": {"share_embeddings": False}},
    UNTIED: {"model": {"share_embeddings": False, "tie_output": False}},
}


def run(context: LabContext) -> LabResult:
    """Train and evaluate every variant."""
    names = context.by_effort([TIED, UNTIED], list(TYING_VARIANTS), list(TYING_VARIANTS))
    data = translation_data(context, context.by_effort(QUICK_PAIRS, None, None))
    steps = context.by_effort(140, comparison_steps(context), comparison_steps(context))
    pairs, seeds = data.test[: context.by_effort(80, 200, 300)], range(1, 4)
    scores: dict[str, list[TranslatorScores]] = {}
    for name in names:
        for seed in seeds if name in (TIED, UNTIED) else seeds[:1]:
            size = context.by_effort({"model": {"width": 64}}, {}, {})
            settings = {**merge_settings(size, TYING_VARIANTS[name]), "training": training_settings(steps, seed)}
            model = train_translator(context, settings, f"a translation model, {name}", data)
            scores.setdefault(name, []).append(evaluate_translator(model, pairs))
    saved = 1 - scores[TIED][0].parameters / scores[UNTIED][0].parameters
    perplexity, bleu = (
        {name: [getattr(score, measure) for score in row] for name, row in scores.items()}
        for measure in ("perplexity", "bleu")
    )
    same_perplexity = fmean(perplexity[TIED]) <= max(perplexity[UNTIED])
    same_bleu = fmean(bleu[TIED]) >= min(bleu[UNTIED])
    return LabResult(
        holds=same_perplexity and same_bleu,
        summary=f"Tying saves {saved:.0%} of the parameters: {scores[TIED][0].parameters:,} instead of "
        f"{scores[UNTIED][0].parameters:,}. After {steps} steps the perplexity is "
        f"{_mean_and_range(perplexity[TIED], '.3f')} with all matrices tied and "
        f"{_mean_and_range(perplexity[UNTIED], '.3f')} with none tied; BLEU is {_mean_and_range(bleu[TIED], '.1f')} "
        f"and {_mean_and_range(bleu[UNTIED], '.1f')} (seeds: {len(seeds)}). {_comparison(same_perplexity, same_bleu)}",
        numbers={name: [asdict(score) for score in row] for name, row in scores.items()},
        figures=[_figure(scores)],
        tables=[_table(scores)],
    )


def _mean_and_range(values: Sequence[float], number_format: str) -> str:
    """Return the mean and the range.

    >>> _mean_and_range([1.0, 2.0], ".1f")
    '1.5 (1.0 to 2.0)'
    """
    return f"{fmean(values):{number_format}} ({min(values):{number_format}} to {max(values):{number_format}})"


def _comparison(same_perplexity: bool, same_bleu: bool) -> str:
    if same_perplexity and same_bleu:
        return "By both measures the mean with all tied is within the range of the seeds with none tied, or better."
    measures = (("perplexity", same_perplexity), ("BLEU", same_bleu))
    worse = " and in ".join(name for name, same in measures if not same)
    return f"In {worse} the mean with all tied is worse than every seed with none tied."


def _figure(scores: Mapping[str, Sequence[TranslatorScores]]) -> LabFigure:
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


def _table(scores: Mapping[str, Sequence[TranslatorScores]]) -> LabTable:
    rows = [
        [
            name,
            f"{row[0].parameters:,}",
            ", ".join(f"{score.perplexity:.3f}" for score in row),
            ", ".join(f"{score.bleu:.1f}" for score in row),
        ]
        for name, row in scores.items()
    ]
    return LabTable("By weight tying", ["variant", "parameters", "perplexity of each seed", "BLEU of each seed"], rows)
