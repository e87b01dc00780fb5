"""Beam search (§6.1): follow the K most probable beginnings, keep aside those that have ended, give the best of them.

At every step each open hypothesis is continued by every token, and the 2K best continuations are looked at. Those among
the first K that end are kept aside; the first K that do not end stay open. There are always K of these, because of 2K
continuations of K hypotheses at most K end.

B sentences · K open hypotheses of each · n tokens written · S source length · V vocabulary
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.incremental import AttentionRecorder, IncrementalDecoder
from regard.decoding.logits_processors import LogitsProcessor, apply_processors
from regard.decoding.options import SearchOptions
from regard.decoding.results import Hypothesis


@dataclass(frozen=True)
class Beams:
    """The open hypotheses of every sentence. One of probability zero only fills a place."""

    scores: Tensor  # (B, K) log-probabilities
    written: Tensor  # (B, K, n)
    token_scores: Tensor  # (B, K, n)
    attention: Tensor | None  # (B, K, n, S)

    def extended(self, chosen: "Continuations", looked: Tensor | None) -> "Beams":
        """The hypotheses after one more token."""
        attention = None
        if self.attention is not None and looked is not None:
            history = torch.cat([self.attention, looked[:, :, None]], dim=2)
            attention = _take(history, chosen.origin)
        return Beams(
            chosen.scores,
            torch.cat([_take(self.written, chosen.origin), chosen.token[..., None]], dim=2),
            torch.cat([_take(self.token_scores, chosen.origin), chosen.token_score[..., None]], dim=2),
            attention,
        )

    def of(self, sentences: Tensor) -> "Beams":
        """Those of these sentences."""
        attention = None if self.attention is None else self.attention[sentences]
        return Beams(self.scores[sentences], self.written[sentences], self.token_scores[sentences], attention)


@dataclass(frozen=True)
class Continuations:
    """Ways to go on with the hypotheses of every sentence, the best first: (B, 2K) each."""

    scores: Tensor
    origin: Tensor  # which of the K hypotheses is continued
    token: Tensor
    token_score: Tensor

    def at(self, places: Tensor) -> "Continuations":
        """Those at these places (B, …)."""
        return Continuations(
            self.scores.gather(1, places),
            self.origin.gather(1, places),
            self.token.gather(1, places),
            self.token_score.gather(1, places),
        )


class SearchObserver(Protocol):
    """Who wants to see a search as it goes. Sentences are numbered as they stand in the batch."""

    def continued(self, sentences: list[int], best: Continuations, kept: Tensor) -> None:
        """The continuations (B, 2K) looked at in a step, and the places (B, K) of those that stay open."""
        ...

    def finished(self, sentence: int, place: int, hypothesis: Hypothesis) -> None:
        """The continuation at this place has ended, and is kept aside."""
        ...

    def cut(self, sentence: int, beam: int, hypothesis: Hypothesis) -> None:
        """This open hypothesis is taken as it is, for want of anything that ended."""
        ...


@torch.inference_mode()
def beam_search(
    predictor: IncrementalDecoder,
    limits: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    rules: list[LogitsProcessor],
    *,
    source_real: Tensor | None = None,
    watch: bool = False,
    observer: SearchObserver | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each sentence, of at most `limits` (B,) tokens, the end included; the best first.

    With `watch`, each comes with what its tokens looked at; `source_real` (B, S) says which those of the source are.
    """
    watching = predictor.watched() if watch or search.coverage_penalty else nullcontext()
    with watching as attention:
        return _search(predictor, limits, tokens, search, rules, source_real, attention, observer)


def _search(
    predictor: IncrementalDecoder,
    limits: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    rules: list[LogitsProcessor],
    source_real: Tensor | None,
    attention: AttentionRecorder | None,
    observer: SearchObserver | None,
) -> list[list[Hypothesis]]:
    count, device, width = len(limits), limits.device, search.width
    aside = [FinishedHypotheses(search) for _ in range(count)]
    sentences = torch.arange(count, device=device)  # which of them are still open
    beams = Beams(  # one empty hypothesis each; after the first step there are K
        torch.zeros(count, 1, device=device),
        torch.empty(count, 1, 0, dtype=torch.long, device=device),
        torch.empty(count, 1, 0, device=device),
        None,
    )
    last = torch.full((count, 1), tokens.start, device=device)
    numbers, room = list(range(count)), limits.tolist()  # the same as `sentences` and `limits`, outside of tensors
    penalties = [search.penalty(limit) for limit in room]
    for step in range(1, max(room) + 1):
        open_now, alive = beams.scores.shape
        rows = sentences.repeat_interleave(alive)
        logits = apply_processors(rules, predictor.read(last), beams.written.flatten(0, 1), rows)
        looked = None
        if attention is not None:
            looked = attention.take().unflatten(0, (open_now, alive))  # (B, K, S)
            if beams.attention is None:
                empty = looked.new_empty(open_now, alive, 0, looked.size(-1))
                beams = Beams(beams.scores, beams.written, beams.token_scores, empty)
        best = continuations(logits, beams.scores, 2 * width)
        ends = best.token == tokens.end
        ended = ends[:, :width] & best.scores[:, :width].isfinite()
        kept_open = _first_open(ends, width)
        if observer is not None:
            observer.continued(numbers, best, kept_open)
        if bool(ended.any()):
            _keep_aside(beams.extended(best, looked), ended, numbers, aside, source_real, observer)
        going = best.at(kept_open)
        origin = going.origin
        beams = beams.extended(_without_ends(going, tokens.end), looked)

        going_on = []
        for place, (number, best_open) in enumerate(zip(numbers, beams.scores[:, 0].tolist(), strict=True)):
            hope = best_open / penalties[number]  # the most that an open hypothesis can still be worth
            if hope > aside[number].floor and not aside[number].is_full and step < room[number]:
                going_on.append(place)
            elif not aside[number].hypotheses:
                _keep_unended(beams, place, aside[number], source_real, number, observer)
        if not going_on:
            break
        rows = (torch.arange(open_now, device=device)[:, None] * alive + origin).flatten()
        if len(going_on) < open_now:
            kept = torch.tensor(going_on, device=device)
            predictor.select(rows.unflatten(0, (open_now, width))[kept].flatten(), kept)
            numbers = [numbers[place] for place in going_on]
            sentences, beams = sentences[kept], beams.of(kept)
        elif alive != width or not torch.equal(rows, torch.arange(len(rows), device=device)):
            predictor.reorder(rows)
        last = beams.written[:, :, -1].reshape(-1, 1)
    return [kept.best() for kept in aside]


def continuations(logits: Tensor, scores: Tensor, count: int) -> Continuations:
    """The best `count` ways to go on: logits (B·K, V) after hypotheses with scores (B, K).

    No more than `count` of one hypothesis can be among them, so that only these are ranked against the others'.
    """
    batch, alive = scores.shape
    each = min(count, logits.size(-1))
    best, tokens = logits.topk(each, dim=-1)
    token_scores = (best - logits.logsumexp(-1, keepdim=True)).view(batch, alive * each)
    total = scores.repeat_interleave(each, dim=1) + token_scores  # (B, K·each)
    lacking = count - total.size(1)
    if lacking > 0:
        total = torch.nn.functional.pad(total, (0, lacking), value=-math.inf)
    top, place = total.topk(count, dim=1)
    place = place.clamp(max=alive * each - 1)
    return Continuations(top, place // each, tokens.view(batch, -1).gather(1, place), token_scores.gather(1, place))


def _first_open(ends: Tensor, width: int) -> Tensor:
    """The places (B, K) of the first K continuations that do not end."""
    rank = torch.arange(ends.size(1), device=ends.device)
    return (rank + ends * ends.size(1)).argsort(dim=1)[:, :width]


def _without_ends(going: Continuations, end: int) -> Continuations:
    """Where too few do not end, others fill the places, with no probability."""
    scores = going.scores.masked_fill(going.token == end, -math.inf)
    return Continuations(scores, going.origin, going.token, going.token_score)


class FinishedHypotheses:
    """The hypotheses of one sentence that have ended."""

    def __init__(self, search: SearchOptions) -> None:
        self._search = search
        self.hypotheses: list[Hypothesis] = []
        self.floor = -math.inf  # what a hypothesis must be worth to be among those asked for

    def add(self, hypothesis: Hypothesis) -> None:
        """Keep one more."""
        self.hypotheses.append(hypothesis)
        if len(self.hypotheses) >= self._search.hypotheses:
            self.floor = self.best()[self._search.hypotheses - 1].score

    @property
    def is_full(self) -> bool:
        """Whether patience is at its end."""
        patience = self._search.patience
        return patience is not None and len(self.hypotheses) >= max(1, round(self._search.width * patience))

    def best(self) -> list[Hypothesis]:
        """As many as were asked for, and spare ones if there are, the best first."""
        wanted = self._search.hypotheses + self._search.spare
        return sorted(self.hypotheses, key=lambda one: -one.score)[:wanted]

    def worth(self, log_probability: float, attention: Tensor | None, length: int) -> float:
        """What a hypothesis is worth, its penalties included; attention (n, S), of the source's own tokens."""
        worth = self._search.worth(log_probability, length)
        if attention is None or not self._search.coverage_penalty:
            return worth
        covered = attention.sum(0).clamp(1e-9, 1.0)
        return worth + self._search.coverage_penalty * float(covered.log().sum())


def _keep_aside(
    beams: Beams,
    ended: Tensor,
    numbers: list[int],
    aside: list[FinishedHypotheses],
    source_real: Tensor | None,
    observer: SearchObserver | None,
) -> None:
    """Keep aside those of the extended hypotheses (B, 2K) that have ended (B, K)."""
    for place, beam in ended.nonzero().tolist():
        number = numbers[place]
        found = _hypothesis(beams, place, beam, aside[number], source_real, number, ended=True)
        aside[number].add(found)
        if observer is not None:
            observer.finished(number, beam, found)


def _keep_unended(
    beams: Beams,
    place: int,
    aside: FinishedHypotheses,
    source_real: Tensor | None,
    number: int,
    observer: SearchObserver | None,
) -> None:
    """For want of anything that ended, keep what is open."""
    for beam in range(beams.scores.size(1)):
        if beam == 0 or bool(beams.scores[place, beam].isfinite()):
            found = _hypothesis(beams, place, beam, aside, source_real, number, ended=False)
            aside.add(found)
            if observer is not None:
                observer.cut(number, beam, found)


def _hypothesis(
    beams: Beams,
    place: int,
    beam: int,
    aside: FinishedHypotheses,
    source_real: Tensor | None,
    number: int,
    *,
    ended: bool,
) -> Hypothesis:
    ids = beams.written[place, beam].tolist()
    total = float(beams.scores[place, beam])
    attention = None
    if beams.attention is not None:
        attention = beams.attention[place, beam]  # (n, S)
        if source_real is not None:
            attention = attention[:, source_real[number]]
    return Hypothesis(
        ids[:-1] if ended else ids,
        aside.worth(total, attention, len(ids)),
        total,
        ended,
        beams.token_scores[place, beam].tolist(),
        None if attention is None else attention.tolist(),
    )


def _take(history: Tensor, origin: Tensor) -> Tensor:
    """Each chosen hypothesis's own history: (B, K, n, …) at origins (B, M) -> (B, M, n, …)."""
    return history[torch.arange(len(origin), device=origin.device)[:, None], origin]
