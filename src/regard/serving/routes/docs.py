"""The API on one page, made from the OpenAPI document; it loads nothing from anywhere."""

import base64
import hashlib
import json
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from regard.html import Markup, base_style, join, table, tag
from regard.serving.service import Service
from regard.version import __version__


def router(service: Service) -> APIRouter:
    """The page."""
    routes = APIRouter(include_in_schema=False)
    look = base_style()
    digest = base64.b64encode(hashlib.sha256(look.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"

    @routes.get("/docs")
    async def docs(request: Request) -> Response:
        content = page(request.app.openapi(), look, [model.name for model in service.models])
        return HTMLResponse(content, headers={"content-security-policy": policy})

    return routes


def page(document: dict[str, Any], look: str, models: list[str]) -> str:
    """The page as HTML."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "regard: the API"),
        tag("style", Markup(look)),
    )
    header = tag(
        "header",
        tag("p", f"regard {__version__}", class_="kind"),
        tag("h1", "The API"),
        tag("p", "Models: ", ", ".join(models), ". The same for machines: ", _code("/openapi.json"), class_="summary"),
    )
    groups: dict[str, list[Markup]] = {}
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            groups.setdefault(about["tags"][0], []).append(_route(path, method, about))
    sections = [tag("section", tag("h2", name), *routes) for name, routes in groups.items()]
    body = tag("body", tag("main", header, *sections))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _route(path: str, method: str, about: dict[str, Any]) -> Markup:
    body = about.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = next((kind["schema"] for kind in body.values()), {})
    required = schema.get("required", ())
    rows = [
        [name, _type(field), "required" if name in required else _default(field), field.get("description", "")]
        for name, field in schema.get("properties", {}).items()
    ]
    parts = [tag("h3", _code(f"{method.upper()} {path}")), tag("p", about.get("summary", ""), class_="note")]
    if rows:
        parts.append(table(["field", "type", "default", ""], rows))
    return join(*parts)


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if "$ref" in field:
        return "object"
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}s"
    return {"string": "text", "integer": "whole number"}.get(kind, str(kind))


def _default(field: dict[str, Any]) -> str:
    return json.dumps(field["default"]) if field.get("default") is not None else ""


def _code(content: str) -> Markup:
    return tag("code", content)
