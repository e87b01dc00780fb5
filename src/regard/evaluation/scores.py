"""Scores of translations: BLEU, chrF and TER by sacrebleu, whose signatures say exactly what was counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

References = Sequence[str]  # the right translations of one sentence
QUICK = ("bleu", "chrf")
ALL = (*QUICK, "ter")  # TER looks for words that were moved, which takes a while on poor translations


@dataclass(frozen=True)
class Scores:
    """Corpus scores of translations by name, and `exact`: the share of them that equals a reference."""

    values: dict[str, float]
    signatures: dict[str, str]


def score(
    outputs: Sequence[str], references: Sequence[References], metrics: Sequence[str] = QUICK, tokenize: str = "13a"
) -> Scores:
    """Score translations on raw text, tokenised by sacrebleu itself; for BLEU, as `tokenize` says.

    >>> found = score(["Ti amo molto."], [["Ti amo molto.", "Ti voglio molto bene."]], ALL)
    >>> {name: round(value) for name, value in found.values.items()}
    {'bleu': 100, 'chrf': 100, 'ter': 0, 'exact': 1}
    """
    counting = {name: _metric(name, tokenize) for name in metrics}
    streams = [list(stream) for stream in zip_longest(*references)]  # the first of each, the second of each, …
    counted = {name: metric.corpus_score(list(outputs), streams) for name, metric in counting.items()}
    equal = sum(output in right for output, right in zip(outputs, references, strict=True))
    return Scores(
        {**{name: found.score for name, found in counted.items()}, "exact": equal / len(outputs)},
        {name: str(metric.get_signature()) for name, metric in counting.items()},
    )


def sentence_scores(outputs: Sequence[str], references: Sequence[References]) -> list[float]:
    """chrF of each translation by itself: unlike BLEU it means something for a single sentence."""
    chrf = _metric("chrf")
    return [chrf.sentence_score(output, right).score for output, right in zip(outputs, references, strict=True)]


def _metric(name: str, tokenize: str = "13a") -> "Metric":
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to import, and only translators need it
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu":
        return BLEU(tokenize=tokenize, force=True)  # text that looks tokenised is the user's business, not a warning
    made: dict[str, Callable[[], Metric]] = {"chrf": CHRF, "ter": TER}
    return made[name]()
