"""`/v1/fill`: what may stand at each `[MASK]` of a text, the most probable first."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from regard.decoding.fill_mask import FilledText
from regard.serving.answer import as_json
from regard.serving.asked import read_asked
from regard.serving.encoder_jobs import MAX_READ_TOKENS, FillJob
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel
from regard.serving.schema import TEXT, answers, listed, obj
from regard.serving.service import Service
from regard.serving.texts import (
    PROBABILITY,
    AskedTexts,
    answer_of,
    carried_out,
    check_size,
    offered,
    shown,
)


class Asked(AskedTexts):
    """Texts with `[MASK]` in them."""

    best: Annotated[int, Field(ge=1, le=100)] = 5
    """How many tokens are wanted for each hole."""


GUESS = obj("text", "token", "probability", text=TEXT, token=TEXT, probability=PROBABILITY)
FILLED = obj("source", "text", "holes", source=TEXT, text=TEXT, holes=listed(listed(GUESS)))


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["regard"])
    limits = service.limits

    @routes.post(
        "/v1/fill",
        summary="Guess what stands at each [MASK] of texts",
        responses=answers(answer_of("filled", FILLED)),
        openapi_extra=offered(Asked, service, "fills"),
    )
    async def fill(request: Request) -> Response:
        asked = await read_asked(Asked, request, limits)
        model = service.named(asked.model, "fills")
        check_size(limits, asked.texts, text=len(asked.texts))
        holes = await asyncio.to_thread(_holes, asked, model)
        check_size(limits, (), holes=holes)  # each has a probability for the whole vocabulary
        done = await carried_out(request, service, model, asked.texts, FillJob(asked.best), asked.deadline)
        found = [_described(one) for one in done.answers]
        return as_json({"model": model.name, "filled": found, "timings": done.timings})

    return routes


def _holes(asked: Asked, model: LoadedModel) -> int:
    """How many holes there are in all texts; each must have one, and be short enough."""
    filler, count = model.model.filler(), 0
    for number, text in enumerate(asked.texts, start=1):
        if (why := filler.why_not(text)) is not None:
            raise ApiError(400, f"{asked.place(number)}: {why}.")
        ids = filler.ids(text)
        if len(ids) > MAX_READ_TOKENS:
            raise ApiError(
                400,
                f"{asked.place(number)}: has {len(ids):,} tokens, and up to {MAX_READ_TOKENS:,} are read here; "
                "shorten it.",
            )
        count += ids.count(filler.mask)
    return count


def _described(filled: FilledText) -> dict[str, Any]:
    holes = [
        [{"text": one.text, "token": one.token, "probability": shown(one.probability)} for one in ranked]
        for ranked in filled.holes
    ]
    return {"source": filled.source, "text": filled.text, "holes": holes}
