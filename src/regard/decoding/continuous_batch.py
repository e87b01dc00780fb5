"""Continuous batching: texts of many requests in one running batch, which they join and leave at any token.

Each step feeds one token of every running row to the network and samples the next. A row that ends leaves at once, and
its place goes to the row that has waited longest. Prompts are read in blocks; while rows are running, a step reads only
a few, so that a long prompt does not make the others wait. Each row has its own options, processors and random
generator, and its prompt is read alone, so that its text does not depend on the other rows (see `row_decoders`).

R rows · V vocabulary
"""

from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.logits_processors import (
    DecodingContext,
    LogitsProcessor,
    constraint_processors,
    custom_processors,
    suppress_special_tokens,
)
from regard.decoding.options import SamplingOptions
from regard.decoding.prefix_cache import BLOCK_TOKENS, PrefixCache, PromptReader
from regard.decoding.results import Candidate, SampledToken
from regard.decoding.row_decoders import new_row_decoder
from regard.decoding.sampling import (
    kept_tokens,
    random_generator,
    repetition_processors,
    sample_tokens,
    top_candidates,
)
from regard.models.network import Network


class RequestRows:
    """Rows that joined together: with the same options and processors.

    Args:
        sampling: How to sample.
        tokens: Special tokens.
        token_texts: The text of each token by id, for suppressed words and custom processors.
    """

    def __init__(self, sampling: SamplingOptions, tokens: SpecialTokensConfig, token_texts: Sequence[str] = ()) -> None:
        context = DecodingContext(tokens, sampling.constraints, token_texts)
        self.sampling = sampling
        self.text_processors: list[LogitsProcessor] = [*repetition_processors(sampling), *custom_processors(context)]
        self.constraints = constraint_processors(context)
        self.rows: list[Row] = []
        self.error: Exception | None = None
        """What a processor raised; all rows are closed then."""

    @property
    def is_active(self) -> bool:
        """Whether a row is waiting or running."""
        return any(row.is_active for row in self.rows)


class Row:
    """A text that is being continued."""

    def __init__(self, group: RequestRows, number: int, prompt: Sequence[int], stream: int) -> None:
        self.group = group
        self.number = number
        """Its number in its group."""
        self.text = list(prompt)
        self.prompt_length = len(prompt)
        self.dropped = 0
        """Tokens at the beginning that have left the context window."""
        self.cached_tokens = 0
        """Tokens of the prompt that were not computed, because the prefix cache had them."""
        self.is_active = True
        """Whether it is waiting or running."""
        self.reader: PromptReader | None = None  # while it is waiting
        self.generator = random_generator(group.sampling, stream)

    @property
    def generated_length(self) -> int:
        """Tokens after the prompt."""
        return len(self.text) - self.prompt_length

    def process(self, logits: Tensor) -> None:
        """Apply the processors for the whole text and those for the tokens after the prompt to its logits (1, V)."""
        group = self.group
        text = torch.tensor([self.text], device=logits.device)
        sentence = torch.tensor([self.number], device=logits.device)
        for processor in group.text_processors:
            processor(logits, text, sentence)
        for processor in group.constraints:
            processor(logits, text[:, self.prompt_length :], sentence)


class ContinuousBatch:
    """The running batch of a language model, and the rows that wait for a place in it.

    Args:
        networks: One network, or several that share a vocabulary.
        tokens: Special tokens.
        max_rows: Rows that run at a time.
        window: The context window; a text that fills it loses its oldest part and is read again.
        prefix_cache: Keys and values of earlier prompts.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        tokens: SpecialTokensConfig,
        *,
        max_rows: int,
        window: int | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        self.max_rows = max_rows
        self._networks = networks
        self._tokens = tokens
        self._window = window
        self._prefix_cache = prefix_cache
        self._suppress_special_tokens = suppress_special_tokens(tokens)
        self._waiting: deque[Row] = deque()
        self._running: dict[int, Row] = {}
        self._decoder = new_row_decoder(networks)
        self._joined = 0  # rows so far

    @property
    def running(self) -> int:
        """Rows in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Rows that wait for a place."""
        return len(self._waiting)

    @property
    def threads(self) -> int:
        """How many threads should compute the steps of a full batch."""
        return self._decoder.threads(self.max_rows)

    def add(self, group: RequestRows, prompts: Sequence[Sequence[int]], streams: Sequence[int]) -> None:
        """Let rows wait for a place, one for each prompt and random stream; rows with the same prompt share its reader.

        They are the group's rows from now on.
        """
        for prompt, stream in zip(prompts, streams, strict=True):
            row = Row(group, len(group.rows), prompt, stream)
            before = group.rows[-1] if group.rows else None
            if before is not None and before.text == row.text:
                row.reader, row.dropped = before.reader, before.dropped
            else:
                self._start_reading(row)
            group.rows.append(row)
            self._waiting.append(row)

    @torch.inference_mode()
    def close(self, rows: Iterable[Row]) -> None:
        """Stop rows."""
        closed = [row for row in rows if row.is_active]
        for row in closed:
            row.is_active, row.reader = False, None
        if any(row in self._waiting for row in closed):
            self._waiting = deque(row for row in self._waiting if row.is_active)
        self._leave([number for number, row in self._running.items() if not row.is_active])

    @torch.inference_mode()
    def step(self) -> list[tuple[Row, SampledToken]]:
        """Sample one more token of every running row, and the first one of rows that join; those that end leave."""
        sampled: list[tuple[Row, SampledToken]] = []
        if self._running:
            numbers = self._decoder.rows
            rows = [self._running[number] for number in numbers]
            logits = self._decoder.step([row.text[-1] for row in rows])
            sampled += self._sample(rows, logits)
            gone = [number for number, row in self._running.items() if not row.is_active or row.reader is not None]
            self._leave(gone)
        return sampled + self._admit()

    def _leave(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._running[number]
        if numbers:
            self._decoder.remove(numbers)

    def _admit(self) -> list[tuple[Row, SampledToken]]:
        """Read prompts and start rows while there are places; a batch that is running waits for few tokens only."""
        sampled: list[tuple[Row, SampledToken]] = []
        budget = BLOCK_TOKENS if self._running else None
        while self._waiting and len(self._running) < self.max_rows:
            row = self._waiting[0]
            reader = row.reader
            assert reader is not None
            while not reader.is_read:
                if budget is not None and budget <= 0:
                    return sampled
                tokens = reader.read_block()
                budget = None if budget is None else budget - tokens
            self._waiting.popleft()
            row.reader = None
            if not row.generated_length:
                row.cached_tokens = reader.reused
            sampled += self._sample([row], reader.logits.clone())
            if row.is_active and row.reader is None:
                self._decoder.add(self._joined, reader.decoder)
                self._running[self._joined] = row
                self._joined += 1
                budget = BLOCK_TOKENS if budget is None else budget
        return sampled

    def _start_reading(self, row: Row) -> None:
        """Begin to read what of a text is in the window."""
        if self._window is not None and len(row.text) - row.dropped > self._window:
            row.dropped = len(row.text) - kept_tokens(self._window)
        stored = None if row.dropped else self._prefix_cache
        row.reader = PromptReader(self._networks, row.text[row.dropped :], stored)

    def _sample(self, rows: Sequence[Row], logits: Tensor) -> list[tuple[Row, SampledToken]]:
        """Sample the next token of rows, given their logits (R, V), which are changed."""
        self._suppress_special_tokens(logits, logits, logits)
        log_probabilities = logits.log_softmax(-1)
        for n, row in enumerate(rows):
            if row.group.text_processors or row.group.constraints:
                try:
                    row.process(logits[n : n + 1])
                except Exception as error:  # of this request alone
                    row.group.error = error
        chosen = sample_tokens(logits, [row.group.sampling for row in rows], [row.generator for row in rows])
        scores = log_probabilities.gather(1, chosen[:, None]).squeeze(1).tolist()
        candidates = _candidates(rows, log_probabilities)
        sampled = []
        for n, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            if row.group.error is not None:
                row.is_active = False
                continue
            row.text.append(token)
            sampled.append((row, SampledToken(row.number, token, scores[n], candidates[n])))
            self._end_or_slide(row, token)
        return sampled

    def _end_or_slide(self, row: Row, token: int) -> None:
        if token in self._tokens.ends or row.generated_length == row.group.sampling.constraints.max_tokens:
            row.is_active = False
        elif self._window is not None and len(row.text) - row.dropped > self._window:
            self._start_reading(row)
            self._waiting.appendleft(row)


def _candidates(rows: Sequence[Row], log_probabilities: Tensor) -> list[tuple[Candidate, ...]]:
    """Return the most probable tokens of the rows that ask for them."""
    counts = [row.group.sampling.top_logprobs or 0 for row in rows]
    if not any(counts):
        return [()] * len(rows)
    return [top_candidates(log_probabilities[n : n + 1], count)[0] if count else () for n, count in enumerate(counts)]
