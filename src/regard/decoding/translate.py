"""From sentences to sentences: encode, decode greedily, and back to text."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from regard.config import Config
from regard.decoding.greedy import greedy
from regard.models.network import Network
from regard.text.batches import Batches
from regard.text.pairs import pad
from regard.text.tokenizer import Tokenizer

TOKENS = 4096  # in a batch


def translate(
    network: Network,
    tokenizer: Tokenizer,
    config: Config,
    texts: Sequence[str],
    check: Callable[[], None] = lambda: None,
) -> list[str]:
    """Translate texts, those of about equal length together; `check` is called between batches, and may raise.

    A text that is longer than the network can read is cut off.
    """
    tokens, longest, device = config.tokens, config.model.longest, next(network.parameters()).device
    most = None if longest is None else longest - 1  # the end token has a position too
    ids = [np.array(row[:most], np.int64) for row in tokenizer.encode_all(texts)]
    lengths = np.array([[len(row) + 1 for row in ids]])
    outputs = [""] * len(ids)
    for examples in Batches(lengths, TOKENS).epoch(0):
        check()
        source, real = pad([ids[n] for n in examples], after=[tokens.end], pad_id=tokens.pad)
        ids_there, real_there = torch.from_numpy(source).to(device), torch.from_numpy(real).to(device)
        found = greedy(network, ids_there, real_there, tokens, longest)
        for n, output in zip(examples, found, strict=True):
            outputs[n] = tokenizer.decode(output)
    return outputs
