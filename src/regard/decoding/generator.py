"""From a prompt to the text that follows it, token by token or all at once. Knows no torch: that is the writer's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from regard.config import Config
from regard.data.tokenizer import Tokenizer
from regard.decoding.options import DEFAULT_GENERATED_TOKENS, GenerationOptions, SamplingOptions
from regard.decoding.results import Generation, SampledToken, ScoredToken, TextChunk

DETOKENIZER_CONTEXT = 8  # tokens of what came before by which the spelling of new ones is decided
REPLACEMENT_CHARACTER = "\ufffd"  # what a part of a character decodes to


class GenerationSession(Protocol):
    """Texts that are being gone on with, one row each."""

    @property
    def open(self) -> Sequence[int]:
        """Rows that have not ended."""
        ...

    @property
    def slid(self) -> set[int]:
        """Rows whose beginning has left the network's window."""
        ...

    def step(self) -> Sequence[SampledToken]:
        """One more token, for some or all of the open rows."""
        ...

    def close(self, rows: Iterable[int]) -> None:
        """Stop going on with these rows."""
        ...


StartSession = Callable[[list[list[int]], list[int], SamplingOptions], GenerationSession]
"""Begins to write: prompts as ids, the number of each row's stream of random numbers, and how to draw."""


class Generator:
    """Continues prompts; `begin` starts an engine's writing."""

    def __init__(self, begin: StartSession, config: Config, tokenizer: Tokenizer) -> None:
        self._begin = begin
        self.config = config
        self._tokenizer = tokenizer

    def stream(self, prompts: Sequence[str], wish: GenerationOptions, into: list[Generation]) -> Iterator[TextChunk]:
        """Text as it is written; `into` is filled with a continuation for each sample of each prompt."""
        if wish.sampling.bounds.longest is None:
            bounds = replace(wish.sampling.bounds, longest=DEFAULT_GENERATED_TOKENS)
            wish = replace(wish, sampling=replace(wish.sampling, bounds=bounds))
        encoded = [prompt_ids(prompt, self.config, self._tokenizer) for prompt in prompts]
        rows = [(ids, sample) for ids in encoded for sample in range(wish.samples)]
        into += [Generation(prompt, sample) for prompt in prompts for sample in range(wish.samples)]
        if not rows:
            return
        spelling = [IncrementalDetokenizer(self._tokenizer, ids, wish.stop) for ids, _ in rows]
        writing = self._begin([ids for ids, _ in rows], [sample for _, sample in rows], wish.sampling)
        try:
            while writing.open:
                for row, token, log_probability, candidates in writing.step():
                    found = into[row]
                    found.log_probability += log_probability
                    found.slid = row in writing.slid
                    if token == self.config.tokens.end:
                        found.ended = True
                        continue
                    found.tokens.append(token)
                    if wish.sampling.candidates is not None:
                        found.scored.append(ScoredToken(token, log_probability, candidates))
                    text = spelling[row].add(token)
                    if spelling[row].stopped:
                        found.ended = True
                        writing.close([row])
                    yield from self._given(found, row, text)
        finally:
            writing.close(list(writing.open))
        for row, found in enumerate(into):
            yield from self._given(found, row, spelling[row].rest())

    def _given(self, found: Generation, row: int, text: str) -> Iterator[TextChunk]:
        if text:
            found.text += text
            yield TextChunk(row, text)


def prompt_ids(prompt: str, config: Config, tokenizer: Tokenizer) -> list[int]:
    """The ids of a prompt, which begins with the start token, if it is one that nothing else is meant by."""
    tokens, ids = config.tokens, tokenizer.encode(prompt) if prompt else []
    return [tokens.start, *ids] if tokens.start != tokens.end or not ids else ids


class IncrementalDetokenizer:
    """Tokens become text as they come: whole characters only, and nothing that may yet be a text to stop at."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt[-DETOKENIZER_CONTEXT:])
        self._begin, self._read = 0, len(self._ids)  # from where on is decoded, and up to where it was given out
        self._stop = [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """The text that is certain now."""
        self._ids.append(token)
        before = self._tokenizer.decode(self._ids[self._begin : self._read])
        now = self._tokenizer.decode(self._ids[self._begin :])
        if now.endswith(REPLACEMENT_CHARACTER) and len(self._ids) - self._read < DETOKENIZER_CONTEXT:
            return ""
        self._begin, self._read = max(self._begin, self._read - DETOKENIZER_CONTEXT), len(self._ids)
        return self._until_stop(now[len(before) :])

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        if self.stopped:
            return ""
        before = self._tokenizer.decode(self._ids[self._begin : self._read])
        text = self._held + self._tokenizer.decode(self._ids[self._begin :])[len(before) :]
        self._held, self._read = "", len(self._ids)
        return text

    def _until_stop(self, text: str) -> str:
        text = self._held + text
        found = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of another.

    >>> _overlap("one two th", "the end")
    2
    """
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
