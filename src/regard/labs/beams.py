# ruff: noqa: E501
"""How wide to search: the score that the model gives, BLEU, length and time against the width of the beam."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from regard.api import Model
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.labs.charts.lines import LineSeries, line_chart
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.translators import (
    TRANSLATION_SETUP,
    base_settings,
    train_translator,
    training_settings,
    translation_data,
    translation_scores,
)
from regard.phrasebook import Pair
from regard.plotting import COLORS, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN = 0.5  # BLEU by which one search is better than another
METHOD = f"""
Translators that were trained for a short time only, and are not sure of themselves, translate sentences that they
have not seen, with beams of growing width; a width of one is greedy decoding. Search is the paper's (§6.1): once with
its length penalty α = 0.6, once without one (α = 0). Measured are the mean log-probability of the outputs under the
model, which is what search is to make large; BLEU, which is what it is for; how long the outputs are beside the
references, in words; and the time it takes.

The same, without the penalty, is asked of translators that were trained for longer. The claim is judged by the others:
to be stopped early is what makes a translator of so simple a language unsure enough for search to matter. It holds if
for each of them a beam of 4 finds what is more probable than greedy decoding does, and the widest beam what is more
probable still; and if a beam of 4 is better than greedy decoding, and the widest beam worse than one of 4, with the
penalty and, by more, without: each by {MARGIN} BLEU or more in the mean, and for most of them.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
The phrasebook has one right translation for each sentence, so that a good translator has little to search for; real
text leaves more open. That wide beams hurt is a fault of the model, not of the search, which finds what the model
calls probable: here a translator that was stopped early calls short sentences probable, and better models do so less
(Stahlberg and Byrne, 2019). A wider beam need not find what is more probable for each sentence: what it keeps early on
can crowd out what would have won. Time is that of our own search in torch, beside whatever else this machine was doing.
"""

PENALTIES = {0.6: "α = 0.6", 0.0: "α = 0"}
PAPER = 4  # the width of the paper's beam


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    width: int
    log_probability: float  # of an output, the mean
    bleu: float
    exact: float
    length: float  # words of the outputs, by those of the references
    seconds: float


Curves = Mapping[float, Sequence[Sequence[float]]]  # by penalty, seed and width


def run(context: LabContext) -> LabResult:
    """Train translators, search, draw."""
    widths = context.by_effort([1, 4, 32], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
    pairs = translation_data(context).test[:100]
    steps = base_settings(context)["training"]["steps"]
    stopped, seeds, more = context.by_effort(60, 170, 300), range(1, 4), range(1, context.by_effort(1, 2, 2) + 1)
    early = [
        train_translator(context, {"training": training_settings(stopped, n)}, "a translator that stops early")
        for n in seeds
    ]
    late = [train_translator(context, {"training": training_settings(steps, n)}, "a translator") for n in more]
    found = in_turns(early, pairs, widths)
    context.log(f"  searched with {len(early)} translators that stopped early")
    sure = [[search(model, pairs, width, 0.0) for width in widths] for model in late]
    four = widths.index(PAPER)
    bleu, likely = _curves(found, "bleu"), _curves(found, "log_probability")
    better = [one[four] - one[0] for one in bleu[0.6]]
    worse, hurt = ([one[-1] - one[four] for one in bleu[alpha]] for alpha in (0.0, 0.6))
    paper, plain = _means(bleu[0.6]), _means(bleu[0.0])
    trust, length = _means(likely[0.0]), _means(_curves(found, "length")[0.0])
    certain = _means([[one.bleu for one in rows] for rows in sure])
    parts = {
        "that wider beams find what is more probable": all(one[0] < one[four] < one[-1] for one in likely[0.0]),
        f"that a beam of {PAPER} is better than greedy decoding": clearly(better, 1),
        "that the widest beam hurts without the penalty": clearly(worse, -1),
        "that it hurts with the penalty": clearly(hurt, -1),
        "that it hurts more without the penalty than with it": fmean(worse) < fmean(hurt),
    }
    return LabResult(
        holds=all(parts.values()),
        summary=f"Stopped after {stopped} steps, translators come to {paper[0]:.1f} BLEU if they decode greedily and to "
        f"{paper[four]:.1f} with the paper's beam of {PAPER} (seed by seed: {_changes(better)}). Without a length "
        f"penalty outputs have {_true(trust[0])} nats greedily, {_true(trust[four])} with a beam of {PAPER} and "
        f"{_true(trust[-1])} with one of {widths[-1]}; these last are {length[-1]:.0%} as long as the references and "
        f"worth {plain[-1]:.1f} BLEU (against a beam of {PAPER}: {_changes(worse)}), with the penalty {paper[-1]:.1f} "
        f"({_changes(hurt)}). Trained for {steps} steps, translators (seeds: {len(late)}) have {certain[0]:.1f} BLEU "
        f"greedily, {certain[four]:.1f} with a beam of {PAPER}, {certain[-1]:.1f} with {widths[-1]} and no penalty."
        f"{_missing(parts)}",
        numbers={
            "widths": widths,
            "stopped early": {
                PENALTIES[alpha]: [[asdict(one) for one in rows] for rows in runs] for alpha, runs in found.items()
            },
            "trained to the end": [[asdict(one) for one in rows] for rows in sure],
        },
        figures=[_draw(widths, found)],
        tables=[_table(widths, found, certain)],
    )


def _missing(parts: Mapping[str, bool]) -> str:
    """Which parts of the claim do not come out."""
    missing = "; ".join(part for part, holds in parts.items() if not holds)
    return f" What does not come out: {missing}." if missing else ""


def in_turns(models: Sequence[Model], pairs: list[Pair], widths: Sequence[int]) -> dict[float, list[list[Found]]]:
    """Searches by penalty, model and width; each penalty comes first as often, and none before all is warm."""
    found: dict[float, list[list[Found]]] = {alpha: [[] for _ in models] for alpha in PENALTIES}
    for n, model in enumerate(models):
        search(model, pairs[:4], PAPER, 0.0)
        for m, width in enumerate(widths):
            for alpha in sorted(PENALTIES, reverse=bool((n + m) % 2)):
                found[alpha][n].append(search(model, pairs, width, alpha))
    return found


def clearly(changes: Sequence[float], sign: int) -> bool:
    """Whether changes of BLEU go one way: by enough in the mean, and for most seeds.

    >>> clearly([6.1, -0.7, 4.7], 1), clearly([9.0, -0.7, -0.7], 1), clearly([-0.2, -0.3], -1)
    (True, False, False)
    """
    return sign * fmean(changes) >= MARGIN and sum(sign * change > 0 for change in changes) > len(changes) / 2


def search(model: Model, pairs: list[Pair], width: int, alpha: float) -> Found:
    """Translate with a beam of this width, and measure."""
    wish = TranslationOptions(SearchOptions(width=width, length_penalty=alpha), split=False, scored=True)
    begun = time.perf_counter()
    found = model.translations([pair.source for pair in pairs], wish, engine="torch")
    seconds = time.perf_counter() - begun
    outputs = [one.text for one in found]
    scores = translation_scores(outputs, pairs)
    probable = [one.sentences[0].alternatives[0].token_scores or [] for one in found]
    return Found(
        width,
        sum(map(sum, probable)) / len(pairs),
        scores["bleu"],
        scores["exact"],
        sum(len(output.split()) for output in outputs) / sum(len(pair.target.split()) for pair in pairs),
        seconds,
    )


def _curves(found: Mapping[float, Sequence[Sequence[Found]]], what: str) -> dict[float, list[list[float]]]:
    return {alpha: [[getattr(one, what) for one in rows] for rows in runs] for alpha, runs in found.items()}


def _means(runs: Sequence[Sequence[float]]) -> list[float]:
    """A measure at each width, the mean over seeds."""
    return [fmean(column) for column in zip(*runs, strict=True)]


def _true(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")


def _changes(values: Sequence[float]) -> str:
    return ", ".join(f"{round(value, 1) + 0.0:+.1f}".replace("-", "−") for value in values)


def _draw(widths: list[int], found: Mapping[float, Sequence[Sequence[Found]]]) -> LabFigure:
    titles = {
        "log_probability": "log-probability of an output, nats",
        "bleu": "BLEU",
        "length": "length beside the references",
        "seconds": "time, seconds",
    }
    with plot_style():
        figure = new_figure(10, 6)
        for ax, (what, title) in zip(figure.subplots(2, 2).flat, titles.items(), strict=True):
            runs = _curves(found, what)
            _thin(ax, widths, runs)
            lines = {name: LineSeries(widths, _means(runs[alpha])) for alpha, name in PENALTIES.items()}
            timed = what == "seconds"
            line_chart(
                ax,
                lines,
                title=title,
                xlabel="width of the beam; 1 is greedy",
                xscale="log",
                yscale="log" if timed else "linear",
            )
    bleu = {alpha: _means(runs) for alpha, runs in _curves(found, "bleu").items()}
    said = "; ".join(f"{PENALTIES[alpha]}: {', '.join(f'{one:.1f}' for one in each)}" for alpha, each in bleu.items())
    return LabFigure(
        "beams",
        "Translators that are not sure of themselves, with wider and wider beams, with a length penalty and without; "
        "thin lines are single seeds.",
        figure,
        "The log-probability of outputs, BLEU, length and time against the width of the beam, with a length penalty "
        f"and without. BLEU at widths {', '.join(map(str, widths))}, {said}.",
    )


def _thin(ax: "Axes", widths: list[int], runs: Curves) -> None:
    """Each seed by itself, in the colour of its mean."""
    for colour, alpha in zip(COLORS, PENALTIES, strict=False):
        for values in runs[alpha]:
            ax.plot(widths, values, color=colour, linewidth=0.8, alpha=0.45)


def _table(widths: list[int], found: Mapping[float, Sequence[Sequence[Found]]], sure: Sequence[float]) -> LabTable:
    likely, bleu, length = (_curves(found, what) for what in ("log_probability", "bleu", "length"))
    columns: dict[str, list[str]] = {}
    for alpha, name in PENALTIES.items():
        columns[f"log p, {name}"] = [_true(one) for one in _means(likely[alpha])]
        columns[f"BLEU, {name}"] = [f"{one:.1f}" for one in _means(bleu[alpha])]
        columns[f"length, {name}"] = [f"{one:.2f}" for one in _means(length[alpha])]
    columns["BLEU, trained longer"] = [f"{one:.1f}" for one in sure]
    rows = [[str(width), *(column[n] for column in columns.values())] for n, width in enumerate(widths)]
    return LabTable("Beams of growing width, the mean over seeds", ["beam", *columns], rows)
