"""Pieces of the OpenAPI document, for routes that read their requests themselves."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]
ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
OPENAI_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
REFUSALS = {
    400: "Something is wrong with the request.",
    401: "The key is missing or wrong.",
    403: "The key is wrong, or the page may not ask.",
    404: "There is no such model.",
    408: "The request did not come to its end.",
    413: "The request is too large.",
    421: "The server does not go by that name.",
    429: "The queue is full; Retry-After says when to come back.",
    500: "Something failed.",
    504: "The deadline has passed.",
}


def obj(*required: str, **properties: Schema) -> Schema:
    """An object with these properties."""
    return {"type": "object", "required": list(required), "properties": properties}


def listed(of: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": of}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "null"]}
WHOLE: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
TEXTS: Schema = {"anyOf": [TEXT, listed(TEXT)]}


def answers(schema: Schema, *, error: Schema = ERROR, kind: str = "application/json") -> dict[int | str, Schema]:
    """What a route may answer: this, or a refusal."""
    good = {"description": "The answer.", "content": {kind: {"schema": schema}}}
    refusals: dict[int | str, Schema] = {
        status: {"description": about, "content": {"application/json": {"schema": error}}}
        for status, about in REFUSALS.items()
    }
    return {200: good, **refusals}


def takes(
    schema: Schema | type[BaseModel], *, form: bool = False, choices: Mapping[str, Iterable[str]] | None = None
) -> Schema:
    """A request's body: JSON, and a form if clients may send one; for some fields, what there is to choose from."""
    plain = schema if isinstance(schema, dict) else schema.model_json_schema()
    named = {name: {**TEXT, "enum": list(options)} for name, options in (choices or {}).items()}
    plain = plain | {"properties": plain["properties"] | named}
    kinds = ["application/json", *(["application/x-www-form-urlencoded"] if form else [])]
    return {"requestBody": {"required": True, "content": {kind: {"schema": plain} for kind in kinds}}}
