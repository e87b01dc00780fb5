"""Scores of translations: BLEU and chrF by sacrebleu, whose signatures say exactly what was counted."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """Corpus scores of translations against one reference each."""

    bleu: float
    chrf: float
    exact: float  # the share that equals its reference
    signatures: dict[str, str]


def score(outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """Score translations on raw text, tokenised by sacrebleu itself.

    >>> round(score(["Ti amo molto."], ["Ti amo molto."]).bleu)
    100
    """
    from sacrebleu.metrics.bleu import BLEU  # takes a moment to import, and only translators need it
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(), CHRF()
    counted = bleu.corpus_score(list(outputs), [list(references)]), chrf.corpus_score(list(outputs), [list(references)])
    equal = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
    return Scores(counted[0].score, counted[1].score, equal / len(outputs), signatures)


def sentence_scores(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each translation by itself: unlike BLEU it means something for a single sentence."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    return [
        chrf.sentence_score(output, [reference]).score for output, reference in zip(outputs, references, strict=True)
    ]
