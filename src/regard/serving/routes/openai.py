"""OpenAI's `/v1/completions` and `/v1/models` for language models, streamed or whole, so that its clients work."""

import secrets
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regard.decoding.generator import Continuation, Part, Prompting
from regard.decoding.settings import Bounds, Sampling
from regard.errors import ConfigError, InputError
from regard.serving.answer import as_json, written
from regard.serving.reading import read_body, read_json
from regard.serving.refusal import Refusal, wrong_fields
from regard.serving.schema import NUMBER, OPENAI_ERROR, TEXT, WHOLE, answers, listed, obj, takes
from regard.serving.served import Served
from regard.serving.service import Service
from regard.serving.streaming import Stream
from regard.serving.waiting import while_wanted

STARTED = int(time.time())
UNSUPPORTED = ("suffix", "logit_bias", "logprobs", "presence_penalty", "frequency_penalty")
SEEDS = 2**63


class Asked(BaseModel):
    """What is asked, as OpenAI names it, with `top_k`, `min_p` and `repetition_penalty` besides."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    model: str
    prompt: str | list[str] = ""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    best_of: int | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-SEEDS, lt=SEEDS)] | None = None
    echo: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    """With `include_usage`, the last event but one counts tokens."""
    top_k: Annotated[int, Field(ge=1, le=10**6)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    suffix: Any = None
    logit_bias: Any = None
    logprobs: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None


CHOICE = obj("text", "index", "finish_reason", text=TEXT, index=WHOLE, finish_reason={"type": ["string", "null"]})
USAGE = obj("prompt_tokens", "completion_tokens", "total_tokens", prompt_tokens=WHOLE, completion_tokens=WHOLE)
ANSWER = obj(
    *("id", "object", "created", "model", "choices"), id=TEXT, object=TEXT, created=WHOLE, model=TEXT,
    choices=listed(CHOICE), usage=USAGE,
)  # fmt: skip
MODEL = obj("id", "object", "created", "owned_by", id=TEXT, object=TEXT, created=NUMBER, owned_by=TEXT)


def router(service: Service) -> APIRouter:
    """The routes of the protocol."""
    routes = APIRouter(tags=["OpenAI"])
    limits = service.limits

    @routes.post(
        "/v1/completions",
        summary="Go on with a text",
        responses=_with_stream(answers(ANSWER, error=OPENAI_ERROR)),
        openapi_extra=takes(Asked, choices={"model": list(service.desks)}),
    )
    async def completions(request: Request) -> Response:
        asked = _read(await read_body(request, limits))
        model = service.named(asked.model, "continues")
        work = _Work(asked, model, service)
        deadline = time.monotonic() + limits.deadline
        parts = Stream(service.desks[model.name].write(work.prompts, work.wish, work.found, seeded=work.seeded))
        if not asked.stream:
            try:
                await while_wanted(request, parts.exhaust(), limits.deadline)
            finally:
                await parts.close()
            return as_json(work.whole())
        # whatever can be refused is refused with the first part, while the status can still say so
        try:
            await while_wanted(request, parts.peek(), limits.deadline)
        except BaseException:
            await parts.close()
            raise
        return StreamingResponse(_events(work, parts, deadline), media_type="text/event-stream")

    @routes.get(
        "/v1/models",
        summary="List the models",
        responses=answers(obj("object", "data", object=TEXT, data=listed(MODEL)), error=OPENAI_ERROR),
    )
    async def models() -> Response:
        return as_json({"object": "list", "data": [_about(model) for model in service.models]})

    @routes.get("/v1/models/{name}", summary="One model", responses=answers(MODEL, error=OPENAI_ERROR))
    async def one_model(name: str) -> Response:
        found = next((model for model in service.models if model.name == name), None)
        if found is None:
            raise Refusal(404, f"There is no model {name[:60]!r} here.", code="model_not_found")
        return as_json(_about(found))

    return routes


async def _events(work: "_Work", parts: Stream[Part], deadline: float) -> AsyncIterator[bytes]:
    """The answer as it is written; a failure on the way is its last event."""
    try:
        if work.asked.echo:
            for row in range(len(work.found)):
                yield _event(work.chunk(work.found[row].prompt, row))
        async for part in parts.until(deadline):
            yield _event(work.chunk(part.text, part.row))
        for row, found in enumerate(work.found):
            yield _event(work.chunk("", row, "stop" if found.ended else "length"))
        if (work.asked.stream_options or {}).get("include_usage"):
            yield _event({**work.head(), "choices": [], "usage": work.usage()})
        yield b"data: [DONE]\n\n"
    except Exception as error:
        sentence = str(error) if isinstance(error, Refusal | ConfigError | InputError) else "Something failed here."
        yield b"data: " + Refusal(500, sentence).body("/v1/completions") + b"\n\n"
    finally:
        await parts.close()


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + written(content) + b"\n\n"


def _read(body: bytes) -> Asked:
    try:
        asked = Asked.model_validate(read_json(body))
    except ValidationError as error:
        raise wrong_fields(error, list(Asked.model_fields)) from None
    for name in UNSUPPORTED:
        if getattr(asked, name):
            raise Refusal(400, f"{name} is not supported here; leave it out.")
    if asked.best_of is not None and asked.best_of != (asked.n or 1):
        raise Refusal(400, "best_of is not supported here; leave it out.")
    return asked


class _Work:
    """A request that is carried out."""

    def __init__(self, asked: Asked, model: Served, service: Service) -> None:
        self.asked = asked
        self.prompts = asked.prompt if isinstance(asked.prompt, list) else [asked.prompt]
        self.found: list[Continuation] = []
        self.seeded = asked.seed is not None
        self._model = model
        self._id, self._created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        self._check(service)
        sampling = Sampling(
            1.0 if asked.temperature is None else asked.temperature,
            asked.top_k,
            asked.top_p,
            asked.min_p,
            1.0 if asked.repetition_penalty is None else asked.repetition_penalty,
            seed=secrets.randbelow(2**31) if asked.seed is None else asked.seed % 2**31,
            bounds=Bounds(longest=asked.max_tokens or 16),
        )
        stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        self.wish = Prompting(sampling, asked.n or 1, tuple(text for text in stop if text))

    def _check(self, service: Service) -> None:
        limits, asked = service.limits, self.asked
        for name, given, most in (
            ("prompts times n", len(self.prompts) * (asked.n or 1), limits.texts),
            ("characters of the prompt", sum(map(len, self.prompts)), limits.characters),
            ("max_tokens", asked.max_tokens or 0, limits.tokens),
        ):
            if given > most:
                raise Refusal(400, f"{name}: {given:,} is more than this server's limit of {most:,}; ask for less.")

    def head(self) -> dict[str, Any]:
        """What every part of the answer begins with."""
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model.name}

    def chunk(self, text: str, row: int, reason: str | None = None) -> dict[str, Any]:
        """Some more of one text."""
        choice = {"text": text, "index": row, "logprobs": None, "finish_reason": reason}
        return {**self.head(), "choices": [choice]}

    def whole(self) -> dict[str, Any]:
        """The answer at once."""
        choices = [
            {
                "text": found.prompt + found.text if self.asked.echo else found.text,
                "index": row,
                "logprobs": None,
                "finish_reason": "stop" if found.ended else "length",
            }
            for row, found in enumerate(self.found)
        ]
        return {**self.head(), "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """Tokens that were read and written."""
        read = sum(len(ids) for ids in self._model.model.tokenizer.encode_all(self.prompts))
        wrote = sum(len(found.tokens) for found in self.found)
        return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _about(model: Served) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": STARTED, "owned_by": "regard"}


def _with_stream(found: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Answers of a route that also streams."""
    found[200]["content"]["text/event-stream"] = {"schema": obj("data", data=TEXT)}  # of each event
    return found
