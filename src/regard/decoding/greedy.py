"""Greedy search: at each step the most probable token, for many sentences at once.

B sentences · S source length · V vocabulary
"""

import torch
from torch import Tensor

from regard.config import SpecialTokens
from regard.decoding.predictor import Predictor
from regard.decoding.rules import Rule, follow
from regard.decoding.settings import Hypothesis, Search


@torch.inference_mode()
def greedy(
    predictor: Predictor, limits: Tensor, tokens: SpecialTokens, search: Search, rules: list[Rule], *, scored: bool
) -> list[list[Hypothesis]]:
    """One hypothesis for each sentence, of at most `limits` (B,) tokens. Unless `scored`, scores are left at 0.

    A sentence that has ended is taken out of the batch, so that the others do not wait for it.
    """
    count, device = len(limits), limits.device
    outputs: list[list[int]] = [[] for _ in range(count)]
    scores: list[list[float]] = [[] for _ in range(count)]
    ended = [False] * count
    rows = torch.arange(count, device=device)  # which sentence each row of the batch is
    written = torch.empty(count, 0, dtype=torch.long, device=device)
    last = torch.full((count, 1), tokens.start, device=device)
    while len(rows):
        logits = follow(rules, predictor.read(last), written, rows)
        if scored:
            log_probabilities, chosen = logits.log_softmax(-1).max(-1)
            for row, value in zip(rows.tolist(), log_probabilities.tolist(), strict=True):
                scores[row].append(value)
        else:
            chosen = logits.argmax(-1)
        written = torch.cat([written, chosen[:, None]], dim=1)
        for row, token in zip(rows.tolist(), chosen.tolist(), strict=True):
            if token == tokens.end:
                ended[row] = True
            else:
                outputs[row].append(token)
        going = (chosen != tokens.end) & (written.size(1) < limits)
        last = chosen[:, None]
        if not going.all():
            kept = going.nonzero().squeeze(1)
            rows, limits, last, written = rows[kept], limits[kept], last[kept], written[kept]
            if len(kept):
                predictor.select(kept, kept)
    return [[_hypothesis(*found, search, scored=scored)] for found in zip(outputs, scores, ended, strict=True)]


def _hypothesis(ids: list[int], scores: list[float], ended: bool, search: Search, *, scored: bool) -> Hypothesis:
    total = sum(scores)
    worth = search.worth(total, len(ids) + ended)
    return Hypothesis(ids, worth, total, ended, scores if scored else None)
