"""Cross-attention as word alignment: its alignment error rate, and whether the output depends on it.

    AER = 1 − 2 |A ∩ G| / (|A| + |G|)

A: links by attention, one per target word. G: gold links of the phrasebook, possibly several per word.

T target tokens · S source tokens
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

import torch
from torch import Tensor

from regard.api import Model
from regard.data.tokenizer import Tokenizer
from regard.interpret.interventions import Intervention
from regard.interpret.trace import Trace
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import matrix
from regard.labs.translators import (
    TRANSLATION_SETUP,
    base_settings,
    train_translator,
    training_settings,
    translation_data,
)
from regard.phrasebook import AlignedPair, words_and_punctuation
from regard.plotting import new_figure, plot_style

MIN_REDUCTION, MIN_UNCHANGED = 0.15, 0.1  # of the AER against the diagonal; of the translations
METHOD = f"""
The grammar of the phrasebook provides gold word alignments. A Transformer and a recurrent model with Bahdanau attention
are given test pairs with forced targets. For each head, every target word is linked to the source word with the most
attention at the step that predicts the target word (tokens merged to words, the end token left out), and the links are
compared with the gold alignment by the alignment error rate, AER = 1 − 2 |A ∩ G| / (|A| + |G|); 0 is perfect. Because
one link per target word cannot cover all gold links, the lowest possible AER is given too, and the AER of a diagonal
alignment.

Then attention is intervened on: sentences are translated greedily while the weights of one head are replaced by uniform
ones, and the outputs are compared. The head in question is the one of the Transformer with the lowest AER. It can be
read as an alignment if its AER is lower than that of the diagonal by {MIN_REDUCTION:.0%} or more; and the output need
not depend on it if at least {MIN_UNCHANGED:.0%} of the translations are unchanged with uniform weights. Both have to be
true for each seed.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
A head that points to the right word need not be used by the network, and a head that points elsewhere may be needed:
where uniform weights leave the output unchanged, a plot of the weights explained nothing about it. The converse, that
attention explains nothing, does not follow: it is one path among several, and where outputs change they depend on it.
The AER depends on the step at which attention is read; other methods, which combine layers or use the norms of the
values, align better. The sentences are simple, and their alignment is that of one grammar.
"""

TRANSFORMER, BAHDANAU = "Transformer", "Bahdanau"
Links = set[tuple[int, int]]  # (source word, target word)


@dataclass(frozen=True)
class HeadAlignment:
    """The alignment error rate of a head, and the fraction of translations unchanged with uniform weights."""

    network: str
    seed: int
    head: str
    aer: float
    unchanged: float


def run(context: LabContext) -> LabResult:
    """Measure the alignment error rate and the effect of uniform weights for every head."""
    pairs = translation_data(context).test[: context.by_effort(40, 120, 200)]
    intervened = pairs[: context.by_effort(24, 40, 80)]
    seeds = range(1, context.by_effort(1, 2, 2) + 1)
    steps, width = base_settings(context)["training"]["steps"], base_settings(context)["model"]["width"]
    heads: list[HeadAlignment] = []
    shown: dict[str, dict[str, Tensor]] = {}
    for network, settings in ((TRANSFORMER, {}), (BAHDANAU, {"model": _bahdanau(width)})):
        for seed in seeds:
            settings_of_seed = {**settings, "training": training_settings(steps, seed)}
            model = train_translator(context, settings_of_seed, f"a translation model, {network}")
            error_rates = head_error_rates(model, pairs)
            traces = [model.look(pair.source, beam=1) for pair in intervened]
            heads += [
                HeadAlignment(network, seed, head, aer, unchanged_fraction(traces, head))
                for head, aer in error_rates.items()
            ]
            context.log(f"  {network}, seed {seed}: lowest alignment error rate {min(error_rates.values()):.2f}")
            if seed == 1:
                shown[network] = word_attention(model.look(pairs[0].source, target=pairs[0].target), pairs[0])
    gold = [set(pair.alignment) for pair in pairs]
    diagonal_aer = alignment_error_rate(map(diagonal, pairs), gold)
    oracle_aer = alignment_error_rate(map(one_link_per_word, gold), gold)
    best = {name: [_best(heads, name, seed) for seed in seeds] for name in (TRANSFORMER, BAHDANAU)}
    best_heads, transformer = best[TRANSFORMER], [head for head in heads if head.network == TRANSFORMER]
    worst, unchanged = max(head.aer for head in transformer), [head.unchanged for head in transformer]
    return LabResult(
        holds=all(
            head.aer < (1 - MIN_REDUCTION) * diagonal_aer and head.unchanged >= MIN_UNCHANGED for head in best_heads
        ),
        summary=f"By seed, the best head of the Transformer is {_join(head.head for head in best_heads)}, with an "
        f"alignment error rate of {_join(f'{head.aer:.2f}' for head in best_heads)}; its worst head has {worst:.2f}, "
        f"and Bahdanau attention {_join(f'{head.aer:.2f}' for head in best[BAHDANAU])}. A diagonal alignment has "
        f"{diagonal_aer:.2f}, and the lowest possible with one link per word is {oracle_aer:.2f}. With uniform weights "
        f"in the best head, {_join(f'{head.unchanged:.0%}' for head in best_heads)} of the translations are unchanged; "
        f"over all heads of the Transformer it is {min(unchanged):.0%} to {max(unchanged):.0%}, and with Bahdanau's "
        f"single attention {_join(f'{head.unchanged:.0%}' for head in best[BAHDANAU])}.",
        numbers={
            "heads": [asdict(head) for head in heads],
            "diagonal_aer": diagonal_aer,
            "oracle_aer": oracle_aer,
            "sentences": len(pairs),
            "intervened_sentences": len(intervened),
        },
        figures=[_figure(pairs[0], shown, {name: row[0] for name, row in best.items()})],
        tables=[_table(heads, diagonal_aer, oracle_aer)],
    )


def head_error_rates(model: Model, pairs: list[AlignedPair]) -> dict[str, float]:
    """Return the alignment error rate of every head."""
    links = defaultdict(list)
    for pair in pairs:
        for head, weights in word_attention(model.look(pair.source, target=pair.target), pair).items():
            links[head].append(attention_links(weights))
    return {head: alignment_error_rate(rows, (set(pair.alignment) for pair in pairs)) for head, rows in links.items()}


def unchanged_fraction(traces: Sequence[Trace], head: str) -> float:
    """Return the fraction of translations that are unchanged when the weights of a head are uniform."""
    uniform = Intervention.parse(f"{head}=even")
    return sum(trace.intervene(uniform).same for trace in traces) / len(traces)


def _best(heads: Sequence[HeadAlignment], network: str, seed: int) -> HeadAlignment:
    return min((head for head in heads if (head.network, head.seed) == (network, seed)), key=lambda head: head.aer)


def _bahdanau(width: int) -> dict[str, object]:
    return {
        "kind": "recurrent-encoder-decoder",
        "width": width,
        "layers": 1,
        "cell": "gru",
        "attention": "additive",
    }


# --- alignment --------------------------------------------------------------------------------------------------------


def alignment_error_rate(links: Iterable[Links], gold: Iterable[Links]) -> float:
    """Return the alignment error rate over sentences (Och and Ney, 2003), where all gold links are sure.

    >>> alignment_error_rate([{(0, 0), (1, 1)}], [{(0, 0), (1, 2)}])
    0.5
    """
    shared = total = 0
    for sentence_links, sentence_gold in zip(links, gold, strict=True):
        shared += 2 * len(sentence_links & sentence_gold)
        total += len(sentence_links) + len(sentence_gold)
    return 1 - shared / total


def word_attention(trace: Trace, pair: AlignedPair) -> dict[str, Tensor]:
    """Return the cross-attention of every head on a pair with forced target, between words, by the head's name."""
    source = words_of_tokens(pair.source, trace.model.source_tokenizer)
    target = words_of_tokens(pair.target, trace.model.target_tokenizer)
    attention = {}
    for point in trace.points.values():
        if point.part == "cross_attention" and point.point == "weights":
            for head, weights in enumerate(trace.activation(point.name)):
                attention[f"{point.name.removesuffix('.weights')}[{head}]"] = merge_tokens(weights, target, source)
    return attention


def words_of_tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return, for each token of a text, the index of the word of `words_and_punctuation` that it starts in."""
    word_ends, start = [], 0
    for word in words_and_punctuation(text):
        start = text.index(word, start) + len(word)
        word_ends.append(start)
    ((_, offsets),) = tokenizer.encode_with_offsets([text])
    words = []
    for begin, end in offsets:
        token = text[begin:end]
        start = begin + len(token) - len(token.lstrip())  # a token may include the space before it
        words.append(next((n for n, word_end in enumerate(word_ends) if start < word_end), len(word_ends) - 1))
    return words


def merge_tokens(weights: Tensor, target: Sequence[int], source: Sequence[int]) -> Tensor:
    """Return weights of tokens (T, S) as weights of words: summed over source tokens, averaged over target tokens.

    `target` and `source` are the word indices of the tokens; the end tokens after them are left out.
    """
    by_source = torch.zeros(weights.size(0), max(source) + 1)
    by_source.index_add_(1, torch.tensor(source), weights[:, : len(source)].float())
    rows = torch.zeros(max(target) + 1, by_source.size(1))
    rows.index_add_(0, torch.tensor(target), by_source[: len(target)])
    return rows / torch.bincount(torch.tensor(target))[:, None].clamp(min=1)


def attention_links(weights: Tensor) -> Links:
    """Return each target word with the source word of the largest weight; weights (target words, source words)."""
    return {(int(i), j) for j, i in enumerate(weights.argmax(1))}


def one_link_per_word(gold: Links) -> Links:
    """Return one gold link per target word: the best alignment with a single link per word."""
    return set({j: (i, j) for i, j in sorted(gold, reverse=True)}.values())


def diagonal(pair: AlignedPair) -> Links:
    """Return a diagonal alignment: words at the same relative position."""
    source, target = len(words_and_punctuation(pair.source)), len(words_and_punctuation(pair.target))
    return {(min(source - 1, round(j * (source - 1) / max(1, target - 1))), j) for j in range(target)}


# --- output -----------------------------------------------------------------------------------------------------------


def _join(texts: Iterable[str]) -> str:
    return " and ".join(texts)


def _figure(pair: AlignedPair, shown: dict[str, dict[str, Tensor]], best: dict[str, HeadAlignment]) -> LabFigure:
    source, target = words_and_punctuation(pair.source), words_and_punctuation(pair.target)
    gold, heads = {(j, i) for i, j in pair.alignment}, shown[TRANSFORMER]
    error_rates = {
        head: alignment_error_rate([attention_links(weights)], [set(pair.alignment)]) for head, weights in heads.items()
    }
    worst = max(error_rates, key=error_rates.__getitem__)
    drawn = [
        (TRANSFORMER, best[TRANSFORMER].head, "best head"),
        (TRANSFORMER, worst, "worst head here"),
        (BAHDANAU, best[BAHDANAU].head, "attention"),
    ]
    with plot_style():
        figure = new_figure(11, 4.6)
        for ax, (network, head, kind) in zip(figure.subplots(1, 3), drawn, strict=True):
            title = f"{network}: {kind}\n{head}"
            matrix(ax, shown[network][head].tolist(), target, source, title=title, framed=gold)
            ax.set_xlabel("source: English")
            ax.set_ylabel("target: Italian")
    inside = [fmean(_weight_on_gold(shown[network][head], gold)) for network, head, _ in drawn]
    descriptions = ", ".join(
        f"{network} {head} {fraction:.0%}" for (network, head, _), fraction in zip(drawn, inside, strict=True)
    )
    return LabFigure(
        "alignment",
        "Attention at the step that predicts each target word, stronger colors are larger; frames are the gold "
        "alignment.",
        figure,
        "Matrices of attention weights of three heads, Italian target words by English source words, with the gold "
        f"alignment framed. Fraction of the attention inside the frames: {descriptions}.",
    )


def _weight_on_gold(weights: Tensor, framed: set[tuple[int, int]]) -> list[float]:
    """Return the fraction of each target word's attention to words that is on gold links."""
    mask = torch.zeros_like(weights)
    for j, i in framed:
        mask[j, i] = 1
    return ((weights * mask).sum(1) / weights.sum(1).clamp(min=1e-9)).tolist()


def _table(heads: Sequence[HeadAlignment], diagonal_aer: float, oracle_aer: float) -> LabTable:
    rows = [[head.network, str(head.seed), head.head, f"{head.aer:.3f}", f"{head.unchanged:.0%}"] for head in heads]
    rows += [
        ["diagonal alignment", "", "", f"{diagonal_aer:.3f}", ""],
        ["one gold link per word", "", "", f"{oracle_aer:.3f}", ""],
    ]
    header = ["network", "seed", "head", "alignment error rate", "unchanged with uniform weights"]
    return LabTable("All heads", header, rows)
