"""Health checks and metrics for operators, and `/v1/about`: the served models with settings and model cards."""

import asyncio
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.responses import Response

from regard.labs import all_labs
from regard.serving.errors import ApiError, ErrorResponse
from regard.serving.languages import language_name
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import JsonRoute
from regard.serving.service import Service, ServiceDependency
from regard.training.task import Ability
from regard.version import __version__

MAX_CARD_CHARACTERS = 40_000
router = APIRouter(tags=["operations"], route_class=JsonRoute)
public_router = APIRouter(tags=["operations"], route_class=JsonRoute)


class StatusResponse(BaseModel):
    """State of the server."""

    status: str


@public_router.get("/healthz", summary="Whether the server is alive")
async def healthz() -> StatusResponse:
    """Liveness check."""
    return StatusResponse(status="ok")


@public_router.get(
    "/readyz",
    summary="Whether the server accepts requests",
    responses={503: {"model": ErrorResponse, "description": "A queue is full."}},
)
async def readyz(service: ServiceDependency) -> StatusResponse:
    """Readiness check: 503 while the queue of a model is full."""
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


class LanguageItem(BaseModel):
    """Language code and its English name."""

    code: str
    name: str


class ModelInfo(BaseModel):
    """Served model: what it can do, its settings and its model card."""

    name: str
    abilities: list[Ability]
    source: LanguageItem | None = None
    target: LanguageItem | None = None
    family: str
    parameters: int
    settings: dict[str, Any]
    card: str


class AboutLimits(BaseModel):
    """Limits that clients should know."""

    max_characters: int
    max_trace_characters: int
    max_beam: int


class AboutResponse(BaseModel):
    """The server, its models, and the claims of the labs by name."""

    version: str
    beam: int
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
        models=[_model_info(model) for model in service.models],
        labs={lab.name: lab.claim for lab in all_labs()},
    )


def _model_info(loaded: LoadedModel) -> ModelInfo:
    config = loaded.model.config.model
    languages = {}
    if loaded.translates:
        languages = {
            side: LanguageItem(code=code, name=language_name(code))
            for side, code in (("source", loaded.source_language), ("target", loaded.target_language))
        }
    return ModelInfo(
        name=loaded.name,
        abilities=list(loaded.abilities),
        family=config.family,
        parameters=sum(parameter.numel() for parameter in loaded.model.network.parameters()),
        settings=config.model_dump(mode="json"),
        card=_card(loaded),
        **languages,
    )


def _card(loaded: LoadedModel) -> str:
    """Return the model card; an empty text if there is none."""
    try:
        return (loaded.model.folder / "README.md").read_text("utf-8")[:MAX_CARD_CHARACTERS]
    except (OSError, UnicodeDecodeError):
        return ""
