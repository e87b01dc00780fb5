"""How wide to search: the score that the model gives, BLEU, length and time against the width of the beam."""

import time
from dataclasses import asdict, dataclass

from regard.decoding.settings import Search
from regard.decoding.translator import Wish
from regard.drawing.style import new_figure, our_style
from regard.labs.charts import chart, over_seeds
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.translators import TAUGHT, book, scores_of, trained, training_for, usual_settings
from regard.model import Model
from regard.text.phrasebook import Pair

DONE = f"""
Translators that were trained for a short time only, and are not sure of themselves, translate sentences that they
have not seen, with beams of growing width; a width of one is greedy decoding. Search is the paper's (§6.1): once with
its length penalty α = 0.6, once without one (α = 0). Measured are the mean log-probability of the outputs under the
model, which is what search is to make large; BLEU, which is what it is for; how long the outputs are beside the
references, in words; and the time it takes.

The same, without the penalty, is asked of a translator that was trained for longer.

{TAUGHT}
"""
LIMITS = """
The phrasebook has one right translation for each sentence, so that a good translator has little to search for; real
text leaves more open. That wide beams hurt is a fault of the model, not of the search, which finds what the model
calls probable: here a translator that was stopped early calls short sentences probable, and better models do so less
(Stahlberg and Byrne, 2019). Time is that of our own search in torch, beside whatever else this machine was doing.
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


def run(bench: Bench) -> Outcome:
    """Train translators, search, draw."""
    widths = bench.pick([1, 4, 64], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64, 128])
    pairs = book(bench).test[: bench.pick(40, 100, 200)]
    steps = usual_settings(bench)["training"]["steps"]
    stopped, seeds = bench.pick(60, 170, 250), 2
    early = [
        trained(bench, {"training": training_for(stopped, seed)}, "a translator that stops early")
        for seed in range(1, seeds + 1)
    ]
    found = {alpha: [[search(one, pairs, width, alpha) for width in widths] for one in early] for alpha in PENALTIES}
    late = trained(bench, {}, "a translator")
    sure = [search(late, pairs, width, 0.0) for width in widths]
    bleu, likely, length = (
        {alpha: _means(runs, what) for alpha, runs in found.items()} for what in ("bleu", "log_probability", "length")
    )
    four = widths.index(PAPER)
    return Outcome(
        holds=likely[0.0][0] < likely[0.0][four] < likely[0.0][-1]
        and bleu[0.6][four] > bleu[0.6][0]
        and bleu[0.0][-1] < bleu[0.0][four]
        and bleu[0.0][-1] < bleu[0.6][-1],
        said=f"Stopped after {stopped} steps, translators come to {bleu[0.6][0]:.1f} BLEU if they decode greedily and "
        f"to {bleu[0.6][four]:.1f} with the paper's beam of {PAPER} (seeds: {seeds}). Beams of {widths[-1]} without a "
        f"length penalty find what is far more probable ({likely[0.0][-1]:.1f} nats an output, against "
        f"{likely[0.0][0]:.1f}), but only {length[0.0][-1]:.0%} as long as the references, and worth "
        f"{bleu[0.0][-1]:.1f} BLEU; with the penalty it is {bleu[0.6][-1]:.1f}. Trained for {steps} steps, a "
        f"translator has {sure[0].bleu:.1f} BLEU greedily, {sure[four].bleu:.1f} with a beam of {PAPER}, and "
        f"{sure[-1].bleu:.1f} with {widths[-1]} and no penalty.",
        numbers={
            "widths": widths,
            "stopped early": {
                PENALTIES[alpha]: [[asdict(one) for one in rows] for rows in runs] for alpha, runs in found.items()
            },
            "trained to the end": [asdict(one) for one in sure],
        },
        drawings=[_draw(widths, found)],
        tables=[_table(widths, likely, bleu, length, sure)],
    )


def search(model: Model, pairs: list[Pair], width: int, alpha: float) -> Found:
    """Translate with a beam of this width, and measure."""
    wish = Wish(Search(width=width, length_penalty=alpha), split=False, scored=True)
    begun = time.perf_counter()
    found = model.translations([pair.source for pair in pairs], wish, engine="torch")
    seconds = time.perf_counter() - begun
    outputs = [one.text for one in found]
    scores = scores_of(outputs, pairs)
    probable = [one.sentences[0].alternatives[0].token_scores or [] for one in found]
    return Found(
        width,
        sum(map(sum, probable)) / len(pairs),
        scores["bleu"],
        scores["exact"],
        sum(len(output.split()) for output in outputs) / sum(len(pair.target.split()) for pair in pairs),
        seconds,
    )


def _means(runs: list[list[Found]], what: str) -> list[float]:
    """A measure at each width, the mean over seeds."""
    return [sum(getattr(one, what) for one in column) / len(column) for column in zip(*runs, strict=True)]


def _draw(widths: list[int], found: dict[float, list[list[Found]]]) -> Drawing:
    titles = {
        "log_probability": "log-probability of an output, nats",
        "bleu": "BLEU",
        "length": "length beside the references",
        "seconds": "time, seconds",
    }
    with our_style():
        figure = new_figure(10, 6)
        for ax, (what, title) in zip(figure.subplots(2, 2).flat, titles.items(), strict=True):
            lines = {
                PENALTIES[alpha]: over_seeds(widths, [[getattr(one, what) for one in rows] for rows in runs])
                for alpha, runs in found.items()
            }
            timed = what == "seconds"
            chart(
                ax, lines, title=title, across="width of the beam; 1 is greedy", x="log", y="log" if timed else "linear"
            )
            ax.set_xticks(widths, [str(width) for width in widths])
    return Drawing(
        "beams",
        "Translators that are not sure of themselves, with wider and wider beams, with a length penalty and without.",
        figure,
        "The probability of outputs grows with the width of the beam; BLEU rises at first and then falls, far further "
        "without a length penalty, as outputs get shorter; time grows.",
    )


def _table(
    widths: list[int],
    likely: dict[float, list[float]],
    bleu: dict[float, list[float]],
    length: dict[float, list[float]],
    sure: list[Found],
) -> Table:
    names = [f"{what}, {name}" for name in PENALTIES.values() for what in ("log p", "BLEU", "length")]
    rows = [
        [str(width)]
        + [cell for a in PENALTIES for cell in (f"{likely[a][n]:.2f}", f"{bleu[a][n]:.1f}", f"{length[a][n]:.2f}")]
        + [f"{sure[n].bleu:.1f}"]
        for n, width in enumerate(widths)
    ]
    return Table("Beams of growing width", ["beam", *names, "BLEU, trained longer"], rows)
