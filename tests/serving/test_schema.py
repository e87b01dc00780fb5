"""Whatever is sent to the API, by its own description or against it, nothing breaks; and the description is kept."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from servers import Running

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
QUIET = settings(max_examples=30, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(
    "route", ["/translate", "/v1/translate", "/v1/completions", "/detect", "/v1/look", "/v1/look/tensor"]
)
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


@pytest.mark.parametrize(
    "route", ["/languages", "/frontend/settings", "/v1/about", "/health", "/healthz", "/readyz", "/metrics"]
)
def test_plain_questions_are_answered_as_described(server: Running, route: str) -> None:
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")[route]["GET"]
    operation.Case().call_and_validate(checks=CHECKS)
