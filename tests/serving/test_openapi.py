"""Whatever is sent to the API, by its own description or against it, nothing breaks; and the description is kept."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import PATIENCE, Running, running

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
QUIET = settings(max_examples=30, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
BRIEF = settings(QUIET, max_examples=12)
ABOUT_TRACES = ["tensor", "weight", "product", "units", "tree", "node", "alignment", "heads", "changed"]
Known = st.SearchStrategy[dict[str, Any]]


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("route", ["/translate", "/v1/translate", "/v1/completions", "/detect", "/v1/look"])
def test_nothing_that_is_sent_breaks_the_server(server: Running, route: str, mode: GenerationMode) -> None:
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")[route]["POST"]

    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: "Case[Any]") -> None:
        case.call_and_validate(checks=CHECKS)

    send()


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("route", ["/v1/classify", "/v1/tag", "/v1/fill", "/v1/embeddings", "/v1/look"])
def test_nothing_that_is_sent_breaks_encoders(reading: Running, route: str, mode: GenerationMode) -> None:
    operation = schemathesis.openapi.from_url(f"{reading.url}/openapi.json")[route]["POST"]

    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: "Case[Any]") -> None:
        answer = case.call()
        late = answer.status_code == 504  # a deadline of its own choice has passed, which is no failure
        case.validate_response(answer, checks=CHECKS[1:] if late else CHECKS)

    send()


@pytest.fixture(scope="module")
def looking(
    models: list[LoadedModel], recurrent: dict[str, LoadedModel], encoders: dict[str, LoadedModel]
) -> Iterator[tuple[Running, Known]]:
    """A server that keeps a trace of every kind of model, and what can be asked about them."""
    kinds = [models[0], models[2], *recurrent.values(), *(encoders[name] for name in ("mood", "names", "elmo"))]
    with running(Service(kinds)) as found:
        asked = [{"text": "w5 w9 w12", "model": model.name, "max_length": 4} for model in kinds]
        asked.append({"text": "w5 w9", "target": "w7"})
        yield found, st.one_of(*(known(found.post("/v1/look", fields).json()) for fields in asked))


def known(outline: dict[str, Any]) -> Known:
    """Fields that mean something about a trace, most of the time."""
    points = [point["name"] for point in outline["points"]]
    places = st.sampled_from([*points, *sorted({name.rpartition(".")[0] for name in points})])
    heads, number = st.sampled_from(["", "[0]", "[3]"]), st.integers(0, 4)
    span = st.tuples(number, number).map(list)
    change = st.builds("{}{}{}".format, places, heads, st.sampled_from(["", "=even", "=1"]))
    fields = {
        "trace": st.just(outline["id"]),
        "at": st.builds("{}{}{}".format, places, heads, st.sampled_from(["", "@0", "@2"])),
        "layer": st.sampled_from(sorted({f"{point['stack']}.{point['layer']}" for point in outline["points"]})),
        "name": st.sampled_from([matrix["name"] for matrix in outline["matrices"]]),
        "changes": st.lists(change, min_size=1, max_size=2),
    }
    numbers = {"row": number, "column": number, "node": number, "head": number, "rows": span, "columns": span}
    return st.fixed_dictionaries(fields, optional=numbers)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("what", ABOUT_TRACES)
def test_nothing_that_is_asked_about_a_trace_breaks_it(
    looking: tuple[Running, Known], what: str, mode: GenerationMode
) -> None:
    server, questions = looking
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")[f"/v1/look/{what}"]["POST"]

    @BRIEF
    @given(case=operation.as_strategy(generation_mode=mode), fields=st.just({}) | questions)
    def send(case: "Case[Any]", fields: dict[str, Any]) -> None:
        if isinstance(case.body, dict):
            case.body |= {name: value for name, value in fields.items() if name in case.body}
        case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

    send()


def test_any_name_of_a_model_may_be_asked_for(server: Running) -> None:
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")["/v1/models/{name}"]["GET"]

    @BRIEF
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE), own=st.booleans())
    def send(case: "Case[Any]", own: bool) -> None:
        if own:
            case.path_parameters = {"name": "writer"}
        case.call_and_validate(checks=CHECKS)

    send()


@pytest.mark.parametrize(
    "route",
    ["/languages", "/frontend/settings", "/v1/about", "/v1/models", "/health", "/healthz", "/readyz", "/metrics"],
)
def test_plain_questions_are_answered_as_described(server: Running, route: str) -> None:
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")[route]["GET"]
    operation.Case().call_and_validate(checks=CHECKS)
