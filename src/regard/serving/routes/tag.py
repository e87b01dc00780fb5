"""`/v1/tag`: the words of sentences with their tags, and the spans that the tags mark."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from regard.decoding.labeling import Word, split_words
from regard.evaluation.label_metrics import spans
from regard.serving.answer import as_json
from regard.serving.asked import read_asked
from regard.serving.encoder_jobs import TagJob, TagPrediction
from regard.serving.schema import TEXT, WHOLE, answers, listed, obj
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
    """Sentences whose words are to be tagged."""

    split_signs: bool = False
    """Whether signs are set apart from words; else words, signs among them, are what spaces separate."""


SPAN = obj(
    *("kind", "text", "words", "characters"),
    kind=TEXT,
    text=TEXT,
    words={**listed(WHOLE), "description": "Those from the first and up to but not with the second, counted from 0."},
    characters={**listed(WHOLE), "description": "Likewise."},
)
SENTENCE = obj(
    *("text", "words", "tags", "probabilities", "spans"),
    text=TEXT,
    words=listed(TEXT),
    tags=listed(TEXT),
    probabilities=listed(PROBABILITY),
    spans=listed(SPAN),
)


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["regard"])
    limits = service.limits

    @routes.post(
        "/v1/tag",
        summary="Tag the words of sentences, and find the spans that the tags mark",
        responses=answers(answer_of("sentences", SENTENCE)),
        openapi_extra=offered(Asked, service, "tags"),
    )
    async def tag(request: Request) -> Response:
        asked = await read_asked(Asked, request, limits)
        model = service.named(asked.model, "tags")
        check_size(limits, asked.texts, text=len(asked.texts))
        words = [split_words(text, split_signs=asked.split_signs) for text in asked.texts]
        sentences = [tuple(word.text for word in some) for some in words]
        done = await carried_out(request, service, model, sentences, TagJob(), asked.deadline)
        found = [_described(*each) for each in zip(asked.texts, words, done.answers, strict=True)]
        return as_json({"model": model.name, "sentences": found, "timings": done.timings})

    return routes


def _described(text: str, words: Sequence[Word], found: Sequence[TagPrediction]) -> dict[str, Any]:
    tags = [one.tag for one in found]
    return {
        "text": text,
        "words": [word.text for word in words],
        "tags": tags,
        "probabilities": [shown(one.probability) for one in found],
        "spans": [_span(text, words, *span) for span in sorted(spans(tags))],
    }


def _span(text: str, words: Sequence[Word], first: int, after: int, kind: str) -> dict[str, Any]:
    start, end = words[first].start, words[after - 1].end
    return {"kind": kind, "text": text[start:end], "words": [first, after], "characters": [start, end]}
