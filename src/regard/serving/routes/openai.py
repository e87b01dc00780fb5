"""OpenAI's `/v1/completions` and `/v1/models` for language models, streamed or whole, so that its clients work."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regard.decoding.results import TextChunk
from regard.errors import ConfigError, InputError
from regard.serving.answer import as_json, written
from regard.serving.asked import read_asked
from regard.serving.completions import Asked, Completion
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel
from regard.serving.schema import NUMBER, OPENAI_ERROR, TEXT, WHOLE, answers, listed, obj, takes
from regard.serving.service import Service
from regard.serving.streaming import Stream, wait_for_answer

STARTED = int(time.time())
log = logging.getLogger(__name__)
LOGPROBS = obj(
    *("tokens", "token_logprobs", "top_logprobs", "text_offset"),
    tokens=listed(TEXT),
    token_logprobs=listed(NUMBER),
    top_logprobs=listed({"type": ["object", "null"]}),
    text_offset=listed(WHOLE),
)
CHOICE = obj(
    *("text", "index", "logprobs", "finish_reason"), text=TEXT, index=WHOLE,
    logprobs={"anyOf": [LOGPROBS, {"type": "null"}]}, finish_reason={"type": ["string", "null"]},
)  # fmt: skip
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
        asked = await read_asked(Asked, request, limits)
        model = service.named(asked.model, "continues")
        work = Completion(asked, model, limits)
        deadline = time.monotonic() + limits.deadline
        parts = Stream(service.desks[model.name].write(work.write, len(work.prompts) * work.samples))
        if not asked.stream:
            try:
                await wait_for_answer(request, parts.exhaust(), limits.deadline)
            finally:
                await parts.close()
            return as_json(await asyncio.to_thread(work.whole))
        # whatever can be refused is refused with the first part, while the status can still say so
        try:
            await wait_for_answer(request, parts.peek(), limits.deadline)
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
            raise ApiError(404, f"There is no model {name[:60]!r} here.", code="model_not_found")
        return as_json(_about(found))

    return routes


async def _events(work: Completion, parts: Stream[TextChunk], deadline: float) -> AsyncIterator[bytes]:
    """The answer as it is written; a failure on the way is its last event."""
    try:
        texts = work.events()
        if work.asked.echo:
            for text in texts:
                yield _event(work, text.prompt())
        async for part in parts.until(deadline):
            yield _event(work, texts[part.row].more(part.text))
        for text in texts:
            yield _event(work, text.end())
        if (work.asked.stream_options or {}).get("include_usage"):
            yield b"data: " + written({**work.head(), "choices": [], "usage": work.usage()}) + b"\n\n"
        yield b"data: [DONE]\n\n"
    except Exception as error:
        known = isinstance(error, ApiError | ConfigError | InputError)
        if not known:
            log.exception("a stream failed")
        refusal = ApiError(500, str(error) if known else "Something failed here; the server's log has it.")
        yield b"data: " + refusal.body("/v1/completions") + b"\n\n"
    finally:
        await parts.close()


def _event(work: Completion, choice: dict[str, Any]) -> bytes:
    return b"data: " + written({**work.head(), "choices": [choice]}) + b"\n\n"


def _about(model: LoadedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": STARTED, "owned_by": "regard"}


def _with_stream(found: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Answers of a route that also streams."""
    found[200]["content"]["text/event-stream"] = {"schema": obj("data", data=TEXT)}  # of each event
    return found
