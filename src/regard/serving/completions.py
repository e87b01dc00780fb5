"""Completions in OpenAI's protocol: request, response, log-probabilities, and the generation behind them."""

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from regard.data.tokenizer import Tokenizer
from regard.decoding.generator import DETOKENIZER_CONTEXT, REPLACEMENT_CHARACTER, IncrementalDetokenizer, prompt_ids
from regard.decoding.options import (
    DEFAULT_TEMPERATURE,
    MIN_REPETITION_PENALTY,
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
)
from regard.decoding.results import Generation, ScoredToken, TextChunk
from regard.serving.errors import ApiError
from regard.serving.limits import Limits, check_limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import RequestModel

DEFAULT_TOKENS = 16  # as at OpenAI
MAX_LOGPROBS = 5  # as at OpenAI
MIN_LOGPROB = -9999.0  # in place of minus infinity, which JSON lacks
LOGPROB_DIGITS = 6
SEED_BOUND = 2**63
UNSUPPORTED_FIELDS = ("suffix", "logit_bias", "presence_penalty", "frequency_penalty")


class OpenAIRequest(RequestModel):
    """Base class of OpenAI's requests, whose clients send fields that are ignored here."""

    model_config = ConfigDict(extra="ignore", strict=False)


class CompletionRequest(OpenAIRequest):
    """Fields of OpenAI's completions, and `top_k`, `min_p` and `repetition_penalty`."""

    model_config = ConfigDict(json_schema_extra={"x-ability": "generate"})

    model: str
    prompt: str | list[str] = Field("", examples=["Once upon a time"])
    """A prompt or a list of prompts."""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """Generated tokens, 16 by default; with 0 nothing is generated."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature, 1 by default; 0 takes the most probable token."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    """Completions per prompt."""
    best_of: Annotated[int, Field(ge=1)] | None = None
    """Completions that are generated per prompt; the `n` most probable are returned."""
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    """Texts that end a completion."""
    seed: Annotated[int, Field(ge=-SEED_BOUND, lt=SEED_BOUND)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS, strict=True)] | None = None
    """Number of the most probable tokens that are returned for each position, with their log-probabilities."""
    echo: bool | None = None
    """Whether to return the prompt, too."""
    stream: bool | None = None
    """Whether to stream the completion as server-sent events."""
    stream_options: dict[str, Any] | None = None
    """With `include_usage`, the last event before the end counts tokens."""
    top_k: Annotated[int, Field(ge=1, le=10**6)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=100)] | None = None
    suffix: Any = None
    logit_bias: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None

    @property
    def prompts(self) -> list[str]:
        """The prompts as a list."""
        return self.prompt if isinstance(self.prompt, list) else [self.prompt]


class CompletionLogprobs(BaseModel):
    """Log-probabilities of the tokens of a completion."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One completion, or a chunk of it."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionUsage(BaseModel):
    """Token counts of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(BaseModel):
    """All completions of a request; without `usage`, an event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage | None = None


class LogprobsBuilder:
    """Collects the scored tokens of one text and returns them up to a position in the text."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = (), offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._context = deque(prompt, DETOKENIZER_CONTEXT)
        self._detokenizer = IncrementalDetokenizer(tokenizer, prompt, ())
        self._offset = offset
        self._pending: deque[tuple[int, str, ScoredToken, dict[str, float] | None]] = deque()
        self._added = 0

    def add(self, scored: Sequence[ScoredToken]) -> None:
        """Add the new tokens among all scored tokens of the text."""
        for token in scored[self._added :]:
            name = self._name(token.token)
            self._pending.append((self._offset, name, token, self._candidates(name, token)))
            self._offset += len(self._detokenizer.add(token.token))
            self._context.append(token.token)
            self._added += 1

    def take(self, end: int | None = None) -> dict[str, list[Any]]:
        """Return the tokens that start before a position in the text; all remaining ones without a position."""
        taken: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        while self._pending and (end is None or self._pending[0][0] < end):
            offset, name, token, candidates = self._pending.popleft()
            for key, value in zip(taken, (name, _round(token.log_probability), candidates, offset), strict=True):
                taken[key].append(value)
        return taken

    def _candidates(self, name: str, token: ScoredToken) -> dict[str, float] | None:
        """Return the most probable tokens by their text, and the chosen token at any rank."""
        if token.log_probability is None:
            return None
        candidates: dict[str, Any] = {}
        for candidate, log_probability in token.candidates:
            candidates.setdefault(self._name(candidate), _round(log_probability))
        return {name: _round(token.log_probability)} | candidates

    def _name(self, token: int) -> str:
        """Return the text that a token adds; for a part of a character, the token as in the vocabulary."""
        before, after = (self._tokenizer.decode(ids) for ids in (list(self._context), [*self._context, token]))
        text = after[len(before) :]
        is_complete = bool(text) and after.startswith(before) and REPLACEMENT_CHARACTER not in text
        return text if is_complete else self._tokenizer.ids_to_tokens([token])[0]


def _round(value: float | None) -> float | None:
    return None if value is None else round(max(value, MIN_LOGPROB), LOGPROB_DIGITS)


class Completion:
    """Generation for one request, and its response as a whole or in chunks."""

    def __init__(self, request: CompletionRequest, model: LoadedModel, limits: Limits) -> None:
        self.request = request
        self.samples = request.best_of or request.n or 1
        self.generations: list[Generation] = []
        self._scored_prompts: list[list[ScoredToken]] = []  # if requested
        self._model = model
        self._id, self._created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        self._check(limits)
        self._max_tokens = DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
        sampling = SamplingOptions(
            DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
            request.top_k,
            request.top_p,
            request.min_p,
            1.0 if request.repetition_penalty is None else request.repetition_penalty,
            seed=secrets.randbelow(2**31) if request.seed is None else request.seed % 2**31,
            constraints=OutputConstraints(max_tokens=max(1, self._max_tokens)),
            top_logprobs=request.logprobs,
        )
        stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
        self._options = GenerationOptions(sampling, self.samples, tuple(text for text in stop if text))

    @property
    def num_texts(self) -> int:
        """Number of generated texts."""
        return len(self.request.prompts) * self.samples

    def _check(self, limits: Limits) -> None:
        request, n = self.request, self.request.n or 1
        for name in UNSUPPORTED_FIELDS:
            if getattr(request, name):
                raise ApiError(400, f"{name} is not supported; remove it.")
        if self.samples < n:
            raise ApiError(400, f"best_of: {self.samples} is less than n, {n}; raise it, or lower n.")
        if self.samples > n and request.stream:
            raise ApiError(400, "best_of: cannot be streamed, as the best are known only at the end; remove one.")
        check_limits(
            (f"prompts times {'best_of' if self.samples > n else 'n'}", self.num_texts, limits.max_texts),
            ("characters of the prompt", sum(map(len, request.prompts)), limits.max_characters),
            ("max_tokens", request.max_tokens or 0, limits.max_tokens),
        )

    def generate(self) -> Iterable[TextChunk]:
        """Score the prompts if requested, and return the chunks to generate; runs in a thread."""
        prompts = self.request.prompts
        if self.request.echo and self.request.logprobs is not None:
            self._scored_prompts = self._model.score_prompts(prompts, self.request.logprobs)
        if self._max_tokens:
            return self._model.generate(prompts, self._options, self.generations, self.request.seed is not None)
        self.generations += [Generation(prompt, n) for prompt in prompts for n in range(self.samples)]
        return ()

    def head(self) -> dict[str, Any]:
        """Return the fields that every part of the response starts with."""
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model.name}

    def choices(self) -> "list[ChoiceStream]":
        """Return one stream per text; call it after the first chunk has been generated."""
        return [ChoiceStream(self, row) for row in range(len(self.generations))]

    def response(self) -> dict[str, Any]:
        """Return the whole response."""
        choices: list[dict[str, Any]] = []
        for row in self._best_rows():
            stream, generation = ChoiceStream(self, row), self.generations[row]
            chunks = [stream.prompt()] if self.request.echo else []
            chunks += [stream.chunk(generation.text), stream.end()]
            choices.append(_join_chunks(chunks, len(choices)))
        return {**self.head(), "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """Return the fields of `CompletionUsage`."""
        prompt = sum(len(ids) for ids in self._model.model.tokenizer.encode_batch(self.request.prompts))
        generated = sum(len(generation.tokens) for generation in self.generations)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    def _best_rows(self) -> Iterator[int]:
        """Yield the rows that are returned: with `best_of`, those with the highest mean log-probability."""
        n = self.request.n or 1
        for first in range(0, len(self.generations), self.samples):
            rows = list(range(first, first + self.samples))
            if self.samples > n:
                rows = sorted(rows, key=lambda row: -_mean_log_probability(self.generations[row]))[:n]
            yield from rows

    def prompt_logprobs(self, row: int) -> dict[str, list[Any]]:
        """Return the log-probabilities of the prompt of a row."""
        builder = LogprobsBuilder(self._model.model.tokenizer)
        builder.add(self._scored_prompts[row // self.samples])
        return builder.take()

    def logprobs_builder(self, row: int, offset: int) -> LogprobsBuilder:
        """Return a builder for the generated tokens of a row, the first of which starts at `offset`."""
        config, tokenizer = self._model.model.config, self._model.model.tokenizer
        return LogprobsBuilder(tokenizer, prompt_ids(self.generations[row].prompt, config, tokenizer), offset)


class ChoiceStream:
    """One text of a completion as a series of choices."""

    def __init__(self, completion: Completion, row: int) -> None:
        request = completion.request
        self._completion = completion
        self._row = row
        self._generation = completion.generations[row]
        self._end = len(self._generation.prompt) if request.echo else 0  # of the text so far
        self._logprobs = None if request.logprobs is None else completion.logprobs_builder(row, self._end)

    def start(self) -> dict[str, Any] | None:
        """Return the choice before the generated text: the prompt, if it is returned."""
        return self.prompt() if self._completion.request.echo else None

    def prompt(self) -> dict[str, Any]:
        """Return the prompt."""
        logprobs = None if self._logprobs is None else self._completion.prompt_logprobs(self._row)
        return self._choice(self._generation.prompt, logprobs)

    def chunk(self, text: str) -> dict[str, Any]:
        """Return a chunk of the generated text."""
        self._end += len(text)
        return self._choice(text, self._take_logprobs(self._end))

    def end(self) -> dict[str, Any]:
        """Return the finish reason; tokens after a stop text are left out."""
        stopped = self._generation.ended and bool(self._completion.request.stop)
        reason = "stop" if self._generation.ended else "length"
        return self._choice("", self._take_logprobs(self._end if stopped else None), reason)

    def _take_logprobs(self, end: int | None) -> dict[str, list[Any]] | None:
        if self._logprobs is None:
            return None
        self._logprobs.add(self._generation.scored_tokens)
        return self._logprobs.take(end)

    def _choice(self, text: str, logprobs: dict[str, list[Any]] | None, reason: str | None = None) -> dict[str, Any]:
        return {"text": text, "index": self._row, "logprobs": logprobs, "finish_reason": reason}


def _join_chunks(chunks: Sequence[dict[str, Any]], index: int) -> dict[str, Any]:
    """Join the chunks of a text into one choice."""
    logprobs = [chunk["logprobs"] for chunk in chunks]
    return {
        "text": "".join(chunk["text"] for chunk in chunks),
        "index": index,
        "logprobs": None if logprobs[0] is None else _join_logprobs(logprobs),
        "finish_reason": chunks[-1]["finish_reason"],
    }


def _join_logprobs(parts: Iterable[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    first, *rest = parts
    return {key: sum((part[key] for part in rest), first[key]) for key in first}


def _mean_log_probability(generation: Generation) -> float:
    """Return the mean log-probability of the tokens, including the end."""
    return generation.log_probability / max(1, len(generation.tokens) + generation.ended)
