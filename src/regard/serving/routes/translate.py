"""`/v1/translate`: translations with tokens, scores, alignments, alternatives and timings."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from regard.decoding.domain import DomainFlag
from regard.decoding.options import MAX_SOURCE_TOKENS, OutputConstraints, TranslationOptions, search_patience
from regard.registry import SearchName, TextFormat
from regard.serving.access import check_request_key
from regard.serving.errors import ApiError
from regard.serving.limits import check_limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import DirectRoute, JsonRoute, TextsRequest, TextsResponse, json_response, parse_body
from regard.serving.service import Service, ServiceDependency

router = APIRouter(tags=["regard"], route_class=JsonRoute)


class TranslateRequest(TextsRequest):
    """Texts to translate; the options are those of `regard translate`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-ability": "translate",
            "examples": [{"text": "I love you.", "n_best": 3, "token_scores": True, "alignment": True}],
        }
    )

    beam: Annotated[int, Field(ge=1)] | None = None
    """Beam width; 1 is greedy search. By default the server's."""
    n_best: Annotated[int, Field(ge=1)] = 1
    """Alternatives per sentence."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0
    patience: Annotated[float, Field(ge=0.001, le=100)] | None = None
    """Stop the search when this multiple of the beam has finished."""
    search: SearchName = "exact"
    """When the search stops: `exact`, when no open hypothesis can win; `fast`, after `beam` finished ones."""
    min_tokens: Annotated[int, Field(ge=0, le=10**6)] = 1
    """Minimum tokens per sentence."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum tokens per sentence."""
    prefix: str = ""
    """Text that every translation starts with."""
    suppress: Annotated[list[str], Field(max_length=100, default_factory=list)]
    """Words that translations must not contain."""
    copy_unknown: bool = False
    """Whether to copy the aligned source word in place of unknown tokens."""
    copy_symbols: bool = True
    """Whether to copy sentences without letters, such as `---` or a timestamp."""
    split_sentences: bool | None = None
    """Whether to translate each sentence of a text on its own; by default only if it is longer than in training."""
    max_source_tokens: Annotated[int, Field(ge=1, le=MAX_SOURCE_TOKENS)] = MAX_SOURCE_TOKENS
    """Tokens above which a sentence is split at punctuation."""
    unwrap: bool = False
    """Whether to join the lines of a paragraph first; blank lines separate paragraphs."""
    format: TextFormat = "auto"
    """With `html`, the text between tags is translated, and inline tags are put back by word alignment; with `auto`, in
    lines that have tags in pairs, such as `<b>…</b>`; with `text`, tags are translated like words."""
    source_language: Annotated[str, Field(max_length=20)] | None = None
    """Code of the language of the texts, for models of several languages."""
    target_language: Annotated[str, Field(max_length=20)] | None = None
    """Code of the language to translate to."""
    token_scores: bool = False
    """Whether to return the log-probability of each token."""
    alignment: bool = False
    """Whether to return the attention of each token to the source."""


class AlternativeItem(BaseModel):
    """One translation of a sentence."""

    text: str
    tokens: list[str]
    score: float | None
    log_probability: float | None
    token_scores: list[float | None]
    ended: bool
    alignment: list[int]
    attention: list[list[float | None]]


class SentenceItem(BaseModel):
    """Translations of a sentence, the best first."""

    source: str
    tokens: list[str]
    alternatives: list[AlternativeItem]
    confidence: float | None
    flags: list[DomainFlag]
    unknown_words: list[str]
    """Words of the source with unknown pieces; none if `flags` has only `low_confidence`."""


class TranslationItem(BaseModel):
    """Translation of a text."""

    source: str
    translation: str
    out_of_domain: bool
    sentences: list[SentenceItem]


class TranslateResponse(TextsResponse):
    """Translation of each text."""

    translations: list[TranslationItem]


@router.post("/v1/translate", response_model=TranslateResponse, summary="Translate texts, with scores and alignments")
async def translate(body: TranslateRequest, request: Request, service: ServiceDependency) -> Response:
    """Translate texts and return tokens, scores, alternatives and timings."""
    model = service.model(body.model, "translate")
    result = await service.run_batch(request, model, body.texts, _options(body, service, model), body.timeout)
    translations = [translation.as_dict() for translation in result.outputs]
    return json_response({"model": model.name, "translations": translations, "timings": result.timings})


async def _translate_directly(request: Request) -> Response:
    service: Service = request.app.state.service
    content = await request.body()
    check_request_key(service.access, request)
    return await translate(parse_body(content, TranslateRequest), request, service)


direct_routes = [DirectRoute("/v1/translate", _translate_directly)]


def _options(body: TranslateRequest, service: Service, model: LoadedModel) -> TranslationOptions:
    limits = service.limits
    search = service.search(model, body.beam, body.length_penalty, body.n_best)
    check_limits(
        ("text", len(body.texts), limits.max_texts),
        ("characters", sum(map(len, (*body.texts, body.prefix, *body.suppress))), limits.max_characters),
        ("n_best", body.n_best, limits.max_beam),
        ("beam", search.beam, limits.max_beam),
        ("max_tokens", body.max_tokens or 0, limits.max_tokens),
        ("min_tokens", body.min_tokens, limits.max_tokens),
    )
    if body.patience is not None and body.n_best > int(search.beam * body.patience):
        raise ApiError(
            400,
            f"patience: {body.patience:g} times a beam of {search.beam} ends the search before n_best = {body.n_best} "
            "hypotheses are finished; raise it.",
        )
    patience = search_patience(body.search, body.patience)
    if (body.coverage_penalty, patience, body.min_tokens, body.max_tokens) != (0.0, None, 1, None):
        constraints = OutputConstraints(body.min_tokens, body.max_tokens)
        search = replace(search, coverage_penalty=body.coverage_penalty, patience=patience, constraints=constraints)
    return TranslationOptions(
        search,
        body.split_sentences,
        body.max_source_tokens,
        body.prefix,
        tuple(word for word in body.suppress if word),
        token_scores=body.token_scores,
        attention=body.alignment,
        copy_unknown=body.copy_unknown,
        copy_symbols=body.copy_symbols,
        unwrap=body.unwrap,
        format=body.format,
        source_language=body.source_language,
        target_language=body.target_language,
    )
