"""The ablations of the paper's Table 3 at small scale: one setting changed at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.translators import (
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
The paper changes one setting of its base model at a time and reports perplexity and BLEU on its development set (Table
3). Here the same is done with a translation model that can be trained in a minute: where the paper halves or doubles a
setting, so does the lab, relative to its own base. All models are trained for the same number of steps and evaluated on
test sentences: perplexity of the references, and BLEU of greedy translations. The base model is trained with several
seeds, and with full effort so are the models with other numbers of heads. A change counts as clear if it is outside the
range of the seeds of the base model.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
The two columns of numbers are from different tasks: only the directions of the changes can be compared. Most of the
results here are from a single seed, and all from few steps on few, simple sentences. The models hardly overfit in so
short a time, so that dropout mostly slows learning down, while the paper's base model needs it after 100,000 steps. No
other setting is tuned for a variant: all have the same learning rate. Above all, a variant that learns more slowly
looks worse than it would after longer training.
"""


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 3: development perplexity and BLEU, and millions of parameters where they differ."""

    setting: str
    perplexity: float
    bleu: float
    millions: int | None = None


BASE = "base"
PAPER = {
    BASE: PaperRow("6 layers, d_model 512, 8 heads", 4.92, 25.8, 65),
    "1 head": PaperRow("1 head", 5.29, 24.9),
    "4 × heads": PaperRow("32 heads", 5.01, 25.4),
    "d_k / 4": PaperRow("d_k = 16", 5.16, 25.1, 58),
    "fewer layers": PaperRow("2 layers", 6.11, 23.7, 36),
    "more layers": PaperRow("8 layers", 4.88, 25.5, 80),
    "d_model / 2": PaperRow("d_model = 256", 5.75, 24.5, 28),
    "2 × d_model": PaperRow("d_model = 1024", 4.66, 26.0, 168),
    "d_ff / 2": PaperRow("d_ff = 1024", 5.12, 25.4, 53),
    "2 × d_ff": PaperRow("d_ff = 4096", 4.75, 26.2, 90),
    "no dropout": PaperRow("dropout 0", 5.77, 24.6),
    "2 × dropout": PaperRow("dropout 0.2", 4.95, 25.5),
    "no label smoothing": PaperRow("label smoothing 0", 4.67, 25.3),
    "2 × label smoothing": PaperRow("label smoothing 0.2", 5.47, 25.7),
    "learned positions": PaperRow("learned positions", 4.92, 25.7),
}
SIZE_VARIANTS = ("fewer layers", "more layers", "d_model / 2", "2 × d_model", "d_ff / 2", "2 × d_ff")
QUICK_VARIANTS = (BASE, "d_model / 2", "2 × d_model", "no label smoothing")
HEAD_VARIANTS = ("1 head", "4 × heads")  # the lab `heads` trains these with several seeds too
EXPECTED_SIGNS = {"d_model / 2": 1, "2 × d_model": -1, "no label smoothing": -1}  # of the change of perplexity
MIN_PAPER_CHANGE = 0.01  # a smaller relative change in the paper has no direction; it reports no variance


def run(context: LabContext) -> LabResult:
    """Train and evaluate every variant, and compare the changes with those of the paper."""
    pairs = translation_data(context).test[: context.by_effort(80, 200, 300)]
    scores: dict[str, list[TranslatorScores]] = {}
    for name, settings in variants(context).items():
        seeds = range(1, 4) if name in (BASE, *context.by_effort((), (), HEAD_VARIANTS)) else [1]
        models = (train_for_comparison(context, settings, name, seed) for seed in seeds)
        scores[name] = [evaluate_translator(model, pairs) for model in models]
        context.log(f"  {name}: perplexity {_by_seed(scores[name], 'perplexity', '.3f')}")
    base = fmean(score.perplexity for score in scores[BASE])
    changes = {name: [score.perplexity / base - 1 for score in row] for name, row in scores.items()}
    base_range = min(changes[BASE]), max(changes[BASE])
    ours = {name: fmean(row) for name, row in changes.items() if name != BASE}
    paper = {name: PAPER[name].perplexity / PAPER[BASE].perplexity - 1 for name in ours}
    signs = {name: change_sign(change, base_range) for name, change in ours.items()}
    clear = [name for name in ours if signs[name] and abs(paper[name]) > MIN_PAPER_CHANGE]
    agree = [name for name in clear if signs[name] == (1 if paper[name] > 0 else -1)]
    disagree = [name for name in clear if name not in agree]
    means = {name: fmean(score.perplexity for score in row) for name, row in scores.items()}
    return LabResult(
        holds=all(signs[name] == sign for name, sign in EXPECTED_SIGNS.items())
        and not set(SIZE_VARIANTS) & set(disagree),
        summary=f"After {comparison_steps(context)} steps the seeds of the base model range from "
        f"{_percent(base_range[0])} to {_percent(base_range[1])} around their mean (seeds: {len(changes[BASE])}). Of "
        f"{len(clear)} changes that exceed this range, and {MIN_PAPER_CHANGE:.0%} in the paper, {len(agree)} have the "
        f"same direction as in the paper{_disagreement(disagree)}. Half the width gives a perplexity of "
        f"{means['d_model / 2']:.2f} and double the width {means['2 × d_model']:.2f}, instead of {means[BASE]:.2f} "
        f"(paper: {PAPER['d_model / 2'].perplexity} and {PAPER['2 × d_model'].perplexity} instead of "
        f"{PAPER[BASE].perplexity}); without label smoothing it is {means['no label smoothing']:.2f} (paper: "
        f"{PAPER['no label smoothing'].perplexity}).",
        numbers={
            "variants": {name: [asdict(score) for score in row] for name, row in scores.items()},
            "base_range": base_range,
            "agree": agree,
            "disagree": disagree,
        },
        figures=[_figure({name: changes[name] for name in ours}, paper, base_range)],
        tables=[_table(scores)],
    )


def change_sign(change: float, base_range: tuple[float, float]) -> int:
    """Return 1 for a change above a range, −1 for one below it, and 0 for one inside it.

    >>> [change_sign(change, (-0.02, 0.03)) for change in (-0.5, 0.01, 0.04)]
    [-1, 0, 1]
    """
    return (change > base_range[1]) - (change < base_range[0])


def variants(context: LabContext) -> dict[str, Settings]:
    """Return the settings that each variant changes."""
    model = base_settings(context)["model"]
    width, heads, layers, feed_forward = (model[name] for name in ("width", "heads", "layers", "feed_forward"))
    changes: dict[str, dict[str, Any]] = {
        BASE: {},
        "1 head": {"model": {"heads": 1}},
        "4 × heads": {"model": {"heads": 4 * heads}},
        "d_k / 4": {"model": {"key_width": max(1, width // heads // 4)}},
        "fewer layers": {"model": {"layers": max(1, layers // 2)}},
        "more layers": {"model": {"layers": layers + 1}},
        "d_model / 2": {"model": {"width": width // 2}},
        "2 × d_model": {"model": {"width": 2 * width}},
        "d_ff / 2": {"model": {"feed_forward": feed_forward // 2}},
        "2 × d_ff": {"model": {"feed_forward": 2 * feed_forward}},
        "no dropout": {"model": {"dropout": 0.0}},
        "2 × dropout": {"model": {"dropout": 0.2}},
        "no label smoothing": {"training": {"label_smoothing": 0.0}},
        "2 × label smoothing": {"training": {"label_smoothing": 0.2}},
        "learned positions": {"model": {"positions": {"kind": "learned", "max_length": 128}}},
    }
    return {name: change for name, change in changes.items() if context.effort != "quick" or name in QUICK_VARIANTS}


def _disagreement(disagree: Sequence[str]) -> str:
    return f"; different: {', '.join(disagree)}" if disagree else ""


def _percent(change: float) -> str:
    """Format a relative change, with a decimal if it is small.

    >>> _percent(-0.0049), _percent(1.699)
    ('−0.5%', '+170%')
    """
    return f"{100 * change:+.{1 if abs(change) < 0.1 else 0}f}%".replace("-", "−")


def _by_seed(scores: Sequence[TranslatorScores], field: str, number_format: str) -> str:
    return ", ".join(format(getattr(score, field), number_format) for score in scores)


def _figure(
    ours: Mapping[str, Sequence[float]], paper: Mapping[str, float], base_range: tuple[float, float]
) -> LabFigure:
    with plot_style():
        figure = new_figure(10, 1.4 + 0.34 * len(ours))
        left, right = figure.subplots(1, 2, sharey=True)
        left.axvspan(100 * base_range[0], 100 * base_range[1], color=SOFT, alpha=0.15, linewidth=0)
        _draw_changes(left, ours, BLUE, "o", "change of perplexity, this lab (%)")
        _draw_changes(right, {name: [value] for name, value in paper.items()}, ORANGE, "s", "paper (%)")
        left.set_yticks(range(len(ours)), list(ours))
        left.set_ylim(len(ours) - 0.5, -0.5)
    descriptions = (f"{name} {_percent(fmean(row))} ({_percent(paper[name])})" for name, row in ours.items())
    return LabFigure(
        "ablations",
        "Change of perplexity when one setting is changed; positive is worse. Zero is the base model, the gray band "
        "the range of its seeds.",
        figure,
        "Relative change of perplexity of each variant from the base model, here and, in parentheses, in the paper's "
        f"Table 3: {', '.join(descriptions)}. The seeds of the base model range from {_percent(base_range[0])} to "
        f"{_percent(base_range[1])}.",
    )


def _draw_changes(ax: "Axes", rows: Mapping[str, Sequence[float]], color: str, marker: str, title: str) -> None:
    """Draw a line from zero to each change in percent, with its number; single seeds are small marks."""
    ax.axvline(0, color=SOFT, linewidth=1)
    for y, seeds in enumerate(rows.values()):
        change = fmean(seeds)
        ax.plot([0, 100 * change], [y, y], color=color, linewidth=2, alpha=0.5)
        ax.plot(100 * change, y, marker=marker, markersize=5, color=color)
        if len(seeds) > 1:
            ax.plot([100 * seed for seed in seeds], [y] * len(seeds), "|", markersize=8, color=color)
        end = max(seeds) if change >= 0 else min(seeds)
        ax.annotate(
            f"{100 * change:+.0f}".replace("-", "−"),
            (100 * end, y),
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


def _table(scores: Mapping[str, Sequence[TranslatorScores]]) -> LabTable:
    rows = []
    for name, row in scores.items():
        paper = PAPER[name]
        rows.append(
            [
                name,
                f"{row[0].parameters:,}",
                _by_seed(row, "perplexity", ".3f"),
                _by_seed(row, "bleu", ".1f"),
                paper.setting,
                "" if paper.millions is None else f"{paper.millions} M",
                f"{paper.perplexity:.2f}",
                f"{paper.bleu:.1f}",
            ]
        )
    ours, theirs = ["variant", "parameters", "perplexity", "BLEU"], ["paper", "parameters", "perplexity", "BLEU"]
    return LabTable("Results of each seed, and the paper's Table 3", [*ours, *theirs], rows)
