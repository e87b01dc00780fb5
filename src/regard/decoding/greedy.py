"""Greedy search: the most probable token at each step, for a batch of sentences.

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
def greedy_search(
    decoder: IncrementalDecoder,
    max_lengths: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    processors: list[LogitsProcessor],
    *,
    token_scores: bool,
) -> list[list[Hypothesis]]:
    """Return one hypothesis per sentence, of at most `max_lengths` (B,) tokens.

    Finished sentences are removed from the batch. Without `token_scores`, all scores are 0.
    """
    count, device = len(max_lengths), max_lengths.device
    outputs: list[list[int]] = [[] for _ in range(count)]
    scores: list[list[float]] = [[] for _ in range(count)]
    ended = [False] * count
    rows = torch.arange(count, device=device)  # the sentence of each row of the batch
    sentences, limits = list(range(count)), max_lengths.tolist()  # the same as `rows` and `max_lengths`, as lists
    generated = torch.empty(count, 0, dtype=torch.long, device=device)
    last = torch.full((count, 1), tokens.start, device=device)
    while sentences:
        logits = apply_processors(processors, decoder.step(last), generated, rows)
        if token_scores:
            log_probabilities, chosen = logits.log_softmax(-1).max(-1)
            for sentence, value in zip(sentences, log_probabilities.tolist(), strict=True):
                scores[sentence].append(value)
        else:
            chosen = logits.argmax(-1)
        last = chosen[:, None]
        generated = torch.cat([generated, last], dim=1)
        active = []
        for row, (sentence, token) in enumerate(zip(sentences, chosen.tolist(), strict=True)):
            if token == tokens.end:
                ended[sentence] = True
                continue
            outputs[sentence].append(token)
            if generated.size(1) < limits[sentence]:
                active.append(row)
        if len(active) < len(sentences):
            sentences = [sentences[row] for row in active]
            kept = torch.tensor(active, dtype=torch.long, device=device)
            rows, last, generated = rows[kept], last[kept], generated[kept]
            if active:
                decoder.select(kept, kept)
    return [
        [_hypothesis(*output, search, token_scores=token_scores)] for output in zip(outputs, scores, ended, strict=True)
    ]


def _hypothesis(
    ids: list[int], scores: list[float], ended: bool, search: SearchOptions, *, token_scores: bool
) -> Hypothesis:
    total = sum(scores)
    score = search.score(total, len(ids) + ended)
    return Hypothesis(ids, score, total, ended, scores if token_scores else None)
