"""How probable a network finds given texts: all of their tokens in one pass, as in training.

B texts · T target length · V vocabulary
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import BatchSampler
from regard.data.pair_batches import pad_sequences, pair_batch_from_ids
from regard.data.syntax import TokenFeatures
from regard.decoding.logits_processors import suppress_special_tokens
from regard.decoding.results import ScoredToken
from regard.decoding.sampling import top_candidates
from regard.models.network import Network

SCORING_BATCH_TOKENS = 2048  # in a batch
LOGITS_CHUNK = 256  # whose logits are held at a time
Ids = Sequence[int]


def pair_log_probabilities(
    networks: Sequence[Network],
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    tokens: SpecialTokensConfig,
    facts: Sequence[TokenFeatures] = (),
) -> list[list[float]]:
    """The log-probability of each token of each target, its end last, given its source, and facts from its parse."""
    rows = [
        (np.array(source, np.int64), np.array(target, np.int64))
        for source, target in zip(sources, targets, strict=True)
    ]
    lengths = np.array([[len(source) + 1 for source, _ in rows], [len(target) + 1 for _, target in rows]])
    found: list[list[float]] = [[] for _ in rows]
    for examples in _batches(lengths):
        known = [facts[n] for n in examples] if facts else []
        batch = pair_batch_from_ids([rows[n][0] for n in examples], [rows[n][1] for n in examples], tokens, known)
        source, source_real, target, target_real, predicted = (
            torch.from_numpy(array)
            for array in (batch.source, batch.source_mask, batch.target, batch.target_mask, batch.labels)
        )
        source_facts = {name: torch.from_numpy(fact) for name, fact in batch.source_features.items()}
        scores = _scores(networks, target, target_real, predicted, source, source_real, source_facts)
        for n, values, real in zip(examples, scores, target_real, strict=True):
            found[n] = values[real].tolist()
    return found


def text_log_probabilities(
    networks: Sequence[Network], texts: Sequence[Ids], tokens: SpecialTokensConfig, window: int | None = None
) -> list[list[float]]:
    """The log-probability of each token of each text, given those before it; each comes with its start and its end.

    A text longer than the network's window is read in windows that overlap by half: a token has at least half a window
    before it.
    """
    rows = [np.array([tokens.start, *text, tokens.end], np.int64) for text in texts]
    spans = [(n, *span) for n, row in enumerate(rows) for span in _windows(len(row) - 1, window)]
    found: list[list[float]] = [[] for _ in rows]
    scores: list[list[float]] = [[] for _ in spans]
    for examples in _batches(np.array([[end - start for _, start, _, end in spans]])):
        read = [rows[n][start:end] for n, start, _, end in (spans[k] for k in examples)]
        follows = [rows[n][start + 1 : end + 1] for n, start, _, end in (spans[k] for k in examples)]
        target, target_real = (torch.from_numpy(array) for array in pad_sequences(read, pad_id=tokens.pad))
        predicted = torch.from_numpy(pad_sequences(follows, pad_id=tokens.pad)[0])
        values = _scores(networks, target, target_real, predicted)
        for k, row, kept in zip(examples, values, target_real, strict=True):
            scores[k] = row[kept].tolist()
    for (n, start, counted, _), values_of in zip(spans, scores, strict=True):
        found[n] += values_of[counted - start :]
    return found


@torch.inference_mode()
def score_tokens(
    networks: Sequence[Network], text: Ids, tokens: SpecialTokensConfig, most: int, window: int | None = None
) -> list[ScoredToken]:
    """Each token of a text but its first: how probable it is after those before it, and so many that are most so.

    As in writing, only what is text can be probable. A long text is read in windows, as in `score_texts`.
    """
    found: list[ScoredToken] = []
    device, never = next(networks[0].parameters()).device, suppress_special_tokens(tokens)
    for start, counted, end in _windows(len(text) - 1, window) if len(text) > 1 else ():
        read = torch.tensor([text[start:end]], device=device)
        hidden = [network.decode(read)[0, counted - start :] for network in networks]  # (T, C)
        for first in range(counted, end, LOGITS_CHUNK):
            place = slice(first - counted, min(first + LOGITS_CHUNK, end) - counted)
            logits = [network.logits(states[place]).float() for network, states in zip(networks, hidden, strict=True)]
            for one in logits:
                never(one, read, read)
            scores = torch.stack([one.log_softmax(-1) for one in logits]).logsumexp(0) - math.log(len(logits))
            for n, (row, best) in enumerate(zip(scores, top_candidates(scores, most), strict=True)):
                token = text[first + n + 1]
                found.append(ScoredToken(token, float(row[token]), best))
    return found


def _windows(length: int, window: int | None) -> Iterator[tuple[int, int, int]]:
    """Where each window starts, from where on its tokens count, and where it ends.

    >>> list(_windows(10, 6))
    [(0, 0, 6), (3, 6, 9), (4, 9, 10)]
    """
    if window is None or length <= window:
        yield 0, 0, length
        return
    counted = 0
    while counted < length:
        end = window if counted == 0 else min(counted + max(1, window // 2), length)
        yield end - window if counted else 0, counted, end
        counted = end


def _batches(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    if lengths.size:
        yield from BatchSampler(lengths, SCORING_BATCH_TOKENS).epoch(0)


@torch.inference_mode()
def _scores(
    networks: Sequence[Network],
    target: torch.Tensor,
    target_real: torch.Tensor,
    predicted: torch.Tensor,
    source: torch.Tensor | None = None,
    source_real: torch.Tensor | None = None,
    source_facts: Mapping[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    """The log-probability (B, T) of what is to be predicted."""
    found = []
    for network in networks:
        device = next(network.parameters()).device
        memory = None
        if source is not None:
            real = None if source_real is None else source_real.to(device)
            facts = {name: fact.to(device) for name, fact in (source_facts or {}).items()}
            memory = network.encode(source.to(device), real, facts)
        hidden = network.decode(target.to(device), memory, mask=target_real.to(device))
        logits = network.logits(hidden).float().log_softmax(-1)  # (B, T, V)
        found.append(logits.gather(-1, predicted.to(device)[..., None]).squeeze(-1).cpu())
    if len(found) == 1:
        return found[0]
    return torch.stack(found).logsumexp(0) - math.log(len(found))
