"""OpenAI's completions: its client works, with and without streaming, and gets its error format."""

import json
from typing import Any

import openai
import pytest

from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import RunningServer, run_server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_completion_is_the_models_generation(client: openai.OpenAI, loaded_models: list[LoadedModel]) -> None:
    response = client.completions.create(model="writer", prompt="w4 w5", max_tokens=8, temperature=0)
    generated = loaded_models[2].model.generate("w4 w5", temperature=0, max_tokens=8)
    assert response.choices[0].text == generated
    assert response.choices[0].finish_reason in ("stop", "length")
    assert response.usage is not None
    assert response.usage.prompt_tokens == 2
    assert response.object == "text_completion"


def test_a_stream_has_the_same_text(client: openai.OpenAI) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": ["w4", "w5 w6"], "n": 2, "max_tokens": 6, "seed": 3}
    whole = client.completions.create(**body)
    texts, reasons, usage = [""] * 4, [""] * 4, None
    for chunk in client.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
        usage = chunk.usage
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_echo_returns_the_prompt(client: openai.OpenAI) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": "w4", "echo": True, "temperature": 0, "max_tokens": 3}
    whole = client.completions.create(**body).choices[0].text
    assert whole.startswith("w4")
    assert whole == "".join(chunk.choices[0].text for chunk in client.completions.create(**body, stream=True))


def test_generation_stops_at_a_stop_text(client: openai.OpenAI) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": "w4", "temperature": 0, "max_tokens": 8}
    whole = client.completions.create(**body).choices[0].text
    stop = whole.split()[1]
    cut = client.completions.create(**body, stop=stop).choices[0]
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


@pytest.mark.parametrize("extreme", [{"temperature": 1e-300}, {"top_p": 1e-300, "top_k": 5}, {"min_p": 1.0}])
@pytest.mark.parametrize("seed", [None, 1])
def test_filters_that_leave_one_token_are_greedy(client: openai.OpenAI, extreme: Any, seed: int | None) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": "w4", "max_tokens": 4, "seed": seed}
    greedy = client.completions.create(**body, temperature=0).choices[0].text
    assert client.completions.create(**body, extra_body=extreme).choices[0].text == greedy


class TestLogprobs:
    """Log-probabilities of tokens and candidates in OpenAI's format."""

    def test_tokens_have_offsets_and_log_probabilities(self, client: openai.OpenAI) -> None:
        body: dict[str, Any] = {"model": "writer", "prompt": "w4 w5", "temperature": 0, "max_tokens": 4}
        (choice,) = client.completions.create(**body, logprobs=2).choices
        logprobs = choice.logprobs
        assert logprobs is not None
        tokens, scores, tops = logprobs.tokens or [], logprobs.token_logprobs or [], logprobs.top_logprobs or []
        assert len(tokens) == 4
        assert "".join(tokens) == choice.text
        for token, offset in zip(tokens, logprobs.text_offset or [], strict=True):
            assert choice.text[offset:].startswith(token)
        for token, score, top in zip(tokens, scores, tops, strict=True):
            assert max(top, key=lambda name: top[name]) == token  # greedy search takes the most probable
            assert top[token] == score < 0
            assert len(top) == 2
        assert client.completions.create(**body).choices[0].logprobs is None

    def test_the_sampled_token_is_included_at_any_rank(self, client: openai.OpenAI) -> None:
        response = client.completions.create(model="writer", prompt="w4", logprobs=0, max_tokens=3, n=2, seed=3)
        for choice in response.choices:
            logprobs = choice.logprobs
            assert logprobs is not None
            tokens, scores = logprobs.tokens or [], logprobs.token_logprobs or []
            assert logprobs.top_logprobs == [{token: score} for token, score in zip(tokens, scores, strict=True)]

    def test_a_prompt_can_be_scored_without_generating(
        self, client: openai.OpenAI, loaded_models: list[LoadedModel]
    ) -> None:
        body: dict[str, Any] = {"model": "writer", "prompt": ["w4 w5 w6", ""], "max_tokens": 0, "echo": True}
        first, empty = client.completions.create(**body, logprobs=1).choices
        assert (first.text, first.finish_reason, empty.text) == ("w4 w5 w6", "length", "")
        assert first.logprobs is not None
        assert first.logprobs.text_offset == [0, 2, 5]
        (expected,) = loaded_models[2].model.score_prompts(["w4 w5 w6"])
        scores = [score for _, score, _ in expected]
        assert first.logprobs.token_logprobs == pytest.approx(scores, abs=1e-5)
        assert empty.logprobs is not None
        assert empty.logprobs.tokens == []

    def test_the_scores_of_prompt_and_completion_join(self, client: openai.OpenAI) -> None:
        body: dict[str, Any] = {"model": "writer", "logprobs": 1, "echo": True}
        generated = client.completions.create(**body, prompt="w4 w5", temperature=0, max_tokens=3).choices[0]
        scored = client.completions.create(**body, prompt=generated.text, max_tokens=0).choices[0]
        assert generated.logprobs is not None
        assert scored.logprobs is not None
        assert generated.logprobs.tokens == scored.logprobs.tokens
        assert generated.logprobs.text_offset == scored.logprobs.text_offset
        assert generated.logprobs.token_logprobs == pytest.approx(scored.logprobs.token_logprobs, abs=1e-4)

    @pytest.mark.parametrize("stop", [None, "w"])
    def test_a_stream_has_the_same_logprobs(self, client: openai.OpenAI, stop: str | None) -> None:
        body: dict[str, Any] = {"model": "writer", "prompt": ["w4", "w5 w6"], "max_tokens": 5, "seed": 3}
        body |= {"logprobs": 2, "echo": True, "stop": stop}
        whole = client.completions.create(**body).choices
        for choice in whole:
            logprobs: dict[str, list[Any]] = {}
            for chunk in client.completions.create(**body, stream=True):
                for part in chunk.choices:
                    if part.index == choice.index and part.logprobs is not None:
                        for name, values in part.logprobs.model_dump().items():
                            logprobs.setdefault(name, []).extend(values)
            assert choice.logprobs is not None
            assert logprobs == choice.logprobs.model_dump()
            assert "".join(logprobs["tokens"]).startswith(choice.text)  # a stop text may be a part of a token
            assert logprobs["text_offset"][-1] < len(choice.text)


def test_a_recurrent_network_generates_streams_and_scores(recurrent_models: dict[str, LoadedModel]) -> None:
    body: dict[str, Any] = {"model": "lstm", "prompt": "w4 w5", "temperature": 0, "logprobs": 2, "echo": True}
    with (
        run_server(Service([recurrent_models["lstm"]])) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        (whole,) = client.completions.create(**body, max_tokens=5).choices
        chunks = [chunk.choices[0] for chunk in client.completions.create(**body, max_tokens=5, stream=True)]
        (scored,) = client.completions.create(**body | {"prompt": whole.text}, max_tokens=0).choices
    continuation = recurrent_models["lstm"].model.generate("w4 w5", temperature=0, max_tokens=5)
    assert continuation
    assert whole.text == "".join(chunk.text for chunk in chunks) == f"w4 w5{continuation}"
    assert whole.logprobs is not None
    assert scored.logprobs is not None
    assert whole.logprobs.tokens == scored.logprobs.tokens
    assert whole.logprobs.token_logprobs == pytest.approx(scored.logprobs.token_logprobs, abs=1e-4)
    streamed = [score for chunk in chunks if chunk.logprobs for score in chunk.logprobs.token_logprobs or []]
    assert streamed == whole.logprobs.token_logprobs


def test_best_of_returns_the_most_probable(client: openai.OpenAI) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": ["w4", "w5"], "max_tokens": 4, "seed": 5, "logprobs": 0}
    drawn = client.completions.create(**body, n=6)
    best = client.completions.create(**body, n=2, best_of=6)
    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    assert best.usage == drawn.usage
    texts = [choice.text for choice in drawn.choices]
    for row, choice in enumerate(best.choices):
        assert choice.text in texts[6 * (row // 2) : 6 * (row // 2) + 6]
    means = [_mean(choice) for choice in drawn.choices[:6] if choice.finish_reason == "length"]
    assert _mean(best.choices[0]) >= max(means)


def _mean(choice: Any) -> float:
    return float(sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs))


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["en-it", "it-en", "writer"]
    assert client.models.retrieve("writer").owned_by == "regard"
    with pytest.raises(openai.NotFoundError, match="There is no model 'none'"):
        client.models.retrieve("none")


def test_a_stream_has_server_sent_events(server: RunningServer) -> None:
    response = server.post("/v1/completions", {"model": "writer", "prompt": "w4", "max_tokens": 2, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: "))["object"] == "text_completion" for event in events[:-2])


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ({"prompt": "w4"}, 400, "model is missing."),
        ({"model": "wirter"}, 404, "There is no model 'wirter' (did you mean writer?)."),
        (
            {"model": "en-it"},
            400,
            "The model en-it cannot generate text; it is of kind encoder-decoder Transformer and can translate.",
        ),
        ({"model": "writer", "prompt": [4, 5]}, 400, "prompt = [4, 5] should be a valid string."),
        ({"model": "writer", "max_tokens": -1}, 400, "max_tokens = -1 should be greater than or equal to 0."),
        (
            {"model": "writer", "max_tokens": 1001},
            400,
            "max_tokens: 1,001 exceeds this server's limit of 1,000; reduce it.",
        ),
        (
            {"model": "writer", "n": 257},
            400,
            "prompts times n: 257 exceeds this server's limit of 256; reduce it.",
        ),
        (
            {"model": "writer", "prompt": "w" * 20_001},
            400,
            "characters of the prompt: 20,001 exceeds this server's limit of 20,000; reduce it.",
        ),
        ({"model": "writer", "temperature": 3}, 400, "temperature = 3 should be less than or equal to 2."),
        ({"model": "writer", "logprobs": 6}, 400, "logprobs = 6 should be less than or equal to 5."),
        ({"model": "writer", "logprobs": True}, 400, "logprobs = true should be a valid integer."),
        (
            {"model": "writer", "repetition_penalty": 1e-300},
            400,
            "repetition_penalty = 1e-300 should be greater than or equal to 0.01.",
        ),
        ({"model": "writer", "suffix": "end"}, 400, "suffix is not supported; remove it."),
        ({"model": "writer", "logit_bias": {"4": 1}}, 400, "logit_bias is not supported; remove it."),
        ({"model": "writer", "presence_penalty": 1}, 400, "presence_penalty is not supported; remove it."),
        ({"model": "writer", "frequency_penalty": 1}, 400, "frequency_penalty is not supported; remove it."),
        (
            {"model": "writer", "best_of": 2, "n": 3},
            400,
            "best_of: 2 is less than n, 3; raise it, or lower n.",
        ),
        (
            {"model": "writer", "best_of": 2, "stream": True},
            400,
            "best_of: cannot be streamed, as the best are known only at the end; remove one.",
        ),
        (
            {"model": "writer", "best_of": 257},
            400,
            "prompts times best_of: 257 exceeds this server's limit of 256; reduce it.",
        ),
    ],
)
def test_invalid_requests_get_its_error_format(server: RunningServer, content: Any, status: int, message: str) -> None:
    response = server.post("/v1/completions", content)
    code = "model_not_found" if status == 404 else None
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    assert (response.status_code, response.json()) == (status, {"error": error})
