# ruff: noqa: E501
"""The paper's Table 3 in small: one thing changed at a time, beside what the paper found."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.translators import (
    TRANSLATION_SETUP,
    Settings,
    TranslatorScores,
    base_settings,
    comparison_steps,
    evaluate_translator,
    train_for_comparison,
    translation_data,
)
from regard.plotting import BLUE, FAINT, INK, ORANGE, SOFT, minimal_axes, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHOD = f"""
The paper changes one thing of its base model at a time, and gives perplexity and BLEU on its development set (Table 3).
Here the same is done to a translator that is small enough to be trained in a minute: where the paper halves or doubles,
so do we, from where we are. Each is trained for the same number of steps, and measured on sentences that it has not
seen: perplexity of the right translations, and BLEU of greedy ones. The base model is trained with several seeds, and
so are those with other numbers of heads in a full run; a change is clear if it leads out of what the seeds of
the base model span.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
The two columns of numbers are of different tasks: only their directions can be compared. Most of ours come from a
single seed and all from few steps on few, simple sentences. Little is learned by heart in so short a time, so that
dropout mostly holds learning back, where the paper's base model, after 100,000 steps, needs it. Nor is anything else
tuned to a variant: all are trained at one rate. Above all, what learns more slowly looks worse than it would in the
end.
"""


@dataclass(frozen=True)
class Paper:
    """A row of the paper's Table 3: development perplexity and BLEU, and parameters in millions where they differ."""

    what: str
    perplexity: float
    bleu: float
    millions: int | None = None


BASE = "base"
PAPER = {
    BASE: Paper("6 layers of width 512, 8 heads", 4.92, 25.8, 65),
    "one head": Paper("1 head", 5.29, 24.9),
    "4 times the heads": Paper("32 heads", 5.01, 25.4),
    "keys a quarter as long": Paper("d_k = 16", 5.16, 25.1, 58),
    "fewer layers": Paper("2 layers", 6.11, 23.7, 36),
    "more layers": Paper("8 layers", 4.88, 25.5, 80),
    "narrower": Paper("d_model = 256", 5.75, 24.5, 28),
    "wider": Paper("d_model = 1024", 4.66, 26.0, 168),
    "half the feed-forward": Paper("d_ff = 1024", 5.12, 25.4, 53),
    "twice the feed-forward": Paper("d_ff = 4096", 4.75, 26.2, 90),
    "no dropout": Paper("dropout 0", 5.77, 24.6),
    "twice the dropout": Paper("dropout 0.2", 4.95, 25.5),
    "no label smoothing": Paper("smoothing 0", 4.67, 25.3),
    "twice the smoothing": Paper("smoothing 0.2", 5.47, 25.7),
    "learned positions": Paper("learned positions", 4.92, 25.7),
}
SIZES = ("fewer layers", "more layers", "narrower", "wider", "half the feed-forward", "twice the feed-forward")
QUICK = (BASE, "narrower", "wider", "no label smoothing")
HEADS = ("one head", "4 times the heads")  # which the lab about heads trains with several seeds as well
CLAIMED = {"narrower": 1, "wider": -1, "no label smoothing": -1}  # whether perplexity rises or falls
ALIKE = 0.01  # a change of the paper's perplexity by less than this share has no direction; it gives no spread


def run(context: LabContext) -> LabResult:
    """Train each variant, draw them beside the paper's."""
    pairs = translation_data(context).test[: context.by_effort(80, 200, 300)]
    found: dict[str, list[TranslatorScores]] = {}
    for name, settings in variants(context).items():
        seeds = range(1, 4) if name in (BASE, *context.by_effort((), (), HEADS)) else [1]
        found[name] = [
            evaluate_translator(train_for_comparison(context, settings, name, seed), pairs) for seed in seeds
        ]
        context.log(f"  {name}: perplexity {_each(found[name], 'perplexity', '.3f')}")
    middle = fmean(one.perplexity for one in found[BASE])
    changes = {name: [one.perplexity / middle - 1 for one in each] for name, each in found.items()}
    band = min(changes[BASE]), max(changes[BASE])
    ours = {name: fmean(each) for name, each in changes.items() if name != BASE}
    theirs = {name: PAPER[name].perplexity / PAPER[BASE].perplexity - 1 for name in ours}
    sides = {name: side_of(change, band) for name, change in ours.items()}
    clear = [name for name in ours if sides[name] and abs(theirs[name]) > ALIKE]
    agree = [name for name in clear if sides[name] == (1 if theirs[name] > 0 else -1)]
    other = [name for name in clear if name not in agree]
    means = {name: fmean(one.perplexity for one in each) for name, each in found.items()}
    return LabResult(
        holds=all(sides[name] == side for name, side in CLAIMED.items()) and not set(SIZES) & set(other),
        summary=f"After {comparison_steps(context)} steps the seeds of the base model lie between {_percent(band[0])} and "
        f"{_percent(band[1])} from their mean (seeds: {len(changes[BASE])}). Of {len(clear)} changes that move "
        f"perplexity further than that, and in the paper by {ALIKE:.0%} or more, {len(agree)} move it in the paper's "
        f"direction{_but(other)}. A narrower model has a perplexity of {means['narrower']:.2f} and a wider one of "
        f"{means['wider']:.2f} instead of {means[BASE]:.2f} (the paper's: {PAPER['narrower'].perplexity} and "
        f"{PAPER['wider'].perplexity} instead of {PAPER[BASE].perplexity}), and one that is trained without label "
        f"smoothing {means['no label smoothing']:.2f} ({PAPER['no label smoothing'].perplexity}).",
        numbers={
            "ours": {name: [asdict(one) for one in each] for name, each in found.items()},
            "band": band,
            "agree": agree,
            "differ": other,
        },
        figures=[_draw({name: changes[name] for name in ours}, theirs, band)],
        tables=[_table(found)],
    )


def side_of(change: float, band: tuple[float, float]) -> int:
    """1 for a change that lies above a band, −1 for one below it, 0 for one within it, which may be luck.

    >>> [side_of(change, (-0.02, 0.03)) for change in (-0.5, 0.01, 0.04)]
    [-1, 0, 1]
    """
    return (change > band[1]) - (change < band[0])


def variants(context: LabContext) -> dict[str, Settings]:
    """What each variant changes, from where our base is."""
    model = base_settings(context)["model"]
    width, heads, layers, inner = (model[name] for name in ("width", "heads", "layers", "feed_forward"))
    changed: dict[str, dict[str, Any]] = {
        BASE: {},
        "one head": {"model": {"heads": 1}},
        "4 times the heads": {"model": {"heads": 4 * heads}},
        "keys a quarter as long": {"model": {"key_width": max(1, width // heads // 4)}},
        "fewer layers": {"model": {"layers": max(1, layers // 2)}},
        "more layers": {"model": {"layers": layers + 1}},
        "narrower": {"model": {"width": width // 2}},
        "wider": {"model": {"width": 2 * width}},
        "half the feed-forward": {"model": {"feed_forward": inner // 2}},
        "twice the feed-forward": {"model": {"feed_forward": 2 * inner}},
        "no dropout": {"model": {"dropout": 0.0}},
        "twice the dropout": {"model": {"dropout": 0.2}},
        "no label smoothing": {"training": {"label_smoothing": 0.0}},
        "twice the smoothing": {"training": {"label_smoothing": 0.2}},
        "learned positions": {"model": {"positions": {"kind": "learned", "max_length": 128}}},
    }
    return {name: change for name, change in changed.items() if context.effort != "quick" or name in QUICK}


def _but(other: Sequence[str]) -> str:
    return f"; the others are: {', '.join(other)}" if other else ""


def _percent(change: float) -> str:
    """With a digit after the point where it is small.

    >>> _percent(-0.0049), _percent(1.699)
    ('−0.5%', '+170%')
    """
    return f"{100 * change:+.{1 if abs(change) < 0.1 else 0}f}%".replace("-", "−")


def _each(several: Sequence[TranslatorScores], what: str, shape: str) -> str:
    return ", ".join(format(getattr(one, what), shape) for one in several)


def _draw(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float], band: tuple[float, float]) -> LabFigure:
    with plot_style():
        figure = new_figure(10, 1.4 + 0.34 * len(ours))
        left, right = figure.subplots(1, 2, sharey=True)
        left.axvspan(100 * band[0], 100 * band[1], color=SOFT, alpha=0.15, linewidth=0)
        _sticks(left, ours, BLUE, "o", "here: change of perplexity, %")
        _sticks(right, {name: [one] for name, one in theirs.items()}, ORANGE, "s", "in the paper, %")
        left.set_yticks(range(len(ours)), list(ours))
        left.set_ylim(len(ours) - 0.5, -0.5)
    said = (f"{name} {_percent(fmean(each))} ({_percent(theirs[name])})" for name, each in ours.items())
    return LabFigure(
        "ablations",
        "One thing changed at a time: to the right it gets worse. The base model is at zero; the grey band reaches "
        "from its lowest seed to its highest.",
        figure,
        "For each variant, how much its perplexity differs from the base model's, here and, in brackets, in the "
        f"paper's Table 3: {', '.join(said)}. A band shows the seeds of the base model, from {_percent(band[0])} to "
        f"{_percent(band[1])}.",
    )


def _sticks(ax: "Axes", rows: Mapping[str, Sequence[float]], colour: str, mark: str, title: str) -> None:
    """A line from zero to each change in percent, with its number; several seeds are small marks."""
    ax.axvline(0, color=SOFT, linewidth=1)
    for place, seeds in enumerate(rows.values()):
        change = fmean(seeds)
        ax.plot([0, 100 * change], [place, place], color=colour, linewidth=2, alpha=0.5)
        ax.plot(100 * change, place, marker=mark, markersize=5, color=colour)
        if len(seeds) > 1:
            ax.plot([100 * one for one in seeds], [place] * len(seeds), "|", markersize=8, color=colour)
        end = max(seeds) if change >= 0 else min(seeds)
        ax.annotate(
            f"{100 * change:+.0f}".replace("-", "−"),
            (100 * end, place),
            xytext=(7 if change >= 0 else -7, 0),
            textcoords="offset points",
            ha="left" if change >= 0 else "right",
            va="center",
            color=INK,
            size=8,
        )
    ax.set_title(title)
    ax.margins(x=0.15)
    minimal_axes(ax)
    ax.grid(visible=False, axis="y")
    ax.grid(axis="x", color=FAINT, linewidth=0.8)


def _table(found: Mapping[str, Sequence[TranslatorScores]]) -> LabTable:
    rows = []
    for name, several in found.items():
        paper = PAPER[name]
        size = "" if paper.millions is None else f"{paper.millions} M"
        rows.append(
            [
                name,
                f"{several[0].parameters:,}",
                _each(several, "perplexity", ".3f"),
                _each(several, "bleu", ".1f"),
                paper.what,
                size,
                f"{paper.perplexity:.2f}",
                f"{paper.bleu:.1f}",
            ]
        )
    ours, theirs = ["variant", "parameters", "perplexity", "BLEU"], ["in the paper", "size", "perplexity", "BLEU"]
    return LabTable("Table 3 in small, seed by seed, and the paper's own", [*ours, *theirs], rows)
