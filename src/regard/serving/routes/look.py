"""Our own `/v1/look`: everything between a text and what a model makes of it, for the page and for programs.

`/v1/look` decodes and gives the outline and an id; what is asked about a trace names it by that id.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from regard.errors import InputError
from regard.interpret.interventions import Intervention
from regard.interpret.slices import json_numbers
from regard.interpret.trace import Trace
from regard.serving.answer import as_json
from regard.serving.asked import STRICT, Fields, check_limits, read_asked
from regard.serving.schema import NUMBER, TEXT, WHOLE, Schema, answers, listed, obj, takes
from regard.serving.service import Service
from regard.serving.streaming import wait_for_answer
from regard.serving.trace_store import TraceRequest

Index = Annotated[int, Field(ge=0, lt=2**31)]
Span = Annotated[list[Index], Field(min_length=2, max_length=2)]
Short = Annotated[str, Field(max_length=200)]
Weighted = Annotated[str, Field(max_length=8_000)]  # room for a weight for each of 512 keys, the most of a trace


class Asked(BaseModel):
    """What to look into."""

    model_config = STRICT

    text: str
    """One sentence, or a prompt."""
    model: str | None = None
    """Without it, the first."""
    target: str | None = None
    """A text to force, instead of decoding one; of an encoder, a label, a tag for each token, or what fills holes."""
    beam: Annotated[int, Field(ge=1)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    max_length: Annotated[int, Field(ge=1)] | None = None
    """Tokens that are written at most."""


class Of(BaseModel):
    """A question about a trace."""

    model_config = STRICT

    trace: Short
    """The id that `/v1/look` gave."""


class AskedTensor(Of):
    """Numbers at an address."""

    at: Short
    """As `decoder.1.cross_attention.weights[2]@3`."""
    rows: Span | None = None
    """From, and up to but not with."""
    columns: Span | None = None


class AskedWeight(Of):
    """A learned matrix."""

    name: Short
    """As `encoder.0.attention.W_q`."""
    head: Index | None = None
    rows: Span | None = None
    columns: Span | None = None


class AskedUnits(Of):
    """Hidden units of a layer."""

    layer: Short
    """As `encoder.0`."""


class AskedProduct(Of):
    """One cell of a product."""

    at: Short
    row: Index
    column: Index


class AskedNode(Of):
    """A node of the tree."""

    node: Index
    at: Short | None = None
    """Where it is wanted what it looked at, as `decoder.1.cross_attention`."""


class AskedChange(Of):
    """What to switch off, or to tell where to look."""

    changes: Annotated[list[Weighted], Field(min_length=1, max_length=256)]
    """As `decoder.1.cross_attention[2]`, `encoder.0` or `decoder.0.attention[1]=even`; or with a weight for each key,
    as `decoder.0.attention[1]=0.5,0.25,0.25`."""


THING: Schema = {"type": "object"}
NUMBERS = obj("address", "axes", "shape", "slices", "labels", "values", address=TEXT, values={"type": "array"})
UNITS = obj("layer", "units", "active", layer=TEXT, units=WHOLE, active=listed(WHOLE))
GRADIENTS = obj("loss", "grad_norm", "modules", loss=NUMBER, grad_norm=NUMBER, modules=listed(THING))
OUTLINE = obj("id", "kind", "forced_target", "text", "output", "model", "steps", "points", "matrices", id=TEXT,
              kind=TEXT, forced_target={"type": ["string", "null"]}, text=TEXT)  # fmt: skip


def router(service: Service) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["look"])
    limits = service.limits

    @routes.post(
        "/v1/look",
        summary="Decode, and open up what happened: the outline of a trace, and its id",
        responses=answers(OUTLINE),
        openapi_extra=takes(Asked, choices={"model": [model.name for model in service.models]}),
    )
    async def look(request: Request) -> Response:
        asked = await read_asked(Asked, request, limits)
        model = service.named(asked.model)
        question = _question(asked, model.name, service)
        found = service.traces.make(question, model, lambda trace: finite({"id": question.id, **trace.outline()}))
        return as_json(await wait_for_answer(request, found, limits.deadline))

    def about(
        path: str, summary: str, body: type[Fields], schema: Schema, tell: Callable[[Trace, Fields], Any]
    ) -> None:
        """A route that asks a trace something."""

        async def route(request: Request) -> Response:
            asked = await read_asked(body, request, limits)
            id_ = asked.trace  # type: ignore[attr-defined]  # every body about a trace has it
            found = service.traces.ask(id_, lambda trace: finite(tell(trace, asked)))
            return as_json(await wait_for_answer(request, found, limits.deadline))

        route.__name__ = path.rpartition("/")[2]
        routes.post(path, summary=summary, responses=answers(schema), openapi_extra=takes(body))(route)

    about("/v1/look/tensor", "Numbers by their address, 65,536 at most", AskedTensor, NUMBERS, _tensor)
    about("/v1/look/weight", "A learned matrix, or a part of it", AskedWeight, NUMBERS, _weight)
    about("/v1/look/product", "One cell of a product as its multiply-add list", AskedProduct, THING, _product)
    about("/v1/look/units", "How many hidden units of a layer are on at each token", AskedUnits, UNITS, _units)
    about("/v1/look/tree", "The tree of the search", Of, {"type": ["object", "null"]}, _tree)
    about("/v1/look/node", "What a node of the tree says, and where it looked", AskedNode, THING, _node)
    about("/v1/look/alignment", "Which words go together", Of, THING, lambda trace, _: trace.alignment().as_dict())
    about("/v1/look/heads", "How spread each head is, and what it costs to lose it", Of, listed(THING), _heads)
    about("/v1/look/changed", "Decode again with something off", AskedChange, THING, _changed)
    about(
        "/v1/look/gradients",
        "How strongly each part is pulled",
        Of,
        GRADIENTS,
        lambda trace, _: trace.gradient_norms().as_dict(),
    )
    return routes


def finite(value: Any) -> Any:
    """Plain values as JSON can hold them: −∞ is null."""
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return json_numbers(value)


def _tensor(trace: Trace, asked: AskedTensor) -> Any:
    return trace.tensor(asked.at, rows=_span(asked.rows), columns=_span(asked.columns)).as_dict()


def _weight(trace: Trace, asked: AskedWeight) -> Any:
    rows, columns = _span(asked.rows), _span(asked.columns)
    return trace.weight(asked.name, head=asked.head, rows=rows, columns=columns).as_dict()


def _product(trace: Trace, asked: AskedProduct) -> Any:
    return trace.product(asked.at, asked.row, asked.column).as_dict()


def _units(trace: Trace, asked: AskedUnits) -> Any:
    found = trace.active_units(asked.layer)
    if found is None:
        some = [one.group for one in trace.points.values() if one.part == "feed_forward" and one.point == "hidden"]
        there = f"; the layers that have are {', '.join(some)}." if some else "; nor has any other of this network."
        raise InputError(f"{asked.layer}: has no hidden units{there}")
    return found.as_dict()


def _tree(trace: Trace, _: Of) -> Any:
    return None if trace.tree is None else trace.tree.as_dict(trace.model.target_tokenizer)


def _node(trace: Trace, asked: AskedNode) -> Any:
    found = trace.branch(asked.node)
    attention = None
    if asked.at is not None:
        weights = found.tensor(f"{asked.at}.weights@{len(found.decoder_input) - 1}")  # (H, 1, S)
        attention = {"labels": weights.labels[-1], "values": weights.values[:, 0].tolist()}
    return {
        "text": found.forced_target,
        "tokens": found.model.target_tokenizer.ids_to_tokens(found.decoded.target_ids),
        "step": found.steps[-1].as_dict(),
        "log_probability": found.log_probability,
        "attention": attention,
    }


def _heads(trace: Trace, _: Of) -> Any:
    return [head.as_dict() for head in trace.head_costs()]


def _changed(trace: Trace, asked: AskedChange) -> Any:
    return trace.intervene(*(Intervention.parse(change) for change in asked.changes)).as_dict()


def _span(given: list[int] | None) -> tuple[int, int] | None:
    return None if given is None else (given[0], given[1])


def _question(asked: Asked, model: str, service: Service) -> TraceRequest:
    limits, beam = service.limits, asked.beam or service.beam
    check_limits(
        ("characters", max(len(asked.text), len(asked.target or "")), limits.look),
        ("beam", beam, limits.beam),
        ("max_length", asked.max_length or 0, limits.tokens),
    )
    return TraceRequest(model, asked.text, asked.target, beam, asked.length_penalty, asked.max_length)
