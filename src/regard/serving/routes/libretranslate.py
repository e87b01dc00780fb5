"""LibreTranslate's protocol, in its own words, so that its clients work: `/translate`, `/languages`, `/detect`, …"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from regard.data.sentence_splitting import join_sentences
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.decoding.results import Translation
from regard.serving.answer import as_json
from regard.serving.errors import ApiError
from regard.serving.html_text import Page
from regard.serving.languages import Detected, detect, name_of
from regard.serving.limits import read_fields
from regard.serving.loaded_models import LoadedModel
from regard.serving.schema import TEXT, TEXTS, WHOLE, answers, listed, obj, takes
from regard.serving.service import Service
from regard.serving.streaming import wait_for_answer

DETECTED = obj("confidence", "language", confidence={"type": "number"}, language=TEXT)
ASKED = obj(
    *("q", "source", "target"),
    q={**TEXTS, "description": "The text, or several."},
    source=TEXT,
    target=TEXT,
    format={**TEXT, "enum": ["text", "html"]},
    alternatives={**WHOLE, "minimum": 0},
    api_key=TEXT,
)
ANSWER = obj(
    "translatedText",
    translatedText=TEXTS,
    detectedLanguage={"anyOf": [DETECTED, listed(DETECTED)]},
    alternatives={"type": "array"},
)


def router(service: Service) -> APIRouter:
    """The routes of the protocol."""
    routes = APIRouter(tags=["LibreTranslate"])
    limits, beam = service.limits, service.beam
    plain = TranslationOptions(SearchOptions(width=beam))

    codes = _codes(service)

    @routes.post(
        "/translate",
        summary="Translate",
        responses=answers(ANSWER),
        openapi_extra=takes(ASKED, form=True, choices={"source": ["auto", *codes], "target": codes}),
    )
    async def translate(request: Request) -> Response:
        asked = await read_fields(request, limits)
        _check_key(asked, request, service)
        order = _order(asked, service)
        wish = plain
        if order.alternatives:
            width = max(beam, order.alternatives + 1)
            wish = TranslationOptions(SearchOptions(width=width, hypotheses=order.alternatives + 1))
        works = [_Work(text, html=order.html) for text in order.texts]
        by_model: dict[str, list[_Work]] = {}
        for model, work in zip(order.models, works, strict=True):
            by_model.setdefault(model.name, []).append(work)
        end = time.monotonic() + limits.deadline
        for name, those in by_model.items():
            lines = [line for work in those for line in work.lines]
            left = max(0.0, end - time.monotonic())  # of the time that all models have together
            done = await wait_for_answer(request, service.batchers[name].submit(lines, wish), left, limits.deadline)
            found = iter(done.answers)
            for work in those:
                work.take(found)
        return as_json(_answer(works, order))

    @routes.post(
        "/detect",
        summary="Tell the language of a text",
        responses=answers(listed(DETECTED)),
        openapi_extra=takes(obj("q", q=TEXTS, api_key=TEXT), form=True),
    )
    async def detect_language(request: Request) -> Response:
        asked = await read_fields(request, limits)
        _check_key(asked, request, service)
        (text, *more), _ = _texts(asked, service)
        return as_json([one._asdict() for one in detect(" ".join([text, *more]), service.translators)])

    @routes.get(
        "/languages",
        summary="List the languages",
        responses=answers(listed(obj("code", "name", "targets", code=TEXT, name=TEXT, targets=listed(TEXT)))),
    )
    async def languages() -> Response:
        return as_json(
            [{"code": code, "name": name_of(code), "targets": sorted(set(_targets(code, service)))} for code in codes]
        )

    @routes.get(
        "/frontend/settings",
        summary="What a front end needs to know",
        responses=answers(obj("charLimit", "language", charLimit=WHOLE, language={"type": "object"})),
    )
    async def settings() -> Response:
        source, target = next(((one.source, one.target) for one in service.translators), ("", ""))
        return as_json(
            {
                "apiKeys": service.access.key is not None,
                "charLimit": limits.characters,
                "filesTranslation": False,
                "frontendTimeout": 500,
                "keyRequired": service.access.key is not None,
                "language": {
                    "source": {"code": source, "name": name_of(source)},
                    "target": {"code": target, "name": name_of(target)},
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    @routes.get("/health", summary="Whether the server lives", responses=answers(obj("status", status=TEXT)))
    async def health() -> Response:
        return as_json({"status": "ok"})

    @routes.post("/translate_file", include_in_schema=False)
    async def translate_file() -> Response:
        raise ApiError(403, "Files translation are disabled on this server.")

    @routes.post("/suggest", include_in_schema=False)
    async def suggest() -> Response:
        raise ApiError(403, "Suggestions are disabled on this server.")

    return routes


@dataclass(frozen=True)
class _Order:
    """What a request asks for."""

    texts: list[str]
    several: bool
    """Whether they came as a list, and the answer is one."""
    models: list[LoadedModel]
    detected: list[Detected] | None
    html: bool
    alternatives: int


def _order(asked: dict[str, Any], service: Service) -> _Order:
    texts, several = _texts(asked, service)
    source, target = (_code(asked, name) for name in ("source", "target"))
    detected = [_detected(text, service) for text in texts] if source == "auto" else None
    sources = [one.language for one in detected] if detected is not None else [source] * len(texts)
    codes = _codes(service)
    for code in (*sources, target):
        if code not in codes:
            raise ApiError(400, f"{code[:60]} is not supported")
    kind = asked.get("format") or "text"
    if kind not in ("text", "html"):
        raise ApiError(400, f"{str(kind)[:60]} format is not supported")
    models = [_model(source, target, service) for source in sources]
    return _Order(texts, several, models, detected, kind == "html", _alternatives(asked, service))


def _texts(asked: dict[str, Any], service: Service) -> tuple[list[str], bool]:
    """The texts of a request, and whether there were brackets around them."""
    q, limits = asked.get("q"), service.limits
    if not q:
        raise ApiError(400, "Invalid request: missing q parameter")
    several = isinstance(q, list)
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "Invalid request: q parameter is not a text or a list of texts")
    for size, limit in ((len(texts), limits.texts), (sum(map(len, texts)), limits.characters)):
        if size > limit:
            raise ApiError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return texts, several


def _code(asked: dict[str, Any], name: str) -> str:
    code = asked.get(name)
    if not code:
        raise ApiError(400, f"Invalid request: missing {name} parameter")
    return str(code)


def _alternatives(asked: dict[str, Any], service: Service) -> int:
    given, most = asked.get("alternatives") or 0, service.limits.beam - 1
    try:
        number = int(given)
    except (TypeError, ValueError, OverflowError):
        raise ApiError(400, "Invalid request: alternatives parameter is not a number") from None
    if number > most:
        raise ApiError(400, f"Invalid request: alternatives parameter must be <= {most}")
    return max(0, number)


def _detected(text: str, service: Service) -> Detected:
    found = detect(text, service.translators)
    if not found:
        raise ApiError(400, "auto is not supported")
    return found[0]


def _model(source: str, target: str, service: Service) -> LoadedModel:
    for model in service.translators:
        if (model.source, model.target) == (source, target):
            return model
    to, of = (f"{name_of(code)} ({code})" for code in (target, source))
    raise ApiError(400, f"{to} is not available as a target language from {of}")


def _codes(service: Service) -> list[str]:
    return list(dict.fromkeys(code for model in service.translators for code in (model.source, model.target)))


def _targets(code: str, service: Service) -> Iterator[str]:
    yield from (model.target for model in service.translators if model.source == code)


def _check_key(asked: dict[str, Any], request: Request, service: Service) -> None:
    if service.access.key is None:
        return
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = (
        asked.get("api_key") or request.query_params.get("api_key") or (bearer if scheme.lower() == "bearer" else "")
    )
    if not given:
        raise ApiError(400, "Please contact the server operator to get an API key")
    if not isinstance(given, str) or not service.access.knows(given.strip()):
        raise ApiError(403, "Invalid API key")


class _Work:
    """A text on its way: the lines that are translated, and what they become."""

    def __init__(self, text: str, *, html: bool) -> None:
        self._page = Page(text) if html else None
        self._texts = self._page.texts if self._page is not None else [text]
        self._split = [text.split("\n") for text in self._texts]
        self.lines = [line for lines in self._split for line in lines]
        self._found: list[Translation] = []

    def take(self, found: Iterator[Translation]) -> None:
        """Take as many translations as there are lines."""
        self._found = [next(found) for _ in self.lines]

    def text(self, rank: int = 0) -> str:
        """The translation, or its alternative of this rank."""
        lines = iter(self._found)
        texts = ["\n".join(_of_rank(next(lines), rank) for _ in split) for split in self._split]
        return self._page.filled(texts) if self._page is not None else texts[0]

    def alternatives(self, count: int) -> list[str]:
        """The next best texts, each only once."""
        best = self.text()
        others = dict.fromkeys(self.text(rank) for rank in range(1, count + 1))
        return [text for text in others if text != best]


def _of_rank(translation: Translation, rank: int) -> str:
    """A line's translation in which every sentence is its alternative of this rank, or its last."""
    if not rank:
        return translation.text
    return join_sentences([sentence.alternatives[: rank + 1][-1].text for sentence in translation.sentences])


def _answer(works: Sequence[_Work], order: _Order) -> dict[str, Any]:
    def shape(values: list[Any]) -> Any:
        return values if order.several else values[0]

    answer = {"translatedText": shape([work.text() for work in works])}
    if order.detected is not None:
        answer["detectedLanguage"] = shape([one._asdict() for one in order.detected])
    if order.alternatives:
        answer["alternatives"] = shape([work.alternatives(order.alternatives) for work in works])
    return answer
