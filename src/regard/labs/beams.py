"""Beam width: model score, BLEU, output length and time of beam search."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.api import Model
from regard.labs import LabContext, LabFigure, LabResult, LabTable, Verdict
from regard.labs.charts import AxisScale, LineSeries, line_chart
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

PAPER_BEAM = 4
RESAMPLES, CONFIDENCE = 2000, 0.95
METHOD = f"""
Undertrained models translate test sentences with beams of increasing width; a width of 1 is greedy decoding. Search is
that of the paper (§6.1), with its length penalty α = 0.6 and without one (α = 0). Measured are the mean log-probability
of the outputs under the model, which search maximizes; BLEU, which is the goal; the length of the outputs relative to
the references, in words; and the time. The same is done, without the penalty, for a model that was trained longer. The
claims are judged by the undertrained ones, because only they are uncertain enough about this simple language for search
to matter.

Changes of BLEU are averaged over the seeds, with a {CONFIDENCE:.0%} confidence interval by paired bootstrap:
{RESAMPLES:,} times as many sentences as there are are drawn with replacement, the same for every model and width, and
BLEU is computed again. Three claims are judged separately. A beam of {PAPER_BEAM} finds more probable outputs than
greedy decoding, for every seed, and better ones: the interval of the change of BLEU is above zero. The widest beam is
worse than a beam of {PAPER_BEAM}, without the penalty and with it: the interval is below zero.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
The phrasebook has one correct translation per sentence, so that a good model leaves little to search for; real text is
more ambiguous. That wide beams hurt is an error of the model, not of the search: undertrained models assign too much
probability to short outputs, and better models less (Stahlberg and Byrne, 2019). A wider beam need not find a more
probable output for every sentence, because early hypotheses can displace the eventual winner. The interval covers the
choice of sentences, not that of the seeds, of which there are few. The time is that of the PyTorch engine on a machine
that ran other programs too.
"""

PENALTIES = {0.6: "α = 0.6", 0.0: "α = 0"}
NGRAMS = 4


@dataclass(frozen=True)
class SearchMeasurement:
    """Measurements of a search with one beam width."""

    width: int
    log_probability: float  # mean over outputs
    bleu: float
    exact: float
    length_ratio: float  # words of the outputs by words of the references
    seconds: float
    ngrams: NDArray[np.int64] = field(repr=False)  # (sentences, 10), see `ngram_counts`

    def as_dict(self) -> dict[str, float]:
        """Return the measurements without the counts of single sentences."""
        return {name: value for name, value in vars(self).items() if name != "ngrams"}


@dataclass(frozen=True)
class BleuChange:
    """Change of BLEU from one beam width to another: mean over seeds, its interval, and the change of each seed."""

    mean: float
    low: float
    high: float
    by_seed: list[float]

    def __str__(self) -> str:
        seeds = ", ".join(_signed_change(value) for value in self.by_seed)
        interval = f"{_signed_change(self.low)} to {_signed_change(self.high)}"
        return f"{_signed_change(self.mean)} BLEU ({CONFIDENCE:.0%} interval {interval}; by seed {seeds})"


Measurements = Mapping[float, Sequence[Sequence[SearchMeasurement]]]  # by penalty, seed and width
Curves = Mapping[float, Sequence[Sequence[float]]]  # one quantity of them


def run(context: LabContext) -> LabResult:
    """Train models, and search with every beam width."""
    widths = context.by_effort([1, 4, 32], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 16, 64])
    pairs = translation_data(context).test[: context.by_effort(100, 150, 300)]
    steps = base_settings(context)["training"]["steps"]
    early, seeds = context.by_effort(60, 170, 300), range(1, 4)
    undertrained = [
        train_translator(context, {"training": training_settings(early, n)}, "an undertrained model") for n in seeds
    ]
    trained = train_translator(context, {"training": training_settings(steps)}, "a translation model")
    searches = search_in_turns(undertrained, pairs, widths)
    context.log(f"  searched with {len(undertrained)} undertrained models")
    late_bleu = [search(trained, pairs, width, 0.0).bleu for width in widths]
    paper = widths.index(PAPER_BEAM)
    log_probabilities = _curves(searches, "log_probability")
    gain = bleu_change(searches[0.6], 0, paper)
    loss = {alpha: bleu_change(searches[alpha], paper, -1) for alpha in PENALTIES}
    bleu = {alpha: _means(runs) for alpha, runs in _curves(searches, "bleu").items()}
    log_probability, length = _means(log_probabilities[0.0]), _means(_curves(searches, "length_ratio")[0.0])
    verdicts = [
        Verdict(
            f"a beam of {PAPER_BEAM} finds more probable translations than greedy decoding, for every seed",
            all(run[0] < run[paper] for run in log_probabilities[0.0]),
        ),
        Verdict(f"a beam of {PAPER_BEAM} finds better translations than greedy decoding", gain.low > 0),
        *(
            Verdict(
                f"a beam of {widths[-1]} is worse than a beam of {PAPER_BEAM} {name} the length penalty",
                loss[alpha].high < 0,
            )
            for alpha, name in ((0.0, "without"), (0.6, "with"))
        ),
    ]
    return LabResult(
        holds=verdicts[0].holds and verdicts[1].holds,
        summary=f"After {early} steps the models have {bleu[0.6][0]:.1f} BLEU with greedy decoding on {len(pairs)} "
        f"sentences and {bleu[0.6][paper]:.1f} with a beam of {PAPER_BEAM}: {gain}. Without a length penalty the "
        f"log-probability of the outputs is {_signed(log_probability[0])} nats with greedy decoding, "
        f"{_signed(log_probability[paper])} with a beam of {PAPER_BEAM} and {_signed(log_probability[-1])} with a beam "
        f"of {widths[-1]}; the latter outputs are {length[-1]:.0%} as long as the references. From a beam of "
        f"{PAPER_BEAM} to a beam of {widths[-1]} the change is {loss[0.0]} without the penalty and {loss[0.6]} with "
        f"it. After {steps} steps a model has {late_bleu[0]:.1f} BLEU with greedy decoding, {late_bleu[paper]:.1f} "
        f"with a beam of {PAPER_BEAM} and {late_bleu[-1]:.1f} with a beam of {widths[-1]}, without the penalty.",
        numbers={
            "widths": widths,
            "sentences": len(pairs),
            "undertrained": {
                PENALTIES[alpha]: [[measured.as_dict() for measured in row] for row in runs]
                for alpha, runs in searches.items()
            },
            "change_greedy_to_paper_beam": asdict(gain),
            "change_paper_beam_to_widest": {PENALTIES[alpha]: asdict(change) for alpha, change in loss.items()},
            "trained_longer_bleu": late_bleu,
        },
        figures=[_figure(widths, searches)],
        tables=[_table(widths, searches, late_bleu)],
        verdicts=verdicts,
    )


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


def bleu_change(runs: Sequence[Sequence[SearchMeasurement]], before: int, after: int) -> BleuChange:
    """Return the change of BLEU between two of the measured widths, with its bootstrap interval."""
    pairs = [(row[before].ngrams, row[after].ngrams) for row in runs]
    sentences = len(pairs[0][0])
    draws = np.random.default_rng(0).multinomial(sentences, [1 / sentences] * sentences, size=RESAMPLES)
    resampled = np.mean([corpus_bleu(draws @ end) - corpus_bleu(draws @ start) for start, end in pairs], axis=0)
    by_seed = [float(corpus_bleu(end.sum(0)) - corpus_bleu(start.sum(0))) for start, end in pairs]
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return BleuChange(fmean(by_seed), float(low), float(high), by_seed)


def ngram_counts(outputs: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """Return what BLEU counts in each sentence: correct n-grams, all n-grams, words and words of the reference.

    >>> ngram_counts(["Ti amo."], ["Ti amo molto."]).tolist()
    [[3, 1, 0, 0, 3, 2, 1, 0, 3, 4]]
    """
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(force=True, effective_order=True)  # without a warning about single sentences; counts are the same
    scores = [bleu.sentence_score(output, [text]) for output, text in zip(outputs, references, strict=True)]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores])


def corpus_bleu(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return BLEU from counts summed over sentences (..., 10).

    >>> round(float(corpus_bleu(ngram_counts(["Ti amo molto."], ["Ti amo molto."]).sum(0))))
    100
    """
    correct, total = counts[..., :NGRAMS], counts[..., NGRAMS : 2 * NGRAMS]
    words, reference_words = counts[..., -2], counts[..., -1]
    precision = np.maximum(correct, 1e-9) / np.maximum(total, 1)  # zero correct n-grams give a BLEU of about zero
    brevity = np.minimum(0.0, 1 - reference_words / np.maximum(words, 1))
    bleu: NDArray[np.float64] = 100 * np.exp(np.log(precision).mean(-1) + brevity)
    return bleu


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
        ngram_counts(outputs, [pair.target for pair in pairs]),
    )


def _curves(searches: Measurements, field: str) -> dict[float, list[list[float]]]:
    return {alpha: [[getattr(measured, field) for measured in row] for row in runs] for alpha, runs in searches.items()}


def _means(runs: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean over seeds at each width."""
    return [fmean(column) for column in zip(*runs, strict=True)]


def _signed(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")


def _signed_change(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


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
