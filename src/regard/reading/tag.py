"""Tags of words. N words of a sentence · L labels"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import TagHeadConfig
from regard.data.encoder_inputs import EncoderInput
from regard.reading.reader import Reader, labels_of


def tag(reader: Reader, sentences: Sequence[Sequence[str]], who: str = "the model") -> list[list[str]]:
    """The tag of each word of each sentence."""
    labels = labels_of(reader, TagHeadConfig, who)
    return [[labels[int(row.argmax())] for row in found] for found in tag_probabilities(reader, sentences)]


@torch.no_grad()
def tag_probabilities(reader: Reader, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
    """The probability of each tag for each word (N, L), sentence by sentence.

    A sentence that is longer than the network can read is read in several parts, each without sight of the others.
    """
    divided = list(reader.divided(sentences))
    rows = [row for parts in divided for row in parts]
    found: dict[int, NDArray[np.float64]] = {}
    for some, memory in reader.read([EncoderInput(ids) for ids, _ in rows]):
        for place, n in enumerate(some):
            words = memory.states[place, rows[n][1]]  # (N, C): the first sub-word of each word
            found[int(n)] = reader.network.logits(words).double().softmax(-1).cpu().numpy()
    parts = iter(found[n] for n in range(len(rows)))
    empty = np.zeros((0, len(labels_of(reader, TagHeadConfig, "the model"))))
    return [np.concatenate([empty, *(next(parts) for _ in several)]) for several in divided]
