"""Generation of text: continue prompts, as a stream of text chunks or all at once. Torch-free."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from regard.config import Config
from regard.data.tokenizer import Tokenizer
from regard.decoding.options import DEFAULT_GENERATED_TOKENS, GenerationOptions, SamplingOptions
from regard.decoding.results import Generation, SampledToken, ScoredToken, TextChunk

DETOKENIZER_CONTEXT = 8  # preceding tokens that determine how new ones are detokenized
MAX_CHARACTER_BYTES = 4  # of a character in UTF-8
REPLACEMENT_CHARACTER = "\ufffd"  # what an incomplete character decodes to


Prompt = str | tuple[int, ...]
"""A text, or its ids where it has special tokens, as chats do."""


class GenerationSession(Protocol):
    """Prompts that an engine is continuing, one row each."""

    @property
    def active(self) -> Sequence[int]:
        """Rows that have not ended."""
        ...

    @property
    def truncated(self) -> set[int]:
        """Rows whose beginning has left the context window."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Tokens of each prompt that were not computed, because an earlier prompt began with them."""
        ...

    def step(self) -> Sequence[SampledToken]:
        """Return one more token for some or all of the active rows."""
        ...

    def close(self, rows: Iterable[int]) -> None:
        """Stop these rows."""
        ...


StartSession = Callable[[list[list[int]], list[int], SamplingOptions], GenerationSession]
"""Starts a session, given the ids of each prompt, the random stream of each row, and how to sample."""


class Generator:
    """Continues prompts with the sessions of an engine."""

    def __init__(self, start_session: StartSession, config: Config, tokenizer: Tokenizer) -> None:
        self._start_session = start_session
        self.config = config
        self._tokenizer = tokenizer

    def stream(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        results: list[Generation],
        *,
        is_seeded: bool = True,
    ) -> Iterator[TextChunk]:
        """Yield text as it is generated; `results` receives a generation for each sample of each prompt."""
        texts = GeneratedTexts(prompts, options, self.config, self._tokenizer, results, is_seeded=is_seeded)
        if not texts.rows:
            return
        session = self._start_session([ids for ids, _ in texts.rows], texts.streams, texts.options.sampling)
        for result in results:
            result.cached_tokens = session.cached_tokens
        try:
            while session.active:
                for token in session.step():
                    yield from texts.add(token, truncated=token.row in session.truncated)
                    if texts.must_stop(token.row):
                        session.close([token.row])
        finally:
            session.close(list(session.active))
        for row in range(len(results)):
            yield from texts.finish(row)


class GeneratedTexts:
    """The texts of one request, which grow token by token.

    Args:
        prompts: The prompts.
        options: How to continue them.
        config: The model's configuration.
        tokenizer: Its tokenizer.
        results: Receives a generation for each sample of each prompt.
        is_seeded: Whether the user set the seed, with which a prompt has the same samples wherever it stands.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        config: Config,
        tokenizer: Tokenizer,
        results: list[Generation],
        *,
        is_seeded: bool = True,
    ) -> None:
        if options.sampling.constraints.max_tokens is None:
            constraints = replace(options.sampling.constraints, max_tokens=DEFAULT_GENERATED_TOKENS)
            options = replace(options, sampling=replace(options.sampling, constraints=constraints))
        self.options = options
        """The options, with a maximum length."""
        encoded = [prompt_ids(prompt, config, tokenizer) for prompt in prompts]
        self.rows = [(ids, sample) for ids in encoded for sample in range(options.samples)]
        """The ids of the prompt and the number of the sample of each text."""
        texts = [prompt if isinstance(prompt, str) else "" for prompt in prompts]
        results += [Generation(text, sample) for text in texts for sample in range(options.samples)]
        for result, (ids, _) in zip(results, self.rows, strict=True):
            result.prompt_tokens = len(ids)
        self.results = results
        self.streams = [sample for _, sample in self.rows] if is_seeded else list(range(len(self.rows)))
        """The random stream of each text: without a seed, equal prompts have different texts."""
        self._ends = config.tokens.ends
        self._detokenizers = [IncrementalDetokenizer(tokenizer, ids, options.stop) for ids, _ in self.rows]

    def add(self, token: SampledToken, *, truncated: bool = False) -> list[TextChunk]:
        """Add a token to its text and return the text that is now certain; tokens after the end are ignored."""
        row, result = token.row, self.results[token.row]
        if result.ended:  # a step may return several tokens of a row
            return []
        result.log_probability += token.log_probability
        result.truncated = truncated
        if token.token in self._ends or token.token in self.options.stop_tokens:
            result.ended = True
            return []
        result.tokens.append(token.token)
        if self.options.sampling.top_logprobs is not None:
            result.scored_tokens.append(ScoredToken(token.token, token.log_probability, token.candidates))
        text = self._detokenizers[row].add(token.token)
        result.ended = self._detokenizers[row].stopped
        return _emit(result, row, text, self.options)

    def must_stop(self, row: int) -> bool:
        """Whether a text has ended, by a stop text or by a token that the engine may not know as an end."""
        return self.results[row].ended

    def finish(self, row: int) -> list[TextChunk]:
        """Return what is left of a text that has ended."""
        return _emit(self.results[row], row, self._detokenizers[row].flush(), self.options)


def _emit(result: Generation, row: int, text: str, options: GenerationOptions) -> list[TextChunk]:
    if options.omit_space and not result.text:
        text = text.removeprefix(" ")
    if not text:
        return []
    result.text += text
    return [TextChunk(row, text)]


def prompt_ids(prompt: Prompt, config: Config, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a prompt; those of a text follow the start token, which is omitted if it is also the end."""
    if not isinstance(prompt, str):
        return list(prompt)
    tokens, ids = config.tokens, tokenizer.encode(prompt) if prompt else []
    return [tokens.start, *ids] if tokens.start != tokens.end or not ids else ids


def _context(tokenizer: Tokenizer, prompt: Sequence[int]) -> list[int]:
    """Return the last tokens of a prompt, from the beginning of a character."""
    longest = DETOKENIZER_CONTEXT + MAX_CHARACTER_BYTES - 1
    contexts = [list(prompt[-size:]) for size in range(DETOKENIZER_CONTEXT, longest + 1)]
    complete = (ids for ids in contexts if not tokenizer.decode(ids).startswith(REPLACEMENT_CHARACTER))
    return next(complete, contexts[0])


class IncrementalDetokenizer:
    """Converts tokens to text as they arrive: only complete characters, and nothing that may be part of a stop text.

    Args:
        tokenizer: The tokenizer of the text.
        prompt: The ids before the first token.
        stop: Texts that end the output.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._ids = _context(tokenizer, prompt)
        self._emitted = len(self._ids)  # up to where text was returned
        self._starts = deque([0])  # where decoding may start: characters are complete before
        self._stop = [text for text in stop if text]
        self._pending = ""
        self.stopped = False
        """Whether a stop text was found."""

    def add(self, token: int) -> str:
        """Add a token and return the text that is now certain."""
        self._ids.append(token)
        before, now = self._decode()
        if now.endswith(REPLACEMENT_CHARACTER) and len(self._ids) - self._emitted < DETOKENIZER_CONTEXT:
            return ""
        self._starts.append(self._emitted)
        self._emitted = len(self._ids)
        while len(self._starts) > 1 and self._starts[1] <= self._emitted - DETOKENIZER_CONTEXT:
            self._starts.popleft()
        return self._until_stop(now[len(before) :])

    def flush(self) -> str:
        """Return the pending text when no more tokens follow."""
        if self.stopped:
            return ""
        before, now = self._decode()
        text = self._pending + now[len(before) :]
        self._pending, self._emitted = "", len(self._ids)
        return text

    def _decode(self) -> tuple[str, str]:
        """Return the text from where decoding starts: up to the last token that was returned, and up to now."""
        ids = self._ids[self._starts[0] :]
        return self._tokenizer.decode(ids[: self._emitted - self._starts[0]]), self._tokenizer.decode(ids)

    def _until_stop(self, text: str) -> str:
        text = self._pending + text
        positions = [position for stop in self._stop if (position := text.find(stop)) >= 0]
        if positions:
            self.stopped, self._pending = True, ""
            return text[: min(positions)]
        pending = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._pending = text[len(text) - pending :]
        return text[: len(text) - pending]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop text.

    >>> _overlap("one two th", "the end")
    2
    """
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
