"""Cross-attention as word alignment: how often it points to the right word, and what changes when it is bent."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

from regard.decoding.settings import GREEDY
from regard.decoding.translator import Wish
from regard.drawing.style import new_figure, our_style
from regard.labs.cells import cells
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.translators import TAUGHT, book, trained, usual_settings
from regard.labs.word_alignment import attention_of, diagonal, error_rate, links, one_each
from regard.look.ablation import Change
from regard.look.trace import Trace
from regard.model import Model
from regard.text.phrasebook import Pair, split_words

DONE = f"""
The phrasebook is made by a grammar that knows which words of a sentence and its translation belong together. A
Transformer and a recurrent translator with Bahdanau's attention read pairs that they were not trained on. For each
head every target word is aligned to the source word that had the most attention at the moment at which the target word
was written (tokens merged to words, the end of the source left out), and compared with the truth by the alignment
error rate, AER = 1 − 2 |A ∩ G| / (|A| + |G|): 0 is perfect. Since one link for each target word cannot give all of the
true ones, the best that could be had so is given too, and what words at the same place of both sentences would give.

Then attention is bent: sentences are translated greedily, one head's weights are replaced by even ones while the rest
of the network stays as it is, and the outputs are compared.

{TAUGHT}
"""
LIMITS = """
That a head points to the right word does not say that the network used it, nor that a head that points elsewhere is
not needed: where even weights leave every word of the output as it was, a picture of the weights explained nothing
about it. Nor does the opposite hold, that attention says nothing: it is one path among several. The AER depends on the
moment that is read; other ways of reading attention, over layers or with the norms of values, align better. The
sentences are simple, and their alignment is that of one grammar.
"""


@dataclass(frozen=True)
class Pointing:
    """How well a head points, and how often the output stays as it was when its weights are made even."""

    network: str
    head: str
    error: float
    same: float


def run(bench: Bench) -> Outcome:
    """Align, bend, draw."""
    pairs = book(bench).test[: bench.pick(40, 120, 400)]
    bent = pairs[: bench.pick(12, 40, 100)]
    width = usual_settings(bench)["model"]["width"]
    models = {
        "Transformer": trained(bench, {}, "a translator"),
        "Bahdanau": trained(bench, {"model": _bahdanau(width)}, "a recurrent translator"),
    }
    pointing: list[Pointing] = []
    shown: dict[str, dict[str, Tensor]] = {}
    for network, model in models.items():
        errors = head_errors(model, pairs)
        traces = [model.look(pair.source, Wish(GREEDY, split=False)) for pair in bent]
        pointing += [Pointing(network, head, error, unmoved(traces, head)) for head, error in errors.items()]
        shown[network] = attention_of(model.look(pairs[0].source, target=pairs[0].target), pairs[0])
        bench.say(f"  {network}: the best head has an error rate of {min(errors.values()):.2f}")
    truth = [set(pair.alignment) for pair in pairs]
    guess = error_rate(map(diagonal, pairs), truth)
    floor = error_rate(map(one_each, truth), truth)
    best = {name: min((one for one in pointing if one.network == name), key=lambda one: one.error) for name in models}
    ours = [one for one in pointing if one.network == "Transformer"]
    ahead = best["Transformer"]
    idle, worst = max(ours, key=lambda one: one.same), max(ours, key=lambda one: one.error)
    return Outcome(
        holds=ahead.error < 0.85 * guess and idle.same >= 0.5,
        said=f"The Transformer's best head, {ahead.head}, has an alignment error rate of {ahead.error:.2f}, its worst "
        f"{worst.error:.2f}; Bahdanau's attention {best['Bahdanau'].error:.2f}. Words at the same place would give "
        f"{guess:.2f}, and no choice of one word for each could do better than {floor:.2f}. But {idle.head}, whose own "
        f"rate is {idle.error:.2f}, can be made to look everywhere alike, and {idle.same:.0%} of the translations stay "
        f"as they were to the last word; for {ahead.head} it is {ahead.same:.0%}, for Bahdanau's single attention "
        f"{best['Bahdanau'].same:.0%}.",
        numbers={
            "heads": [asdict(one) for one in pointing],
            "same place": guess,
            "best possible": floor,
            "sentences": len(pairs),
            "bent": len(bent),
        },
        drawings=[_draw(pairs[0], shown, best)],
        tables=[_table(pointing, guess, floor)],
    )


def head_errors(model: Model, pairs: list[Pair]) -> dict[str, float]:
    """The alignment error rate of every head."""
    found = defaultdict(list)
    for pair in pairs:
        for head, weights in attention_of(model.look(pair.source, target=pair.target), pair).items():
            found[head].append(links(weights))
    return {head: error_rate(each, (set(pair.alignment) for pair in pairs)) for head, each in found.items()}


def unmoved(traces: Sequence[Trace], head: str) -> float:
    """The share of translations that stay as they were when a head looks at all words alike."""
    even = Change.parse(f"{head}=even")
    return sum(trace.changed(even).same for trace in traces) / len(traces)


def _bahdanau(width: int) -> dict[str, object]:
    return {
        "kind": "recurrent-encoder-decoder",
        "width": width,
        "layers": 1,
        "cell": "gru",
        "attention": "additive",
    }


def _draw(pair: Pair, shown: dict[str, dict[str, Tensor]], best: dict[str, Pointing]) -> Drawing:
    source, target = split_words(pair.source), split_words(pair.target)
    true, ours = {(j, i) for i, j in pair.alignment}, shown["Transformer"]
    with our_style():
        figure = new_figure(11, 4.2)
        worst = max(ours, key=lambda head: error_rate([links(ours[head])], [set(pair.alignment)]))
        drawn = [
            ("Transformer", best["Transformer"].head, "its best head"),
            ("Transformer", worst, "the head that is most wrong here"),
            ("Bahdanau", best["Bahdanau"].head, "additive attention"),
        ]
        for ax, (network, head, what) in zip(figure.subplots(1, 3), drawn, strict=True):
            cells(ax, shown[network][head].tolist(), target, source, title=f"{network}: {what}", framed=true)
    return Drawing(
        "alignment",
        "Where each target word looked when it was written, the darker the more; frames are the true alignment.",
        figure,
        "Matrices of attention weights, target words by source words, for three heads, with the true alignment framed: "
        "the best head and the recurrent attention are dark inside most frames, another head is dark elsewhere.",
    )


def _table(pointing: list[Pointing], guess: float, floor: float) -> Table:
    rows = [[one.network, one.head, f"{one.error:.3f}", f"{one.same:.0%}"] for one in pointing]
    rows += [
        ["words at the same place", "", f"{guess:.3f}", ""],
        ["one true link for each word", "", f"{floor:.3f}", ""],
    ]
    return Table("Every head", ["network", "head", "alignment error rate", "same output if it looks evenly"], rows)
