"""Evaluation of a translator: metrics against references, scores by length, and the likelihood of the references."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.readers.base import Pair
from regard.data.store import chunked
from regard.decoding.options import TranslationOptions
from regard.decoding.results import TextScore
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.evaluation.likelihood import Likelihood, ProgressCallback, ScoringModel, score_pairs, total_likelihood
from regard.evaluation.metrics import ALL_METRICS, LengthBucket, References, score_by_length, score_translations

TRANSLATION_BATCH = 512  # pairs between two progress reports


@dataclass(frozen=True)
class EvaluationSentence:
    """A sentence to translate (the first pair with its source) and all of its references."""

    pair: Pair
    references: References


def separate_references(pairs: Iterable[Pair]) -> list[EvaluationSentence]:
    """Return one sentence per pair."""
    return [EvaluationSentence(pair, [pair.target]) for pair in pairs]


def merge_references(pairs: Iterable[Pair]) -> list[EvaluationSentence]:
    """Return one sentence per source, in the order of first occurrence; the targets of its pairs are its references.

    >>> sentences = merge_references([Pair("Hi.", "Ciao."), Pair("Yes.", "Sì."), Pair("Hi.", "Salve.")])
    >>> [(sentence.pair.source, sentence.references) for sentence in sentences]
    [('Hi.', ['Ciao.', 'Salve.']), ('Yes.', ['Sì.'])]
    """
    by_source: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_source.setdefault(pair.source, []).append(pair)
    return [EvaluationSentence(group[0], [pair.target for pair in group]) for group in by_source.values()]


def evaluation_sentences(pairs: Iterable[Pair], references: str) -> list[EvaluationSentence]:
    """Return the sentences of pairs with `separate` references, or with those of equal sources `grouped`."""
    match references:
        case "separate":
            return separate_references(pairs)
        case "grouped":
            return merge_references(pairs)
    raise ConfigError(f"--references {references}: should be separate or grouped.")


@dataclass(frozen=True)
class TranslationEvaluation:
    """Scores by name, sacrebleu's signatures, and the scores by source length."""

    sentences: int
    scores: dict[str, float]
    signatures: dict[str, str]
    lengths: list[LengthBucket]

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "sentences": self.sentences,
            "scores": self.scores,
            "signatures": self.signatures,
            "lengths": [bucket.as_dict() for bucket in self.lengths],
        }


def translate_pairs(
    translator: Translator, options: TranslationOptions, pairs: Sequence[Pair], progress: ProgressCallback
) -> Iterator[str]:
    """Yield the translations of the sources."""
    done = 0
    for batch in chunked(pairs, TRANSLATION_BATCH):
        parses = [pair.parse for pair in batch] if translator.config.model.needs_parses else None
        translations = translator.translate([pair.source for pair in batch], options, parses)
        yield from (translation.text for translation in translations)
        done += len(batch)
        progress("translating", done, len(pairs))


def reference_likelihood(model: ScoringModel, pairs: Sequence[Pair], progress: ProgressCallback) -> Likelihood:
    """Return the likelihood of the targets as translations of their sources."""
    scores: list[TextScore] = []
    for batch in chunked(pairs, TRANSLATION_BATCH):
        scores += score_pairs(model, batch)
        progress("scoring references", len(scores), len(pairs))
    return total_likelihood(scores)


def evaluate_translations(
    sentences: Sequence[EvaluationSentence],
    outputs: Sequence[str],
    likelihood: Likelihood,
    bleu_tokenizer: str = "13a",
) -> TranslationEvaluation:
    """Evaluate translations of sentences, given the likelihood of their references.

    >>> sentences = [EvaluationSentence(Pair("I love you.", "Ti amo."), ["Ti amo."])]
    >>> evaluate_translations(sentences, ["Ti amo."], Likelihood(tokens=4, total=-2.0)).scores["loss"]
    0.5
    """
    references = [sentence.references for sentence in sentences]
    scores = score_translations(outputs, references, ALL_METRICS, bleu_tokenizer)
    return TranslationEvaluation(
        len(sentences),
        {**scores.values, "loss": likelihood.loss, "perplexity": likelihood.perplexity},
        scores.signatures,
        score_by_length([sentence.pair.source for sentence in sentences], outputs, references, bleu_tokenizer),
    )
