"""Predicting labels: batches of framed texts with one label each, or one for each word, and what is to be learned.

B texts · S tokens · N labels to predict · C model width · L labels
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.encoder_inputs import EncoderBatch
from regard.models.network import EncoderNetwork
from regard.training.objectives import Batch, Objective

IGNORED_LABEL = -1  # in place of a label: nothing is predicted here


@dataclass(frozen=True)
class LabelBatch(Batch):
    """Texts, and what is to be said of them."""

    ids: Tensor  # (B, S)
    mask: Tensor  # (B, S)
    labels: Tensor  # (B, 1), or of each token (B, S); UNSCORED where there is none
    features: Mapping[str, Tensor] | None = None  # (B, S)

    @property
    def examples(self) -> int:
        """How many texts."""
        return len(self.ids)

    @property
    def targets(self) -> int:
        """How many labels are to be predicted."""
        return int((self.labels != IGNORED_LABEL).sum())

    @property
    def lengths(self) -> Tensor:
        """How many tokens each text has (B,)."""
        return self.mask.sum(1)


def label_batch(framed: EncoderBatch, labels: Tensor, segments: int) -> LabelBatch:
    """The tensors of a batch; which text is the second is told to networks that learn so."""
    features = {"segment_ids": torch.from_numpy(framed.segment_ids)} if segments > 1 else None
    return LabelBatch(torch.from_numpy(framed.ids), torch.from_numpy(framed.mask), labels, features)


class PredictLabels(Objective[EncoderNetwork]):
    """Predict the label of each text, or with `words` the tag of each word."""

    def __init__(self, network: EncoderNetwork, label_smoothing: float, *, words: bool) -> None:
        super().__init__()
        self.network = network
        self.label_smoothing = label_smoothing
        self.words = words

    def states(self, batch: LabelBatch) -> tuple[Tensor, Tensor]:
        """What stands for each text, or each word (N, C), and the labels of those that have one (N,), text by text."""
        memory = self.network.encode(batch.ids, batch.mask, batch.features)
        scored = batch.labels != IGNORED_LABEL
        if not self.words:
            return self.network.pool(memory), batch.labels[scored]
        wanted = scored.flatten().nonzero().squeeze(1)
        return memory.states.flatten(0, 1).index_select(0, wanted), batch.labels[scored]
