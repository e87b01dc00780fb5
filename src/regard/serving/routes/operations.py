"""Routes about the server itself: health checks and metrics, `/v1/about`, and the HTML pages `/docs` and `/labs`.

`/v1/about` has the served models with settings and model cards. `/docs` is made from the OpenAPI document and `/labs`
has the results of the labs; both pages have no scripts.
"""

import asyncio
import base64
import hashlib
import json
from functools import cache
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from regard.files import read_regular_file
from regard.html import Markup, base_style, join, table, tag
from regard.labs import REPORT, all_labs
from regard.models.folder_files import CARD_FILE
from regard.serving.errors import ApiError, ErrorResponse, shutdown_error
from regard.serving.languages import language_name
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import JsonRoute
from regard.serving.service import Service, ServiceDependency
from regard.training.task import Ability
from regard.version import __version__

MAX_CARD_CHARACTERS = 40_000
LABS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"  # SVG has styles
Schema = dict[str, Any]
router = APIRouter(tags=["operations"], route_class=JsonRoute)
public_router = APIRouter(tags=["operations"], route_class=JsonRoute)


# --- health and metrics -----------------------------------------------------------------------------------------------


class StatusResponse(BaseModel):
    """State of the server."""

    status: str


@public_router.get("/livez", summary="Whether the server is alive")
@public_router.get("/healthz", summary="Whether the server is alive (older name of /livez)")
async def livez() -> StatusResponse:
    """Liveness check: the server responds, also while it is shutting down."""
    return StatusResponse(status="ok")


@public_router.get(
    "/readyz",
    summary="Whether the server accepts requests",
    responses={503: {"model": ErrorResponse, "description": "A queue is full, or the server is shutting down."}},
)
async def readyz(service: ServiceDependency) -> StatusResponse:
    """Readiness check: 503 while the queue of a model is full, or the server is shutting down.

    The server accepts connections when all models are loaded and warmed up.
    """
    if service.is_draining:
        raise shutdown_error()
    full = [name for name, queue in service.queues.items() if queue.is_full]
    if full:
        raise ApiError(503, f"The queue of {', '.join(full)} is full.", headers={"retry-after": "1"})
    return StatusResponse(status="ready")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(service: ServiceDependency) -> Response:
    """Return counters, histograms and gauges in Prometheus's text format."""
    return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


# --- about ------------------------------------------------------------------------------------------------------------


class LanguageItem(BaseModel):
    """Language code and its English name."""

    code: str
    name: str


class ModelInfo(BaseModel):
    """Served model: what it can do, its settings and its model card."""

    name: str
    version: str | None = None
    """Version in the name, after `@`."""
    default: bool
    """Whether requests with the name alone, without a version, get this model."""
    abilities: list[Ability]
    chats: bool = False
    """Whether it has a chat template."""
    source: LanguageItem | None = None
    target: LanguageItem | None = None
    family: str
    parameters: int
    settings: dict[str, Any]
    card: str
    covers: str | None = None


class AboutLimits(BaseModel):
    """Limits that clients should know."""

    max_characters: int
    max_trace_characters: int
    max_beam: int


class AboutResponse(BaseModel):
    """The server, its models, and the claims of the labs by name."""

    version: str
    beam: int | None = None
    """Beam width of requests that set none; missing: that of the model."""
    limits: AboutLimits
    models: list[ModelInfo]
    labs: dict[str, str]


@router.get("/v1/about", summary="Models with languages, settings and model cards", response_model_exclude_none=True)
async def about(service: ServiceDependency) -> AboutResponse:
    """Describe the served models."""
    return await asyncio.to_thread(_about, service)  # the first time, networks may have to be loaded


def _about(service: Service) -> AboutResponse:
    limits = service.limits
    return AboutResponse(
        version=__version__,
        beam=service.beam,
        limits=AboutLimits(
            max_characters=limits.max_characters,
            max_trace_characters=limits.max_trace_characters,
            max_beam=limits.max_beam,
        ),
        models=[_model_info(model, service.is_default(model)) for model in service.models],
        labs={lab.name: lab.claim for lab in all_labs()},
    )


def _model_info(loaded: LoadedModel, is_default: bool) -> ModelInfo:
    config = loaded.model.config.model
    languages = {}
    if loaded.translates:
        languages = {
            side: LanguageItem(code=code, name=language_name(code))
            for side, code in (("source", loaded.source_language), ("target", loaded.target_language))
        }
    return ModelInfo(
        name=loaded.name,
        version=loaded.version or None,
        default=is_default,
        abilities=list(loaded.abilities),
        chats="generate" in loaded.abilities and loaded.model.chat_template.is_own,
        family=config.family,
        parameters=sum(parameter.numel() for parameter in loaded.model.network.parameters()),
        settings=config.model_dump(mode="json"),
        card=_card(loaded),
        covers=(loaded.model.domain.description or None) if loaded.translates and loaded.model.domain else None,
        **languages,
    )


def _card(loaded: LoadedModel) -> str:
    """Return the model card; an empty text if there is none."""
    try:
        return read_regular_file(loaded.model.folder / CARD_FILE).decode("utf-8")[:MAX_CARD_CHARACTERS]
    except (OSError, UnicodeDecodeError):
        return ""


# --- pages ------------------------------------------------------------------------------------------------------------


@public_router.get("/docs", include_in_schema=False)
async def docs(request: Request, service: ServiceDependency) -> Response:
    """Return the documentation of all routes."""
    content = docs_page(request.app.openapi(), [model.name for model in service.models])
    return HTMLResponse(content, headers={"content-security-policy": _docs_policy()})


@public_router.get("/labs", include_in_schema=False)
async def labs() -> Response:
    """Return the report of all labs that comes with the package."""
    return FileResponse(REPORT, media_type="text/html", headers={"content-security-policy": LABS_POLICY})


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
