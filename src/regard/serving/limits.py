"""How much one request, and all of them together, may ask for."""

import asyncio
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from regard.serving.errors import ApiError
from regard.serving.streaming import ClientDisconnectedError


@dataclass(frozen=True)
class Limits:
    """What keeps one client from taking everything."""

    body: int = 1_000_000
    """Bytes of a request."""
    characters: int = 20_000
    """Characters of all the texts of a request."""
    texts: int = 256
    """Texts, or prompts times samples, of a request."""
    beam: int = 16
    """Hypotheses that are followed at a time."""
    tokens: int = 1_000
    """Tokens that are written for a text."""
    queue: int = 256
    """Requests that wait for each model; the next is told to come back later."""
    deadline: float = 30.0
    """Seconds after which a request is given up."""
    budget: int = 1_024
    """Tokens of all hypotheses in a batch, by a rough count."""
    look: int = 600
    """Characters of a text that is looked into: a trace has numbers for every pair of its tokens."""
    traces: int = 8
    """Traces that are kept; the one that was asked least recently makes room for the next."""


FIELDS = 1000  # of a form
BAD_JSON = "Invalid JSON format"  # as LibreTranslate says it


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body of a request."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 15 or int(announced) > limits.body):
        raise _too_large(limits)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.deadline):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise _too_large(limits)
                parts.append(part)
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    except TimeoutError:
        raise ApiError(408, "The request did not come to its end in time; send it again.") from None
    return b"".join(parts)


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """The fields of a request: JSON, or a form as browsers and curl send it; else those in the address."""
    body = await read_body(request, limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return read_json(body, BAD_JSON)
    try:
        if kind == "multipart/form-data":
            return _parts(request.headers["content-type"], body)
        text = body.decode("utf-8") or request.url.query
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS))
    except (ValueError, LookupError):
        raise ApiError(400, "The form cannot be read; send it as UTF-8, or send JSON.") from None


def read_json(body: bytes, sentence: str | None = None) -> dict[str, Any]:
    """A JSON object: no lone surrogates, no NaN, no bottomless nesting; else a sentence, our own if none is given."""
    try:
        found = from_json(body, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        raise ApiError(400, sentence or f"The body is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ApiError(400, sentence or "The body is JSON, but no object; put the fields into braces.")
    return found


def _parts(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a form in parts; files are not taken."""
    message = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n" + body
    )
    found = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes) and part.get_filename() is None:
            found[name] = content.decode("utf-8")
    return found


def _too_large(limits: Limits) -> ApiError:
    headers = {"connection": "close"}  # what is left of the body is not read
    return ApiError(413, f"The request is larger than {limits.body:,} bytes; send less at a time.", headers=headers)
