"""OpenAI's completions: its client works, whole and streamed, and reads what goes wrong."""

import json
from typing import Any

import openai
import pytest

from regard.decoding.generator import Prompting
from regard.decoding.settings import Bounds, Sampling
from regard.serving.served import Served
from servers import Running


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_text_is_gone_on_with(client: openai.OpenAI, models: list[Served]) -> None:
    found = client.completions.create(model="writer", prompt="w4 w5", max_tokens=8, temperature=0)
    wish = Prompting(Sampling(temperature=0, bounds=Bounds(longest=8)))
    assert found.choices[0].text == models[2].model.generate("w4 w5", wish)
    assert found.choices[0].finish_reason in ("stop", "length")
    assert found.usage is not None
    assert found.usage.prompt_tokens == 2
    assert found.object == "text_completion"


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "writer", "prompt": ["w4", "w5 w6"], "n": 2, "max_tokens": 6, "seed": 3}
    whole = client.completions.create(**asked)
    texts, reasons, usage = [""] * 4, [""] * 4, None
    for chunk in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
        usage = chunk.usage
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_echo_gives_the_prompt_back(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "writer", "prompt": "w4", "echo": True, "temperature": 0, "max_tokens": 3}
    whole = client.completions.create(**asked).choices[0].text
    assert whole.startswith("w4")
    assert whole == "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True))


def test_it_stops_where_it_is_told(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "writer", "prompt": "w4", "temperature": 0, "max_tokens": 8}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole.split()[1]
    cut = client.completions.create(**asked, stop=stop).choices[0]
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["en-it", "it-en", "writer"]
    assert client.models.retrieve("writer").owned_by == "regard"
    with pytest.raises(openai.NotFoundError, match="There is no model 'none' here"):
        client.models.retrieve("none")


def test_a_stream_is_events(server: Running) -> None:
    found = server.post("/v1/completions", {"model": "writer", "prompt": "w4", "max_tokens": 2, "stream": True})
    assert found.headers["content-type"].startswith("text/event-stream")
    events = found.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: "))["object"] == "text_completion" for event in events[:-2])


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        ({"prompt": "w4"}, 400, "model is missing."),
        ({"model": "wirter"}, 404, "There is no model 'wirter' here (did you mean writer?)."),
        (
            {"model": "en-it"},
            400,
            "The model en-it is of the kind encoder-decoder Transformer: none that continues text.",
        ),
        ({"model": "writer", "prompt": [4, 5]}, 400, "prompt = [4, 5] should be a valid string."),
        ({"model": "writer", "max_tokens": 0}, 400, "max_tokens = 0 should be greater than or equal to 1."),
        (
            {"model": "writer", "max_tokens": 1001},
            400,
            "max_tokens: 1,001 is more than this server's limit of 1,000; ask for less.",
        ),
        (
            {"model": "writer", "n": 257},
            400,
            "prompts times n: 257 is more than this server's limit of 256; ask for less.",
        ),
        (
            {"model": "writer", "prompt": "w" * 20_001},
            400,
            "characters of the prompt: 20,001 is more than this server's limit of 20,000; ask for less.",
        ),
        ({"model": "writer", "temperature": 3}, 400, "temperature = 3 should be less than or equal to 2."),
        ({"model": "writer", "logprobs": 3}, 400, "logprobs is not supported here; leave it out."),
        ({"model": "writer", "suffix": "end"}, 400, "suffix is not supported here; leave it out."),
        ({"model": "writer", "best_of": 3}, 400, "best_of is not supported here; leave it out."),
    ],
)
def test_what_is_wrong_is_said_as_its_clients_read_it(
    server: Running, content: Any, status: int, sentence: str
) -> None:
    found = server.post("/v1/completions", content)
    code = "model_not_found" if status == 404 else None
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
    assert (found.status_code, found.json()) == (status, {"error": error})
