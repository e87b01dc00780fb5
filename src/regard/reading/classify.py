"""Labels of texts, each with its probability. N texts · L labels"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import ClassHeadConfig
from regard.reading.reader import Reader, Text, labels_of


@dataclass(frozen=True)
class Classified:
    """What a text was taken for."""

    label: str
    probabilities: dict[str, float]  # of every label
    cut: bool = False  # whether the text was longer than the network can read

    @property
    def probability(self) -> float:
        """How sure the network is."""
        return self.probabilities[self.label]


def classify(reader: Reader, texts: Sequence[Text], who: str = "the model") -> list[Classified]:
    """The label of each text."""
    labels = labels_of(reader, ClassHeadConfig, who)
    found, cut = label_probabilities(reader, texts)
    return [
        Classified(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)), one)
        for row, one in zip(found, cut, strict=True)
    ]


@torch.no_grad()
def label_probabilities(reader: Reader, texts: Sequence[Text]) -> tuple[NDArray[np.float64], list[bool]]:
    """The probability of each label for each text (N, L), and which texts were cut."""
    rows = reader.framed(texts)
    labels = labels_of(reader, ClassHeadConfig, "the model")
    found = np.zeros((len(rows), len(labels)))
    for some, memory in reader.read(rows):
        logits = reader.network.logits(reader.network.pool(memory))
        found[some] = logits.double().softmax(-1).cpu().numpy()
    return found, [row.cut for row in rows]
