"""Cross-attention as word alignment: how often it points to the right word, and what changes when it is bent."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

import torch
from torch import Tensor

from regard.api import Model
from regard.data.tokenizer import Tokenizer
from regard.decoding.options import GREEDY, TranslationOptions
from regard.interpret.interventions import Intervention
from regard.interpret.trace import Trace
from regard.labs.charts.grids import matrix
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.translators import (
    TRANSLATION_SETUP,
    base_settings,
    train_translator,
    training_settings,
    translation_data,
)
from regard.phrasebook import Pair, split_words
from regard.plotting import new_figure, plot_style

LOWER, KEPT = 0.15, 0.1  # by how much better than guessing, and how many translations stay as they were
METHOD = f"""
The phrasebook is made by a grammar that knows which words of a sentence and its translation belong together. A
Transformer and a recurrent translator with Bahdanau's attention read pairs that they were not trained on. For each
head every target word is aligned to the source word that had the most attention at the moment at which the target word
was written (tokens merged to words, the end of the source left out), and compared with the truth by the alignment
error rate, AER = 1 − 2 |A ∩ G| / (|A| + |G|): 0 is perfect. Since one link for each target word cannot give all of the
true ones, the best that could be had so is given too, and what words at the same place of both sentences would give.

Then attention is bent: sentences are translated greedily, one head's weights are replaced by even ones while the rest
of the network stays as it is, and the outputs are compared. The head that one would read is the Transformer's with the
lowest error rate. It can be read as an alignment if its error rate is lower than that of words at the same place by
{LOWER:.0%} or more; and what it shows need not be what the output depends on if at least {KEPT:.0%} of the
translations stay as they were, to the last word, when this head looks everywhere alike. Both must be so for each seed.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
That a head points to the right word does not say that the network used it, nor that a head that points elsewhere is
not needed: where even weights leave every word of the output as it was, a picture of the weights explained nothing
about it. Nor does the opposite hold, that attention says nothing: it is one path among several, and where outputs
change, they depend on it. The AER depends on the moment that is read; other ways of reading attention, over layers or
with the norms of values, align better. The sentences are simple, and their alignment is that of one grammar.
"""

OURS, THEIRS = "Transformer", "Bahdanau"


@dataclass(frozen=True)
class Pointing:
    """How well a head points, and how often the output stays as it was when its weights are made even."""

    network: str
    seed: int
    head: str
    error: float
    same: float


def run(context: LabContext) -> LabResult:
    """Align, bend, draw."""
    pairs = translation_data(context).test[: context.by_effort(40, 120, 200)]
    bent = pairs[: context.by_effort(24, 40, 80)]
    seeds = range(1, context.by_effort(1, 2, 2) + 1)
    steps, width = (base_settings(context)[part][what] for part, what in (("training", "steps"), ("model", "width")))
    pointing: list[Pointing] = []
    shown: dict[str, dict[str, Tensor]] = {}
    for network, settings in ((OURS, {}), (THEIRS, {"model": _bahdanau(width)})):
        for seed in seeds:
            model = train_translator(
                context, {**settings, "training": training_settings(steps, seed)}, f"a translator, {network}"
            )
            errors = head_errors(model, pairs)
            traces = [model.look(pair.source, TranslationOptions(GREEDY, split=False)) for pair in bent]
            pointing += [Pointing(network, seed, head, error, unmoved(traces, head)) for head, error in errors.items()]
            context.log(f"  {network}, seed {seed}: the best head has an error rate of {min(errors.values()):.2f}")
            if seed == 1:
                shown[network] = attention_of(model.look(pairs[0].source, target=pairs[0].target), pairs[0])
    truth = [set(pair.alignment) for pair in pairs]
    guess = error_rate(map(diagonal, pairs), truth)
    floor = error_rate(map(one_each, truth), truth)
    best = {name: [_best(pointing, name, seed) for seed in seeds] for name in (OURS, THEIRS)}
    ahead, ours = best[OURS], [one for one in pointing if one.network == OURS]
    worst, same = max(one.error for one in ours), [one.same for one in ours]
    return LabResult(
        holds=all(one.error < (1 - LOWER) * guess and one.same >= KEPT for one in ahead),
        summary=f"Seed by seed, the Transformer's best head is {_listed(one.head for one in ahead)}, with an alignment "
        f"error rate of {_listed(f'{one.error:.2f}' for one in ahead)}; its worst has {worst:.2f}, and Bahdanau's "
        f"attention {_listed(f'{one.error:.2f}' for one in best[THEIRS])}. Words at the same place would give "
        f"{guess:.2f}, and no choice of one word for each could do better than {floor:.2f}. When the best head is made "
        f"to look everywhere alike, {_listed(f'{one.same:.0%}' for one in ahead)} of the translations stay as they "
        f"were to the last word; with any of the Transformer's heads it is {min(same):.0%} to {max(same):.0%}, with "
        f"Bahdanau's single attention {_listed(f'{one.same:.0%}' for one in best[THEIRS])}.",
        numbers={
            "heads": [asdict(one) for one in pointing],
            "same place": guess,
            "best possible": floor,
            "sentences": len(pairs),
            "bent": len(bent),
        },
        figures=[_draw(pairs[0], shown, {name: each[0] for name, each in best.items()})],
        tables=[_table(pointing, guess, floor)],
    )


def _best(pointing: Sequence[Pointing], network: str, seed: int) -> Pointing:
    return min((one for one in pointing if (one.network, one.seed) == (network, seed)), key=lambda one: one.error)


def _listed(said: Iterable[str]) -> str:
    return " and ".join(said)


def head_errors(model: Model, pairs: list[Pair]) -> dict[str, float]:
    """The alignment error rate of every head."""
    found = defaultdict(list)
    for pair in pairs:
        for head, weights in attention_of(model.look(pair.source, target=pair.target), pair).items():
            found[head].append(links(weights))
    return {head: error_rate(each, (set(pair.alignment) for pair in pairs)) for head, each in found.items()}


def unmoved(traces: Sequence[Trace], head: str) -> float:
    """The share of translations that stay as they were when a head looks at all words alike."""
    even = Intervention.parse(f"{head}=even")
    return sum(trace.intervene(even).same for trace in traces) / len(traces)


def _bahdanau(width: int) -> dict[str, object]:
    return {
        "kind": "recurrent-encoder-decoder",
        "width": width,
        "layers": 1,
        "cell": "gru",
        "attention": "additive",
    }


def _draw(pair: Pair, shown: dict[str, dict[str, Tensor]], best: dict[str, Pointing]) -> LabFigure:
    source, target = split_words(pair.source), split_words(pair.target)
    true, ours = {(j, i) for i, j in pair.alignment}, shown[OURS]
    errors = {head: error_rate([links(weights)], [set(pair.alignment)]) for head, weights in ours.items()}
    worst = max(errors, key=errors.__getitem__)
    drawn = [
        (OURS, best[OURS].head, "its best head"),
        (OURS, worst, "most wrong here"),
        (THEIRS, best[THEIRS].head, "its attention"),
    ]
    with plot_style():
        figure = new_figure(11, 4.6)
        for ax, (network, head, what) in zip(figure.subplots(1, 3), drawn, strict=True):
            title = f"{network}: {what}\n{head}"
            matrix(ax, shown[network][head].tolist(), target, source, title=title, framed=true)
            ax.set_xlabel("read: English")
            ax.set_ylabel("written: Italian")
    inside = [fmean(_inside(shown[network][head], true)) for network, head, _ in drawn]
    said = ", ".join(f"{network} {head} {share:.0%}" for (network, head, _), share in zip(drawn, inside, strict=True))
    return LabFigure(
        "alignment",
        "Where each word looked when it was written, the darker the more; frames are the true alignment.",
        figure,
        "Matrices of attention weights of three heads, Italian words that were written by English words that were "
        f"read, with the true alignment framed. Of the attention this much is inside the frames: {said}.",
    )


def _inside(weights: Tensor, framed: set[tuple[int, int]]) -> list[float]:
    """How much of each target word's attention to words is where it should be."""
    right = torch.zeros_like(weights)
    for j, i in framed:
        right[j, i] = 1
    return ((weights * right).sum(1) / weights.sum(1).clamp(min=1e-9)).tolist()


def _table(pointing: Sequence[Pointing], guess: float, floor: float) -> LabTable:
    rows = [[one.network, str(one.seed), one.head, f"{one.error:.3f}", f"{one.same:.0%}"] for one in pointing]
    rows += [
        ["words at the same place", "", "", f"{guess:.3f}", ""],
        ["one true link for each word", "", "", f"{floor:.3f}", ""],
    ]
    head = ["network", "seed", "head", "alignment error rate", "same output if it looks evenly"]
    return LabTable("Every head", head, rows)


Links = set[tuple[int, int]]  # (source word, target word), as the phrasebook counts them


def error_rate(found: Iterable[Links], true: Iterable[Links]) -> float:
    """The alignment error rate over sentences (Och and Ney, 2003), where all true links are sure.

    >>> error_rate([{(0, 0), (1, 1)}], [{(0, 0), (1, 2)}])
    0.5
    """
    shared = linked = 0
    for ours, theirs in zip(found, true, strict=True):
        shared += 2 * len(ours & theirs)
        linked += len(ours) + len(theirs)
    return 1 - shared / linked


def words_of_tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    """Which word of `split_words` each token of a text begins in."""
    spans, start = [], 0
    for word in split_words(text):
        start = text.index(word, start) + len(word)
        spans.append(start)
    ((_, offsets),) = tokenizer.encode_with_offsets([text])
    owners = []
    for begin, end in offsets:
        inside = begin + len(text[begin:end]) - len(text[begin:end].lstrip())  # a token may carry the space before it
        owners.append(next((n for n, stop in enumerate(spans) if inside < stop), len(spans) - 1))
    return owners


def merged(weights: Tensor, target: Sequence[int], source: Sequence[int]) -> Tensor:
    """Weights of tokens (T, S) as weights of words: summed over a source word's tokens, averaged over a target word's.

    What comes after the last token of a text, its end, is left out.
    """
    by_source = torch.zeros(weights.size(0), max(source) + 1)
    by_source.index_add_(1, torch.tensor(source), weights[:, : len(source)].float())
    rows = torch.zeros(max(target) + 1, by_source.size(1))
    rows.index_add_(0, torch.tensor(target), by_source[: len(target)])
    return rows / torch.bincount(torch.tensor(target))[:, None].clamp(min=1)


def links(weights: Tensor) -> Links:
    """Each target word with the source word that has the most of its weight (target words, source words)."""
    return {(int(i), j) for j, i in enumerate(weights.argmax(1))}


def one_each(true: Links) -> Links:
    """The best that one link for each target word could do: any of the true ones."""
    return set({j: (i, j) for i, j in sorted(true, reverse=True)}.values())


def diagonal(pair: Pair) -> Links:
    """What one would guess who cannot read: words at the same place of both sentences."""
    source, target = len(split_words(pair.source)), len(split_words(pair.target))
    return {(min(source - 1, round(j * (source - 1) / max(1, target - 1))), j) for j in range(target)}


def attention_of(trace: Trace, pair: Pair) -> dict[str, Tensor]:
    """The cross-attention of every head on a pair that was forced, as weights of words, by the head's name."""
    source = words_of_tokens(pair.source, trace.model.source_tokenizer)
    target = words_of_tokens(pair.target, trace.model.target_tokenizer)
    found = {}
    for point in trace.points.values():
        if point.part == "cross_attention" and point.point == "weights":
            for head, weights in enumerate(trace.activation(point.name)):
                found[f"{point.name.removesuffix('.weights')}[{head}]"] = merged(weights, target, source)
    return found
