"""The task of tagging: sentences whose words have tags in; a network out that tags the words of others."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from regard.config import Config, CorpusConfig
from regard.data.encoder_inputs import make_encoder_batch
from regard.data.pair_batches import Ids, pad_sequences
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_labeled import prepare_tagged
from regard.data.stats import CorpusStats, ReportProgress, tagged_stats
from regard.data.store import TokenStore
from regard.evaluation.label_metrics import confusion_matrix, tag_scores
from regard.models.network import Network
from regard.training.automatic_settings import AutomaticSetting, UserSettings, picks_for_tags
from regard.training.display import Sample
from regard.training.labelling import Labelling
from regard.training.labels import LabelBatch, label_batch
from regard.training.one_sided import check_one_sided
from regard.training.ranked import ranked
from regard.training.task import Check, ValidationResult


class TaggingKind:
    """How a tagger comes about."""

    name = "tagging"

    def check(self, config: Config) -> None:
        """Tags stand beside the words."""
        check_one_sided(config, "a tagger")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the sentences once."""
        return tagged_stats(corpus, skip_invalid, report)

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit so many sentences."""
        return picks_for_tags(scan, said)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Make tokenizer and stores."""
        return prepare_tagged(folder, key, config, report)

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "Tagging":
        """The task itself."""
        return Tagging(config, prepared, network)


class Tagging(Labelling):
    """Training a tagger."""

    name = "tagging"
    words = True

    def batch(self, store: TokenStore, examples: Ids) -> LabelBatch:
        """Framed sentences, and a tag at the first sub-word of each word."""
        texts, marks = store.columns
        framed = make_encoder_batch([texts[n] for n in examples], [0] * len(examples), self.config.tokens.pad)
        tags, _ = pad_sequences([marks[n] for n in examples], pad_id=0)  # 0: not scored
        return label_batch(framed, torch.from_numpy(tags - 1), self.segments)

    def measure(self, part: PreparedSplit, check: Check) -> ValidationResult:
        """Loss, accuracy and macro-F1 of words, F1 of spans where the tags mark such, and the confusion matrix."""
        found = self.predictions(part.store, check)
        flat = [np.concatenate(rows) for rows in (found.right, found.given)]
        table = confusion_matrix(self.labels, *(rows.tolist() for rows in flat))
        pairs = part.pairs()
        sizes = [len(pair.source.split(" ")) for pair in pairs]  # a long sentence is several examples
        right, given = (_sentences(rows.tolist(), sizes, self.labels) for rows in flat)
        scores = tag_scores(found.loss, table, right, given) | {"sentences": len(pairs)}
        rows: list[dict[str, str | float]] = [
            {"source": pair.source, "reference": " ".join(wanted), "output": " ".join(tags)}
            for pair, wanted, tags in zip(pairs, right, given, strict=True)
        ]
        shown = [
            Sample(str(row["source"]), str(row["reference"]), str(row["output"]))
            for row in rows[: self.config.validation.samples]
        ]
        ratings = [_agreement(wanted, tags) for wanted, tags in zip(right, given, strict=True)]
        return ValidationResult(scores, shown, ranked=ranked(rows, ratings, longer="source"), confusion=table.as_dict())


def _sentences(numbers: Sequence[int], sizes: Sequence[int], labels: Sequence[str]) -> list[list[str]]:
    """The tags of words that stand in a row, sentence by sentence."""
    tags = iter(numbers)
    return [[labels[next(tags)] for _ in range(size)] for size in sizes]


def _agreement(one: Sequence[str], other: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)
