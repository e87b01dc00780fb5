"""What a client reads when it does not get what it asked for: a status, a sentence, and nothing from inside.

OpenAI's clients expect an object in `error`, all others a sentence.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from regard.config.errors import did_you_mean

SHOWN = 60  # characters of a wrong value that are repeated
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):  # it is an answer
    """The answer to a request that cannot be granted."""

    def __init__(
        self, status: int, sentence: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.code = code
        self.headers = dict(headers or {})

    def body(self, path: str) -> bytes:
        """The answer's JSON, as the clients of this path expect it."""
        if not is_openai_path(path):
            return json.dumps({"error": self.sentence}, ensure_ascii=False).encode()
        kind = KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": self.sentence, "type": kind, "param": None, "code": self.code}
        return json.dumps({"error": error}, ensure_ascii=False).encode()


def is_openai_path(path: str) -> bool:
    """Whether a path is of OpenAI's protocol."""
    return path.startswith(("/v1/completions", "/v1/embeddings", "/v1/models"))


def invalid_fields(error: ValidationError, known: Sequence[str]) -> ApiError:
    """The first thing that is wrong with the fields of a request."""
    found = error.errors(include_url=False, include_context=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])  # why another may be missing
    name = ".".join(str(part) for part in first["loc"] if not _is_variant(part))
    match first["type"]:
        case "missing":
            return ApiError(400, f"{name} is missing.")
        case "extra_forbidden":
            return ApiError(400, f"{_short(name)} is not known here{did_you_mean(name, known)}.")
    fault = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return ApiError(400, f"{name} = {_short(_written(first['input']))} {fault}.")


def _is_variant(part: int | str) -> bool:
    """Pydantic names the kind of text, list or number that was tried; the client did not."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool") or "[" in part)


def _written(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "…"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
