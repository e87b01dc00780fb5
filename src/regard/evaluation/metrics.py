"""Translation metrics: BLEU, chrF and TER by sacrebleu with their signatures, exact matches, and scores by length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

References = Sequence[str]  # the reference translations of one sentence
FAST_METRICS = ("bleu", "chrf")
ALL_METRICS = (*FAST_METRICS, "ter")  # TER searches for shifted words, which is slow on poor translations
LENGTH_BUCKETS = ((1, 5), (6, 10), (11, 20), (21, 30), (31, 50), (51, None))  # source words, separated by spaces


@dataclass(frozen=True)
class TranslationScores:
    """Corpus scores of translations."""

    values: dict[str, float]
    """Score by metric; `exact` is the fraction of translations that equal one of their references."""
    signatures: dict[str, str]
    """sacrebleu's signature by metric."""


def score_translations(
    outputs: Sequence[str],
    references: Sequence[References],
    metrics: Sequence[str] = FAST_METRICS,
    bleu_tokenizer: str = "13a",
) -> TranslationScores:
    """Score detokenized translations against their references.

    Args:
        outputs: One translation per sentence.
        references: One or more references per sentence.
        metrics: Names from `ALL_METRICS`.
        bleu_tokenizer: sacrebleu's tokenizer for BLEU.

    >>> scores = score_translations(["Ti amo molto."], [["Ti amo molto.", "Ti voglio molto bene."]], ALL_METRICS)
    >>> {name: round(value) for name, value in scores.values.items()}
    {'bleu': 100, 'chrf': 100, 'ter': 0, 'exact': 1}
    """
    scorers = {name: _metric(name, bleu_tokenizer) for name in metrics}
    streams = [list(stream) for stream in zip_longest(*references)]  # first reference of each sentence, second, …
    results = {name: scorer.corpus_score(list(outputs), streams) for name, scorer in scorers.items()}
    exact = sum(output in accepted for output, accepted in zip(outputs, references, strict=True))
    return TranslationScores(
        {**{name: result.score for name, result in results.items()}, "exact": exact / len(outputs)},
        {name: str(scorer.get_signature()) for name, scorer in scorers.items()},
    )


def sentence_chrf(outputs: Sequence[str], references: Sequence[References]) -> list[float]:
    """Return chrF of each translation; unlike BLEU, it is meaningful for a single sentence."""
    chrf = _metric("chrf")
    return [chrf.sentence_score(output, accepted).score for output, accepted in zip(outputs, references, strict=True)]


@dataclass(frozen=True)
class LengthBucket:
    """Scores of the sentences whose sources have `min_words` to `max_words` words (None: no upper bound)."""

    min_words: int
    max_words: int | None
    sentences: int
    bleu: float
    chrf: float

    @property
    def words(self) -> str:
        """The range of lengths as text.

        >>> LengthBucket(6, 10, 1, 0.0, 0.0).words, LengthBucket(51, None, 1, 0.0, 0.0).words
        ('6–10', '51+')
        """
        return f"{self.min_words}+" if self.max_words is None else f"{self.min_words}–{self.max_words}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def score_by_length(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[References], bleu_tokenizer: str = "13a"
) -> list[LengthBucket]:
    """Score translations by the length of their sources; empty buckets are omitted.

    >>> [bucket.words for bucket in score_by_length(["a b", "a " * 60], ["x", "y"], [["x"], ["z"]])]
    ['1–5', '51+']
    """
    lengths = [len(source.split()) for source in sources]
    buckets = []
    for low, high in LENGTH_BUCKETS:
        indices = [n for n, words in enumerate(lengths) if low <= words and (high is None or words <= high)]
        if indices:
            scores = score_translations(
                [outputs[n] for n in indices], [references[n] for n in indices], bleu_tokenizer=bleu_tokenizer
            ).values
            buckets.append(LengthBucket(low, high, len(indices), scores["bleu"], scores["chrf"]))
    return buckets


def _metric(name: str, bleu_tokenizer: str = "13a") -> "Metric":
    from sacrebleu.metrics.bleu import BLEU  # slow to import, and only translation needs it
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu":
        return BLEU(tokenize=bleu_tokenizer, force=True)  # no warning about text that looks tokenized
    metrics: dict[str, Callable[[], Metric]] = {"chrf": CHRF, "ter": TER}
    return metrics[name]()
