"""OpenAI's `/v1/embeddings` for encoders, so that its clients work; vectors have length 1, as theirs have."""

import asyncio
import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from regard.serving.answer import as_json
from regard.serving.asked import read_asked
from regard.serving.encoder_jobs import EmbedJob, TextVector
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel
from regard.serving.schema import BOOLEAN, OPENAI_ERROR, TEXT, WHOLE, answers, listed, obj
from regard.serving.service import Service
from regard.serving.texts import carried_out, check_size, offered


class Asked(BaseModel):
    """What is asked, as OpenAI names it, with `pooling` and `normalise` besides."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    model: str
    input: str | list[str]
    """A text, or several."""
    encoding_format: Literal["float", "base64"] | None = None
    """How a vector is written: as numbers, or as the base64 of 32-bit ones, the lowest byte first."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """If given, the width that the model has."""
    pooling: Literal["mean", "first", "first-dense"] | None = None
    """As the model was made, unless said."""
    normalise: bool = True
    """Whether vectors are scaled to length 1, so that their product is the cosine."""


ENTRY = obj(
    *("object", "index", "embedding"),
    object=TEXT,
    index=WHOLE,
    embedding={"anyOf": [listed({"type": "number"}), TEXT]},
    cut={**BOOLEAN, "description": "Where the text was longer than the model reads."},
)
USAGE = obj("prompt_tokens", "total_tokens", prompt_tokens=WHOLE, total_tokens=WHOLE)
ANSWER = obj("object", "data", "model", "usage", object=TEXT, data=listed(ENTRY), model=TEXT, usage=USAGE)


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["OpenAI"])

    @routes.post(
        "/v1/embeddings",
        summary="The vectors of texts",
        responses=answers(ANSWER, error=OPENAI_ERROR),
        openapi_extra=offered(Asked, service, "embeds"),
    )
    async def embeddings(request: Request) -> Response:
        asked = await read_asked(Asked, request, service.limits)
        model = service.named(asked.model, "embeds")
        texts = asked.input if isinstance(asked.input, list) else [asked.input]
        check_size(service.limits, texts, input=len(texts))
        _check(asked, texts, model)
        errand = EmbedJob(asked.pooling, asked.normalise)
        done = await carried_out(request, service, model, texts, errand)
        return await asyncio.to_thread(_answer, done.answers, asked, model.name)  # there may be many numbers

    return routes


def _check(asked: Asked, texts: list[str], served: LoadedModel) -> None:
    settings: Any = served.model.config.model
    if not texts:
        raise ApiError(400, "input is empty; give a text, or several.")
    if asked.dimensions not in (None, settings.width):
        raise ApiError(
            400,
            f"dimensions = {asked.dimensions:,}: the vectors of {served.name} have {settings.width:,} numbers; "
            "leave it out.",
        )
    if asked.pooling == "first-dense" != settings.pooling:
        raise ApiError(
            400, f"pooling = first-dense: {served.name} has learned no dense layer for it; use mean or first."
        )


def _answer(vectors: list[TextVector], asked: Asked, name: str) -> Response:
    read = sum(vector.tokens for vector in vectors)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _written(vector, asked.encoding_format),
            **({"cut": True} if vector.cut else {}),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": read, "total_tokens": read}
    return as_json({"object": "list", "data": data, "model": name, "usage": usage})


def _written(vector: TextVector, how: str | None) -> list[float] | str:
    if how != "base64":
        numbers: list[float] = vector.values.tolist()
        return numbers
    return base64.b64encode(vector.values.astype("<f4").tobytes()).decode()
