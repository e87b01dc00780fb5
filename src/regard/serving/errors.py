"""Errors as clients receive them: a status and one message, in the JSON shape of the protocol.

OpenAI's clients expect an object under `error`, all other clients a string. Nothing internal is sent.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request
from starlette.responses import Response

SHOWN_CHARACTERS = 60  # of an invalid value that is repeated in a message
JSON_TYPE = "application/json"
CLIENT_CLOSED_STATUS = 499  # the client closed its connection; only in the log and the metrics
EMPTY_BODY_MESSAGE = "The request body is empty; send a JSON object."
OPENAI_PATHS: set[str] = set()
"""Beginnings of the paths of OpenAI's protocol; an `OpenAIRouter` adds its own."""
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ErrorResponse(BaseModel):
    """Error of LibreTranslate's routes and of regard's own."""

    error: str


class OpenAIError(BaseModel):
    """Error as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorResponse(BaseModel):
    """Error of OpenAI's routes."""

    error: OpenAIError


_DESCRIPTIONS = {
    400: "The request is invalid.",
    401: "The API key is missing or wrong.",
    403: "The API key is wrong, or the page's origin is not allowed.",
    404: "There is no such model.",
    408: "The request body did not arrive in time.",
    413: "The request is too large.",
    421: "The Host header does not name this server.",
    429: "The queue is full; Retry-After has the seconds to wait.",
    500: "The server failed; its log has the details.",
    503: "The server is shutting down; Retry-After has the seconds to wait.",
    504: "The request timed out.",
}
Responses = dict[int | str, dict[str, Any]]
ERROR_RESPONSES: Responses = {
    status: {"model": ErrorResponse, "description": text} for status, text in _DESCRIPTIONS.items()
}
OPENAI_ERROR_RESPONSES: Responses = {
    status: {"model": OpenAIErrorResponse, "description": text} for status, text in _DESCRIPTIONS.items()
}


class ApiError(HTTPException):
    """Error that a route, a dependency or a queue answers a request with."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code
        """Machine-readable code for OpenAI's clients."""

    @property
    def message(self) -> str:
        """Text that the client reads."""
        return str(self.detail)

    def body(self, path: str) -> bytes:
        """Return the JSON body that the clients of a path expect."""
        if not is_openai_path(path):
            return _encode({"error": self.message})
        kind = _OPENAI_TYPES.get(
            self.status_code, "server_error" if self.status_code >= 500 else "invalid_request_error"
        )
        return _encode({"error": {"message": self.message, "type": kind, "param": None, "code": self.code}})

    def response(self, path: str) -> Response:
        """Return the HTTP response for a path."""
        return Response(self.body(path), self.status_code, dict(self.headers or {}), JSON_TYPE)


def is_openai_path(path: str) -> bool:
    """Return whether a path belongs to OpenAI's protocol."""
    return path.startswith(tuple(OPENAI_PATHS))


def queue_full_error(max_queue: int, seconds: int = 1) -> ApiError:
    """Return the error of a request that finds its queue full."""
    return ApiError(
        429,
        f"Slowdown: {max_queue:,} requests are already queued; retry in {seconds} s.",
        code="rate_limit_exceeded",
        headers={"retry-after": str(seconds)},
    )


def shutdown_error() -> ApiError:
    """Return the error of a request that a server cannot answer because it is shutting down."""
    headers = {"retry-after": "1", "connection": "close"}
    return ApiError(503, "The server is shutting down; send the request again.", headers=headers)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for `ApiError`, and for paths and methods that the router does not know."""
    path = request.url.path
    if isinstance(error, ApiError):
        return error.response(path)
    assert isinstance(error, StarletteHTTPException)
    shown = path[:100]
    message = {
        404: f"There is no route {shown}; see /docs.",
        405: f"{request.method} is not allowed for {shown}; see /docs.",
    }.get(error.status_code, f"{error.detail}.")
    return ApiError(error.status_code, message, headers=error.headers).response(path)


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Exception handler for request bodies that do not fit their model: 400 with the first error."""
    assert isinstance(error, RequestValidationError)
    return ApiError(400, validation_message(error.errors())).response(request.url.path)


async def handle_input_error(request: Request, error: Exception) -> Response:
    """Exception handler for options or texts that a model cannot process; the exception has the message."""
    return ApiError(400, str(error)).response(request.url.path)


def validation_message(errors: Sequence[Any]) -> str:
    """Return one message for pydantic's errors: field, value and what is wrong with the first of them."""
    first = errors[0]
    name = ".".join(str(part) for part in first["loc"] if part != "body" and not _is_union_member(part))
    if first["type"] in ("invalid_json", "unknown_field"):
        return str(first["msg"])
    if first["type"] == "missing":
        return f"{name} is missing." if name else EMPTY_BODY_MESSAGE
    problem = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return f"{name} = {shorten_value(_as_json(first['input']))} {problem}."


def shorten_value(text: str) -> str:
    """Return a text as messages repeat it: its first characters."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _is_union_member(part: int | str) -> bool:
    """Return whether a part of an error's location is a type that pydantic tried, not a field of the client."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool") or "[" in part)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "…"


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
