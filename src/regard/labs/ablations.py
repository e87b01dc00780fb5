"""The paper's Table 3 in small: one thing changed at a time, beside what the paper found."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.decoding.settings import GREEDY
from regard.decoding.translator import Wish
from regard.drawing.palette import BLUE, FAINT, INK, ORANGE, SOFT
from regard.drawing.style import bare, new_figure, our_style
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.translators import (
    TAUGHT,
    Settings,
    book,
    merged,
    parameters,
    perplexity_on,
    scores_of,
    short,
    trained,
    training_for,
    usual_settings,
)
from regard.text.phrasebook import Pair

DONE = f"""
The paper changes one thing of its base model at a time, and gives perplexity and BLEU on its development set (Table 3).
Here the same is done to a translator that is small enough to be trained in a minute: where the paper halves or doubles,
so do we, from where we are. Each is trained for the same number of steps with the same seed, and measured on sentences
that it has not seen: perplexity of the right translations, and BLEU of greedy ones.

{TAUGHT}
"""
LIMITS = """
The two columns of numbers are of different tasks: only their directions can be compared. Ours come from a single seed
and few steps on few, simple sentences, and two seeds of one variant differ by a tenth or more. Little is learned by
heart in so short a time, so that dropout mostly holds learning back, where the paper's base model, after 100,000
steps, needs it. Nor is anything else tuned to a variant: larger networks bear only lower rates, and all are trained at
one that the largest can bear, which is less than is best for the small ones. Above all, what learns more slowly looks
worse than it would in the end. That larger is better is a claim about long training, which a usual run cannot confirm.
"""


@dataclass(frozen=True)
class Paper:
    """A row of the paper's Table 3: development perplexity and BLEU, and parameters in millions where they differ."""

    what: str
    perplexity: float
    bleu: float
    millions: int | None = None


@dataclass(frozen=True)
class Measured:
    """A variant of ours, on what it has not seen."""

    parameters: int
    perplexity: float
    bleu: float


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
QUICK = (BASE, "narrower", "no label smoothing")
ALIKE = 0.005  # a change of perplexity by less than this share has no direction


def run(bench: Bench) -> Outcome:
    """Train each variant, draw them beside the paper's."""
    pairs = book(bench).test[: bench.pick(80, 200, 400)]
    found: dict[str, Measured] = {}
    for name, settings in variants(bench).items():
        found[name] = _measure(bench, name, settings, pairs)
        bench.say(f"  {name}: perplexity {found[name].perplexity:.3f}, BLEU {found[name].bleu:.1f}")
    ours = {name: one.perplexity / found[BASE].perplexity - 1 for name, one in found.items() if name != BASE}
    theirs = {name: PAPER[name].perplexity / PAPER[BASE].perplexity - 1 for name in ours}
    clear = [name for name in ours if abs(theirs[name]) > ALIKE and abs(ours[name]) > ALIKE]
    agree = [name for name in clear if (ours[name] > 0) == (theirs[name] > 0)]
    other = [name for name in clear if name not in agree]
    return Outcome(
        holds=not any(name in SIZES for name in other) and ours["narrower"] > 0 and ours["no label smoothing"] < 0,
        said=f"Of {len(clear)} changes that move perplexity clearly in both, {len(agree)} move it in the paper's "
        f"direction{_but(other)}. A narrower model has a perplexity of {found['narrower'].perplexity:.2f} instead of "
        f"{found[BASE].perplexity:.2f} (the paper's: {PAPER['narrower'].perplexity} instead of "
        f"{PAPER[BASE].perplexity}), and one that is trained without label smoothing "
        f"{found['no label smoothing'].perplexity:.2f} ({PAPER['no label smoothing'].perplexity}): smoothing teaches a "
        "model to be less sure than it could be.",
        numbers={"ours": {name: asdict(one) for name, one in found.items()}, "agree": agree, "differ": other},
        drawings=[_draw(ours, theirs)],
        tables=[_table(found)],
    )


def variants(bench: Bench) -> dict[str, Settings]:
    """What each variant changes, from where our base is."""
    model = usual_settings(bench)["model"]
    width, heads, layers, inner = (model[name] for name in ("width", "heads", "layers", "feed_forward"))
    changed: dict[str, dict[str, Any]] = {
        BASE: {},
        "one head": {"model": {"heads": 1}},
        "4 times the heads": {"model": {"heads": 4 * heads}},
        "keys a quarter as long": {"model": {"key_width": max(1, width // heads // 4)}},
        "fewer layers": {"model": {"layers": max(1, layers // 2)}},
        "more layers": {"model": {"layers": layers + 1}},
        "narrower": {"model": {"width": width // bench.pick(4, 2, 2)}},
        "wider": {"model": {"width": 2 * width}},
        "half the feed-forward": {"model": {"feed_forward": inner // 2}},
        "twice the feed-forward": {"model": {"feed_forward": 2 * inner}},
        "no dropout": {"model": {"dropout": 0.0}},
        "twice the dropout": {"model": {"dropout": 0.2}},
        "no label smoothing": {"training": {"label_smoothing": 0.0}},
        "twice the smoothing": {"training": {"label_smoothing": 0.2}},
        "learned positions": {"model": {"positions": {"kind": "learned", "length": 128}}},
    }
    return {name: change for name, change in changed.items() if bench.effort != "quick" or name in QUICK}


def _measure(bench: Bench, name: str, settings: Settings, pairs: list[Pair]) -> Measured:
    rate = {"schedule": {"peak": bench.pick(1e-2, 5e-3, 2e-3)}}  # the larger ones do not bear the usual ones
    training = merged(merged(training_for(short(bench)), rate), settings.get("training", {}))
    model = trained(bench, {**settings, "training": training}, name)
    outputs = model.translate([pair.source for pair in pairs], Wish(GREEDY, split=False), engine="torch")
    return Measured(parameters(model), perplexity_on(model, pairs), scores_of(outputs, pairs)["bleu"])


def _but(other: Sequence[str]) -> str:
    return f"; the others are: {', '.join(other)}" if other else ""


def _draw(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Drawing:
    with our_style():
        figure = new_figure(10, 1.4 + 0.34 * len(ours))
        left, right = figure.subplots(1, 2, sharey=True)
        for ax, changes, colour, mark, title in (
            (left, ours, BLUE, "o", "here: change of perplexity, %"),
            (right, theirs, ORANGE, "s", "in the paper: change of perplexity, %"),
        ):
            ax.axvline(0, color=SOFT, linewidth=1)
            for place, change in enumerate(changes.values()):
                ax.plot([0, 100 * change], [place, place], color=colour, linewidth=2, alpha=0.5)
                ax.plot(100 * change, place, marker=mark, markersize=5, color=colour)
                side = 1 if change >= 0 else -1
                ax.annotate(
                    f"{100 * change:+.0f}".replace("-", "−"),
                    (100 * change, place),
                    xytext=(7 * side, 0),
                    textcoords="offset points",
                    ha="left" if side > 0 else "right",
                    va="center",
                    color=INK,
                    size=8,
                )
            ax.set_title(title)
            ax.margins(x=0.15)
            bare(ax)
            ax.grid(visible=False, axis="y")
            ax.grid(axis="x", color=FAINT, linewidth=0.8)
        left.set_yticks(range(len(ours)), list(ours))
        left.set_ylim(len(ours) - 0.5, -0.5)
    return Drawing(
        "ablations",
        "One thing changed at a time: to the right it gets worse. The base model is at zero.",
        figure,
        "For each variant, how much its perplexity differs from the base model's, here and in the paper's Table 3.",
    )


def _table(found: Mapping[str, Measured]) -> Table:
    rows = []
    for name, one in found.items():
        paper = PAPER[name]
        size = "" if paper.millions is None else f"{paper.millions} M"
        rows.append(
            [
                name,
                f"{one.parameters:,}",
                f"{one.perplexity:.3f}",
                f"{one.bleu:.1f}",
                paper.what,
                size,
                f"{paper.perplexity:.2f}",
                f"{paper.bleu:.1f}",
            ]
        )
    ours, theirs = ["variant", "parameters", "perplexity", "BLEU"], ["in the paper", "size", "perplexity", "BLEU"]
    return Table("Table 3 in small, and the paper's own", [*ours, *theirs], rows)
