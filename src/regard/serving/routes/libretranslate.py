"""LibreTranslate's protocol with its error messages, for its clients: `/translate`, `/detect`, `/languages`."""

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from python_multipart import parse_form
from python_multipart.exceptions import FormParserError
from starlette.requests import Request
from starlette.responses import Response

from regard.decoding.options import TranslationOptions
from regard.decoding.results import Translation
from regard.serving.access import bearer_credentials
from regard.serving.errors import JSON_TYPE, ApiError
from regard.serving.languages import LanguageGuess, detect_language, language_name
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.routes.operations import LanguageItem, StatusResponse
from regard.serving.schemas import DirectRoute, json_response, parse_json_object
from regard.serving.service import Service, ServiceDependency
from regard.serving.streaming import wait_for_result

MAX_FORM_FIELDS = 1000
FORM_TYPE = "application/x-www-form-urlencoded"
public_router = APIRouter(tags=["LibreTranslate"])
Fields = TypeVar("Fields", bound=BaseModel)


def _required(name: str) -> BeforeValidator:
    """Validator with LibreTranslate's message for an empty parameter."""

    def check(value: Any) -> Any:
        if not value:
            raise PydanticCustomError("libretranslate", "Invalid request: missing {name} parameter", {"name": name})
        return value if name == "q" else str(value)

    return BeforeValidator(check)


def _check_texts(value: Any) -> Any:
    if all(isinstance(text, str) for text in (value if isinstance(value, list) else [value])):
        return value
    raise PydanticCustomError("libretranslate", "Invalid request: q parameter is not a text or a list of texts")


def _check_format(value: Any) -> Any:
    if (value or "text") not in ("text", "html"):
        raise PydanticCustomError("libretranslate", "{format} format is not supported", {"format": str(value)[:60]})
    return value or "text"


def _check_alternatives(value: Any) -> int:
    try:
        return max(0, int(value or 0))
    except (TypeError, ValueError, OverflowError):
        raise PydanticCustomError("libretranslate", "Invalid request: alternatives parameter is not a number") from None


Texts = Annotated[str | list[str], BeforeValidator(_check_texts), _required("q")]
ApiKey = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]


class DetectRequest(BaseModel):
    """Text whose language is detected."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    q: Texts
    """A text or a list of texts."""
    api_key: ApiKey = None


class LibreTranslateRequest(DetectRequest):
    """Texts to translate."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-ability": "translate",
            "examples": [{"q": "Good day.", "source": "en", "target": "it", "alternatives": 2}],
        }
    )

    source: Annotated[str, _required("source")]
    """Language code, or `auto` to detect the language."""
    target: Annotated[str, _required("target")]
    """Language code."""
    format: Annotated[Literal["text", "html"], BeforeValidator(_check_format)] = "text"
    alternatives: Annotated[int, Field(ge=0), BeforeValidator(_check_alternatives)] = 0
    """Number of alternative translations."""


class DetectedLanguage(BaseModel):
    """Language of a text; the confidence is in percent."""

    confidence: float
    language: str


class LibreTranslateResponse(BaseModel):
    """Translation of each text; lists if `q` is a list."""

    translatedText: str | list[str]  # noqa: N815  # the protocol's name
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class SupportedLanguage(LanguageItem):
    """Language, and the languages that it can be translated to."""

    targets: list[str]


class FrontendSettings(BaseModel):
    """Settings that front ends of LibreTranslate read."""

    apiKeys: bool  # noqa: N815
    charLimit: int  # noqa: N815
    filesTranslation: bool = False  # noqa: N815
    frontendTimeout: int = 500  # noqa: N815
    keyRequired: bool  # noqa: N815
    language: dict[Literal["source", "target"], LanguageItem]
    suggestions: bool = False
    supportedFilesFormat: list[str] = []  # noqa: N815


def _json_or_form(model: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI of a request body that is JSON or a form, from its model."""
    schema = model.model_json_schema()
    content = {media_type: {"schema": schema} for media_type in (JSON_TYPE, FORM_TYPE)}
    return {"requestBody": {"required": True, "content": content}}


@public_router.post(
    "/translate",
    response_model=LibreTranslateResponse,
    openapi_extra=_json_or_form(LibreTranslateRequest),
    summary="Translate",
)
async def translate(request: Request) -> Response:
    """Translate texts or HTML."""
    service: Service = request.app.state.service
    fields = await _read_fields(request)
    _check_key(fields, request, service)
    job = _translation_job(_validate(LibreTranslateRequest, fields), service)
    by_model: dict[str, list[_Document]] = {}
    for model, document in zip(job.models, job.documents, strict=True):
        by_model.setdefault(model.name, []).append(document)
    timeout = service.limits.timeout
    deadline = time.monotonic() + timeout
    for name, documents in by_model.items():
        lines = [line for document in documents for line in document.lines]
        remaining = max(0.0, deadline - time.monotonic())  # the models of a request share its timeout
        result = service.batchers[name].submit(lines, job.options[name])
        translations = iter((await wait_for_result(request, result, remaining, timeout)).outputs)
        for document in documents:
            document.take(translations)
    return json_response(job.response())


direct_routes = [DirectRoute("/translate", translate, failure_prefix="Cannot translate text: ")]


@public_router.post(
    "/detect",
    response_model=list[DetectedLanguage],
    openapi_extra=_json_or_form(DetectRequest),
    summary="Detect the language of a text",
)
async def detect(request: Request, service: ServiceDependency) -> Response:
    """Return the source languages of the models, the most probable first."""
    fields = await _read_fields(request)
    _check_key(fields, request, service)
    texts = _texts(_validate(DetectRequest, fields), service.limits)
    return json_response([guess._asdict() for guess in detect_language(" ".join(texts), service.vocabularies)])


@public_router.get("/languages", summary="List the languages")
async def languages(service: ServiceDependency) -> list[SupportedLanguage]:
    """Return the languages, and what each can be translated to."""
    return [
        SupportedLanguage(code=code, name=language_name(code), targets=sorted(service.targets_of(code)))
        for code in service.languages
    ]


@public_router.get("/frontend/settings", summary="Settings for front ends")
async def frontend_settings(service: ServiceDependency) -> FrontendSettings:
    """Return the limits, and the languages of the first translator."""
    first = next(iter(service.translators), None)
    source, target = (first.source_language, first.target_language) if first is not None else ("", "")
    has_key = service.access.key is not None
    return FrontendSettings(
        apiKeys=has_key,
        charLimit=service.limits.max_characters,
        keyRequired=has_key,
        language={
            "source": LanguageItem(code=source, name=language_name(source)),
            "target": LanguageItem(code=target, name=language_name(target)),
        },
    )


@public_router.get("/health", summary="Whether the server is alive")
async def health() -> StatusResponse:
    """Liveness check of LibreTranslate's clients."""
    return StatusResponse(status="ok")


@public_router.post("/translate_file", include_in_schema=False)
async def translate_file() -> Response:
    """Reject files."""
    raise ApiError(403, "Files translation are disabled on this server.")


@public_router.post("/suggest", include_in_schema=False)
async def suggest() -> Response:
    """Reject suggestions."""
    raise ApiError(403, "Suggestions are disabled on this server.")


async def _read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request: from JSON, from a form, or from the query string."""
    body = await request.body()
    content_type = next((value for name, value in request.scope["headers"] if name == b"content-type"), b"")
    kind = content_type.partition(b";")[0].strip().lower().decode("latin-1")
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return parse_json_object(body)
        except PydanticCustomError:
            raise ApiError(400, "Invalid JSON format") from None
    try:
        if kind == "multipart/form-data":
            return _multipart_fields(request.headers["content-type"], body)
        text = body.decode("utf-8") or request.url.query
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))
    except (ValueError, FormParserError):
        raise ApiError(400, "The form cannot be read; send it as UTF-8, or send JSON.") from None


def _multipart_fields(content_type: str, body: bytes) -> dict[str, str]:
    """Return the text fields of a multipart form; files are ignored."""
    fields = {}

    def add(field: Any) -> None:
        fields[field.field_name.decode("utf-8")] = (field.value or b"").decode("utf-8")

    parse_form({"Content-Type": content_type.encode("latin-1")}, io.BytesIO(body), add, lambda file: file.close())
    return fields


def _check_key(fields: dict[str, Any], request: Request, service: Service) -> None:
    """Check the API key, which LibreTranslate's clients send as a field."""
    if service.access.key is None:
        return
    key = fields.get("api_key") or request.query_params.get("api_key") or bearer_credentials(request)
    if not key:
        raise ApiError(400, "Please contact the server operator to get an API key")
    if not isinstance(key, str) or not service.access.accepts_key(key.strip()):
        raise ApiError(403, "Invalid API key")


def _validate(model: type[Fields], fields: dict[str, Any]) -> Fields:
    """Validate fields; the first error is raised in LibreTranslate's words."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        missing = f"Invalid request: missing {first['loc'][0]} parameter"
        raise ApiError(400, missing if first["type"] == "missing" else first["msg"]) from None


def _texts(body: DetectRequest, limits: Limits) -> list[str]:
    """Return the texts of a request within the limits."""
    texts = body.q if isinstance(body.q, list) else [body.q]
    for size, limit in ((len(texts), limits.max_texts), (sum(map(len, texts)), limits.max_characters)):
        if size > limit:
            raise ApiError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return texts


@dataclass(frozen=True)
class _TranslationJob:
    """Documents of a request with the model of each."""

    documents: "list[_Document]"
    is_list: bool
    models: list[LoadedModel]
    detected: list[LanguageGuess] | None
    alternatives: int
    options: dict[str, TranslationOptions]
    """By model."""

    def response(self) -> dict[str, Any]:
        """Return the fields of `LibreTranslateResponse`."""
        response = {"translatedText": self._shape([document.text() for document in self.documents])}
        if self.detected is not None:
            response["detectedLanguage"] = self._shape([guess._asdict() for guess in self.detected])
        if self.alternatives:
            response["alternatives"] = self._shape(
                [document.alternatives(self.alternatives) for document in self.documents]
            )
        return response

    def _shape(self, values: list[Any]) -> Any:
        return values if self.is_list else values[0]


def _translation_job(body: LibreTranslateRequest, service: Service) -> _TranslationJob:
    texts = _texts(body, service.limits)
    detected = [_detect(text, service) for text in texts] if body.source == "auto" else None
    sources = [body.source] * len(texts) if detected is None else [guess.language for guess in detected]
    for code in (*sources, body.target):
        if code not in service.languages:
            raise ApiError(400, f"{code[:60]} is not supported")
    models = [_model(source, body.target, service) for source in sources]
    max_alternatives, count = service.limits.max_beam - 1, body.alternatives
    if count > max_alternatives:
        raise ApiError(400, f"Invalid request: alternatives parameter must be <= {max_alternatives}")
    options = {
        model.name: TranslationOptions(service.search(model, n_best=count + 1), format=body.format) for model in models
    }
    documents = [_Document(text, is_html=body.format == "html") for text in texts]
    return _TranslationJob(documents, isinstance(body.q, list), models, detected, count, options)


def _detect(text: str, service: Service) -> LanguageGuess:
    guesses = detect_language(text, service.vocabularies)
    if not guesses:
        raise ApiError(400, "auto is not supported")
    return guesses[0]


def _model(source: str, target: str, service: Service) -> LoadedModel:
    for model in service.translators:
        if (model.source_language, model.target_language) == (source, target):
            return model
    target_name, source_name = (f"{language_name(code)} ({code})" for code in (target, source))
    raise ApiError(400, f"{target_name} is not available as a target language from {source_name}")


class _Document:
    """Text or HTML of a request: its lines, which share batches with other requests, and their translations."""

    def __init__(self, text: str, *, is_html: bool) -> None:
        self.lines = [text] if is_html else text.split("\n")
        self._translations: list[Translation] = []

    def take(self, translations: Iterator[Translation]) -> None:
        """Take the translations of the lines."""
        self._translations = [next(translations) for _ in self.lines]

    def text(self, rank: int = 0) -> str:
        """Return the translation, or its alternative of a rank."""
        return "\n".join([line.text, *line.alternatives][: rank + 1][-1] for line in self._translations)

    def alternatives(self, count: int) -> list[str]:
        """Return the next best texts without duplicates."""
        best = self.text()
        others = dict.fromkeys(self.text(rank) for rank in range(1, count + 1))
        return [text for text in others if text != best]
