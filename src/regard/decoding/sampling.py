"""Sampling: continue prompts by drawing each next token from the network's distribution.

Prompts of different lengths share a batch. Each row has its own random generator, so that its continuation does not
depend on the other rows.

R rows · T tokens · V vocabulary
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.incremental import IncrementalDecoder
from regard.decoding.logits_processors import (
    DecodingContext,
    LogitsProcessor,
    NoRepeatNgram,
    RepetitionPenalty,
    constraint_processors,
    custom_processors,
    suppress_special_tokens,
)
from regard.decoding.options import SamplingOptions
from regard.decoding.prefix_cache import PrefixCache
from regard.decoding.results import Candidate, SampledToken
from regard.models.network import Network

DROPPED_FRACTION = 4  # when the context window is full, its oldest 1/4 is dropped


class Sampler:
    """Continues prompts by one token per step, until each row ends or is closed.

    Args:
        networks: One network, or several that share a vocabulary.
        prompts: The ids of each prompt, start token included.
        streams: The random stream of each row; rows with the same prompt and stream draw the same tokens.
        tokens: Special tokens.
        sampling: How to sample.
        window: The context window; a text that fills it loses its oldest part and is encoded again.
        token_texts: The text of each token by id, for suppressed words and custom processors.
        prefix_cache: Keys and values of earlier prompts, which rows with the same prompt share.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        prompts: Sequence[Sequence[int]],
        streams: Sequence[int],
        tokens: SpecialTokensConfig,
        sampling: SamplingOptions,
        window: int | None = None,
        token_texts: Sequence[str] = (),
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        self._prefix_cache = prefix_cache
        self._networks = networks
        self._tokens = tokens
        self._sampling = sampling
        self._window = window
        self._device = next(networks[0].parameters()).device
        self._texts = [list(prompt) for prompt in prompts]
        self._prompt_lengths = [len(text) for text in self._texts]
        self._dropped = [0] * len(self._texts)  # tokens of each text that are no longer in the window
        self._generators = [random_generator(sampling, n) for n in streams]
        context = DecodingContext(tokens, sampling.constraints, token_texts)
        self._text_processors = [*repetition_processors(sampling), *custom_processors(context)]
        self._suppress_special_tokens = suppress_special_tokens(tokens)
        self._constraints = constraint_processors(context)
        self.truncated: set[int] = set()
        """Rows whose beginning has left the context window."""
        self.cached_tokens = 0
        """Tokens of the prompt that were not computed, because the prefix cache had them."""
        self.active = list(range(len(self._texts)))
        """Rows that have not ended."""
        self._logits = self._encode_texts()

    def step(self) -> list[SampledToken]:
        """Sample a token for every active row; rows that end or reach the maximum length are closed."""
        sampled = self._sample(self._logits)
        max_tokens = self._sampling.constraints.max_tokens
        for row, token, *_ in sampled:
            self._texts[row].append(token)
        ended = {
            row for row, token, *_ in sampled if token in self._tokens.ends or self._generated_length(row) == max_tokens
        }
        self.close(ended, advance=True)
        return sampled

    def close(self, rows: Iterable[int], *, advance: bool = False) -> None:
        """Stop these rows; with `advance`, feed the last sampled token of the others to the network."""
        closed = set(rows)
        kept = [index for index, row in enumerate(self.active) if row not in closed]
        if len(kept) < len(self.active):
            indices = torch.tensor(kept, dtype=torch.long, device=self._device)
            self.active = [self.active[index] for index in kept]
            if not advance:
                self._logits = self._logits[indices]
            if self.active:
                self._decoder.select(indices, indices)
        if advance and self.active:
            self._logits = self._advance()

    def generated(self, row: int) -> list[int]:
        """Return the tokens of a row after its prompt."""
        return self._texts[row][self._prompt_lengths[row] :]

    def _generated_length(self, row: int) -> int:
        return len(self._texts[row]) - self._prompt_lengths[row]

    @torch.inference_mode()
    def _encode_texts(self) -> Tensor:
        """Feed the part of each text that is in the window, padded at the left."""
        self._slide_windows()
        texts = [self._texts[row][self._dropped[row] :] for row in self.active]
        if self._prefix_cache is not None and not any(self._dropped) and texts.count(texts[0]) == len(texts):
            self._decoder, logits, self.cached_tokens = self._prefix_cache.encode(self._networks, texts[0])
            if len(texts) > 1:
                self._decoder.reorder(torch.zeros(len(texts), dtype=torch.long, device=self._device))
            logits = logits.repeat(len(texts), 1)
            self._suppress_special_tokens(logits, logits, logits)
            return logits
        self._decoder = IncrementalDecoder(self._networks)
        width = max(map(len, texts))
        ids = torch.tensor([[self._tokens.pad] * (width - len(text)) + text for text in texts], device=self._device)
        lengths = torch.tensor([len(text) for text in texts], device=self._device)
        mask = torch.arange(width, device=self._device) >= width - lengths[:, None]
        return self._next_logits(ids, mask)

    @torch.inference_mode()
    def _advance(self) -> Tensor:
        if self._window is not None and any(self._window_length(row) > self._window for row in self.active):
            return self._encode_texts()
        last = torch.tensor([[self._texts[row][-1]] for row in self.active], device=self._device)
        return self._next_logits(last)

    def _next_logits(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        logits = self._decoder.step(ids, mask)
        self._suppress_special_tokens(logits, ids, ids)
        return logits

    def _slide_windows(self) -> None:
        if self._window is None:
            return
        for row in self.active:
            if self._window_length(row) > self._window:
                self._dropped[row] = len(self._texts[row]) - kept_tokens(self._window)
                self.truncated.add(row)

    def _window_length(self, row: int) -> int:
        return len(self._texts[row]) - self._dropped[row]

    @torch.inference_mode()
    def _sample(self, logits: Tensor) -> list[SampledToken]:
        log_probabilities = logits.log_softmax(-1)
        processed = logits
        if self._text_processors or self._constraints:
            rows = [self._process(logits[index : index + 1].clone(), row) for index, row in enumerate(self.active)]
            processed = torch.cat(rows)
        generators = [self._generators[row] for row in self.active]
        chosen = sample_tokens(processed, [self._sampling] * len(generators), generators)
        scores = log_probabilities.gather(1, chosen[:, None]).squeeze(1)
        candidates = top_candidates(log_probabilities, self._sampling.top_logprobs or 0)
        sampled = zip(self.active, chosen.tolist(), scores.tolist(), candidates, strict=True)
        return [SampledToken(*row) for row in sampled]

    def _process(self, logits: Tensor, row: int) -> Tensor:
        """Apply the processors for the whole text and those for the tokens after the prompt to one row (1, V)."""
        text = torch.tensor([self._texts[row]], device=logits.device)
        sentence = torch.tensor([row], device=logits.device)
        for processor in self._text_processors:
            processor(logits, text, sentence)
        for processor in self._constraints:
            processor(logits, text[:, self._prompt_lengths[row] :], sentence)
        return logits


def random_generator(sampling: SamplingOptions, stream: int) -> torch.Generator:
    """Return the random numbers of a row: the same for the same seed and stream."""
    return torch.Generator().manual_seed(sampling.seed * 1_000_003 + stream)


def kept_tokens(window: int) -> int:
    """Return how many tokens of a text that has filled the context window are kept."""
    return max(1, window - window // DROPPED_FRACTION)


def sample_tokens(
    logits: Tensor, samplings: Sequence[SamplingOptions], generators: Sequence[torch.Generator]
) -> Tensor:
    """Return a token (R,) for each row of logits (R, V), with the options and the random numbers of the row."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for row, sampling in enumerate(samplings):
        filters = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        kinds.setdefault(() if sampling.greedy else filters, []).append(row)
    if len(kinds) == 1:
        return _sample_alike(logits, samplings[0], generators)
    chosen = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    for rows in kinds.values():
        places = torch.tensor(rows, device=logits.device)
        chosen[places] = _sample_alike(logits[places], samplings[rows[0]], [generators[row] for row in rows])
    return chosen


def _sample_alike(logits: Tensor, sampling: SamplingOptions, generators: Sequence[torch.Generator]) -> Tensor:
    if sampling.greedy:
        return logits.argmax(-1)
    filtered = filter_logits(logits / sampling.temperature, sampling)
    draws = torch.stack([torch.rand((), generator=generator, dtype=torch.double) for generator in generators])
    return sample_by_inverse_cdf(filtered.softmax(-1), draws.to(logits.device))


def top_candidates(log_probabilities: Tensor, count: int) -> list[tuple[Candidate, ...]]:
    """Return the `count` most probable tokens of each row (R, V), most probable first."""
    if count == 0:
        return [()] * len(log_probabilities)
    values, ids = log_probabilities.topk(min(count, log_probabilities.size(-1)), dim=-1)
    return [tuple(map(Candidate, *row)) for row in zip(ids.tolist(), values.tolist(), strict=True)]


def filter_logits(logits: Tensor, sampling: SamplingOptions) -> Tensor:
    """Set logits (R, V) to −∞ outside of top-k, top-p and min-p; the most probable token always remains."""
    if sampling.top_k is not None and sampling.top_k < logits.size(-1):
        threshold = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, -math.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        ranked, order = logits.sort(dim=-1, descending=True)
        probabilities = ranked.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities  # the total of the more probable tokens
        beyond = before >= sampling.top_p
        beyond[:, 0] = False  # even if top_p underflows
        removed = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, beyond)
        logits = logits.masked_fill(removed, -math.inf)
    if sampling.min_p is not None:
        threshold = logits.max(-1, keepdim=True).values + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < threshold, -math.inf)
    return logits


def sample_by_inverse_cdf(probabilities: Tensor, draws: Tensor) -> Tensor:
    """Return the token (R,) at which the cumulative sum of probabilities (R, V) first exceeds a draw from [0, 1).

    >>> sample_by_inverse_cdf(torch.tensor([[0.2, 0.0, 0.8]]), torch.tensor([0.2]))
    tensor([2])
    """
    sums = probabilities.double().cumsum(-1)
    tokens = torch.searchsorted(sums, (draws.double() * sums[:, -1])[:, None], right=True).squeeze(1)
    last = probabilities.size(-1) - 1 - probabilities.flip(-1).gt(0).int().argmax(-1)  # guards against rounding
    return torch.minimum(tokens, last)


def repetition_processors(sampling: SamplingOptions) -> list[LogitsProcessor]:
    """Return the processors that consider the whole text, prompt included."""
    processors: list[LogitsProcessor] = []
    if sampling.repetition_penalty != 1:
        processors.append(RepetitionPenalty(sampling.repetition_penalty))
    if sampling.no_repeat_ngram is not None:
        processors.append(NoRepeatNgram(sampling.no_repeat_ngram))
    return processors
