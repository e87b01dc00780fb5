"""`/v1/look`: traces of a computation. `/v1/look` returns the outline and id of a trace, other routes read from it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from regard.data.sentence_splitting import split_sentences
from regard.errors import InputError
from regard.interpret.decode import traceable_beginning
from regard.interpret.interventions import Intervention
from regard.interpret.tensors import json_numbers
from regard.interpret.trace import Trace
from regard.serving.errors import JSON_TYPE
from regard.serving.limits import check_limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.schemas import JsonRoute, RequestModel, json_bytes
from regard.serving.service import Service, ServiceDependency
from regard.serving.streaming import wait_for_result
from regard.serving.trace_store import TraceRequest, traced_model

Index = Annotated[int, Field(ge=0, lt=2**31)]
Slice = Annotated[list[Index], Field(min_length=2, max_length=2)]
Name = Annotated[str, Field(max_length=200)]
InterventionText = Annotated[str, Field(max_length=8_000)]  # enough for one weight for each of 512 keys
Json = dict[str, Any]
router = APIRouter(tags=["look"], route_class=JsonRoute)


class LookRequest(RequestModel):
    """Text to trace."""

    model_config = ConfigDict(json_schema_extra={"x-ability": "any", "examples": [{"text": "I love you.", "beam": 4}]})

    text: str
    """One sentence, or a prompt."""
    model: str | None = None
    """Name of the model; by default the first one."""
    target: str | None = None
    """Output to force instead of decoding; for an encoder a label, a tag for each token, or the tokens of masks."""
    beam: Annotated[int, Field(ge=1)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum generated tokens."""
    special_tokens: bool = False
    """Language models: whether names of special tokens in the text are these tokens, as in a rendered chat."""


class SentencesRequest(RequestModel):
    """Text whose sentences can be traced."""

    model_config = ConfigDict(json_schema_extra={"x-ability": "any", "examples": [{"text": "I love you. Hello."}]})

    text: str
    model: str | None = None
    """Name of the model; by default the first one."""


class TraceReadRequest(RequestModel):
    """Request about a trace."""

    trace: Name
    """Id from `/v1/look`."""


class TensorRequest(TraceReadRequest):
    """Values at an address."""

    at: Name = Field(examples=["decoder.1.cross_attention.weights[2]@3"])
    """Address of the values."""
    rows: Slice | None = None
    """First row, and the row after the last one."""
    columns: Slice | None = None
    """First column, and the column after the last one."""


class WeightRequest(TraceReadRequest):
    """Learned matrix."""

    name: Name = Field(examples=["encoder.0.attention.W_q"])
    head: Index | None = None
    rows: Slice | None = None
    columns: Slice | None = None


class UnitsRequest(TraceReadRequest):
    """Hidden units of a layer."""

    layer: Name = Field(examples=["encoder.0"])


class ProductRequest(TraceReadRequest):
    """Cell of a matrix product."""

    at: Name
    row: Index
    column: Index


class NodeRequest(TraceReadRequest):
    """Node of the search tree."""

    node: Index
    at: Name | None = Field(None, examples=["decoder.1.cross_attention"])
    """Attention to return for the node."""


class InterveneRequest(TraceReadRequest):
    """Interventions: modules to switch off, and attention to override."""

    interventions: Annotated[list[InterventionText], Field(min_length=1, max_length=256)]
    """As `decoder.1.cross_attention[2]`, `encoder.0` or `decoder.0.attention[1]=even`; or with a weight for each key,
    as `decoder.0.attention[1]=0.5,0.25,0.25`."""


class OutlineResponse(BaseModel):
    """Outline of a trace: everything but its tensors."""

    id: str
    kind: str
    forced_target: str | None
    text: str
    output: str
    model: Json
    steps: list[Json]
    points: list[Json]
    matrices: list[Json]


class TraceablePart(BaseModel):
    """A text that can be traced: a whole one, or its beginning."""

    text: str
    shortened: bool
    """Whether it is only the beginning."""
    characters: int
    """Characters of the whole text."""


class SentencesResponse(BaseModel):
    """The sentences of a translator's text; the text of another model is one sentence."""

    sentences: list[TraceablePart]
    whole: TraceablePart
    """The text as one sentence."""


class TensorResponse(BaseModel):
    """Values with their axes and labels; masked values are null."""

    address: str
    axes: list[str]
    shape: list[int]
    slices: list[list[int]]
    labels: list[list[str] | None]
    values: list[Any]


class UnitsResponse(BaseModel):
    """Number of active hidden units at each token."""

    layer: str
    units: int
    active: list[int]


class GradientsResponse(BaseModel):
    """Loss, and the gradient norm per module."""

    loss: float | None
    grad_norm: float | None
    modules: list[Json]


@router.post("/v1/look", response_model=OutlineResponse, summary="Trace the computation of a text")
async def look(body: LookRequest, request: Request, service: ServiceDependency) -> Response:
    """Decode a text, record the computation, and return the outline and id of the trace."""
    model = service.model(body.model)
    trace_request = _trace_request(body, model, service)
    outline = service.traces.create(
        trace_request, model, lambda trace: _encode({"id": trace_request.id, **trace.outline()})
    )
    return Response(await wait_for_result(request, outline, service.limits.timeout), media_type=JSON_TYPE)


@router.post("/v1/look/sentences", summary="Sentences of a text, each short enough to be traced")
async def sentences(body: SentencesRequest, service: ServiceDependency) -> SentencesResponse:
    """Split a text as `/v1/translate` does, and shorten what is too long for a trace to its beginning."""
    model, limits = service.model(body.model), service.limits
    check_limits(("characters", len(body.text), limits.max_characters))
    return await asyncio.to_thread(_sentences, model, body.text, limits.max_trace_characters)


@router.post("/v1/look/tensor", response_model=TensorResponse, summary="Values at an address, at most 65,536")
async def tensor(body: TensorRequest, request: Request, service: ServiceDependency) -> Response:
    """Return recorded values, or a part of them."""
    rows, columns = _slice(body.rows), _slice(body.columns)
    return await _read(
        body, request, service, lambda trace: trace.tensor(body.at, rows=rows, columns=columns).as_dict()
    )


@router.post("/v1/look/weight", response_model=TensorResponse, summary="Learned matrix")
async def weight(body: WeightRequest, request: Request, service: ServiceDependency) -> Response:
    """Return a learned matrix, or a part of it."""
    rows, columns = _slice(body.rows), _slice(body.columns)
    return await _read(
        body,
        request,
        service,
        lambda trace: trace.weight(body.name, head=body.head, rows=rows, columns=columns).as_dict(),
    )


@router.post("/v1/look/product", response_model=Json, summary="Cell of a matrix product as its terms")
async def product(body: ProductRequest, request: Request, service: ServiceDependency) -> Response:
    """Return the terms whose sum is one cell of a matrix product."""
    return await _read(body, request, service, lambda trace: trace.product(body.at, body.row, body.column).as_dict())


@router.post("/v1/look/units", response_model=UnitsResponse, summary="Number of active hidden units")
async def units(body: UnitsRequest, request: Request, service: ServiceDependency) -> Response:
    """Return how many hidden units of a layer are active at each token."""
    return await _read(body, request, service, lambda trace: _units(trace, body.layer))


@router.post("/v1/look/tree", response_model=Json | None, summary="Search tree")
async def tree(body: TraceReadRequest, request: Request, service: ServiceDependency) -> Response:
    """Return the tree of the beam search; null if the output was forced or sampled."""
    return await _read(body, request, service, _tree)


@router.post("/v1/look/node", response_model=Json, summary="Node of the search tree")
async def node(body: NodeRequest, request: Request, service: ServiceDependency) -> Response:
    """Return the text of a node of the search tree, and its attention."""
    return await _read(body, request, service, lambda trace: _node(trace, body))


@router.post("/v1/look/alignment", response_model=Json, summary="Word alignment")
async def alignment(body: TraceReadRequest, request: Request, service: ServiceDependency) -> Response:
    """Return the alignment of source and target words."""
    return await _read(body, request, service, lambda trace: trace.alignment().as_dict())


@router.post("/v1/look/heads", response_model=list[Json], summary="Entropy and cost of each attention head")
async def heads(body: TraceReadRequest, request: Request, service: ServiceDependency) -> Response:
    """Return the entropy of each head, and the loss that switching it off adds."""
    return await _read(body, request, service, lambda trace: [head.as_dict() for head in trace.head_costs()])


@router.post("/v1/look/intervene", response_model=Json, summary="Decode with interventions")
async def intervene(body: InterveneRequest, request: Request, service: ServiceDependency) -> Response:
    """Decode again with modules switched off or attention overridden, and compare."""
    return await _read(
        body,
        request,
        service,
        lambda trace: trace.intervene(*(Intervention.parse(text) for text in body.interventions)).as_dict(),
    )


@router.post("/v1/look/gradients", response_model=GradientsResponse, summary="Gradient norm per module")
async def gradients(body: TraceReadRequest, request: Request, service: ServiceDependency) -> Response:
    """Return the gradient norm of each module for the traced output."""
    return await _read(body, request, service, lambda trace: trace.gradient_norms().as_dict())


async def _read(body: TraceReadRequest, request: Request, service: Service, read: Callable[[Trace], Any]) -> Response:
    """Read from a stored trace; its thread also encodes the response, which may be large."""
    content = service.traces.read(body.trace, lambda trace: _encode(read(trace)))
    return Response(await wait_for_result(request, content, service.limits.timeout), media_type=JSON_TYPE)


def _sentences(model: LoadedModel, text: str, max_characters: int) -> SentencesResponse:
    traced, text = traced_model(model), text.strip()
    texts = [text]
    if model.translates:
        texts = [sentence for line in text.split("\n") for sentence in split_sentences(line)] or texts

    def part(text: str) -> TraceablePart:
        beginning = traceable_beginning(traced, text, max_characters)
        return TraceablePart(text=beginning, shortened=len(beginning) < len(text), characters=len(text))

    return SentencesResponse(sentences=[part(sentence) for sentence in texts], whole=part(text))


def _encode(value: Any) -> bytes:
    return json_bytes(_finite(value))


def _finite(value: Any) -> Any:
    """Return values as JSON can represent them: minus infinity is null."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return json_numbers(value)


def _units(trace: Trace, layer: str) -> Any:
    active = trace.active_units(layer)
    if active is None:
        layers = [
            point.group for point in trace.points.values() if point.part == "feed_forward" and point.point == "hidden"
        ]
        hint = f"; layers with hidden units are {', '.join(layers)}." if layers else "; this network has none."
        raise InputError(f"{layer}: has no hidden units{hint}")
    return active.as_dict()


def _tree(trace: Trace) -> Any:
    return None if trace.tree is None else trace.tree.as_dict(trace.model.target_tokenizer)


def _node(trace: Trace, body: NodeRequest) -> Any:
    node_trace = trace.branch(body.node)
    attention = None
    if body.at is not None:
        weights = node_trace.tensor(f"{body.at}.weights@{len(node_trace.decoder_input) - 1}")  # (H, 1, S)
        attention = {"labels": weights.labels[-1], "values": weights.values[:, 0].tolist()}
    return {
        "text": node_trace.forced_target,
        "tokens": node_trace.model.target_tokenizer.ids_to_tokens(node_trace.decoded.target_ids),
        "step": node_trace.steps[-1].as_dict(),
        "log_probability": node_trace.log_probability,
        "attention": attention,
    }


def _slice(bounds: list[int] | None) -> tuple[int, int] | None:
    return None if bounds is None else (bounds[0], bounds[1])


def _trace_request(body: LookRequest, model: LoadedModel, service: Service) -> TraceRequest:
    limits, search = service.limits, service.search(model, body.beam, body.length_penalty)
    check_limits(
        ("characters", max(len(body.text), len(body.target or "")), limits.max_trace_characters),
        ("beam", search.beam, limits.max_beam),
        ("max_tokens", body.max_tokens or 0, limits.max_tokens),
    )
    options = search.beam, search.length_penalty, body.max_tokens, body.special_tokens
    return TraceRequest(model.name, body.text, body.target, *options)
