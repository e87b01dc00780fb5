"""Ways to tell a network where a token stands: trained at one length, and asked beyond it."""

from collections.abc import Mapping, Sequence
from itertools import islice

import torch

from regard.config import DecoderOnly
from regard.drawing.palette import SOFT
from regard.drawing.style import new_figure, our_style
from regard.errors import InputError
from regard.labs.charts import chart, over_seeds
from regard.labs.fitting import fit
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.tasks import FIRST, echoing
from regard.models import build
from regard.models.network import Network

DONE = """
Decoders of one layer that differ in their positions alone learn to write, at each of a row of random symbols, the
symbol that stood two places before: what is where is all that matters. They are trained on rows of one length, and
then asked on rows twice as long. Measured is how often they are right at each place of the row, with several seeds.

Learned positions are a table with a row for each place. A table as long as the training rows refuses a longer one, and
that is tried; to see more than a refusal, the decoder that is measured has a table of twice the length, whose second
half training never touched.
"""
LIMITS = """
The task is about nearness, and one that asks for the place from the beginning would favour other schemes. A single
layer with ALiBi, whose scores only ever fall with distance, cannot pick out one distance: it is right less often, but
as often past the trained length as before it. How far sinusoids and rotary positions go on depends on the task, the
length and how long one trains: rotary ones do in the quick run of this lab, on shorter rows and after fewer steps. The
paper chose sinusoids because they "may allow" it (§3.5), and found no difference to learned positions at the lengths
of training.
"""

SCHEMES: dict[str, dict[str, object]] = {
    "sinusoidal": {"kind": "sinusoidal"},
    "learned": {"kind": "learned"},
    "relative": {"kind": "relative", "clip": 8},
    "rotary": {"kind": "rotary"},
    "ALiBi": {"kind": "alibi"},
    "none": {"kind": "none"},
}
SYMBOLS, BACK = 8, 2
GO_ON = ("relative", "ALiBi")  # what is far away looks alike to the one, and ever fainter to the other, at any length


def run(bench: Bench) -> Outcome:
    """Train at one length, ask at twice that, draw."""
    names = bench.pick(["sinusoidal", "learned", "relative", "rotary"], list(SCHEMES), list(SCHEMES))
    length, seeds = bench.pick(12, 20, 32), bench.pick(1, 3, 5)
    curves: dict[str, list[list[float]]] = {}
    for name in names:
        curves[name] = [_learn(bench, name, length, seed) for seed in range(seeds)]
        bench.say(
            f"  {name}: right in {_share(curves[name], BACK, length):.0%}, then {_share(curves[name], length):.0%}"
        )
    within = {name: _share(curve, BACK, length) for name, curve in curves.items()}
    beyond = {name: _share(curve, length) for name, curve in curves.items()}
    refused = _refuses(length)
    kept = ", ".join(f"{name} {within[name]:.0%} and {beyond[name]:.0%}" for name in names if name != "learned")
    return Outcome(
        holds=refused
        and within["learned"] > 0.9
        and beyond["learned"] < 0.5 * within["learned"]
        and within["relative"] > 0.9
        and all(beyond[name] > 0.9 * within[name] for name in GO_ON if name in names),
        said=f"Trained on rows of {length}, the decoder with learned positions is right at {within['learned']:.0%} of "
        f"the places up to there and at {beyond['learned']:.0%} of those up to {2 * length} (guessing: "
        f"{1 / SYMBOLS:.0%}); a table of {length} rows {'refuses' if refused else 'does not refuse'} a longer text. "
        f"The others, up to the trained length and beyond it: {kept} (seeds: {seeds}).",
        numbers={"length": length, "within": within, "beyond": beyond, "by place": curves, "refused": refused},
        drawings=[_draw(curves, length)],
        tables=[
            Table(
                "How often right",
                [
                    "positions",
                    f"places up to {length}",
                    f"places {length + 1} to {2 * length}",
                    "longer than its table",
                ],
                [
                    [name, f"{within[name]:.1%}", f"{beyond[name]:.1%}", "refuses" if name == "learned" else "has none"]
                    for name in names
                ],
            )
        ],
    )


def _network(name: str, longest: int, width: int, layers: int) -> Network:
    positions = {**SCHEMES[name], **({"length": longest} if name == "learned" else {})}
    settings = {"positions": positions, "width": width, "layers": layers, "heads": 4, "feed_forward": 2 * width}
    return build(
        DecoderOnly.model_validate({"vocabulary": SYMBOLS + FIRST, "norm_order": "pre", "dropout": 0.0, **settings})
    )


def _learn(bench: Bench, name: str, length: int, seed: int) -> list[float]:
    """How often it is right at each place of a row of twice the length it was trained at."""
    steps = bench.pick(150, 400, 1000)
    torch.manual_seed(seed)
    network = _network(name, 2 * length, *bench.pick((32, 1), (48, 1), (64, 1)))
    fit(network, echoing(SYMBOLS, BACK, length, 32, seed), steps, peak=bench.pick(1e-2, 8e-3, 5e-3))
    (batch,) = islice(echoing(SYMBOLS, BACK, 2 * length, 128, seed + 1000), 1)
    with torch.no_grad():
        right = network.logits(network.decode(batch.read)).argmax(-1) == batch.answers  # (B, T)
    return right.float().mean(0)[BACK:].tolist()


def _refuses(length: int) -> bool:
    """Whether a network with learned positions says that a text is longer than its table."""
    network = _network("learned", length, 16, 1).eval()
    try:
        network.decode(torch.full((1, length + 1), FIRST))
    except InputError:
        return True
    return False


def _share(curves: Sequence[Sequence[float]], start: int, stop: int | None = None) -> float:
    """How often right, from a place to another; the first that is asked is at place BACK."""
    values = [one for curve in curves for one in curve[start - BACK : None if stop is None else stop - BACK]]
    return sum(values) / len(values)


def _draw(curves: Mapping[str, Sequence[Sequence[float]]], length: int) -> Drawing:
    places = range(BACK + 1, 2 * length + 1)
    with our_style():
        figure = new_figure(9, 3.8)
        ax = figure.subplots()
        ax.set_ylim(0, 1.03)
        lines = {name: over_seeds(places, runs) for name, runs in curves.items()}
        ax.axvline(length + 0.5, color=SOFT, linewidth=1, linestyle=":")
        chart(ax, lines, title="share of right answers", across="place in the row", markers=False)
        ax.annotate(f"trained up to {length}", (length + 0.2, 0.03), ha="right", color=SOFT)
    return Drawing(
        "positions",
        "How often decoders are right at each place; they were trained on rows that end at the dotted line.",
        figure,
        "Most schemes are right up to the trained length; past it learned positions fall to guessing, sinusoidal and "
        "rotary ones fall as well, and relative ones and ALiBi go on as before.",
    )
