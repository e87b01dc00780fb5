"""Beam search (§6.1): extend the K most probable open hypotheses, collect finished ones, return the best.

At every step each open hypothesis is extended by every token, and the 2K best continuations are considered. Those among
the first K that end are finished; the first K that do not end stay open. There are always K of these, because at most K
of 2K continuations of K hypotheses end.

B sentences · K open hypotheses per sentence · n generated tokens · S source length · V vocabulary
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.incremental import AttentionRecorder, IncrementalDecoder
from regard.decoding.logits_processors import LogitsProcessor, SuppressWords, apply_processors
from regard.decoding.options import SearchOptions
from regard.decoding.results import Hypothesis


@dataclass(frozen=True)
class Beams:
    """The open hypotheses of every sentence; hypotheses with log-probability −∞ only fill the tensor."""

    scores: Tensor  # (B, K) log-probabilities
    generated: Tensor  # (B, K, n)
    token_scores: Tensor  # (B, K, n)
    attention: Tensor | None  # (B, K, n, S)

    def extend(self, chosen: "Continuations", weights: Tensor | None) -> "Beams":
        """Return the hypotheses after one more token, with its attention weights (B, K, S)."""
        attention = None
        if self.attention is not None and weights is not None:
            history = torch.cat([self.attention, weights[:, :, None]], dim=2)
            attention = _gather_history(history, chosen.origin)
        return Beams(
            chosen.scores,
            torch.cat([_gather_history(self.generated, chosen.origin), chosen.token[..., None]], dim=2),
            torch.cat([_gather_history(self.token_scores, chosen.origin), chosen.token_score[..., None]], dim=2),
            attention,
        )

    def select(self, sentences: Tensor) -> "Beams":
        """Return the hypotheses of these sentences."""
        attention = None if self.attention is None else self.attention[sentences]
        return Beams(self.scores[sentences], self.generated[sentences], self.token_scores[sentences], attention)


@dataclass(frozen=True)
class Continuations:
    """The best continuations of every sentence, best first: (B, 2K) each."""

    scores: Tensor
    origin: Tensor  # which of the K hypotheses is continued
    token: Tensor
    token_score: Tensor

    def at(self, ranks: Tensor) -> "Continuations":
        """Return the continuations at these ranks (B, …)."""
        return Continuations(
            self.scores.gather(1, ranks),
            self.origin.gather(1, ranks),
            self.token.gather(1, ranks),
            self.token_score.gather(1, ranks),
        )


class SearchObserver(Protocol):
    """Receives the events of a search. Sentences are numbered as in the batch."""

    def on_step(self, sentences: list[int], best: Continuations, kept: Tensor) -> None:
        """The continuations (B, 2K) of a step, and the ranks (B, K) of those that stay open."""
        ...

    def on_finished(self, sentence: int, rank: int, hypothesis: Hypothesis) -> None:
        """The continuation at this rank has reached the end token."""
        ...

    def on_cut(self, sentence: int, beam: int, hypothesis: Hypothesis) -> None:
        """This open hypothesis is returned unfinished, because none has finished."""
        ...


@torch.inference_mode()
def beam_search(
    decoder: IncrementalDecoder,
    max_lengths: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    processors: list[LogitsProcessor],
    *,
    source_mask: Tensor | None = None,
    attention: bool = False,
    observer: SearchObserver | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first.

    Args:
        decoder: The networks with their encoded sources.
        max_lengths: The maximum number of tokens per sentence, end token included (B,).
        tokens: Special tokens.
        search: Beam size, penalties and stopping rule.
        processors: Applied to the logits of every step.
        source_mask: The token mask of the source (B, S); attention to padding is dropped.
        attention: Return the attention of each token to the source.
        observer: Receives every step of the search.
    """
    recording = decoder.record_attention() if attention or search.coverage_penalty else nullcontext()
    with recording as recorder:
        return _search(decoder, max_lengths, tokens, search, processors, source_mask, recorder, observer)


def _search(
    decoder: IncrementalDecoder,
    max_lengths: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    processors: list[LogitsProcessor],
    source_mask: Tensor | None,
    recorder: AttentionRecorder | None,
    observer: SearchObserver | None,
) -> list[list[Hypothesis]]:
    count, device, width = len(max_lengths), max_lengths.device, search.beam
    # The probability of a suppressed word goes to no other token: hypotheses that lead there must lose against others.
    suppressing = [processor for processor in processors if isinstance(processor, SuppressWords)]
    sharing = [processor for processor in processors if not isinstance(processor, SuppressWords)]
    finished = [FinishedHypotheses(search) for _ in range(count)]
    rows = torch.arange(count, device=device)  # the sentences that are still searched
    beams = Beams(  # one empty hypothesis per sentence; after the first step there are K
        torch.zeros(count, 1, device=device),
        torch.empty(count, 1, 0, dtype=torch.long, device=device),
        torch.empty(count, 1, 0, device=device),
        None,
    )
    last = torch.full((count, 1), tokens.start, device=device)
    sentences, limits = list(range(count)), max_lengths.tolist()  # the same as `rows` and `max_lengths`, as lists
    normalizers = [search.length_normalizer(limit) for limit in limits]
    for step in range(1, max(limits) + 1):
        active, alive = beams.scores.shape
        sentence_of_row = rows.repeat_interleave(alive)
        generated = beams.generated.flatten(0, 1)
        logits = apply_processors(sharing, decoder.step(last), generated, sentence_of_row)
        normalizers_of_rows = logits.logsumexp(-1, keepdim=True)
        logits = apply_processors(suppressing, logits, generated, sentence_of_row)
        weights = None
        if recorder is not None:
            weights = recorder.take().unflatten(0, (active, alive))  # (B, K, S)
            if beams.attention is None:
                empty = weights.new_empty(active, alive, 0, weights.size(-1))
                beams = Beams(beams.scores, beams.generated, beams.token_scores, empty)
        best = continuations(logits, beams.scores, 2 * width, normalizers_of_rows)
        ends = best.token == tokens.end
        ended = ends[:, :width] & best.scores[:, :width].isfinite()
        kept_ranks = _first_open(ends, width)
        if observer is not None:
            observer.on_step(sentences, best, kept_ranks)
        if bool(ended.any()):
            _add_finished(beams.extend(best, weights), ended, sentences, finished, source_mask, observer)
        kept = best.at(kept_ranks)
        origin = kept.origin
        beams = beams.extend(_without_ends(kept, tokens.end), weights)

        still_active = []
        for index, (sentence, best_open) in enumerate(zip(sentences, beams.scores[:, 0].tolist(), strict=True)):
            bound = best_open / normalizers[sentence]  # the best score that an open hypothesis can still reach
            hypotheses = finished[sentence]
            if bound > hypotheses.worst_score and not hypotheses.is_full and step < limits[sentence]:
                still_active.append(index)
            elif not hypotheses.hypotheses:
                _add_unfinished(beams, index, hypotheses, source_mask, sentence, observer)
        if not still_active:
            break
        order = (torch.arange(active, device=device)[:, None] * alive + origin).flatten()
        if len(still_active) < active:
            selected = torch.tensor(still_active, device=device)
            decoder.select(order.unflatten(0, (active, width))[selected].flatten(), selected)
            sentences = [sentences[index] for index in still_active]
            rows, beams = rows[selected], beams.select(selected)
        elif alive != width or not torch.equal(order, torch.arange(len(order), device=device)):
            decoder.reorder(order)
        last = beams.generated[:, :, -1].reshape(-1, 1)
    return [hypotheses.best() for hypotheses in finished]


def continuations(logits: Tensor, scores: Tensor, count: int, normalizers: Tensor | None = None) -> Continuations:
    """Return the best `count` continuations, given logits (B·K, V) after hypotheses with scores (B, K).

    `normalizers` (B·K, 1) are the log-sums that the logits are normalized with, their own by default.
    At most `count` continuations of one hypothesis can be among them, so that only these are ranked.
    """
    batch, alive = scores.shape
    per_hypothesis = min(count, logits.size(-1))
    best, tokens = logits.topk(per_hypothesis, dim=-1)
    normalizers = logits.logsumexp(-1, keepdim=True) if normalizers is None else normalizers
    token_scores = (best - normalizers).view(batch, alive * per_hypothesis)
    total = scores.repeat_interleave(per_hypothesis, dim=1) + token_scores  # (B, K·per_hypothesis)
    missing = count - total.size(1)
    if missing > 0:
        total = torch.nn.functional.pad(total, (0, missing), value=-math.inf)
    top, index = total.topk(count, dim=1)
    index = index.clamp(max=alive * per_hypothesis - 1)
    tokens = tokens.view(batch, -1).gather(1, index)
    return Continuations(top, index // per_hypothesis, tokens, token_scores.gather(1, index))


def _first_open(ends: Tensor, width: int) -> Tensor:
    """Return the ranks (B, K) of the first K continuations that do not end."""
    rank = torch.arange(ends.size(1), device=ends.device)
    return (rank + ends * ends.size(1)).argsort(dim=1)[:, :width]


def _without_ends(kept: Continuations, end: int) -> Continuations:
    """Set the score of continuations that end to −∞: they only fill the beam."""
    scores = kept.scores.masked_fill(kept.token == end, -math.inf)
    return Continuations(scores, kept.origin, kept.token, kept.token_score)


class FinishedHypotheses:
    """The finished hypotheses of one sentence."""

    def __init__(self, search: SearchOptions) -> None:
        self._search = search
        self.hypotheses: list[Hypothesis] = []
        self.worst_score = -math.inf
        """The score that a new hypothesis must exceed to be among the n best."""

    def add(self, hypothesis: Hypothesis) -> None:
        """Add a hypothesis."""
        self.hypotheses.append(hypothesis)
        if len(self.hypotheses) >= self._search.n_best:
            self.worst_score = self.best()[self._search.n_best - 1].score

    @property
    def is_full(self) -> bool:
        """Whether the patience is exhausted."""
        patience = self._search.patience
        return patience is not None and len(self.hypotheses) >= max(1, round(self._search.beam * patience))

    def best(self) -> list[Hypothesis]:
        """Return the n best hypotheses, and extra ones if there are any, best first."""
        count = self._search.n_best + self._search.extra_hypotheses
        return sorted(self.hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]

    def score(self, log_probability: float, attention: Tensor | None, length: int) -> float:
        """Return the score of a hypothesis with attention (n, S) to the source tokens, coverage penalty included."""
        score = self._search.score(log_probability, length)
        if attention is None or not self._search.coverage_penalty:
            return score
        coverage = attention.sum(0).clamp(1e-9, 1.0)
        return score + self._search.coverage_penalty * float(coverage.log().sum())


def _add_finished(
    beams: Beams,
    ended: Tensor,
    sentences: list[int],
    finished: list[FinishedHypotheses],
    source_mask: Tensor | None,
    observer: SearchObserver | None,
) -> None:
    """Add those of the extended hypotheses (B, 2K) that have ended (B, K)."""
    for index, beam in ended.nonzero().tolist():
        sentence = sentences[index]
        hypothesis = _hypothesis(beams, index, beam, finished[sentence], source_mask, sentence, ended=True)
        finished[sentence].add(hypothesis)
        if observer is not None:
            observer.on_finished(sentence, beam, hypothesis)


def _add_unfinished(
    beams: Beams,
    index: int,
    finished: FinishedHypotheses,
    source_mask: Tensor | None,
    sentence: int,
    observer: SearchObserver | None,
) -> None:
    """Add the open hypotheses of a sentence that has no finished one."""
    for beam in range(beams.scores.size(1)):
        if beam == 0 or bool(beams.scores[index, beam].isfinite()):
            hypothesis = _hypothesis(beams, index, beam, finished, source_mask, sentence, ended=False)
            finished.add(hypothesis)
            if observer is not None:
                observer.on_cut(sentence, beam, hypothesis)


def _hypothesis(
    beams: Beams,
    index: int,
    beam: int,
    finished: FinishedHypotheses,
    source_mask: Tensor | None,
    sentence: int,
    *,
    ended: bool,
) -> Hypothesis:
    ids = beams.generated[index, beam].tolist()
    total = float(beams.scores[index, beam])
    attention = None
    if beams.attention is not None:
        attention = beams.attention[index, beam]  # (n, S)
        if source_mask is not None:
            attention = attention[:, source_mask[sentence]]
    return Hypothesis(
        ids[:-1] if ended else ids,
        finished.score(total, attention, len(ids)),
        total,
        ended,
        beams.token_scores[index, beam].tolist(),
        None if attention is None else attention.tolist(),
    )


def _gather_history(history: Tensor, origin: Tensor) -> Tensor:
    """Return the history of each chosen hypothesis: (B, K, n, …) at origins (B, M) -> (B, M, n, …)."""
    return history[torch.arange(len(origin), device=origin.device)[:, None], origin]
