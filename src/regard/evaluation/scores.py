"""Scores of translations: BLEU, chrF and TER by sacrebleu, whose signatures say exactly what was counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

QUICK = ("bleu", "chrf")
ALL = (*QUICK, "ter")  # TER looks for words that were moved, which takes a while on poor translations


@dataclass(frozen=True)
class Scores:
    """Corpus scores of translations against one reference each, by name, and `exact`: the share that equals it."""

    values: dict[str, float]
    signatures: dict[str, str]


def score(outputs: Sequence[str], references: Sequence[str], metrics: Sequence[str] = QUICK) -> Scores:
    """Score translations on raw text, tokenised by sacrebleu itself.

    >>> found = score(["Ti amo molto."], ["Ti amo molto."], ALL)
    >>> {name: round(value) for name, value in found.values.items()}
    {'bleu': 100, 'chrf': 100, 'ter': 0, 'exact': 1}
    """
    counting = {name: _metric(name) for name in metrics}
    counted = {name: metric.corpus_score(list(outputs), [list(references)]) for name, metric in counting.items()}
    equal = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    return Scores(
        {**{name: found.score for name, found in counted.items()}, "exact": equal / len(outputs)},
        {name: str(metric.get_signature()) for name, metric in counting.items()},
    )


def sentence_scores(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each translation by itself: unlike BLEU it means something for a single sentence."""
    chrf = _metric("chrf")
    return [
        chrf.sentence_score(output, [reference]).score for output, reference in zip(outputs, references, strict=True)
    ]


def _metric(name: str) -> "Metric":
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to import, and only translators need it
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    made: dict[str, Callable[[], Metric]] = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
    return made[name]()
