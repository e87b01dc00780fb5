"""How good a translator is: its translations against their references, by length, and how probable it finds those."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.corpus import Pair
from regard.data.store import chunked
from regard.decoding.options import TranslationOptions
from regard.decoding.translator import Translator
from regard.evaluation.lengths import Bucket, by_length
from regard.evaluation.likelihood import Likelihood, Scored, together
from regard.evaluation.references import Asked
from regard.evaluation.scores import ALL, score
from regard.evaluation.scoring import Counting, Predicting, score_pairs

TOGETHER = 512  # pairs between two signs of progress


@dataclass(frozen=True)
class Evaluation:
    """Scores by name, what sacrebleu's mean exactly, and those of short and long sentences."""

    sentences: int
    scores: dict[str, float]
    signatures: dict[str, str]
    lengths: list[Bucket]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sentences": self.sentences,
            "scores": self.scores,
            "signatures": self.signatures,
            "lengths": [bucket.as_dict() for bucket in self.lengths],
        }


def translate(
    translator: Translator, wish: TranslationOptions, pairs: Sequence[Pair], counting: Counting
) -> Iterator[str]:
    """The translations of the sources, as they come."""
    done = 0
    for several in chunked(pairs, TOGETHER):
        parses = [pair.parse for pair in several] if translator.config.model.needs_parses else None
        yield from (found.text for found in translator.translate([pair.source for pair in several], wish, parses))
        done += len(several)
        counting("translating", done, len(pairs))


def likelihood(model: Predicting, pairs: Sequence[Pair], counting: Counting) -> Likelihood:
    """The likelihood of the targets, as translations of the sources."""
    scored: list[Scored] = []
    for several in chunked(pairs, TOGETHER):
        scored += score_pairs(model, several)
        counting("scoring references", len(scored), len(pairs))
    return together(scored)


def evaluate(asked: Sequence[Asked], outputs: Sequence[str], likely: Likelihood, tokenize: str = "13a") -> Evaluation:
    """Evaluate translations of the sources, given the likelihood of the targets.

    >>> asked = [Asked(Pair("I love you.", "Ti amo."), ["Ti amo."])]
    >>> evaluate(asked, ["Ti amo."], Likelihood(tokens=4, total=-2.0)).scores["loss"]
    0.5
    """
    references = [one.references for one in asked]
    counted = score(outputs, references, ALL, tokenize)
    return Evaluation(
        len(asked),
        {**counted.values, "loss": likely.loss, "perplexity": likely.perplexity},
        counted.signatures,
        by_length([one.pair.source for one in asked], outputs, references, tokenize),
    )
