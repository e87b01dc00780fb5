"""One matrix for source, target and prediction, or one for each: what it costs, and what it is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from regard.decoding.settings import GREEDY
from regard.decoding.translator import Wish
from regard.drawing.style import new_figure, our_style
from regard.labs.dots import dots
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.translators import (
    TAUGHT,
    Settings,
    book,
    parameters,
    perplexity_on,
    scores_of,
    short,
    trained,
    training_for,
)
from regard.text.phrasebook import Pair

DONE = f"""
Translators that differ in nothing but what they share: one matrix for the embeddings of both languages and for the
projection before the softmax, as in the paper (§3.4); a matrix of its own for the projection; matrices of their own for
the two languages; or three different matrices. All are trained for the same number of steps on the same batches, with
several seeds, and measured on sentences that they have not seen: perplexity of the right translations, and BLEU of
greedy ones.

{TAUGHT}
"""
LIMITS = """
Both languages here are written in the same letters and share names and pieces of words; one matrix for both makes less
sense for languages that do not. Vocabularies are small here and so is what sharing saves in numbers; its share of the
whole grows with the vocabulary and shrinks with depth: in the paper's base model, 37,000 tokens of 512 numbers are 19
of its 65 million, and three matrices would be 57. What is compared is a moment of training: in a usual run, which ends
while all are still learning, separate matrices are ahead; in a quick one, where both have learned all there is, there
is no difference. One reason could be mended: a fresh decoder that shares its matrix expects the token which it has just
read, unless its last gains begin with both signs, as ours do. Whether sharing catches up with longer training on the
phrasebook was not tried.
"""

VARIANTS: dict[str, Settings] = {
    "all shared": {},
    "own projection": {"model": {"share_output": False}},
    "own source": {"model": {"share_embeddings": False}},
    "nothing shared": {"model": {"share_embeddings": False, "share_output": False}},
}
TOLERATED = 1.25  # how much higher the perplexity may be and still be called no loss, at so few steps


@dataclass(frozen=True)
class Measured:
    """A translator on what it has not seen."""

    parameters: int
    perplexity: float
    bleu: float


def run(bench: Bench) -> Outcome:
    """Train, measure, draw."""
    names = bench.pick(["all shared", "nothing shared"], list(VARIANTS), list(VARIANTS))
    pairs, seeds = book(bench).test[: bench.pick(80, 200, 500)], bench.pick(1, 2, 2)
    found = {name: [_measure(bench, name, seed, pairs) for seed in range(1, seeds + 1)] for name in names}
    shared, apart = found["all shared"], found["nothing shared"]
    saved = 1 - shared[0].parameters / apart[0].parameters
    worth = {name: _mean([one.perplexity for one in each]) for name, each in found.items()}
    bleu = {name: _mean([one.bleu for one in each]) for name, each in found.items()}
    return Outcome(
        holds=saved > 0 and worth["all shared"] < TOLERATED * worth["nothing shared"],
        said=f"Sharing saves {saved:.0%} of the parameters: {shared[0].parameters:,} instead of "
        f"{apart[0].parameters:,}. After {short(bench)} steps the perplexity of right translations is "
        f"{worth['all shared']:.3g} with everything shared and {worth['nothing shared']:.3g} with nothing shared; BLEU "
        f"is {bleu['all shared']:.1f} and {bleu['nothing shared']:.1f} (seeds: {seeds}).",
        numbers={name: [asdict(one) for one in each] for name, each in found.items()},
        drawings=[_draw(found)],
        tables=[_table(found)],
    )


def _measure(bench: Bench, name: str, seed: int, pairs: list[Pair]) -> Measured:
    model = trained(bench, {**VARIANTS[name], "training": training_for(short(bench), seed)}, f"a translator, {name}")
    outputs = model.translate([pair.source for pair in pairs], Wish(GREEDY, split=False), engine="torch")
    return Measured(parameters(model), perplexity_on(model, pairs), scores_of(outputs, pairs)["bleu"])


def _draw(found: Mapping[str, Sequence[Measured]]) -> Drawing:
    titles = {"parameters": "parameters", "perplexity": "perplexity; less is better", "bleu": "BLEU; more is better"}
    with our_style():
        figure = new_figure(11, 1 + 0.55 * len(found))
        for ax, (what, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
            rows = {name: [float(getattr(one, what)) for one in each] for name, each in found.items()}
            dots(ax, rows, title=title, shape=",.0f" if what == "parameters" else ".3g")
    return Drawing(
        "sharing",
        "What matrices share, and what it costs; lines go from the lowest seed to the highest.",
        figure,
        "With everything shared there are fewest parameters, and scores about as good as with nothing shared.",
    )


def _table(found: Mapping[str, Sequence[Measured]]) -> Table:
    rows = [
        [
            name,
            f"{each[0].parameters:,}",
            ", ".join(f"{one.perplexity:.3f}" for one in each),
            ", ".join(f"{one.bleu:.1f}" for one in each),
        ]
        for name, each in found.items()
    ]
    return Table("By what is shared", ["shared", "parameters", "perplexity of each seed", "BLEU of each seed"], rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
