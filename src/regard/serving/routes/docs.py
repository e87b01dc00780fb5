"""HTML pages without scripts: `/docs`, made from the OpenAPI document, and `/labs`, the results of the labs."""

import base64
import hashlib
import json
from functools import cache
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from regard.html import Markup, base_style, join, table, tag
from regard.labs import BOOK
from regard.serving.service import ServiceDependency
from regard.version import __version__

LABS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"  # SVG has styles
public_router = APIRouter(include_in_schema=False)
Schema = dict[str, Any]


@public_router.get("/docs")
async def docs(request: Request, service: ServiceDependency) -> Response:
    """Return the documentation of all routes."""
    content = docs_page(request.app.openapi(), [model.name for model in service.models])
    return HTMLResponse(content, headers={"content-security-policy": _docs_policy()})


@public_router.get("/labs")
async def labs() -> Response:
    """Return the report of all labs that comes with the package."""
    return FileResponse(BOOK, media_type="text/html", headers={"content-security-policy": LABS_POLICY})


@cache
def _docs_policy() -> str:
    digest = base64.b64encode(hashlib.sha256(base_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"


def docs_page(document: Schema, models: list[str]) -> str:
    """Return an OpenAPI document as HTML."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "regard: HTTP API"),
        tag("style", Markup(base_style())),
    )
    header = tag(
        "header",
        tag("p", f"regard {__version__}", class_="kind"),
        tag("h1", "HTTP API"),
        tag("p", "Models: ", ", ".join(models), ". OpenAPI document: ", _code("/openapi.json"), class_="summary"),
    )
    groups: dict[str, list[Markup]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(path, method, operation, document))
    sections = [tag("section", tag("h2", name), *operations) for name, operations in groups.items()]
    body = tag("body", tag("main", header, *sections))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _operation(path: str, method: str, operation: Schema, document: Schema) -> Markup:
    contents = operation.get("requestBody", {}).get("content", {})
    schema = _resolve(next((content["schema"] for content in contents.values()), {}), document)
    required = schema.get("required", ())
    rows = [
        [name, _type_name(field, document), "required" if name in required else _default(field), _description(field)]
        for name, field in schema.get("properties", {}).items()
    ]
    parts = [tag("h3", _code(f"{method.upper()} {path}")), tag("p", operation.get("description", ""), class_="note")]
    if rows:
        parts.append(table(["field", "type", "default", ""], rows))
    return join(*parts)


def _resolve(schema: Schema, document: Schema) -> Schema:
    """Follow a reference to a component."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    component: Schema = document["components"]["schemas"][name]
    return component


def _type_name(field: Schema, document: Schema) -> str:
    field = _resolve(field, document)
    if "anyOf" in field:
        return " or ".join(_type_name(choice, document) for choice in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_type_name(field.get('items', {}), document)}s"
    return str(field.get("type", "any"))


def _default(field: Schema) -> str:
    return json.dumps(field["default"]) if field.get("default") is not None else ""


def _description(field: Schema) -> str:
    return str(field.get("description", ""))


def _code(content: str) -> Markup:
    return tag("code", content)
