"""`/v1/classify`: the labels of texts, or of pairs of texts, each with its probability."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from regard.decoding.labeling import Classification
from regard.decoding.text_encoder import TextOrPair
from regard.serving.answer import as_json
from regard.serving.asked import read_asked
from regard.serving.encoder_jobs import ClassifyJob
from regard.serving.errors import ApiError
from regard.serving.schema import BOOLEAN, TEXT, answers, listed, obj
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
    """Texts to be labelled."""

    second: str | list[str] | None = None
    """For pairs: what goes with the text, or with each of them."""


LABEL = obj("label", "probability", label=TEXT, probability=PROBABILITY)
CLASSIFICATION = obj(
    *("text", "label", "probability", "labels", "cut"),
    text=TEXT,
    second=TEXT,
    label=TEXT,
    probability=PROBABILITY,
    labels=listed(LABEL),
    cut=BOOLEAN,
)


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["regard"])
    limits = service.limits

    @routes.post(
        "/v1/classify",
        summary="Label texts, or pairs of texts, with the probability of every label",
        responses=answers(answer_of("classifications", CLASSIFICATION)),
        openapi_extra=offered(Asked, service, "classifies"),
    )
    async def classify(request: Request) -> Response:
        asked = await read_asked(Asked, request, limits)
        model = service.named(asked.model, "classifies")
        check_size(limits, [*asked.texts, *_seconds(asked)], text=len(asked.texts))
        texts = _texts(asked)
        done = await carried_out(request, service, model, texts, ClassifyJob(), asked.deadline)
        found = [_described(*each) for each in zip(texts, done.answers, strict=True)]
        return as_json({"model": model.name, "classifications": found, "timings": done.timings})

    return routes


def _seconds(asked: Asked) -> list[str]:
    if asked.second is None:
        return []
    return asked.second if isinstance(asked.second, list) else [asked.second]


def _texts(asked: Asked) -> list[TextOrPair]:
    """Texts as they are, or each with its second one."""
    firsts, seconds = asked.texts, _seconds(asked)
    if asked.second is None:
        return list(firsts)
    if isinstance(asked.text, list) != isinstance(asked.second, list):
        names = ("text", "second") if isinstance(asked.text, list) else ("second", "text")
        raise ApiError(400, f"{names[0]} is a list, and {names[1]} is one text; give two texts, or two lists of them.")
    if len(firsts) != len(seconds):
        raise ApiError(400, f"second: there are {len(seconds):,} for {len(firsts):,} texts; give one for each.")
    return list(zip(firsts, seconds, strict=True))


def _described(text: TextOrPair, found: Classification) -> dict[str, Any]:
    """What is known of a text, its most probable label first."""
    ordered = sorted(found.probabilities.items(), key=lambda entry: -entry[1])
    return {
        **({"text": text} if isinstance(text, str) else {"text": text[0], "second": text[1]}),
        "label": found.label,
        "probability": shown(found.probability),
        "labels": [{"label": label, "probability": shown(probability)} for label, probability in ordered],
        "cut": found.cut,
    }
