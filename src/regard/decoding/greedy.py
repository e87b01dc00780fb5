"""Greedy search: at each step the most probable token, for many sentences at once.

B sentences · S source length · V vocabulary
"""

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.incremental import IncrementalDecoder
from regard.decoding.logits_processors import LogitsProcessor, apply_processors
from regard.decoding.options import SearchOptions
from regard.decoding.results import Hypothesis


@torch.inference_mode()
def greedy(
    predictor: IncrementalDecoder,
    limits: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    rules: list[LogitsProcessor],
    *,
    scored: bool,
) -> list[list[Hypothesis]]:
    """One hypothesis for each sentence, of at most `limits` (B,) tokens. Unless `scored`, scores are left at 0.

    A sentence that has ended is taken out of the batch, so that the others do not wait for it.
    """
    count, device = len(limits), limits.device
    outputs: list[list[int]] = [[] for _ in range(count)]
    scores: list[list[float]] = [[] for _ in range(count)]
    ended = [False] * count
    rows = torch.arange(count, device=device)  # which sentence each row of the batch is
    numbers, room = list(range(count)), limits.tolist()  # the same as `rows` and `limits`, outside of tensors
    written = torch.empty(count, 0, dtype=torch.long, device=device)
    last = torch.full((count, 1), tokens.start, device=device)
    while numbers:
        logits = apply_processors(rules, predictor.read(last), written, rows)
        if scored:
            log_probabilities, chosen = logits.log_softmax(-1).max(-1)
            for number, value in zip(numbers, log_probabilities.tolist(), strict=True):
                scores[number].append(value)
        else:
            chosen = logits.argmax(-1)
        last = chosen[:, None]
        written = torch.cat([written, last], dim=1)
        going_on = []
        for place, (number, token) in enumerate(zip(numbers, chosen.tolist(), strict=True)):
            if token == tokens.end:
                ended[number] = True
                continue
            outputs[number].append(token)
            if written.size(1) < room[number]:
                going_on.append(place)
        if len(going_on) < len(numbers):
            numbers = [numbers[place] for place in going_on]
            kept = torch.tensor(going_on, dtype=torch.long, device=device)
            rows, last, written = rows[kept], last[kept], written[kept]
            if going_on:
                predictor.select(kept, kept)
    return [[_hypothesis(*found, search, scored=scored)] for found in zip(outputs, scores, ended, strict=True)]


def _hypothesis(ids: list[int], scores: list[float], ended: bool, search: SearchOptions, *, scored: bool) -> Hypothesis:
    total = sum(scores)
    worth = search.worth(total, len(ids) + ended)
    return Hypothesis(ids, worth, total, ended, scores if scored else None)
