"""Decoding, step by step: what was read, what could have followed, and what did.

T steps · V vocabulary
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.tokenizer import Tokenizer

TOP = 10  # candidates of a step that are kept


@dataclass(frozen=True)
class Candidate:
    """A token that could have followed."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One prediction. Probabilities are the network's own, before what decoding rules out; logarithms are natural."""

    step: int
    read: str
    chosen: str
    id: int
    given: bool  # not chosen: part of a prompt, or of a target that was forced
    log_probability: float
    probability: float
    rank: int  # of the chosen token among all; 0 is the most probable
    entropy: float  # of the distribution, in nats
    candidates: list[Candidate]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def steps(logits: Tensor, read: Sequence[int], follows: Sequence[int], given: int, tokenizer: Tokenizer) -> list[Step]:
    """The steps of logits (T, V) after tokens that were read, given what follows each."""
    log_probabilities = logits.log_softmax(-1)
    entropies = -(log_probabilities.exp() * log_probabilities).nansum(-1)
    index = log_probabilities.new_tensor(follows, dtype=torch.long)
    chosen = log_probabilities.gather(1, index[:, None])  # (T, 1)
    ranks = (log_probabilities > chosen).sum(-1)
    top = log_probabilities.topk(min(TOP, logits.size(-1)), dim=-1)
    rows = zip(
        tokenizer.ids_to_tokens(read),
        tokenizer.ids_to_tokens(follows),
        follows,
        chosen[:, 0].tolist(),
        chosen[:, 0].exp().tolist(),
        ranks.tolist(),
        entropies.tolist(),
        top.indices.tolist(),
        top.values.exp().tolist(),
        strict=True,
    )
    return [
        Step(
            n,
            before,
            after,
            number,
            n < given,
            log_probability,
            probability,
            rank,
            max(0.0, entropy),
            [Candidate(*one) for one in zip(ids, tokenizer.ids_to_tokens(ids), probabilities, strict=True)],
        )
        for n, (before, after, number, log_probability, probability, rank, entropy, ids, probabilities) in enumerate(
            rows
        )
    ]
