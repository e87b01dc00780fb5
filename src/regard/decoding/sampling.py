"""Sampling: going on with texts, each next token drawn from the network's distribution.

Texts of unequal length go side by side, and each goes on as it would alone: its draws come from a generator of its own.

R rows · T tokens · V vocabulary
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.incremental import IncrementalDecoder
from regard.decoding.logits_processors import (
    LogitsProcessor,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressWords,
    constraint_processors,
    suppress_special_tokens,
)
from regard.decoding.options import SamplingOptions
from regard.decoding.results import Candidate, SampledToken
from regard.models.network import Network

SLIDE = 4  # when a window is full, its oldest 1/SLIDE is forgotten


class Sampler:
    """Goes on with prompts, one token of each at a time, until it ends or is told to stop.

    Rows with the same `stream` number draw the same, whatever else is beside them. A text that fills the network's
    window loses its oldest part, and is read anew from there; `slid` tells which did.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        prompts: Sequence[Sequence[int]],
        streams: Sequence[int],
        tokens: SpecialTokensConfig,
        sampling: SamplingOptions,
        window: int | None = None,
        spelling: Sequence[str] = (),
    ) -> None:
        self._networks = networks
        self._tokens = tokens
        self._sampling = sampling
        self._window = window
        self._device = next(networks[0].parameters()).device
        self._texts = [list(prompt) for prompt in prompts]
        self._prompts = [len(text) for text in self._texts]
        self._seen = [0] * len(self._texts)  # how much of each text the window has left behind
        self._generators = [torch.Generator().manual_seed(sampling.seed * 1_000_003 + n) for n in streams]
        self._rules = repetition_processors(sampling)
        self._no_text = suppress_special_tokens(tokens)
        self._bounds = constraint_processors(sampling.bounds, tokens)
        if sampling.bounds.words:
            self._bounds.append(SuppressWords(sampling.bounds.words, spelling, tokens.end))
        self.slid: set[int] = set()
        self.open = list(range(len(self._texts)))
        self._logits = self._begin()

    def step(self) -> list[SampledToken]:
        """Draw a token for every open row; those that end, or reach the greatest length, are closed."""
        drawn = self._draw(self._logits)
        longest = self._sampling.bounds.longest
        for row, token, *_ in drawn:
            self._texts[row].append(token)
        ended = {row for row, token, *_ in drawn if token == self._tokens.end or self._written(row) == longest}
        self.close(ended, step=True)
        return drawn

    def close(self, rows: Iterable[int], *, step: bool = False) -> None:
        """Stop going on with these rows; with `step`, read what was drawn last for the others."""
        closed = set(rows)
        kept = [place for place, row in enumerate(self.open) if row not in closed]
        if len(kept) < len(self.open):
            index = torch.tensor(kept, dtype=torch.long, device=self._device)
            self.open = [self.open[place] for place in kept]
            if not step:
                self._logits = self._logits[index]
            if self.open:
                self._predictor.select(index, index)
        if step and self.open:
            self._logits = self._read()

    def text(self, row: int) -> list[int]:
        """What a row has written after its prompt."""
        return self._texts[row][self._prompts[row] :]

    def _written(self, row: int) -> int:
        return len(self._texts[row]) - self._prompts[row]

    @torch.inference_mode()
    def _begin(self) -> Tensor:
        """Read the texts as far as they are in the window, side by side, the shorter ones padded at the left."""
        self._slide()
        self._predictor = IncrementalDecoder(self._networks)
        texts = [self._texts[row][self._seen[row] :] for row in self.open]
        width = max(map(len, texts))
        ids = torch.tensor([[self._tokens.pad] * (width - len(text)) + text for text in texts], device=self._device)
        lengths = torch.tensor([len(text) for text in texts], device=self._device)
        real = torch.arange(width, device=self._device) >= width - lengths[:, None]
        return self._logits_after(ids, real)

    @torch.inference_mode()
    def _read(self) -> Tensor:
        if self._window is not None and any(self._in_window(row) > self._window for row in self.open):
            return self._begin()
        last = torch.tensor([[self._texts[row][-1]] for row in self.open], device=self._device)
        return self._logits_after(last)

    def _logits_after(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        logits = self._predictor.read(ids, real)
        self._no_text(logits, ids, ids)
        return logits

    def _slide(self) -> None:
        if self._window is None:
            return
        for row in self.open:
            if self._in_window(row) > self._window:
                self._seen[row] = len(self._texts[row]) - max(1, self._window - self._window // SLIDE)
                self.slid.add(row)

    def _in_window(self, row: int) -> int:
        return len(self._texts[row]) - self._seen[row]

    @torch.inference_mode()
    def _draw(self, logits: Tensor) -> list[SampledToken]:
        plain = logits.log_softmax(-1)
        adjusted = torch.stack(
            [self._adjusted(logits[place : place + 1].clone(), row)[0] for place, row in enumerate(self.open)]
        )
        chosen = self._chosen(adjusted)
        scores = plain.gather(1, chosen[:, None]).squeeze(1)
        candidates = top_candidates(plain, self._sampling.candidates or 0)
        found = zip(self.open, chosen.tolist(), scores.tolist(), candidates, strict=True)
        return [SampledToken(*one) for one in found]

    def _adjusted(self, logits: Tensor, row: int) -> Tensor:
        """One row's logits (1, V) after the rules about all of its text, and those about what follows its prompt."""
        text = torch.tensor([self._texts[row]], device=logits.device)
        sentence = torch.tensor([row], device=logits.device)
        for rule in self._rules:
            rule(logits, text, sentence)
        for rule in self._bounds:
            rule(logits, text[:, self._prompts[row] :], sentence)
        return logits

    def _chosen(self, logits: Tensor) -> Tensor:
        """One token for each row (R,)."""
        if self._sampling.greedy:
            return logits.argmax(-1)
        left = filter_logits(logits / self._sampling.temperature, self._sampling)
        draws = torch.stack([torch.rand((), generator=self._generators[row], dtype=torch.double) for row in self.open])
        return sample_by_inverse_cdf(left.softmax(-1), draws.to(logits.device))


def top_candidates(log_probabilities: Tensor, most: int) -> list[tuple[Candidate, ...]]:
    """For each row (R, V) so many of its most probable tokens, the first before the others."""
    values, ids = log_probabilities.topk(min(most, log_probabilities.size(-1)), dim=-1)
    return [tuple(map(Candidate, *row)) for row in zip(ids.tolist(), values.tolist(), strict=True)]


def filter_logits(logits: Tensor, sampling: SamplingOptions) -> Tensor:
    """Logits (R, V) with −∞ for every token that the filters leave out; the most probable one always stays."""
    if sampling.top_k is not None and sampling.top_k < logits.size(-1):
        least = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        ranked, order = logits.sort(dim=-1, descending=True)
        probabilities = ranked.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities  # what the more probable ones have together
        beyond = before >= sampling.top_p
        beyond[:, 0] = False  # even where the share is too small for a float
        out = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, beyond)
        logits = logits.masked_fill(out, -math.inf)
    if sampling.min_p is not None:
        least = logits.max(-1, keepdim=True).values + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < least, -math.inf)
    return logits


def sample_by_inverse_cdf(probabilities: Tensor, draws: Tensor) -> Tensor:
    """The token (R,) where the sum of probabilities (R, V) first passes a draw from [0, 1).

    >>> sample_by_inverse_cdf(torch.tensor([[0.2, 0.0, 0.8]]), torch.tensor([0.2]))
    tensor([2])
    """
    sums = probabilities.double().cumsum(-1)
    found = torch.searchsorted(sums, (draws.double() * sums[:, -1])[:, None], right=True).squeeze(1)
    last = probabilities.size(-1) - 1 - probabilities.flip(-1).gt(0).int().argmax(-1)  # rounding must not pass it
    return torch.minimum(found, last)


def repetition_processors(sampling: SamplingOptions) -> list[LogitsProcessor]:
    """The rules about the whole text, the prompt included."""
    rules: list[LogitsProcessor] = []
    if sampling.repetition_penalty != 1:
        rules.append(RepetitionPenalty(sampling.repetition_penalty))
    if sampling.no_repeat is not None:
        rules.append(NoRepeatNgram(sampling.no_repeat))
    return rules
