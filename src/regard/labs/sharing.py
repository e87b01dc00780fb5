"""One matrix for source, target and prediction, or one for each: what it costs, and what it is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

from regard.labs.charts.bars import dots
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.translators import (
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

FEW = 60  # sentences to learn from in a quick run
METHOD = f"""
Translators that differ in nothing but what they share: one matrix for the embeddings of both languages and for the
projection before the softmax, as in the paper (§3.4); a matrix of its own for the projection; matrices of their own for
the two languages; or three different matrices. All are trained for the same number of steps on the same batches, the
first and the last with several seeds, and measured on sentences that they have not seen: perplexity of the right
translations, and BLEU of greedy ones. A quick run teaches them {FEW} sentences only: of all that it has they would
learn everything, and show no difference for that reason.

Nothing is lost if by both measures the mean with all shared is no worse than the worst seed with nothing shared.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
Both languages here are written in the same letters and share names and pieces of words; one matrix for both makes less
sense for languages that do not. Vocabularies are small here and so is what sharing saves in numbers; its share of the
whole grows with the vocabulary and shrinks with depth: in the paper's base model, 37,000 tokens of 512 numbers are 19
of its 65 million, and three matrices would be 57. What is compared is a moment of training: what learns more slowly
looks worse than it would in the end. One reason for that could be mended: a fresh decoder that shares its matrix
expects the token which it has just read, unless its last gains begin with both signs, as ours do.
"""

MEASURES = ("perplexity", "bleu")
VARIANTS: dict[str, Settings] = {
    "all shared": {},
    "own projection": {"model": {"tie_output": False}},
    "own source": {"model": {"share_embeddings": False}},
    "nothing shared": {"model": {"share_embeddings": False, "tie_output": False}},
}
SHARED, APART = "all shared", "nothing shared"


def run(context: LabContext) -> LabResult:
    """Train, measure, draw."""
    names = context.by_effort([SHARED, APART], list(VARIANTS), list(VARIANTS))
    pages, steps = (
        translation_data(context, context.by_effort(FEW, None, None)),
        context.by_effort(140, comparison_steps(context), comparison_steps(context)),
    )
    pairs, seeds = pages.test[: context.by_effort(80, 200, 300)], range(1, 4)
    found: dict[str, list[TranslatorScores]] = {}
    for name in names:
        for seed in seeds if name in (SHARED, APART) else seeds[:1]:
            own = merge_settings(context.by_effort({"model": {"width": 64}}, {}, {}), VARIANTS[name])
            settings = {**own, "training": training_settings(steps, seed)}
            model = train_translator(context, settings, f"a translator, {name}", pages)
            found.setdefault(name, []).append(evaluate_translator(model, pairs))
    saved = 1 - found[SHARED][0].parameters / found[APART][0].parameters
    worth, bleu = ({name: [getattr(one, what) for one in each] for name, each in found.items()} for what in MEASURES)
    as_sure = fmean(worth[SHARED]) <= max(worth[APART])
    as_good = fmean(bleu[SHARED]) >= min(bleu[APART])
    return LabResult(
        holds=as_sure and as_good,
        summary=f"Sharing saves {saved:.0%} of the parameters: {found[SHARED][0].parameters:,} instead of "
        f"{found[APART][0].parameters:,}. After {steps} steps the perplexity of right translations is "
        f"{_spread(worth[SHARED], '.3f')} with all shared and {_spread(worth[APART], '.3f')} with nothing shared; BLEU "
        f"is {_spread(bleu[SHARED], '.1f')} and {_spread(bleu[APART], '.1f')} (seeds: {len(seeds)}). "
        f"{_verdict(as_sure, as_good)}",
        numbers={name: [asdict(one) for one in each] for name, each in found.items()},
        figures=[_draw(found)],
        tables=[_table(found)],
    )


def _spread(values: Sequence[float], shape: str) -> str:
    """The mean, and the lowest and the highest.

    >>> _spread([1.0, 2.0], ".1f")
    '1.5 (1.0 to 2.0)'
    """
    return f"{fmean(values):{shape}} ({min(values):{shape}} to {max(values):{shape}})"


def _verdict(as_sure: bool, as_good: bool) -> str:
    if as_sure and as_good:
        return "By both measures the mean with all shared is within what seeds with nothing shared come to, or better."
    worse = " and in ".join(name for name, kept in (("perplexity", as_sure), ("BLEU", as_good)) if not kept)
    return f"In {worse} the mean with all shared is worse than every seed with nothing shared."


def _draw(found: Mapping[str, Sequence[TranslatorScores]]) -> LabFigure:
    titles = {"parameters": "parameters", "perplexity": "perplexity; less is better", "bleu": "BLEU; more is better"}
    shapes = {"parameters": ",.0f", "perplexity": ".4g", "bleu": ".1f"}
    with plot_style():
        figure = new_figure(11, 1 + 0.55 * len(found))
        for ax, (what, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
            rows = {name: [float(getattr(one, what)) for one in each] for name, each in found.items()}
            dots(ax, rows, title=title, number_format=shapes[what])
    return LabFigure(
        "sharing",
        "What matrices share, and what it costs; lines go from the lowest seed to the highest.",
        figure,
        "Parameters, perplexity and BLEU by what is shared: "
        + "; ".join(
            f"{name} {each[0].parameters:,}, {fmean(one.perplexity for one in each):.3f} and "
            f"{fmean(one.bleu for one in each):.1f}"
            for name, each in found.items()
        )
        + ".",
    )


def _table(found: Mapping[str, Sequence[TranslatorScores]]) -> LabTable:
    rows = [
        [
            name,
            f"{each[0].parameters:,}",
            ", ".join(f"{one.perplexity:.3f}" for one in each),
            ", ".join(f"{one.bleu:.1f}" for one in each),
        ]
        for name, each in found.items()
    ]
    return LabTable("By what is shared", ["shared", "parameters", "perplexity of each seed", "BLEU of each seed"], rows)
