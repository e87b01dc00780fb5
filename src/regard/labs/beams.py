"""Beam width: model score, BLEU, output length and time of beam search."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from regard.api import Model
from regard.labs.charts import AxisScale, LineSeries, line_chart
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.translators import (
    TRANSLATION_SETUP,
    base_settings,
    train_translator,
    training_settings,
    translation_data,
    translation_scores,
)
from regard.phrasebook import AlignedPair
from regard.plotting import COLORS, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIN_BLEU_CHANGE = 0.5  # mean change of BLEU that counts
METHOD = f"""
Undertrained models translate test sentences with beams of increasing width; a width of 1 is greedy decoding. Search is
that of the paper (§6.1), with its length penalty α = 0.6 and without one (α = 0). Measured are the mean log-probability
of the outputs under the model, which search maximizes; BLEU, which is the goal; the length of the outputs relative to
the references, in words; and the time.

The same is done, without the penalty, for models that were trained longer. The claim is judged by the undertrained
ones, because only they are uncertain enough about this simple language for search to matter. It is supported if, for
each of them, a beam of 4 finds more probable outputs than greedy decoding and the widest beam more probable ones still;
and if a beam of 4 is better than greedy decoding, and the widest beam worse than a beam of 4, with the penalty and even
more without it: each by {MIN_BLEU_CHANGE} BLEU or more on average, and for most of the models.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
The phrasebook has one correct translation per sentence, so that a good model leaves little to search for; real text is
more ambiguous. That wide beams hurt is an error of the model, not of the search: undertrained models assign too much
probability to short outputs, and better models less (Stahlberg and Byrne, 2019). A wider beam need not find a more
probable output for every sentence, because early hypotheses can displace the eventual winner. The time is that of the
PyTorch engine on a machine that ran other programs too.
"""

PENALTIES = {0.6: "α = 0.6", 0.0: "α = 0"}
PAPER_BEAM = 4


@dataclass(frozen=True)
class SearchMeasurement:
    """Measurements of a search with one beam width."""

    width: int
    log_probability: float  # mean over outputs
    bleu: float
    exact: float
    length_ratio: float  # words of the outputs by words of the references
    seconds: float


Measurements = Mapping[float, Sequence[Sequence[SearchMeasurement]]]  # by penalty, seed and width
Curves = Mapping[float, Sequence[Sequence[float]]]  # one quantity of them


def run(context: LabContext) -> LabResult:
    """Train models, and search with every beam width."""
    widths = context.by_effort([1, 4, 32], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
    pairs = translation_data(context).test[:100]
    steps = base_settings(context)["training"]["steps"]
    early, seeds, late_seeds = context.by_effort(60, 170, 300), range(1, 4), range(1, context.by_effort(1, 2, 2) + 1)
    undertrained = [
        train_translator(context, {"training": training_settings(early, n)}, "an undertrained model") for n in seeds
    ]
    trained = [
        train_translator(context, {"training": training_settings(steps, n)}, "a translation model") for n in late_seeds
    ]
    searches = search_in_turns(undertrained, pairs, widths)
    context.log(f"  searched with {len(undertrained)} undertrained models")
    late_searches = [[search(model, pairs, width, 0.0) for width in widths] for model in trained]
    paper = widths.index(PAPER_BEAM)
    bleu, log_probabilities = _curves(searches, "bleu"), _curves(searches, "log_probability")
    gain = [run[paper] - run[0] for run in bleu[0.6]]
    loss_without, loss_with = ([run[-1] - run[paper] for run in bleu[alpha]] for alpha in (0.0, 0.6))
    bleu_with, bleu_without = _means(bleu[0.6]), _means(bleu[0.0])
    log_probability, length = _means(log_probabilities[0.0]), _means(_curves(searches, "length_ratio")[0.0])
    late_bleu = _means([[measured.bleu for measured in row] for row in late_searches])
    conditions = {
        "wider beams find more probable outputs": all(run[0] < run[paper] < run[-1] for run in log_probabilities[0.0]),
        f"a beam of {PAPER_BEAM} is better than greedy decoding": is_clear(gain, 1),
        "the widest beam hurts without the penalty": is_clear(loss_without, -1),
        "the widest beam hurts with the penalty": is_clear(loss_with, -1),
        "it hurts more without the penalty than with it": fmean(loss_without) < fmean(loss_with),
    }
    return LabResult(
        holds=all(conditions.values()),
        summary=f"After {early} steps the models have {bleu_with[0]:.1f} BLEU with greedy decoding and "
        f"{bleu_with[paper]:.1f} with a beam of {PAPER_BEAM} (by seed: {_changes(gain)}). Without a length penalty the "
        f"log-probability of the outputs is {_signed(log_probability[0])} nats with greedy decoding, "
        f"{_signed(log_probability[paper])} with a beam of {PAPER_BEAM} and {_signed(log_probability[-1])} with a beam "
        f"of {widths[-1]}; the latter outputs are {length[-1]:.0%} as long as the references and have "
        f"{bleu_without[-1]:.1f} BLEU (change from a beam of {PAPER_BEAM}: {_changes(loss_without)}), with the penalty "
        f"{bleu_with[-1]:.1f} ({_changes(loss_with)}). After {steps} steps the models (seeds: {len(trained)}) have "
        f"{late_bleu[0]:.1f} BLEU with greedy decoding, {late_bleu[paper]:.1f} with a beam of {PAPER_BEAM} and "
        f"{late_bleu[-1]:.1f} with a beam of {widths[-1]}, without the penalty.{_failed(conditions)}",
        numbers={
            "widths": widths,
            "undertrained": {
                PENALTIES[alpha]: [[asdict(measured) for measured in row] for row in runs]
                for alpha, runs in searches.items()
            },
            "fully_trained": [[asdict(measured) for measured in row] for row in late_searches],
        },
        figures=[_figure(widths, searches)],
        tables=[_table(widths, searches, late_bleu)],
    )


def _failed(conditions: Mapping[str, bool]) -> str:
    """Return the conditions that are not met."""
    failed = "; ".join(condition for condition, holds in conditions.items() if not holds)
    return f" Not met: {failed}." if failed else ""


def search_in_turns(
    models: Sequence[Model], pairs: list[AlignedPair], widths: Sequence[int]
) -> dict[float, list[list[SearchMeasurement]]]:
    """Return searches by penalty, model and width; the penalties take turns in coming first, after a warm-up."""
    searches: dict[float, list[list[SearchMeasurement]]] = {alpha: [[] for _ in models] for alpha in PENALTIES}
    for n, model in enumerate(models):
        search(model, pairs[:4], PAPER_BEAM, 0.0)
        for m, width in enumerate(widths):
            for alpha in sorted(PENALTIES, reverse=bool((n + m) % 2)):
                searches[alpha][n].append(search(model, pairs, width, alpha))
    return searches


def is_clear(changes: Sequence[float], sign: int) -> bool:
    """Return whether changes of BLEU have this sign, by enough on average and for most seeds.

    >>> is_clear([6.1, -0.7, 4.7], 1), is_clear([9.0, -0.7, -0.7], 1), is_clear([-0.2, -0.3], -1)
    (True, False, False)
    """
    majority = sum(sign * change > 0 for change in changes) > len(changes) / 2
    return sign * fmean(changes) >= MIN_BLEU_CHANGE and majority


def search(model: Model, pairs: list[AlignedPair], width: int, alpha: float) -> SearchMeasurement:
    """Translate with this beam width and length penalty, and measure."""
    start = time.perf_counter()
    translations = model.translate_detailed(
        [pair.source for pair in pairs],
        beam=width,
        length_penalty=alpha,
        split_sentences=False,
        token_scores=True,
        engine="torch",
    )
    seconds = time.perf_counter() - start
    outputs = [translation.text for translation in translations]
    scores = translation_scores(outputs, pairs)
    token_scores = [translation.sentences[0].alternatives[0].token_scores or [] for translation in translations]
    return SearchMeasurement(
        width,
        sum(map(sum, token_scores)) / len(pairs),
        scores["bleu"],
        scores["exact"],
        sum(len(output.split()) for output in outputs) / sum(len(pair.target.split()) for pair in pairs),
        seconds,
    )


def _curves(searches: Measurements, field: str) -> dict[float, list[list[float]]]:
    return {alpha: [[getattr(measured, field) for measured in row] for row in runs] for alpha, runs in searches.items()}


def _means(runs: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean over seeds at each width."""
    return [fmean(column) for column in zip(*runs, strict=True)]


def _signed(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")


def _changes(values: Sequence[float]) -> str:
    return ", ".join(f"{round(value, 1) + 0.0:+.1f}".replace("-", "−") for value in values)


def _figure(widths: list[int], searches: Measurements) -> LabFigure:
    titles = {
        "log_probability": "log-probability of an output (nats)",
        "bleu": "BLEU",
        "length_ratio": "length relative to the references",
        "seconds": "time (seconds)",
    }
    with plot_style():
        figure = new_figure(10, 6)
        for ax, (field, title) in zip(figure.subplots(2, 2).flat, titles.items(), strict=True):
            runs = _curves(searches, field)
            _draw_seeds(ax, widths, runs)
            lines = {name: LineSeries(widths, _means(runs[alpha])) for alpha, name in PENALTIES.items()}
            yscale: AxisScale = "log" if field == "seconds" else "linear"
            line_chart(ax, lines, title=title, xlabel="beam width (1 is greedy)", xscale="log", yscale=yscale)
    bleu = {alpha: _means(runs) for alpha, runs in _curves(searches, "bleu").items()}
    descriptions = "; ".join(
        f"{PENALTIES[alpha]}: {', '.join(f'{value:.1f}' for value in values)}" for alpha, values in bleu.items()
    )
    return LabFigure(
        "beams",
        "Undertrained models by beam width, with and without length penalty; thin lines are single seeds.",
        figure,
        "Log-probability of outputs, BLEU, length and time by beam width, with and without length penalty. BLEU at "
        f"widths {', '.join(map(str, widths))}, {descriptions}.",
    )


def _draw_seeds(ax: "Axes", widths: list[int], runs: Curves) -> None:
    """Draw each seed as a thin line in the color of the mean."""
    for color, alpha in zip(COLORS, PENALTIES, strict=False):
        for values in runs[alpha]:
            ax.plot(widths, values, color=color, linewidth=0.8, alpha=0.45)


def _table(widths: list[int], searches: Measurements, late_bleu: Sequence[float]) -> LabTable:
    log_probability, bleu, length = (_curves(searches, name) for name in ("log_probability", "bleu", "length_ratio"))
    columns: dict[str, list[str]] = {}
    for alpha, name in PENALTIES.items():
        columns[f"log p, {name}"] = [_signed(value) for value in _means(log_probability[alpha])]
        columns[f"BLEU, {name}"] = [f"{value:.1f}" for value in _means(bleu[alpha])]
        columns[f"length, {name}"] = [f"{value:.2f}" for value in _means(length[alpha])]
    columns["BLEU, trained longer"] = [f"{value:.1f}" for value in late_bleu]
    rows = [[str(width), *(column[n] for column in columns.values())] for n, width in enumerate(widths)]
    return LabTable("Mean over seeds by beam width", ["beam", *columns], rows)
