"""`/v1/about`: the models that are served, with their languages, settings and cards, as a page shows them."""

import asyncio
from functools import cache
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from regard.labs import all_labs
from regard.serving.answer import as_json
from regard.serving.languages import name_of
from regard.serving.loaded_models import LoadedModel
from regard.serving.schema import BOOLEAN, TEXT, WHOLE, answers, listed, obj
from regard.serving.service import Service
from regard.version import __version__

LONGEST = 40_000  # characters of a card
MODEL = obj(
    "name", "translates", "does", "family", "parameters", "card",
    name=TEXT, translates=BOOLEAN, does=listed(TEXT), family=TEXT, parameters=WHOLE,
    settings={"type": "object"}, card=TEXT,
)  # fmt: skip


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["regard"])

    @cache
    def known() -> dict[str, Any]:
        return {
            "version": __version__,
            "beam": service.beam,
            "limits": {name: getattr(service.limits, name) for name in ("characters", "look", "beam")},
            "models": [_about(model) for model in service.models],
            "labs": {lab.name: lab.claim for lab in all_labs()},
        }

    @routes.get(
        "/v1/about",
        summary="The models, with their languages, settings and cards",
        responses=answers(obj("version", "models", version=TEXT, models=listed(MODEL), labs={"type": "object"})),
    )
    async def about() -> Response:
        return as_json(await asyncio.to_thread(known))  # the first time, networks may have to be loaded

    return routes


def _about(served: LoadedModel) -> dict[str, Any]:
    settings = served.model.config.model
    languages = {
        side: {"code": code, "name": name_of(code)}
        for side, code in (("source", served.source), ("target", served.target))
        if served.translates
    }
    return {
        "name": served.name,
        "translates": served.translates,
        "does": list(served.does),
        **languages,
        "family": settings.family,
        "parameters": sum(parameter.numel() for parameter in served.model.network.parameters()),
        "settings": settings.model_dump(mode="json"),
        "card": _card(served),
    }


def _card(served: LoadedModel) -> str:
    """The model's own description; none where there is no file."""
    try:
        return (served.model.folder / "README.md").read_text("utf-8")[:LONGEST]
    except (OSError, UnicodeDecodeError):
        return ""
