"""Tagging: sentences with a tag for each word in; a network out that tags other sentences."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.config import Config, CorpusConfig, TagHeadConfig
from regard.data.batching import Ids, gather_padded
from regard.data.corpus_scan import CorpusStats, ReportProgress, tagged_stats
from regard.data.encoder_batches import with_segments, words_with_spaces
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_labeled import prepare_tagged, with_known_labels
from regard.data.readers import read_tagged
from regard.data.readers.base import TaggedExample
from regard.data.store import TokenStore, chunked
from regard.errors import DataError
from regard.evaluation.likelihood import ProgressCallback
from regard.evaluation.metrics import LabelScores, confusion_matrix, tag_scores
from regard.tasks.common import check_text_corpus, check_text_data, rank_outputs
from regard.tasks.labeling import LABELING_BATCH, BoundLabeling, LabelingTask, UnknownTokens, mean_nll
from regard.training.automatic_settings import AutomaticSetting, UserSettings
from regard.training.display import Sample
from regard.training.task import (
    Ability,
    Check,
    Evaluation,
    EvaluationOptions,
    OutputRow,
    TrainedModel,
    ValidationResult,
)

if TYPE_CHECKING:
    from regard.decoding.encoder_inference import TextEncoder
    from regard.models.network import Network
    from regard.training.batches import LabelBatch


class TaggingTask(LabelingTask):
    """Train a tagger."""

    name = "tag"
    title = "tagging"
    help = "a word tagger, from tagged sentences"
    noun = "tagger"
    suggested_for = "tagged"
    key_name = "tagging"
    evaluation_options = frozenset({"tag_column"})
    model: ClassVar = {"kind": "encoder-only", "head": {"kind": "tags"}}
    examples = "sentences"

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """Tag words, and embed texts."""
        return ("tag", "embed")

    def check(self, config: Config) -> None:
        """The data are tagged sentences."""
        check_text_data(config, "a tagger")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the sentences once."""
        return tagged_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this number of sentences."""
        reason = "rare tags count as much as frequent ones"
        return [*super().automatic_settings(stats, user), AutomaticSetting("validation.metric", "macro_f1", reason)]

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the sentences."""
        return prepare_tagged(folder, key, config, report)

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Loss, accuracy and macro-F1 of words, F1 of spans, and confusion matrix."""
        check_text_corpus(model, corpus, self.noun)
        name, sentences = (
            ", ".join(corpus.file_names),
            read_tagged(corpus.files, invalid, options.tag_column, corpus.columns),
        )
        return Evaluation({}, evaluate_tagger(model.text_encoder, sentences, name, invalid, count))

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundTagging":
        """Bind the task to tagged sentences and a network."""
        return BoundTagging(config, prepared, network)


def evaluate_tagger(
    encoder: "TextEncoder",
    examples: Iterable[TaggedExample],
    name: str,
    invalid: InvalidLines,
    progress: ProgressCallback,
) -> LabelScores:
    """Return loss, accuracy, macro-F1 and the confusion matrix over words, and F1 of spans if the tags mark spans.

    The arguments are those of `evaluate_classifier`; the examples are sentences with a tag per word.
    """
    from regard.decoding.encoder_inference import labels_of_head, tag_probabilities

    labels = labels_of_head(encoder, TagHeadConfig, name)
    index = {label: n for n, label in enumerate(labels)}
    true: list[Sequence[str]] = []
    predicted: list[list[str]] = []
    sentences: list[NDArray[np.float64]] = []
    unknown = UnknownTokens(encoder.tokenizer)
    for batch in chunked(with_known_labels(examples, index, invalid), LABELING_BATCH):
        batch_probabilities = tag_probabilities(encoder, [example.words for example in batch])
        for example, probabilities in zip(batch, batch_probabilities, strict=True):
            true.append(example.tags)
            predicted.append([labels[n] for n in probabilities.argmax(1)])
            sentences.append(probabilities)
        unknown.count(text for example in batch for text in words_with_spaces(example.words))
        progress("tagging", len(true), None)
    if not true:
        raise DataError(f"{name}: contains no sentences to evaluate a model on; use a file with tagged sentences.")
    unknown.report(invalid)
    p, true_indices = np.concatenate(sentences), [index[tag] for tags in true for tag in tags]
    matrix = confusion_matrix(labels, true_indices, p.argmax(1).tolist())
    return LabelScores(tag_scores(mean_nll(p, true_indices), matrix, true, predicted), matrix, len(true))


class BoundTagging(BoundLabeling):
    """Batches, objective and validation of a tagger."""

    per_word = True
    label_offset = 1  # 0: no tag

    def batch(self, store: TokenStore, examples: Ids, rank: int = 0, world_size: int = 1) -> "LabelBatch":
        """Sentences with their special tokens, and a tag at the first subword of each word."""
        texts, tags = store.columns
        ids, mask = gather_padded(texts, examples, self.config.tokens.pad, rank, world_size)
        labels, _ = gather_padded(tags, examples, 0, rank, world_size)  # 0: no tag
        return self.label_batch(with_segments(ids, mask, np.zeros(len(ids), np.int64)), labels - 1)

    def measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        """Loss, accuracy and macro-F1 of words, F1 of spans where the tags mark spans, and confusion matrix."""
        predictions = self.predictions(split.store, check)
        flat = [np.concatenate(rows).tolist() for rows in (predictions.labels, predictions.predicted)]
        matrix = confusion_matrix(self.labels, *flat)
        pairs = split.pairs()
        lengths = [len(pair.source.split(" ")) for pair in pairs]  # a long sentence is several examples of the store
        tags, predicted = (_split_tags(numbers, lengths, self.labels) for numbers in flat)
        scores = tag_scores(predictions.loss, matrix, tags, predicted) | {"sentences": len(pairs)}
        rows: list[OutputRow] = [
            {"source": pair.source, "reference": " ".join(right), "output": " ".join(output)}
            for pair, right, output in zip(pairs, tags, predicted, strict=True)
        ]
        samples = [
            Sample(str(row["source"]), str(row["reference"]), str(row["output"]))
            for row in rows[: self.config.validation.samples]
        ]
        ratings = [_accuracy(right, output) for right, output in zip(tags, predicted, strict=True)]
        outputs = rank_outputs(rows, ratings, length_of="source")
        return ValidationResult(
            scores, samples, outputs=outputs, confusion=matrix.as_dict(), majority=matrix.majority_scores()
        )


def _split_tags(numbers: Sequence[int], lengths: Sequence[int], labels: Sequence[str]) -> list[list[str]]:
    """The tags of all words, split into sentences."""
    remaining = iter(numbers)
    return [[labels[next(remaining)] for _ in range(length)] for length in lengths]


def _accuracy(tags: Sequence[str], predicted: Sequence[str]) -> float:
    return sum(right == output for right, output in zip(tags, predicted, strict=True)) / len(tags)
