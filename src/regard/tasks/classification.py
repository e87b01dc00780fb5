"""Classification: labeled texts, or pairs of texts, in; a network out that labels other texts."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.config import ClassHeadConfig, Config, CorpusConfig
from regard.data.batching import Ids, gather_padded
from regard.data.corpus_scan import CorpusStats, ReportProgress, labeled_stats
from regard.data.encoder_batches import with_segments
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_labeled import prepare_labeled, with_known_labels
from regard.data.readers import read_labeled
from regard.data.readers.base import LabeledExample, Pair
from regard.data.store import TokenStore, chunked
from regard.errors import DataError
from regard.evaluation.likelihood import ProgressCallback
from regard.evaluation.metrics import LabelScores, class_scores, confusion_matrix
from regard.tasks.common import check_text_corpus, check_text_data, rank_outputs
from regard.tasks.labeling import LABELING_BATCH, BoundLabeling, LabelingTask, LabelPredictions, UnknownTokens, mean_nll
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


UNBALANCED_RATIO = 3  # of the most to the least frequent label; from there on macro-F1 chooses the best model
MAX_LABELS_PER_TEXT = 0.5  # more labels look like ids


class ClassificationTask(LabelingTask):
    """Train a classifier."""

    name = "classify"
    title = "classification"
    help = "a text classifier, from labeled texts"
    noun = "classifier"
    suggested_for = "labeled"
    key_name = "classification"
    model: ClassVar = {"kind": "encoder-only", "head": {"kind": "classes"}}
    builtin_splits: ClassVar = {
        "builtin:phrasebook-topics": {
            "valid": "builtin:phrasebook-topics-dev",
            "test": "builtin:phrasebook-topics-test",
        }
    }

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """Classify and embed texts."""
        return ("classify", "embed")

    def check(self, config: Config) -> None:
        """The data are labeled texts."""
        check_text_data(config, "a classifier")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the texts once."""
        return labeled_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this number of texts."""
        return [
            *super().automatic_settings(stats, user),
            AutomaticSetting("model.segments", 2, "tells the second text of a pair from the first"),
            _metric_setting(stats.labels),
        ]

    def data_warnings(self, config: Config, prepared: PreparedData) -> list[str]:
        """A message if there are nearly as many labels as texts: an id or a text may have been taken for the label."""
        held_out = 0 if config.data.valid.has_files else len(prepared.valid.store)
        labels, texts = len(prepared.labels), len(prepared.train.store) + held_out
        if labels <= MAX_LABELS_PER_TEXT * texts:
            return []
        return [
            f"{', '.join(config.data.train.file_names)}: {labels:,} different labels for {texts:,} texts; if an id or "
            "a text was taken for the label, name the right column with --label-column and --text-column."
        ]

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the texts."""
        return prepare_labeled(folder, key, config, report)

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Loss, accuracy, macro-F1 and confusion matrix."""
        check_text_corpus(model, corpus, self.noun)
        name, texts = ", ".join(corpus.file_names), read_labeled(corpus.files, invalid, corpus.columns)
        return Evaluation({}, evaluate_classifier(model.text_encoder, texts, name, invalid, count))

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundClassification":
        """Bind the task to labeled texts and a network."""
        return BoundClassification(config, prepared, network)


def evaluate_classifier(
    encoder: "TextEncoder",
    examples: Iterable[LabeledExample],
    name: str,
    invalid: InvalidLines,
    progress: ProgressCallback,
) -> LabelScores:
    """Return loss, accuracy, macro-F1 and the confusion matrix of a classifier.

    Args:
        encoder: A text encoder with a classification head.
        examples: Texts with their true labels.
        name: What the data are called in error messages.
        invalid: Receives the examples whose label the model does not have.
        progress: Called after each batch with the number of texts so far.
    """
    from regard.decoding.encoder_inference import label_probabilities, labels_of_head

    labels = labels_of_head(encoder, ClassHeadConfig, name)
    index = {label: n for n, label in enumerate(labels)}
    true: list[int] = []
    batches: list[NDArray[np.float64]] = []
    truncated, unknown = 0, UnknownTokens(encoder.tokenizer)
    for batch in chunked(with_known_labels(examples, index, invalid), LABELING_BATCH):
        texts = [example.text if example.second is None else (example.text, example.second) for example in batch]
        probabilities, is_truncated = label_probabilities(encoder, texts)
        true += [index[example.label] for example in batch]
        batches.append(probabilities)
        truncated += sum(is_truncated)
        unknown.count(text for example in batch for text in (example.text, example.second) if text is not None)
        progress("classifying", len(true), None)
    if not true:
        raise DataError(f"{name}: contains no texts to evaluate a model on; use a file with labeled texts.")
    unknown.report(invalid)
    p = np.concatenate(batches)
    matrix = confusion_matrix(labels, true, p.argmax(1).tolist())
    counts = {"truncated": truncated} if truncated else {}
    return LabelScores(class_scores(mean_nll(p, true), matrix), matrix, len(true), counts)


class BoundClassification(BoundLabeling):
    """Batches, objective and validation of a classifier."""

    def batch(self, store: TokenStore, examples: Ids, rank: int = 0, world_size: int = 1) -> "LabelBatch":
        """Texts with their special tokens, and a label for each."""
        texts, *columns = store.columns
        ids, mask = gather_padded(texts, examples, self.config.tokens.pad, rank, world_size)
        labels, second_lengths = (column.gather(examples[rank::world_size])[0] for column in columns)
        return self.label_batch(with_segments(ids, mask, second_lengths), labels.astype(np.int64)[:, None])

    def measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        """Loss, accuracy, macro-F1 and confusion matrix."""
        predictions = self.predictions(split.store, check)
        labels, predicted = ([int(row[0]) for row in rows] for rows in (predictions.labels, predictions.predicted))
        matrix = confusion_matrix(self.labels, labels, predicted)
        scores = class_scores(predictions.loss, matrix) | {"sentences": len(split.store)}
        rows = _rows(split.pairs(), predictions, self.labels)
        samples = [
            Sample(str(row["source"]), str(row["reference"]), f"{row['output']} ({row['probability']:.0%})")
            for row in rows[: self.config.validation.samples]
        ]
        ratings = [float(probability[0]) for probability in predictions.label_probability]
        outputs = rank_outputs(rows, ratings, length_of="source")
        return ValidationResult(
            scores, samples, outputs=outputs, confusion=matrix.as_dict(), majority=matrix.majority_scores()
        )


def _metric_setting(labels: Mapping[str, int]) -> AutomaticSetting:
    """The metric that chooses the best model: accuracy, or macro-F1 if the labels are unbalanced.

    >>> _metric_setting({"ham": 90, "spam": 30})
    AutomaticSetting(key='validation.metric', value='macro_f1', reason="unbalanced labels: 'ham' is 3 times as frequent
    as 'spam'")
    """
    if labels:
        most, least = (chosen(labels, key=lambda label: labels[label]) for chosen in (max, min))
        ratio = labels[most] / labels[least]
        if ratio >= UNBALANCED_RATIO:
            reason = f"unbalanced labels: {most!r} is {ratio:.2g} times as frequent as {least!r}"
            return AutomaticSetting("validation.metric", "macro_f1", reason)
    return AutomaticSetting("validation.metric", "accuracy", "the usual metric of classifiers with balanced labels")


def _rows(pairs: Sequence[Pair], predictions: LabelPredictions, labels: Sequence[str]) -> list[OutputRow]:
    return [
        {
            "source": pair.source.replace("\t", " | "),
            "reference": pair.target,
            "output": labels[int(predicted[0])],
            "probability": round(float(probability[0]), 4),
        }
        for pair, predicted, probability in zip(
            pairs, predictions.predicted, predictions.predicted_probability, strict=True
        )
    ]
