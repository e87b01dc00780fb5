"""OpenAI's protocol: completions and chat completions of language models, embeddings of encoders, and the models."""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regard.decoding.results import TextChunk
from regard.errors import ConfigError, InputError
from regard.registry import Pooling
from regard.serving.chat_completions import ChatCompletion, ChatCompletionRequest, ChatCompletionResponse
from regard.serving.completions import Completion, CompletionRequest, CompletionResponse, OpenAIRequest
from regard.serving.encoder_jobs import EmbedJob, TextVector
from regard.serving.errors import ApiError, Responses
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import OpenAIRouter, check_text_limits, json_bytes, json_response
from regard.serving.service import Service, ServiceDependency
from regard.serving.streaming import PeekableStream, wait_for_result

STARTED = int(time.time())
EVENT_STREAM = "text/event-stream"
DENSE_POOLINGS = {"first-dense": "dense", "first-relu": "ReLU"}
_STREAM_DOCUMENTATION: Responses = {
    200: {
        "description": "The completions; with `stream`, chunks of them as server-sent events.",
        "content": {EVENT_STREAM: {"schema": {"type": "object", "properties": {"data": {"type": "string"}}}}},
    }
}
router = OpenAIRouter()
log = logging.getLogger(__name__)


@router.post(
    "/v1/completions", response_model=CompletionResponse, responses=_STREAM_DOCUMENTATION, summary="Continue texts"
)
async def completions(body: CompletionRequest, request: Request, service: ServiceDependency) -> Response:
    """Generate completions of prompts, streamed or as a whole."""
    model = service.model(body.model, "generate")
    return await _complete(Completion(body, model, service.limits), model, request, service)


@router.post(
    "/v1/chat/completions",
    response_model=ChatCompletionResponse,
    responses=_STREAM_DOCUMENTATION,
    summary="Answer conversations",
)
async def chat_completions(body: ChatCompletionRequest, request: Request, service: ServiceDependency) -> Response:
    """Generate answers to a conversation, streamed or as a whole."""
    model = service.model(body.model, "generate")
    # in a thread: a chat template may take seconds
    completion = await asyncio.to_thread(ChatCompletion, body, model, service.limits)
    return await _complete(completion, model, request, service)


async def _complete(
    completion: Completion | ChatCompletion, model: LoadedModel, request: Request, service: Service
) -> Response:
    limits = service.limits
    deadline = time.monotonic() + limits.timeout
    pool = service.generation_pools[model.name]
    chunks = PeekableStream(pool.stream(completion.generate, completion.num_texts))
    if not completion.request.stream:
        try:
            await wait_for_result(request, chunks.drain(), limits.timeout)
        finally:
            await chunks.close()
        service.metrics.count_prompts(model.name, completion.generations)
        return json_response(await asyncio.to_thread(completion.response))
    # errors of the request show up with the first chunk, while the status can still be set
    try:
        await wait_for_result(request, chunks.peek(), limits.timeout)
    except BaseException:
        await chunks.close()
        raise
    count_prompts = partial(service.metrics.count_prompts, model.name, completion.generations)
    events = _events(completion, chunks, deadline, request, count_prompts)
    return StreamingResponse(events, media_type=EVENT_STREAM)


async def _events(
    completion: Completion | ChatCompletion,
    chunks: PeekableStream[TextChunk],
    deadline: float,
    request: Request,
    on_end: Callable[[], None],
) -> AsyncIterator[bytes]:
    """Yield the completion as server-sent events; an error is the last event."""
    path, request_id = request.scope["path"], request.scope["request_id"]
    try:
        choices = completion.choices()
        for choice in choices:
            if (start := choice.start()) is not None:
                yield _choice_event(completion, start)
        async for chunk in chunks.until(deadline):
            yield _choice_event(completion, choices[chunk.row].chunk(chunk.text))
        for choice in choices:
            yield _choice_event(completion, choice.end())
        if (completion.request.stream_options or {}).get("include_usage"):
            yield _event(json_bytes({**completion.head(), "choices": [], "usage": completion.usage()}))
        yield _event(b"[DONE]")
    except (ApiError, ConfigError, InputError) as error:
        message = error.message if isinstance(error, ApiError) else str(error)
        yield _event(ApiError(500, message).body(path))
    except Exception:
        log.exception("the stream of request %s failed", request_id, extra={"fields": {"request_id": request_id}})
        message = f"Internal error; the server's log has the details under {request_id}."
        yield _event(ApiError(500, message).body(path))
    finally:
        on_end()
        await chunks.close()


def _choice_event(completion: Completion | ChatCompletion, choice: dict[str, Any]) -> bytes:
    return _event(json_bytes({**completion.head(), "choices": [choice]}))


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


class EmbeddingsRequest(OpenAIRequest):
    """Fields of OpenAI's embeddings, and `pooling` and `normalize`."""

    model_config = ConfigDict(json_schema_extra={"x-ability": "embed"})

    model: str
    input: str | list[str] = Field(examples=["A text."])
    """A text or a list of texts."""
    encoding_format: Literal["float", "base64"] | None = None
    """Vectors as numbers, or as base64 of little-endian 32-bit floats."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Width of the model's vectors; others are not supported."""
    pooling: Pooling | None = None
    """By default the model's own."""
    normalize: bool = True
    """Whether to scale vectors to length 1, so that their dot product is the cosine similarity."""


class EmbeddingItem(BaseModel):
    """Embedding of a text."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: bool | None = None
    """Set if the text was longer than the model reads."""


class EmbeddingsUsage(BaseModel):
    """Token counts of a request."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """Embedding of each text."""

    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingsUsage


@router.post("/v1/embeddings", response_model=EmbeddingsResponse, summary="Embed texts")
async def embeddings(body: EmbeddingsRequest, request: Request, service: ServiceDependency) -> Response:
    """Return a vector for each text."""
    model = service.model(body.model, "embed")
    texts = body.input if isinstance(body.input, list) else [body.input]
    check_text_limits(service.limits, texts, input=len(texts))
    _check_embeddings(body, texts, model)
    result = await service.run_batch(request, model, texts, EmbedJob(body.pooling, body.normalize))
    return await asyncio.to_thread(_embeddings_response, result.outputs, body, model.name)  # many numbers


def _check_embeddings(body: EmbeddingsRequest, texts: list[str], loaded: LoadedModel) -> None:
    config: Any = loaded.model.config.model
    if not texts:
        raise ApiError(400, "input is empty; send a text or a list of texts.")
    if body.dimensions not in (None, config.width):
        raise ApiError(
            400, f"dimensions = {body.dimensions:,}: the vectors of {loaded.name} have {config.width:,}; remove it."
        )
    if body.pooling in DENSE_POOLINGS and body.pooling != config.pooling:
        kind = DENSE_POOLINGS[body.pooling]
        raise ApiError(400, f"pooling = {body.pooling}: {loaded.name} has no {kind} pooling layer; use mean or first.")


def _embeddings_response(vectors: list[TextVector], body: EmbeddingsRequest, name: str) -> Response:
    tokens = sum(vector.tokens for vector in vectors)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _encode_vector(vector, body.encoding_format),
            **({"truncated": True} if vector.truncated else {}),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": name, "usage": usage})


def _encode_vector(vector: TextVector, encoding: str | None) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.values.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.values.tolist()
    return numbers


class ModelItem(BaseModel):
    """Served model."""

    id: str
    object: Literal["model"] = "model"
    created: int = STARTED
    owned_by: str = "regard"


class ModelsResponse(BaseModel):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[ModelItem]


@router.get("/v1/models", summary="List the models")
async def list_models(service: ServiceDependency) -> ModelsResponse:
    """Return the names of all models."""
    return ModelsResponse(data=[ModelItem(id=model.name) for model in service.models])


@router.get("/v1/models/{name}", summary="Get a model")
async def get_model(name: str, service: ServiceDependency) -> ModelItem:
    """Return a model by its name; without a version, the default one."""
    if name not in service.names():
        raise ApiError(404, f"There is no model {name[:60]!r}.", code="model_not_found")
    return ModelItem(id=service.model(name).name)
