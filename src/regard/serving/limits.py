"""Limits of one request and of all requests together, and the middleware that bounds request bodies."""

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving.errors import CLIENT_CLOSED_STATUS, ApiError


@dataclass(frozen=True)
class Limits:
    """Limits that keep one client from taking all resources."""

    max_body_bytes: int = 1_000_000
    """Bytes of a request body."""
    max_characters: int = 20_000
    """Characters of all texts of a request."""
    max_texts: int = 256
    """Texts, or prompts times samples, of a request."""
    max_beam: int = 16
    """Beam width."""
    max_tokens: int = 1_000
    """Generated tokens per text."""
    max_queue: int = 256
    """Queued requests per model; further requests get 429."""
    timeout: float = 30.0
    """Seconds until a request is aborted."""
    drain_seconds: float | None = None
    """Seconds that running requests get when the server shuts down; None: as long as their timeout."""
    batch_tokens: int = 1_024
    """Approximate tokens of all hypotheses in a batch."""
    max_trace_characters: int = 600
    """Characters of a traced text: a trace has values for every pair of its tokens."""
    max_traces: int = 8
    """Stored traces; the least recently used one is dropped for the next."""
    max_batch: int = 16
    """Texts that a language model generates at a time, in one batch; further texts wait."""
    prefix_cache_mb: int = 256
    """Memory for the beginnings of prompts, per language model; with 0 each prompt is computed as a whole."""


def check_limits(*counts: tuple[str, int, int]) -> None:
    """Raise an error for the first (name, requested value, limit) whose value is over its limit."""
    for name, requested, limit in counts:
        if requested > limit:
            raise ApiError(400, f"{name}: {requested:,} exceeds this server's limit of {limit:,}; reduce it.")


class ClientDisconnectedError(ApiError):
    """The client closed its connection; the response only counts in the metrics."""

    def __init__(self) -> None:
        super().__init__(CLIENT_CLOSED_STATUS, "The client closed its connection.")


class BodyLimitMiddleware:
    """ASGI middleware that bounds the size of request bodies and the time until they are complete."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] == "http":
            receive = BoundedBody(scope, receive, self._limits)
        await self._app(scope, receive, send)


class BoundedBody:
    """`receive` of a request that bounds the size and the time of its body."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        self._scope = scope
        self._receive = receive
        self._limits = limits
        self._bytes = 0
        self._deadline: float | None = None
        self._complete = False

    async def __call__(self) -> Message:
        """Receive a message."""
        if self._complete:
            return await self._receive()
        if self._deadline is None:
            self._check_announced_size()
            self._deadline = asyncio.get_running_loop().time() + self._limits.timeout
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(408, "The request body did not arrive in time; send it again.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._limits.max_body_bytes:
            raise self._too_large()
        self._complete = not message.get("more_body", False)
        return message

    def _check_announced_size(self) -> None:
        announced = next((value for name, value in self._scope["headers"] if name == b"content-length"), b"")
        if announced.isdigit() and (len(announced) > 15 or int(announced) > self._limits.max_body_bytes):
            raise self._too_large()

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"The request is larger than {self._limits.max_body_bytes:,} bytes; send less at a time.",
            headers={"connection": "close"},  # the rest of the body is not read
        )
