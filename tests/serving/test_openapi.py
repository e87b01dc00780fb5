"""Random requests, valid and invalid, never break the server, and responses match the OpenAPI document."""

from collections.abc import Iterator
from pathlib import Path
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

from regard.serving import routes
from regard.serving.access import AccessPolicy
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import TEST_TIMEOUT, RunningServer, run_server

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MANY = settings(max_examples=15, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
FEW = settings(MANY, max_examples=8)
TRACE_ROUTES = ["tensor", "weight", "product", "units", "tree", "node", "alignment", "heads", "intervene", "gradients"]
Fields = st.SearchStrategy[dict[str, Any]]


def operation(server: RunningServer, route: str, method: str = "POST") -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")[route][method]


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("route", ["/translate", "/v1/translate", "/v1/completions", "/detect", "/v1/look"])
def test_random_requests(server: RunningServer, route: str, mode: GenerationMode) -> None:
    @MANY
    @given(case=operation(server, route).as_strategy(generation_mode=mode))
    def send(case: "Case[Any]") -> None:
        case.call_and_validate(checks=CHECKS)

    send()


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("route", ["/v1/classify", "/v1/tag", "/v1/fill", "/v1/embeddings", "/v1/look"])
def test_random_requests_to_encoders(encoder_server: RunningServer, route: str, mode: GenerationMode) -> None:
    @MANY
    @given(case=operation(encoder_server, route).as_strategy(generation_mode=mode))
    def send(case: "Case[Any]") -> None:
        response = case.call()
        timed_out = response.status_code == 504  # the request's own timeout, which is not a failure
        case.validate_response(response, checks=CHECKS[1:] if timed_out else CHECKS)

    send()


@pytest.fixture(scope="module")
def traces(
    loaded_models: list[LoadedModel],
    recurrent_models: dict[str, LoadedModel],
    loaded_encoders: dict[str, LoadedModel],
) -> Iterator[tuple[RunningServer, Fields]]:
    """A server that stores a trace of every kind of model, and valid fields for requests about them."""
    encoders = [loaded_encoders[name] for name in ("mood", "names", "elmo")]
    models = [loaded_models[0], loaded_models[2], *recurrent_models.values(), *encoders]
    with run_server(Service(models)) as server:
        bodies = [{"text": "w5 w9 w12", "model": model.name, "max_tokens": 4} for model in models]
        bodies.append({"text": "w5 w9", "target": "w7"})
        yield server, st.one_of(*(trace_fields(server.post("/v1/look", body).json()) for body in bodies))


def trace_fields(outline: dict[str, Any]) -> Fields:
    """Fields that are mostly valid for a trace."""
    points = [point["name"] for point in outline["points"]]
    modules = st.sampled_from([*points, *sorted({name.rpartition(".")[0] for name in points})])
    heads, number = st.sampled_from(["", "[0]", "[3]"]), st.integers(0, 4)
    span = st.tuples(number, number).map(list)
    intervention = st.builds("{}{}{}".format, modules, heads, st.sampled_from(["", "=even", "=1"]))
    fields = {
        "trace": st.just(outline["id"]),
        "at": st.builds("{}{}{}".format, modules, heads, st.sampled_from(["", "@0", "@2"])),
        "layer": st.sampled_from(sorted({f"{point['stack']}.{point['layer']}" for point in outline["points"]})),
        "name": st.sampled_from([matrix["name"] for matrix in outline["matrices"]]),
        "interventions": st.lists(intervention, min_size=1, max_size=2),
    }
    numbers = {"row": number, "column": number, "node": number, "head": number, "rows": span, "columns": span}
    return st.fixed_dictionaries(fields, optional=numbers)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("name", TRACE_ROUTES)
def test_random_requests_about_traces(traces: tuple[RunningServer, Fields], name: str, mode: GenerationMode) -> None:
    server, valid_fields = traces
    cases = operation(server, f"/v1/look/{name}").as_strategy(generation_mode=mode)

    @FEW
    @given(case=cases, fields=st.just({}) | valid_fields)
    def send(case: "Case[Any]", fields: dict[str, Any]) -> None:
        if isinstance(case.body, dict):
            case.body |= {name: value for name, value in fields.items() if name in case.body}
        case.call_and_validate(checks=CHECKS, timeout=TEST_TIMEOUT)

    send()


def test_random_model_names(server: RunningServer) -> None:
    cases = operation(server, "/v1/models/{name}", "GET").as_strategy(generation_mode=GenerationMode.POSITIVE)

    @FEW
    @given(case=cases, is_known=st.booleans())
    def send(case: "Case[Any]", is_known: bool) -> None:
        if is_known:
            case.path_parameters = {"name": "writer"}
        case.call_and_validate(checks=CHECKS)

    send()


@pytest.mark.parametrize(
    "route",
    [
        "/languages",
        "/frontend/settings",
        "/v1/about",
        "/v1/models",
        "/health",
        "/livez",
        "/healthz",
        "/readyz",
        "/metrics",
    ],
)
def test_get_routes(server: RunningServer, route: str) -> None:
    operation(server, route, "GET").Case().call_and_validate(checks=CHECKS)


def test_every_operation_is_documented(server: RunningServer) -> None:
    document = server.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, details in operations.items():
            assert details["summary"], path
            assert details["description"], path
            assert "422" not in details["responses"], "invalid requests get 400"
            content = details["responses"]["200"]["content"]
            assert all(kind["schema"] for kind in content.values()), path
            assert ("requestBody" in details) == (method == "post"), path


def test_the_documentation_page_has_the_types_of_fields(server: RunningServer) -> None:
    page = server.get("/docs").text
    assert "<td>string or list of strings</td>" in page
    assert "<td>integer</td>" in page


@pytest.mark.slow
def test_a_new_route_is_one_file(
    loaded_models: list[LoadedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the how-to guide: a module in `routes/` is served, documented, and needs the key."""
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "serve.md").read_text("utf-8")
    code = guide.partition("## Add a route")[2].partition("```text\n")[2].partition("```")[0]
    (tmp_path / "count.py").write_text(code)
    monkeypatch.setattr(routes, "__path__", [*routes.__path__, str(tmp_path)])
    key = "a key that is hard to guess"
    with run_server(Service(loaded_models[:1], access=AccessPolicy(key.encode()))) as server:
        assert server.post("/v1/count", {"text": "w4 w5"}).status_code == 401
        server.client.headers["authorization"] = f"Bearer {key}"
        assert server.post("/v1/count", {"text": "w4 w5"}).json() == {"tokens": 2}
        assert server.post("/v1/count", {"txt": "w4"}).json() == {"error": "Unknown field txt (did you mean text?)."}
        assert "CountRequest" in server.get("/openapi.json").json()["components"]["schemas"]
        assert "/v1/count" in server.get("/docs").text


def test_served_models_and_languages_are_choices(encoder_server: RunningServer) -> None:
    document = encoder_server.get("/openapi.json").json()
    schemas = document["components"]["schemas"]

    def choices(field: dict[str, Any]) -> list[str]:
        return next(choice["enum"] for choice in field.get("anyOf", [field]) if "enum" in choice)

    assert choices(schemas["TranslateRequest"]["properties"]["model"]) == ["en-it"]
    assert choices(schemas["ClassifyRequest"]["properties"]["model"]) == ["mood"]
    assert choices(schemas["EmbeddingsRequest"]["properties"]["model"]) == ["mood", "names", "holes", "vectors", "elmo"]
    contents = document["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert set(contents) == {"application/json", "application/x-www-form-urlencoded"}
    for content in contents.values():
        assert choices(content["schema"]["properties"]["source"]) == ["auto", "en", "it"]
