"""Log-probabilities of given tokens: one forward pass per batch with teacher forcing, as in training.

B texts · T target length · V vocabulary
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.data.batching import BatchSampler, pad_sequences, pair_batch_from_ids
from regard.data.syntax import TokenFeatures
from regard.decoding.logits_processors import suppress_special_tokens
from regard.decoding.results import ScoredToken
from regard.decoding.sampling import top_candidates
from regard.models.network import Network

SCORING_BATCH_TOKENS = 2048
LOGITS_CHUNK = 256  # positions whose logits are in memory at a time
TokenIds = Sequence[int]


def pair_log_probabilities(
    networks: Sequence[Network],
    sources: Sequence[TokenIds],
    targets: Sequence[TokenIds],
    tokens: SpecialTokensConfig,
    features: Sequence[TokenFeatures] = (),
) -> list[list[float]]:
    """Return the log-probability of each token of each target, end token last, given its source.

    Args:
        networks: One network, or the networks of an ensemble.
        sources: The ids of each source, without its end token.
        targets: The ids of each target, without its end token.
        tokens: Special tokens.
        features: Features of the source tokens, for networks that need parses.
    """
    rows = [
        (np.array(source, np.int64), np.array(target, np.int64))
        for source, target in zip(sources, targets, strict=True)
    ]
    lengths = np.array([[len(source) + 1 for source, _ in rows], [len(target) + 1 for _, target in rows]])
    results: list[list[float]] = [[] for _ in rows]
    for examples in _batches(lengths):
        batch_features = [features[n] for n in examples] if features else []
        batch = pair_batch_from_ids(
            [rows[n][0] for n in examples], [rows[n][1] for n in examples], tokens, batch_features
        )
        source, source_mask, target, target_mask, labels = (
            torch.from_numpy(array)
            for array in (batch.source, batch.source_mask, batch.target, batch.target_mask, batch.labels)
        )
        source_features = {name: torch.from_numpy(values) for name, values in batch.source_features.items()}
        scores = _label_log_probabilities(networks, target, target_mask, labels, source, source_mask, source_features)
        for n, values, mask in zip(examples, scores, target_mask, strict=True):
            results[n] = values[mask].tolist()
    return results


def text_log_probabilities(
    networks: Sequence[Network], texts: Sequence[TokenIds], tokens: SpecialTokensConfig, window: int | None = None
) -> list[list[float]]:
    """Return the log-probability of each token of each text, end token last, given the tokens before it.

    A text longer than the window is scored in windows that overlap by half, so that every token has at least half a
    window of context.
    """
    rows = [np.array([tokens.start, *text, tokens.end], np.int64) for text in texts]
    spans = [(n, *span) for n, row in enumerate(rows) for span in _windows(len(row) - 1, window)]
    results: list[list[float]] = [[] for _ in rows]
    scores: list[list[float]] = [[] for _ in spans]
    for examples in _batches(np.array([[end - start for _, start, _, end in spans]])):
        inputs = [rows[n][start:end] for n, start, _, end in (spans[k] for k in examples)]
        next_tokens = [rows[n][start + 1 : end + 1] for n, start, _, end in (spans[k] for k in examples)]
        target, target_mask = (torch.from_numpy(array) for array in pad_sequences(inputs, pad_id=tokens.pad))
        labels = torch.from_numpy(pad_sequences(next_tokens, pad_id=tokens.pad)[0])
        values = _label_log_probabilities(networks, target, target_mask, labels)
        for k, row, mask in zip(examples, values, target_mask, strict=True):
            scores[k] = row[mask].tolist()
    for (n, start, first_scored, _), window_scores in zip(spans, scores, strict=True):
        results[n] += window_scores[first_scored - start :]
    return results


@dataclass(frozen=True)
class ContinuationScore:
    """The log-probability of a continuation of a text."""

    total: float
    is_greedy: bool
    """Whether each of its tokens is the most probable one."""


@torch.inference_mode()
def continuation_scores(
    networks: Sequence[Network],
    texts: Sequence[tuple[TokenIds, TokenIds]],
    tokens: SpecialTokensConfig,
    window: int | None = None,
) -> list[ContinuationScore]:
    """Score the continuation of each text; of a text that is longer than the window, its beginning is left out.

    Args:
        networks: One network, or the networks of an ensemble.
        texts: The ids of each text, without a start token, and those of its continuation.
        tokens: Special tokens.
        window: Tokens that a network sees at most.
    """
    rows = [np.array([tokens.start, *text, *continuation], np.int64) for text, continuation in texts]
    if window is not None:
        rows = [row[-window - 1 :] for row in rows]
    results = [ContinuationScore(0.0, is_greedy=True)] * len(rows)
    for examples in _batches(np.array([[len(row) - 1 for row in rows]])):
        inputs, labels = [rows[n][:-1] for n in examples], [rows[n][1:] for n in examples]
        target, target_mask = (torch.from_numpy(array) for array in pad_sequences(inputs, pad_id=tokens.pad))
        next_tokens = torch.from_numpy(pad_sequences(labels, pad_id=tokens.pad)[0])
        device = next(networks[0].parameters()).device
        lengths = [min(len(texts[n][1]), len(rows[n]) - 1) for n in examples]
        scored = torch.zeros_like(target, dtype=torch.bool)
        for row, n, length in zip(scored, examples, lengths, strict=True):
            row[len(rows[n]) - 1 - length : len(rows[n]) - 1] = True
        logits = [  # at the tokens of continuations only: a vocabulary is large
            network.logits(network.decode(target.to(device), mask=target_mask.to(device))[scored.to(device)]).float()
            for network in networks
        ]
        mixed = torch.stack([row.log_softmax(-1) for row in logits]).logsumexp(0) - math.log(len(logits))  # (N, V)
        wanted = next_tokens[scored].to(device)
        values = mixed.gather(-1, wanted[:, None]).squeeze(-1).cpu().double().split(lengths)
        greedy = (mixed.argmax(-1) == wanted).cpu().split(lengths)
        for n, value, best in zip(examples, values, greedy, strict=True):
            results[n] = ContinuationScore(float(value.sum()), bool(best.all()))
    return results


@torch.inference_mode()
def score_tokens(
    networks: Sequence[Network],
    text: TokenIds,
    tokens: SpecialTokensConfig,
    top_logprobs: int,
    window: int | None = None,
) -> list[ScoredToken]:
    """Score each token of a text but its first, with the most probable tokens at its position.

    As in generation, padding and start tokens have no probability. A long text is scored in windows, as in
    `text_log_probabilities`.
    """
    scored: list[ScoredToken] = []
    device, suppress = next(networks[0].parameters()).device, suppress_special_tokens(tokens)
    for start, first_scored, end in _windows(len(text) - 1, window) if len(text) > 1 else ():
        ids = torch.tensor([text[start:end]], device=device)
        hidden = [network.decode(ids)[0, first_scored - start :] for network in networks]  # (T, C)
        for first in range(first_scored, end, LOGITS_CHUNK):
            chunk = slice(first - first_scored, min(first + LOGITS_CHUNK, end) - first_scored)
            logits = [network.logits(states[chunk]).float() for network, states in zip(networks, hidden, strict=True)]
            for network_logits in logits:
                suppress(network_logits, ids, ids)
            scores = torch.stack([row.log_softmax(-1) for row in logits]).logsumexp(0) - math.log(len(logits))
            for n, (row, best) in enumerate(zip(scores, top_candidates(scores, top_logprobs), strict=True)):
                token = text[first + n + 1]
                scored.append(ScoredToken(token, float(row[token]), best))
    return scored


def _windows(length: int, window: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield the start of each window, its first position that is scored, and its end.

    >>> list(_windows(10, 6))
    [(0, 0, 6), (3, 6, 9), (4, 9, 10)]
    """
    if window is None or length <= window:
        yield 0, 0, length
        return
    scored = 0
    while scored < length:
        end = window if scored == 0 else min(scored + max(1, window // 2), length)
        yield end - window if scored else 0, scored, end
        scored = end


def _batches(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    if lengths.size:
        yield from BatchSampler(lengths, SCORING_BATCH_TOKENS).epoch(0)


@torch.inference_mode()
def _label_log_probabilities(
    networks: Sequence[Network],
    target: Tensor,
    target_mask: Tensor,
    labels: Tensor,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_features: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Return the log-probabilities of the labels (B, T)."""
    results = []
    for network in networks:
        device = next(network.parameters()).device
        memory = None
        if source is not None:
            mask = None if source_mask is None else source_mask.to(device)
            features = {name: values.to(device) for name, values in (source_features or {}).items()}
            memory = network.encode(source.to(device), mask, features)
        hidden = network.decode(target.to(device), memory, mask=target_mask.to(device))
        log_probabilities = network.logits(hidden).float().log_softmax(-1)  # (B, T, V)
        results.append(log_probabilities.gather(-1, labels.to(device)[..., None]).squeeze(-1).cpu())
    if len(results) == 1:
        return results[0]
    return torch.stack(results).logsumexp(0) - math.log(len(results))
