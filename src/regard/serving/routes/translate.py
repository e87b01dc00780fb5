"""Our own `/v1/translate`: everything that is known about a translation, and how long it took."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from regard.decoding.options import MAX_SOURCE_TOKENS, OutputConstraints, SearchOptions, TranslationOptions
from regard.decoding.results import described
from regard.serving.answer import as_json
from regard.serving.asked import STRICT, check_limits, read_asked
from regard.serving.errors import ApiError
from regard.serving.schema import BOOLEAN, NUMBER, TEXT, WHOLE, answers, listed, obj, takes
from regard.serving.service import Service
from regard.serving.streaming import wait_for_answer

Count = Annotated[int, Field(ge=0, le=10**6)]


class Asked(BaseModel):
    """What is asked; the names are those of the options of `regard translate`."""

    model_config = STRICT

    text: str | list[str]
    """A text, or several."""
    model: str | None = None
    """Without it, the first translator."""
    beam: Annotated[int, Field(ge=1)] | None = None
    nbest: Annotated[int, Field(ge=1)] = 1
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0
    patience: Annotated[float, Field(ge=0.001, le=100)] | None = None
    min_length: Count = 1
    max_length: Annotated[int, Field(ge=1)] | None = None
    prefix: str = ""
    forbid: Annotated[list[str], Field(max_length=100)] = []
    copy_unknown: bool = False
    split: bool = True
    longest: Annotated[int, Field(ge=1, le=MAX_SOURCE_TOKENS)] = MAX_SOURCE_TOKENS
    scores: bool = False
    """Whether the log-probability of each token is wanted."""
    alignment: bool = False
    """Whether it is wanted what each token looked at."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the answer is of no use; at most the server's own deadline."""


ALTERNATIVE = obj(
    *("text", "tokens", "score", "log_probability", "token_scores", "ended", "alignment", "attention"),
    text=TEXT,
    tokens=listed(TEXT),
    score=NUMBER,
    log_probability=NUMBER,
    token_scores=listed(NUMBER),
    ended=BOOLEAN,
    alignment=listed(WHOLE),
    attention=listed(listed(NUMBER)),
)
SENTENCE = obj("source", "tokens", "alternatives", source=TEXT, tokens=listed(TEXT), alternatives=listed(ALTERNATIVE))
TRANSLATION = obj("source", "translation", "sentences", source=TEXT, translation=TEXT, sentences=listed(SENTENCE))
MILLISECONDS = {"type": "number"}
TIMINGS = obj(*("waited_ms", "worked_ms", "together"), waited_ms=MILLISECONDS, worked_ms=MILLISECONDS, together=WHOLE)
ANSWER = obj("model", "translations", "timings", model=TEXT, translations=listed(TRANSLATION), timings=TIMINGS)


def router(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["regard"])
    limits = service.limits

    @routes.post(
        "/v1/translate",
        summary="Translate, with tokens, scores, alignments and alternatives",
        responses=answers(ANSWER),
        openapi_extra=takes(Asked, choices={"model": [model.name for model in service.translators]}),
    )
    async def translate(request: Request) -> Response:
        asked = await read_asked(Asked, request, limits)
        model = service.named(asked.model, "translates")
        texts = asked.text if isinstance(asked.text, list) else [asked.text]
        wish = _wish(asked, texts, service)
        deadline = min(asked.deadline or limits.deadline, limits.deadline)
        done = await wait_for_answer(request, service.batchers[model.name].submit(texts, wish), deadline)
        found = [described(translation) for translation in done.answers]
        return as_json({"model": model.name, "translations": found, "timings": done.timings})

    return routes


def _wish(asked: Asked, texts: list[str], service: Service) -> TranslationOptions:
    limits, beam = service.limits, asked.beam or max(service.beam, asked.nbest)
    check_limits(
        ("text", len(texts), limits.texts),
        ("characters", sum(map(len, (*texts, asked.prefix, *asked.forbid))), limits.characters),
        ("nbest", asked.nbest, limits.beam),
        ("beam", beam, limits.beam),
        ("max_length", asked.max_length or 0, limits.tokens),
        ("min_length", asked.min_length, limits.tokens),
    )
    if asked.patience is not None and asked.nbest > int(beam * asked.patience):
        raise ApiError(
            400,
            f"patience: {asked.patience:g} times a beam of {beam} ends the search before nbest = {asked.nbest} are "
            "found; raise it.",
        )
    bounds = OutputConstraints(asked.min_length, asked.max_length)
    return TranslationOptions(
        SearchOptions(beam, asked.length_penalty, asked.coverage_penalty, asked.patience, asked.nbest, bounds),
        asked.split,
        asked.longest,
        asked.prefix,
        tuple(word for word in asked.forbid if word),
        scored=asked.scores,
        watched=asked.alignment,
        copy_unknown=asked.copy_unknown,
    )
