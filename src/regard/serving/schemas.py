"""Base classes of request bodies, fields that several routes share, and JSON responses."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError, from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.config.errors import did_you_mean
from regard.errors import ConfigError, InputError
from regard.serving.errors import (
    EMPTY_BODY_MESSAGE,
    JSON_TYPE,
    OPENAI_ERROR_RESPONSES,
    OPENAI_PATHS,
    ApiError,
    handle_input_error,
    shorten_value,
    validation_message,
)
from regard.serving.limits import BoundedBody, Limits, check_limits

PROBABILITY_DIGITS = 6
GZIP_MIN_BYTES = 1_000  # of a response that is compressed, if the client accepts it
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_JSON_HEADER = (b"content-type", JSON_TYPE.encode())
Compress = Callable[[ASGIApp], ASGIApp]
Timeout = Annotated[float, Field(gt=0)]
Body = TypeVar("Body", bound="RequestModel")


class UnparsedRequest(Request):
    """Request that passes its body on as bytes, which the request model parses.

    FastAPI parses JSON before it runs the dependencies of a route. This way the API key is checked first, there is one
    strict parser, and the content type does not matter.
    """

    async def json(self) -> bytes:
        """Return the body unparsed."""
        return await self.body()


class JsonRoute(APIRoute):
    """Route whose request model is a `RequestModel`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which gets the body unparsed."""
        handle = super().get_route_handler()

        async def handle_unparsed(request: Request) -> Response:
            return await handle(UnparsedRequest(request.scope, request.receive))

        return handle_unparsed


class OpenAIRouter(APIRouter):
    """Router of OpenAI's protocol: errors on its paths have OpenAI's shape, also those that occur before routing."""

    def __init__(self) -> None:
        super().__init__(tags=["OpenAI"], route_class=JsonRoute, responses=OPENAI_ERROR_RESPONSES)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route, and its path to those of OpenAI's protocol."""
        OPENAI_PATHS.add(path.partition("{")[0].rstrip("/"))
        super().add_api_route(path, endpoint, **options)


class DirectRequest(Request):
    """Request whose body is read without Starlette's stream."""

    async def body(self) -> bytes:
        """Return the body, which may be read once."""
        message = await self.receive()
        content: bytes = message.get("body", b"")
        while message.get("more_body", False):
            message = await self.receive()
            content += message.get("body", b"")
        return content


@dataclass(frozen=True)
class DirectRoute:
    """Endpoint that handles POST requests to a path before the FastAPI route of this path, which documents it.

    FastAPI's dependencies and middleware take longer than everything else that a small request needs, except for the
    model (see docs/performance.md). The endpoint gets a `DirectRequest` alone and reads its body with `parse_body`.
    """

    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    failure_prefix: str = ""
    """Beginning of the message of an internal error, where the clients of a protocol read it."""


class DirectRouteMiddleware:
    """ASGI middleware that calls the endpoints of direct routes, with the limits and errors of all other routes."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, DirectRoute], limits: Limits, compress: Compress) -> None:
        self._app = app
        self._routes = routes
        self._limits = limits
        self._compress = compress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = DirectRequest(scope, BoundedBody(scope, receive, self._limits))
        try:
            response = await route.endpoint(request)
        except ApiError as error:
            response = error.response(route.path)
        except (ConfigError, InputError) as error:
            response = await handle_input_error(request, error)
        if len(response.body) >= GZIP_MIN_BYTES:
            await self._compress(response)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body})


class RequestModel(BaseModel):
    """Base class of JSON request bodies: unknown fields and other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, content: Any) -> Any:
        if isinstance(content, bytes):
            content = parse_json_object(content)
        if isinstance(content, dict) and cls.model_config.get("extra") == "forbid":
            for name in content:
                if name not in cls.model_fields:
                    hint = did_you_mean(name, list(cls.model_fields))
                    raise PydanticCustomError(
                        "unknown_field", "{message}", {"message": f"Unknown field {shorten_value(name)}{hint}."}
                    )
        return content


def parse_body(content: bytes, model: type[Body]) -> Body:
    """Return the validated JSON body of a request, for endpoints of a `DirectRoute`."""
    if not content:
        raise ApiError(400, EMPTY_BODY_MESSAGE)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ApiError(400, validation_message(error.errors(include_url=False))) from None


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; NaN, lone surrogates and very deep nesting are errors."""
    try:
        content = from_json(body, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        raise PydanticCustomError(
            "invalid_json", "{message}", {"message": f"The request body is not JSON: {error}."}
        ) from None
    if not isinstance(content, dict):
        message = "The request body is JSON, but not an object; put the fields into braces."
        raise PydanticCustomError("invalid_json", "{message}", {"message": message})
    return content


class TextsRequest(RequestModel):
    """Request with one text or a list of texts for a model."""

    text: str | list[str]
    """A text or a list of texts."""
    model: str | None = None
    """Name of the model; by default the first one with this ability."""
    timeout: Timeout | None = None
    """Seconds until the request is aborted; at most the server's own timeout."""

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return self.text if isinstance(self.text, list) else [self.text]


class Timings(BaseModel):
    """Time that a request took."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    queue_ms: float
    """Milliseconds until the batch with the last text started."""
    compute_ms: float
    """Milliseconds that this batch took."""
    batch_size: int
    """Texts in this batch, including those of other requests."""


class TextsResponse(BaseModel):
    """Fields of every response about texts."""

    model: str
    """Name of the model."""
    timings: Timings


def check_text_limits(limits: Limits, texts: Sequence[str], **counts: int) -> None:
    """Raise an error for too many characters, or for a named count over the limit of texts."""
    check_limits(
        *((name, count, limits.max_texts) for name, count in counts.items()),
        ("characters", sum(map(len, texts)), limits.max_characters),
    )


def round_probability(probability: float) -> float:
    """Return a probability with its significant digits."""
    return round(probability, PROBABILITY_DIGITS)


def json_bytes(content: Any) -> bytes:
    """Return compact JSON in UTF-8; NaN and infinity are errors."""
    return _JSON.encode(content).encode()


class JsonResponse(Response):
    """JSON response that is not validated again: for large or frequent responses."""

    def __init__(self, content: Any) -> None:
        self.status_code, self.background = 200, None
        self.body = json_bytes(content)
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), _JSON_HEADER]


def json_response(content: Any) -> Response:
    """Return a JSON response that is not validated again."""
    return JsonResponse(content)
