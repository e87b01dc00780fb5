"""Answers as JSON, written straight: no schema is consulted on the way out."""

import json
from typing import Any

from starlette.responses import Response

TYPE = "application/json"
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def as_json(content: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(written(content), status, media_type=TYPE)


def written(content: Any) -> bytes:
    """JSON, in UTF-8."""
    return _JSON.encode(content).encode()
