"""`/v1/classify`, `/v1/tag` and `/v1/fill`: labels of texts, tags of words, and candidates for mask tokens."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from regard.config.base import Fraction
from regard.data.encoder_batches import TextOrPair
from regard.data.sentence_splitting import Word, split_words
from regard.decoding.results import Classification, FilledText
from regard.evaluation.metrics import spans
from regard.serving.encoder_jobs import MAX_READ_TOKENS, ClassifyJob, FillJob, TagJob, TagPrediction
from regard.serving.errors import ApiError
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import (
    JsonRoute,
    TextsRequest,
    TextsResponse,
    check_text_limits,
    round_probability,
)
from regard.serving.service import ServiceDependency

router = APIRouter(tags=["regard"], route_class=JsonRoute)


class ClassifyRequest(TextsRequest):
    """Texts, or pairs of texts, to classify."""

    model_config = ConfigDict(
        json_schema_extra={"x-ability": "classify", "examples": [{"text": "A man sleeps.", "second": "He is asleep."}]}
    )

    second: str | list[str] | None = None
    """Second text of a pair, or of each pair."""

    @property
    def second_texts(self) -> list[str]:
        """The second texts as a list."""
        if self.second is None:
            return []
        return self.second if isinstance(self.second, list) else [self.second]


class LabelProbability(BaseModel):
    """Probability of a label."""

    label: str
    probability: Fraction


class ClassificationItem(LabelProbability):
    """Most probable label of a text, and all labels, the most probable first."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    text: str
    second: str | None = None
    labels: list[LabelProbability]
    truncated: bool
    """Whether the text was longer than the model reads."""


class ClassifyResponse(TextsResponse):
    """Classification of each text."""

    classifications: list[ClassificationItem]


@router.post("/v1/classify", response_model_exclude_none=True, summary="Classify texts or pairs of texts")
async def classify(body: ClassifyRequest, request: Request, service: ServiceDependency) -> ClassifyResponse:
    """Return the probability of every label for each text."""
    model = service.model(body.model, "classify")
    check_text_limits(service.limits, [*body.texts, *body.second_texts], text=len(body.texts))
    texts = _texts_or_pairs(body)
    result = await service.run_batch(request, model, texts, ClassifyJob(), body.timeout)
    items = [_classification(text, output) for text, output in zip(texts, result.outputs, strict=True)]
    return ClassifyResponse(model=model.name, classifications=items, timings=result.timings)


def _texts_or_pairs(body: ClassifyRequest) -> list[TextOrPair]:
    if body.second is None:
        return list(body.texts)
    if isinstance(body.text, list) != isinstance(body.second, list):
        names = ("text", "second") if isinstance(body.text, list) else ("second", "text")
        raise ApiError(400, f"{names[0]} is a list and {names[1]} is one text; send two texts or two lists.")
    if len(body.texts) != len(body.second_texts):
        raise ApiError(
            400, f"second: there are {len(body.second_texts):,} for {len(body.texts):,} texts; send one for each."
        )
    return list(zip(body.texts, body.second_texts, strict=True))


def _classification(text: TextOrPair, output: Classification) -> ClassificationItem:
    first, second = (text, None) if isinstance(text, str) else text
    ranked = sorted(output.probabilities.items(), key=lambda entry: -entry[1])
    return ClassificationItem(
        text=first,
        second=second,
        label=output.label,
        probability=round_probability(output.probability),
        labels=[LabelProbability(label=label, probability=round_probability(value)) for label, value in ranked],
        truncated=output.truncated,
    )


class TagRequest(TextsRequest):
    """Sentences whose words are tagged."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-ability": "tag",
            "examples": [{"text": "Ada Lovelace lived in London.", "split_punctuation": True}],
        }
    )

    split_punctuation: bool = False
    """Whether to separate punctuation from words; by default, words are separated by spaces only."""


class SpanItem(BaseModel):
    """Span that tags such as B-PER and I-PER mark."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    label: str
    text: str
    words: list[int]
    """First word and the word after the last one, counted from 0."""
    characters: list[int]
    """First character and the character after the last one, counted from 0."""


class TaggedItem(BaseModel):
    """Words of a sentence with their tags."""

    text: str
    words: list[str]
    tags: list[str]
    probabilities: list[Fraction]
    spans: list[SpanItem]


class TagResponse(TextsResponse):
    """Tags of each sentence."""

    sentences: list[TaggedItem]


@router.post("/v1/tag", summary="Tag the words of sentences, and find spans")
async def tag(body: TagRequest, request: Request, service: ServiceDependency) -> TagResponse:
    """Return the tag of every word, and the spans that the tags mark."""
    model = service.model(body.model, "tag")
    check_text_limits(service.limits, body.texts, text=len(body.texts))
    words = [split_words(text, split_punctuation=body.split_punctuation) for text in body.texts]
    sentences = [tuple(word.text for word in sentence) for sentence in words]
    result = await service.run_batch(request, model, sentences, TagJob(), body.timeout)
    items = [_tagged(*sentence) for sentence in zip(body.texts, words, result.outputs, strict=True)]
    return TagResponse(model=model.name, sentences=items, timings=result.timings)


def _tagged(text: str, words: Sequence[Word], predictions: Sequence[TagPrediction]) -> TaggedItem:
    tags = [prediction.tag for prediction in predictions]
    return TaggedItem(
        text=text,
        words=[word.text for word in words],
        tags=tags,
        probabilities=[round_probability(prediction.probability) for prediction in predictions],
        spans=[_span(text, words, *span) for span in sorted(spans(tags))],
    )


def _span(text: str, words: Sequence[Word], first: int, after: int, label: str) -> SpanItem:
    start, end = words[first].start, words[after - 1].end
    return SpanItem(label=label, text=text[start:end], words=[first, after], characters=[start, end])


class FillRequest(TextsRequest):
    """Texts with `[MASK]` in place of a token."""

    model_config = ConfigDict(
        json_schema_extra={"x-ability": "fill", "examples": [{"text": "The man [MASK] a small dinosaur.", "top_k": 3}]}
    )

    top_k: Annotated[int, Field(ge=1, le=100)] = 5
    """Candidates per mask."""


class FillCandidateItem(BaseModel):
    """Token for a mask, and its probability."""

    text: str
    token: str
    probability: Fraction


class FilledItem(BaseModel):
    """Text with the best candidates in place, and the candidates of each mask."""

    source: str
    text: str
    masks: list[list[FillCandidateItem]]


class FillResponse(TextsResponse):
    """Candidates for the masks of each text."""

    results: list[FilledItem]


@router.post("/v1/fill", summary="Predict the tokens at each [MASK] of texts")
async def fill(body: FillRequest, request: Request, service: ServiceDependency) -> FillResponse:
    """Return the most probable tokens for each mask."""
    model = service.model(body.model, "fill")
    check_text_limits(service.limits, body.texts, text=len(body.texts))
    masks = await asyncio.to_thread(_count_masks, body, model)
    check_text_limits(service.limits, (), masks=masks)  # each has a probability for every token of the vocabulary
    result = await service.run_batch(request, model, body.texts, FillJob(body.top_k), body.timeout)
    return FillResponse(
        model=model.name, results=[_filled(output) for output in result.outputs], timings=result.timings
    )


def _count_masks(body: FillRequest, model: LoadedModel) -> int:
    """Return the masks of all texts; each text must have one and be short enough."""
    filler, count = model.model.mask_filler(), 0
    for number, text in enumerate(body.texts, start=1):
        name = f"text {number}" if isinstance(body.text, list) else "text"
        if (problem := filler.problem_with(text)) is not None:
            raise ApiError(400, f"{name}: {problem}.")
        ids = filler.encode(text)
        if len(ids) > MAX_READ_TOKENS:
            raise ApiError(
                400, f"{name}: has {len(ids):,} tokens, and at most {MAX_READ_TOKENS:,} are read; shorten it."
            )
        count += ids.count(filler.mask_id)
    return count


def _filled(filled: FilledText) -> FilledItem:
    def item(candidate: Any) -> FillCandidateItem:
        return FillCandidateItem(
            text=candidate.text, token=candidate.token, probability=round_probability(candidate.probability)
        )

    masks = [[item(candidate) for candidate in candidates] for candidates in filled.masks]
    return FilledItem(source=filled.source, text=filled.text, masks=masks)
