"""Speculative decoding with prompt lookup: several tokens per step of the network, and the same text.

A draft of the next tokens is guessed, and the network scores all of it in one step. The draft is what followed the last
n-gram of the text where it occurred before: there is no second network (Saxena 2023). Repetitive text such as code or
a document that is being edited has many such n-grams.

Each position is then sampled exactly as without a draft, with the same random number, and the draft is followed for as
long as it has the tokens that were sampled. This is the rejection rule of speculative sampling (Leviathan et al. 2023)
for drafts without randomness: with q = 1 for the drafted token d, it accepts d with probability min(1, p(d) / q(d)) =
p(d), and otherwise samples from max(0, p − q) / Σ max(0, p − q), which is p without d, renormalized. Sampling t from p
does the same: t = d with probability p(d), else t follows p without d. So the text does not only have the same
distribution: with the same seed it is the same text, except for rounding.

T drafted tokens and the one before them · V vocabulary
"""

from collections.abc import Iterable, Sequence

import torch

from regard.config import SpecialTokensConfig
from regard.decoding.options import SamplingOptions
from regard.decoding.results import SampledToken
from regard.decoding.sampling import Sampler
from regard.models.network import Network

MAX_NGRAM = 3  # tokens at the end of the text that are looked up; fewer if there is no such n-gram before


class PromptLookup:
    """Where the n-grams of a growing text last occurred.

    >>> lookup = PromptLookup()
    >>> lookup.draft([1, 2, 3, 4, 1, 2], 3)
    [3, 4, 1]
    """

    def __init__(self, max_ngram: int = MAX_NGRAM) -> None:
        self._sizes = range(max_ngram, 0, -1)
        self._following: dict[tuple[int, ...], int] = {}  # n-gram to the index of the token after it
        self._indexed = 0  # tokens before which all n-grams are known

    def draft(self, text: Sequence[int], count: int) -> list[int]:
        """Return at most `count` tokens that may follow a text, which begins with the text of the last call."""
        for end in range(self._indexed, len(text) - 1):  # the n-grams that end at `end` and are followed by a token
            for size in self._sizes:
                if size <= end + 1:
                    self._following[tuple(text[end + 1 - size : end + 1])] = end + 1
        self._indexed = max(self._indexed, len(text) - 1)
        for size in self._sizes:
            start = self._following.get(tuple(text[-size:])) if size <= len(text) else None
            if start is not None:
                return list(text[start : start + count])
        return []


class LookupRow(Sampler):
    """Continues one prompt, by several tokens per step where a draft is right."""

    def __init__(
        self,
        networks: Sequence[Network],
        prompt: Sequence[int],
        stream: int,
        tokens: SpecialTokensConfig,
        sampling: SamplingOptions,
        window: int | None = None,
        token_texts: Sequence[str] = (),
    ) -> None:
        super().__init__(networks, [prompt], [stream], tokens, sampling, window, token_texts)
        self._decoder.drop_last(0)  # an error for networks that cannot
        self._lookup = PromptLookup()
        self._is_fed = True  # whether the network has seen the whole text, so that `_logits` follow it
        self.network_steps = 1
        """How often the network has run."""

    def step(self) -> list[SampledToken]:
        """Sample one token and all that the draft had right."""
        draft: list[int] = []
        if not self._is_fed:
            draft = self._feed_with_draft()
        sampled: list[SampledToken] = []
        for position, logits in enumerate(self._logits):
            (token,) = self._sample(logits[None])
            sampled.append(token)
            self._texts[0].append(token.token)
            ends = token.token in self._tokens.ends
            if ends or self._generated_length(0) == self._sampling.constraints.max_tokens:
                self.active = []
            if not self.active or position == len(draft) or draft[position] != token.token:
                break
        self._is_fed = False
        rejected = len(draft) + 1 - len(sampled)
        if self.active and rejected:
            self._decoder.drop_last(rejected)
        return sampled

    @torch.inference_mode()
    def _feed_with_draft(self) -> list[int]:
        """Feed the last token and a draft, so that `_logits` (T, V) follow each of them; return the draft."""
        self.network_steps += 1
        length, max_tokens = self._window_length(0), self._sampling.constraints.max_tokens
        if self._window is not None and length > self._window:
            self._logits = self._encode_texts()
            return []
        count = self._sampling.lookup
        if self._window is not None:
            count = min(count, self._window - length)
        if max_tokens is not None:
            count = min(count, max_tokens - self._generated_length(0) - 1)
        text = self._texts[0]
        draft = self._lookup.draft(text, count) if count > 0 else []
        ids = torch.tensor([[text[-1], *draft]], device=self._device)
        self._logits = self._decoder.step_all(ids)[0]
        self._suppress_special_tokens(self._logits, ids, ids)
        return draft


class LookupSampler:
    """Continues prompts with prompt lookup, each row on its own."""

    def __init__(self, rows: Sequence[LookupRow]) -> None:
        self.rows = rows
        self.active = list(range(len(rows)))
        """Rows that have not ended."""
        self.cached_tokens = 0

    @property
    def truncated(self) -> set[int]:
        """Rows whose beginning has left the context window."""
        return {number for number, row in enumerate(self.rows) if row.truncated}

    def step(self) -> list[SampledToken]:
        """Return one or more further tokens for every active row."""
        sampled = [token._replace(row=number) for number in self.active for token in self.rows[number].step()]
        self.active = [number for number in self.active if self.rows[number].active]
        return sampled

    def close(self, rows: Iterable[int]) -> None:
        """Stop these rows."""
        closed = set(rows)
        self.active = [number for number in self.active if number not in closed]
