"""Chat completions in OpenAI's protocol: request, response, log-probabilities, and the answers behind them."""

import secrets
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.options import (
    DEFAULT_TEMPERATURE,
    MIN_REPETITION_PENALTY,
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
)
from regard.decoding.results import Generation, TextChunk
from regard.errors import MissingPackageError, ModelError
from regard.serving.completions import SEED_BOUND, CompletionUsage, LogprobsBuilder, OpenAIRequest
from regard.serving.errors import ApiError
from regard.serving.limits import Limits, check_limits
from regard.serving.loaded_models import LoadedModel

MAX_TOP_LOGPROBS = 20  # as at OpenAI
UNSUPPORTED_FIELDS = ("logit_bias", "presence_penalty", "frequency_penalty", "tool_choice", "functions", "audio")


class ChatCompletionRequest(OpenAIRequest):
    """Fields of OpenAI's chat completions, and `top_k`, `min_p` and `repetition_penalty`."""

    model_config = ConfigDict(json_schema_extra={"x-ability": "generate"})

    model: str
    messages: list[dict[str, Any]] = Field(examples=[[{"role": "user", "content": "Hello."}]], min_length=1)
    """Messages with `role` and `content`."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """Generated tokens; by default as many as the server and the context window allow."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Older name of `max_completion_tokens`."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature, 1 by default; 0 takes the most probable token."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    """Answers."""
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    """Texts that end an answer."""
    seed: Annotated[int, Field(ge=-SEED_BOUND, lt=SEED_BOUND)] | None = None
    logprobs: bool | None = None
    """Whether to return the log-probability of each token."""
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS, strict=True)] | None = None
    """Number of the most probable tokens that are returned for each position; needs `logprobs`."""
    response_format: dict[str, Any] | None = None
    """`type` text, json_object, or json_schema with `json_schema`; here also regex with `regex`, and grammar with
    `grammar` in Lark's format."""
    stream: bool | None = None
    """Whether to stream the answer as server-sent events."""
    stream_options: dict[str, Any] | None = None
    """With `include_usage`, the last event before the end counts tokens."""
    tools: list[dict[str, Any]] | None = None
    """Descriptions of functions, which the chat template gets; calls are not parsed."""
    top_k: Annotated[int, Field(ge=1, le=10**6)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=100)] | None = None
    logit_bias: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    tool_choice: Any = None
    functions: Any = None
    audio: Any = None


class ChatTopLogprob(BaseModel):
    """A probable token of a position."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(ChatTopLogprob):
    """A token of an answer."""

    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(BaseModel):
    """Log-probabilities of the tokens of an answer."""

    content: list[ChatTokenLogprob]
    refusal: None


class ChatAnswer(BaseModel):
    """An answer."""

    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class PromptTokensDetails(BaseModel):
    """Parts of the prompt."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    cached_tokens: int
    """Tokens that were not computed, because an earlier prompt began with them."""


class ChatUsage(CompletionUsage):
    """Token counts of a request."""

    prompt_tokens_details: PromptTokensDetails


class ChatCompletionResponse(BaseModel):
    """All answers to a request."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage


class ChatCompletion:
    """Answers to one request, and its response as a whole or in chunks. Its constructor may take seconds."""

    def __init__(self, request: ChatCompletionRequest, model: LoadedModel, limits: Limits) -> None:
        self.request = request
        self.generations: list[Generation] = []
        self._model = model
        self._id, self._created = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())
        self._check(limits)
        wanted = request.max_completion_tokens or request.max_tokens
        variables = None if request.tools is None else {"tools": request.tools}
        try:
            self._prompt = model.model.chat_prompt(
                request.messages, wanted or limits.max_tokens, shorten=False, variables=variables
            )
        except ModelError as error:  # without its path
            raise ApiError(500, f"The chat template of {model.name} {str(error).partition(': ')[2]}") from None
        try:
            processors = self._processors()
        except MissingPackageError as error:
            raise ApiError(501, f"response_format: {error}") from None
        sampling = SamplingOptions(
            DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
            request.top_k,
            request.top_p,
            request.min_p,
            1.0 if request.repetition_penalty is None else request.repetition_penalty,
            seed=secrets.randbelow(2**31) if request.seed is None else request.seed % 2**31,
            constraints=OutputConstraints(logits_processors=processors),
            top_logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        )
        stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
        self._options = GenerationOptions(sampling, self.num_texts, tuple(text for text in stop if text))

    @property
    def num_texts(self) -> int:
        """Number of answers."""
        return self.request.n or 1

    def _check(self, limits: Limits) -> None:
        request = self.request
        for name in UNSUPPORTED_FIELDS:
            if getattr(request, name) and not (name == "tool_choice" and request.tool_choice in ("none", "auto")):
                raise ApiError(400, f"{name} is not supported; remove it.")
        if request.top_logprobs is not None and not request.logprobs:
            raise ApiError(400, "top_logprobs: needs logprobs; set it to true.")
        check_limits(
            ("n", self.num_texts, limits.max_texts),
            (
                "characters of the messages and tools",
                sum(len(str(part)) for part in [*request.messages, *(request.tools or [])]),
                limits.max_characters,
            ),
            ("max_tokens", max(request.max_completion_tokens or 0, request.max_tokens or 0), limits.max_tokens),
        )

    def _processors(self) -> tuple[Any, ...]:
        """Return the logits processor of `response_format`, if it constrains the answer."""
        form = self.request.response_format
        if form is None or form.get("type") == "text":
            return ()
        from regard.decoding.constrained import Grammar

        model, name, kind = self._model.model, "response_format", form.get("type")
        if kind == "json_object":
            grammar = Grammar.of_json(name)
        elif kind == "json_schema":
            table = form.get("json_schema")
            schema = table.get("schema") if isinstance(table, dict) else None
            if not isinstance(schema, dict | bool):
                raise ApiError(400, "response_format: json_schema should be an object with name and schema.")
            grammar = Grammar.of_json_schema(schema, f"{name}.json_schema.schema")
        elif kind in ("regex", "grammar"):
            source = form.get(kind)
            if not isinstance(source, str):
                raise ApiError(400, f"response_format: {kind} should be a text.")
            make = Grammar.of_regex if kind == "regex" else Grammar.of_lark
            grammar = make(source, f"{name}.{kind}")
        else:
            kinds = "text, json_object, json_schema, regex or grammar"
            raise ApiError(400, f"response_format: type should be {kinds}, not {kind!r}.")
        return (grammar.processor(model.tokenizer, model.config, self._prompt.stop_tokens),)

    def generate(self) -> Iterable[TextChunk]:
        """Return the chunks to generate; runs in a thread."""
        return self._model.chat(self._prompt, self._options, self.generations, self.request.seed is not None)

    def head(self) -> dict[str, Any]:
        """Return the fields that every event of a stream starts with."""
        kind = "chat.completion.chunk"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model.name}

    def choices(self) -> "list[AnswerStream]":
        """Return one stream per answer; call it after the first chunk has been generated."""
        return [AnswerStream(self, row) for row in range(len(self.generations))]

    def response(self) -> dict[str, Any]:
        """Return the whole response."""
        choices = [
            {
                "index": row,
                "message": {"role": "assistant", "content": generation.text},
                "logprobs": None if not self.request.logprobs else AnswerStream(self, row).all_logprobs(),
                "finish_reason": "stop" if generation.ended else "length",
            }
            for row, generation in enumerate(self.generations)
        ]
        return {**self.head(), "object": "chat.completion", "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """Return the fields of `ChatUsage`."""
        prompt, cached = len(self._prompt.ids), self.generations[0].cached_tokens if self.generations else 0
        generated = sum(len(generation.tokens) for generation in self.generations)
        counts = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
        return {**counts, "prompt_tokens_details": {"cached_tokens": cached}}

    def logprobs_builder(self) -> LogprobsBuilder:
        """Return a builder for the tokens of an answer."""
        return LogprobsBuilder(self._model.model.tokenizer, self._prompt.ids)


class AnswerStream:
    """One answer as a series of choices."""

    def __init__(self, completion: ChatCompletion, row: int) -> None:
        self._row = row
        self._generation = completion.generations[row]
        self._has_stop = bool(completion.request.stop)
        self._logprobs = completion.logprobs_builder() if completion.request.logprobs else None
        self._candidates = completion.request.top_logprobs or 0
        self._end = 0  # of the text so far

    def start(self) -> dict[str, Any]:
        """Return the choice before the text."""
        return self._choice({"role": "assistant", "content": ""}, None)

    def chunk(self, text: str) -> dict[str, Any]:
        """Return a chunk of the text."""
        self._end += len(text)
        return self._choice({"content": text}, self._take_logprobs(self._end))

    def end(self) -> dict[str, Any]:
        """Return the finish reason; tokens after a stop text are left out."""
        stopped = self._generation.ended and self._has_stop
        rest = self._take_logprobs(self._end if stopped else None)
        return self._choice({}, rest, "stop" if self._generation.ended else "length")

    def all_logprobs(self) -> dict[str, Any] | None:
        """Return the log-probabilities of the whole answer."""
        self._end = len(self._generation.text)
        return self._take_logprobs(self._end if self._generation.ended and self._has_stop else None)

    def _take_logprobs(self, end: int | None) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        self._logprobs.add(self._generation.scored_tokens)
        taken = self._logprobs.take(end)
        rows = zip(taken["tokens"], taken["token_logprobs"], taken["top_logprobs"], strict=True)
        return {"content": [_token_logprobs(*row, self._candidates) for row in rows], "refusal": None}

    def _choice(
        self, delta: dict[str, str], logprobs: dict[str, Any] | None, reason: str | None = None
    ) -> dict[str, Any]:
        return {"index": self._row, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _token_logprobs(token: str, logprob: float, candidates: dict[str, float], count: int) -> dict[str, Any]:
    ranked = sorted(candidates.items(), key=lambda candidate: -candidate[1])[:count]
    return {**_with_bytes(token, logprob), "top_logprobs": [_with_bytes(*candidate) for candidate in ranked]}


def _with_bytes(token: str, logprob: float) -> dict[str, Any]:
    """Return a token and its log-probability; the bytes of parts of characters are not known."""
    return {"token": token, "logprob": logprob, "bytes": None}
