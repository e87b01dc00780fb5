"""Ways to tell a network where a token stands: trained at one length, and asked beyond it."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch

from regard.config import DecoderOnlyConfig
from regard.errors import InputError
from regard.labs.charts.lines import line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import fit
from regard.labs.trials.tasks import FIRST_SYMBOL, delayed_copy_task
from regard.models import build
from regard.models.network import Network
from regard.plotting import SOFT, new_figure, plot_style

METHOD = """
Decoders of one layer that differ in their positions alone learn to write, at each of a row of random symbols, the
symbol that stood two places before: what is where is all that matters. They are trained on rows of one length, and
then asked on rows twice as long. Measured is how often they are right at each place of the row, with several seeds.
A scheme goes on past the trained length if there it is right at least four fifths as often as in the last quarter of
that length, and there twice as often as by guessing. The first places are no measure, for so early in a row there is
little to confuse.

Learned positions are a table with a row for each place. A table as long as the training rows refuses a longer one, and
that is tried; to see more than a refusal, the decoder that is measured has a table of twice the length, whose second
half training never touched.
"""
LIMITATIONS = """
The task is about nearness, and one that asks for the place from the beginning would favour other schemes. A single
layer with ALiBi, whose scores only ever fall with distance, can single out one distance only by what several heads tell
together: how often it is right here says little about ALiBi in deeper networks. How far sinusoids and rotary positions
go on depends on the task, the length and how long one trains, and one run says nothing about another. The paper chose
sinusoids because they "may allow" it (§3.5), and found no difference to learned positions at the lengths of training.
"""

NONE = "no positions"
SCHEMES: dict[str, dict[str, object]] = {
    "sinusoidal": {"kind": "sinusoidal"},
    "learned": {"kind": "learned"},
    "relative": {"kind": "relative", "max_distance": 8},
    "rotary": {"kind": "rotary"},
    "ALiBi": {"kind": "alibi"},
    NONE: {"kind": "none"},
}
SYMBOLS, BACK = 8, 2
GO_ON = ("relative", "ALiBi")  # what is far away looks alike to the one, and ever fainter to the other, at any length
KEPT = 0.8  # of what was right at the end of the trained length, by a scheme that goes on


def run(context: LabContext) -> LabResult:
    """Train at one length, ask at twice that, draw."""
    names = context.by_effort(["sinusoidal", "learned", "relative", "rotary", "ALiBi"], list(SCHEMES), list(SCHEMES))
    length, seeds = context.by_effort(12, 20, 32), context.by_effort(1, 3, 4)
    curves: dict[str, list[list[float]]] = {}
    for name in names:
        curves[name] = [_learn(context, name, length, seed) for seed in range(seeds)]
        context.log(
            f"  {name}: right in {_share(curves[name], BACK, length):.0%}, then {_share(curves[name], length):.0%}"
        )
    late = length - length // 4
    within = {name: _share(curve, BACK, length) for name, curve in curves.items()}
    last = {name: _share(curve, late, length) for name, curve in curves.items()}
    beyond = {name: _share(curve, length) for name, curve in curves.items()}
    refused, guessing = _refuses(length), 1 / SYMBOLS
    goes_on = {name: last[name] > 2 * guessing and beyond[name] > KEPT * last[name] for name in names if name != NONE}
    told = ", ".join(f"{name} {last[name]:.0%} and {beyond[name]:.0%}" for name in names if name != "learned")
    return LabResult(
        holds=refused
        and last["learned"] > 0.9
        and beyond["learned"] < 0.5 * last["learned"]
        and last["relative"] > 0.9
        and all(goes_on[name] for name in GO_ON),
        summary=f"Trained on rows of {length}, the decoder with learned positions is right at {last['learned']:.0%} of "
        f"the places {late + 1} to {length} and at {beyond['learned']:.0%} of those from there to {2 * length} "
        f"(guessing: {guessing:.0%}); a table of {length} rows {'refuses' if refused else 'does not refuse'} a longer "
        f"text. The others, in these two parts of the row: {told} (seeds: {seeds}). {_of_those(goes_on)}",
        numbers={
            "length": length,
            "within": within,
            "last_quarter": last,
            "beyond": beyond,
            "goes_on": goes_on,
            "by_place": curves,
            "refused": refused,
        },
        figures=[_draw(curves, length, last, beyond)],
        tables=[
            LabTable(
                "How often right",
                [
                    "positions",
                    f"places up to {length}",
                    f"places {late + 1} to {length}",
                    f"places {length + 1} to {2 * length}",
                    "longer than its table",
                ],
                [
                    [
                        name,
                        f"{within[name]:.1%}",
                        f"{last[name]:.1%}",
                        f"{beyond[name]:.1%}",
                        ("refuses" if refused else "does not refuse") if name == "learned" else "has none",
                    ]
                    for name in names
                ],
            )
        ],
    )


def _of_those(goes_on: Mapping[str, bool]) -> str:
    """Which schemes go on past the trained length, and which do not."""
    yes, no = (", ".join(name for name, goes in goes_on.items() if goes is wanted) for wanted in (True, False))
    return f"Past the trained length these go on: {yes or 'none of them'}; and these do not: {no or 'none of them'}."


def _network(name: str, longest: int, width: int) -> Network:
    positions = {**SCHEMES[name], **({"max_length": longest} if name == "learned" else {})}
    settings = {"positions": positions, "width": width, "layers": 1, "heads": 4, "feed_forward": 2 * width}
    return build(
        DecoderOnlyConfig.model_validate(
            {"vocab_size": SYMBOLS + FIRST_SYMBOL, "norm_order": "pre", "dropout": 0.0, **settings}
        )
    )


def _learn(context: LabContext, name: str, length: int, seed: int) -> list[float]:
    """How often it is right at each place of a row of twice the length it was trained at."""
    steps = context.by_effort(150, 400, 700)
    torch.manual_seed(seed)
    network = _network(name, 2 * length, context.by_effort(32, 48, 64))
    fit(
        network,
        delayed_copy_task(SYMBOLS, BACK, length, 32, seed),
        steps,
        learning_rate=context.by_effort(1e-2, 8e-3, 5e-3),
    )
    batch = next(delayed_copy_task(SYMBOLS, BACK, 2 * length, 512, seed + 1000))
    with torch.no_grad():
        right = network.logits(network.decode(batch.inputs)).argmax(-1) == batch.labels  # (B, T)
    return right.float().mean(0)[BACK:].tolist()


def _refuses(length: int) -> bool:
    """Whether a network with learned positions says that a text is longer than its table."""
    network = _network("learned", length, 16).eval()
    try:
        network.decode(torch.full((1, length + 1), FIRST_SYMBOL))
    except InputError:
        return True
    return False


def _share(curves: Sequence[Sequence[float]], start: int, stop: int | None = None) -> float:
    """How often right, from a place to another; the first that is asked is at place BACK."""
    return fmean(one for curve in curves for one in curve[start - BACK : None if stop is None else stop - BACK])


def _draw(
    curves: Mapping[str, Sequence[Sequence[float]]], length: int, last: Mapping[str, float], beyond: Mapping[str, float]
) -> LabFigure:
    places = range(BACK + 1, 2 * length + 1)
    with plot_style():
        figure = new_figure(9, 3.8)
        ax = figure.subplots()
        ax.set_ylim(0, 1.03)
        lines = {name: over_seeds(places, runs) for name, runs in curves.items()}
        ax.axvline(length + 0.5, color=SOFT, linewidth=1, linestyle=":")
        line_chart(ax, lines, title="share of right answers", xlabel="place in the row", markers=False)
        ax.annotate(f"trained up to {length}", (length + 0.2, 0.03), ha="right", color=SOFT)
    return LabFigure(
        "positions",
        "How often decoders are right at each place; they were trained on rows that end at the dotted line.",
        figure,
        "The share of right answers against the place in the row, a line for each scheme. In the last quarter of the "
        "trained length, then past it: "
        + "; ".join(f"{name} {last[name]:.0%}, then {beyond[name]:.0%}" for name in curves)
        + ".",
    )
