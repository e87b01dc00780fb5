"""The task of classification: labelled texts, or pairs of texts, in; a network out that labels others."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from regard.config import Config, CorpusConfig
from regard.data.encoder_inputs import make_encoder_batch
from regard.data.examples import Pair
from regard.data.pair_batches import Ids
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_labeled import prepare_labeled
from regard.data.stats import CorpusStats, ReportProgress, labeled_stats
from regard.data.store import TokenStore
from regard.evaluation.label_metrics import class_scores, confusion_matrix
from regard.models.network import Network
from regard.training.automatic_settings import AutomaticSetting, UserSettings, picks_for_classes
from regard.training.display import Sample
from regard.training.labelling import Labelling, Predictions
from regard.training.labels import LabelBatch, label_batch
from regard.training.one_sided import check_one_sided
from regard.training.ranked import ranked
from regard.training.task import Check, ValidationResult


class ClassificationKind:
    """How a classifier comes about."""

    name = "classification"

    def check(self, config: Config) -> None:
        """Labels stand beside the texts."""
        check_one_sided(config, "a classifier")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the texts once."""
        return labeled_stats(corpus, skip_invalid, report)

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit so many texts."""
        return picks_for_classes(scan, said)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Make tokenizer and stores."""
        return prepare_labeled(folder, key, config, report)

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "Classification":
        """The task itself."""
        return Classification(config, prepared, network)


class Classification(Labelling):
    """Training a classifier."""

    name = "classification"

    def batch(self, store: TokenStore, examples: Ids) -> LabelBatch:
        """Framed texts, and a label for each."""
        texts, labels, seconds = store.columns
        rows = [texts[n] for n in examples]
        framed = make_encoder_batch(rows, [int(seconds[n][0]) for n in examples], self.config.tokens.pad)
        numbers = np.array([[int(labels[n][0])] for n in examples], np.int64)
        return label_batch(framed, torch.from_numpy(numbers), self.segments)

    def measure(self, part: PreparedSplit, check: Check) -> ValidationResult:
        """Loss, accuracy, macro-F1 and the confusion matrix."""
        found = self.predictions(part.store, check)
        table = confusion_matrix(self.labels, *([int(row[0]) for row in rows] for rows in (found.right, found.given)))
        scores = class_scores(found.loss, table) | {"sentences": len(part.store)}
        pairs = part.pairs()
        rows = _rated(pairs, found, self.labels)
        shown = [
            Sample(str(row["source"]), str(row["reference"]), f"{row['output']} ({row['probability']:.0%})")
            for row in rows[: self.config.validation.samples]
        ]
        ratings = [float(granted[0]) for granted in found.granted]
        return ValidationResult(scores, shown, ranked=ranked(rows, ratings, longer="source"), confusion=table.as_dict())


def _rated(pairs: Sequence[Pair], found: Predictions, labels: Sequence[str]) -> list[dict[str, str | float]]:
    return [
        {
            "source": pair.source.replace("\t", " | "),
            "reference": pair.target,
            "output": labels[int(given[0])],
            "probability": round(float(sure[0]), 4),
        }
        for pair, given, sure in zip(pairs, found.given, found.sure, strict=True)
    ]
