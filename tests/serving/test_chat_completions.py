"""OpenAI's chat completions: its client works, with streams, log-probabilities and constrained answers."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from regard.api import Model
from regard.serving.limits import Limits
from regard.serving.loaded_models import load_models
from regard.serving.service import Service
from servers import RunningServer, run_server

MESSAGES: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
BODY: dict[str, Any] = {"model": "talker", "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 12}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["big", "small"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def chat_server(talker: Path) -> Iterator[RunningServer]:
    with run_server(Service(load_models([str(talker)]), Limits(max_characters=2000))) as running:
        yield running


@pytest.fixture(scope="module")
def client(chat_server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{chat_server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def model(chat_server: RunningServer) -> Model:
    return chat_server.service.models[0].model


def metric(server: RunningServer, name: str) -> float:
    line = next(line for line in server.get("/metrics").text.splitlines() if line.startswith(f"{name}_total{{"))
    return float(line.split()[-1])


def test_an_answer_is_that_of_the_model(client: openai.OpenAI, model: Model) -> None:
    response = client.chat.completions.create(**BODY)
    (choice,) = response.choices
    assert choice.message.content == model.chat(MESSAGES, temperature=0, max_tokens=12)
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    assert response.object == "chat.completion"
    assert response.usage is not None
    assert response.usage.prompt_tokens == len(model.chat_prompt(MESSAGES).ids)
    assert response.usage.completion_tokens == 12
    by_old_name = client.chat.completions.create(**BODY | {"max_completion_tokens": None, "max_tokens": 5})
    assert by_old_name.usage is not None
    assert by_old_name.usage.completion_tokens == 5


def test_a_stream_has_the_same_text(client: openai.OpenAI) -> None:
    body = BODY | {"n": 2, "temperature": 1, "seed": 3, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**body)
    texts, roles, reasons, tokens, usage = ["", ""], ["", ""], ["", ""], [[], []], None  # type: ignore[var-annotated]
    for chunk in client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            roles[choice.index] += choice.delta.role or ""
            assert roles[choice.index] == "assistant"  # the first event of an answer
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or ""
            tokens[choice.index] += choice.logprobs.content if choice.logprobs else []
        usage = chunk.usage
    assert texts == [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert tokens == [choice.logprobs and choice.logprobs.content for choice in whole.choices]
    assert usage is not None
    assert whole.usage is not None
    assert usage.total_tokens == whole.usage.total_tokens


def test_log_probabilities(client: openai.OpenAI) -> None:
    (choice,) = client.chat.completions.create(**BODY, logprobs=True, top_logprobs=3).choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == 12
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
        assert token.top_logprobs[0].logprob == token.logprob < 0
        assert token.logprob >= token.top_logprobs[1].logprob >= token.top_logprobs[2].logprob
    (choice,) = client.chat.completions.create(**BODY, logprobs=True).choices
    assert choice.logprobs is not None
    assert all(token.top_logprobs == [] for token in choice.logprobs.content or [])


def test_a_stop_text_ends_an_answer(client: openai.OpenAI) -> None:
    text = client.chat.completions.create(**BODY).choices[0].message.content or ""
    stop = text[4:6]
    choice = client.chat.completions.create(**BODY, stop=[stop], logprobs=True).choices[0]
    assert choice.message.content == text[: text.index(stop)]
    assert choice.finish_reason == "stop"


def test_answers_are_constrained(client: openai.OpenAI) -> None:
    def answers(form: dict[str, Any], **options: Any) -> list[str]:
        body = BODY | {"max_completion_tokens": 100, "temperature": 1.5, "response_format": form} | options
        response = client.chat.completions.create(**body)
        assert {choice.finish_reason for choice in response.choices} == {"stop"}
        return [choice.message.content or "" for choice in response.choices]

    strict = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
    for text in answers(strict, n=2, seed=1):
        thing = json.loads(text)
        assert thing.keys() == {"ok", "size"}
        assert isinstance(thing["ok"], bool)
        assert thing["size"] in ("big", "small")
    for seed in range(3):
        (text,) = answers({"type": "regex", "regex": r"(yes|no), [a-f]{3,9}!"}, seed=seed)
        assert re.fullmatch(r"(yes|no), [a-f]{3,9}!", text)
        (text,) = answers({"type": "grammar", "grammar": 'start: "<" /[0-9]{2}/ ">"'}, seed=seed)
        assert re.fullmatch(r"<[0-9]{2}>", text)
    plain = client.chat.completions.create(**BODY).choices[0].message.content
    assert client.chat.completions.create(**BODY, response_format={"type": "text"}).choices[0].message.content == plain
    partial = client.chat.completions.create(**BODY, response_format={"type": "json_object"}).choices[0]
    assert (partial.message.content or "").lstrip().startswith("{")


def test_beginnings_of_prompts_are_reused(chat_server: RunningServer, client: openai.OpenAI, model: Model) -> None:
    long = [{"role": "user", "content": "abcdefgh" * 12}]
    before = [metric(chat_server, f"regard_{name}prompt_tokens") for name in ("", "cached_")]
    usages = []
    texts = set()
    for n in (1, 1, 2):
        response = client.chat.completions.create(**BODY | {"messages": long, "n": n})
        assert response.usage is not None
        assert response.usage.prompt_tokens_details is not None
        usages.append((response.usage.prompt_tokens, response.usage.prompt_tokens_details.cached_tokens))
        texts |= {choice.message.content for choice in response.choices}
    assert len(texts) == 1
    tokens = len(model.chat_prompt(long).ids)
    assert usages == [(tokens, 0), (tokens, 64), (tokens, 64)]
    after = [metric(chat_server, f"regard_{name}prompt_tokens") for name in ("", "cached_")]
    assert [new - old for new, old in zip(after, before, strict=True)] == [3 * tokens, 128]
    assert model.prefix_cache is not None
    assert 0 < model.prefix_cache.num_bytes <= model.prefix_cache.max_bytes == 256 * 2**20


@pytest.mark.parametrize(
    ("changes", "status", "fact"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "message 1: content should be a text, not missing"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, 400, "The conversation fills 3"),
        ({"messages": [{"role": "user", "content": "x" * 3000}]}, 400, "characters of the messages"),
        ({"tools": [{"description": "x" * 3000}]}, 400, "characters of the messages and tools"),
        ({"max_completion_tokens": 5000}, 400, "max_tokens: 5,000 exceeds this server's limit of 1,000"),
        ({"model": "writer"}, 404, "There is no model 'writer'"),
        ({"top_logprobs": 2}, 400, "top_logprobs: needs logprobs"),
        ({"presence_penalty": 0.5}, 400, "presence_penalty is not supported"),
        ({"response_format": {"type": "xml"}}, 400, "response_format: type should be text, json_object"),
        ({"response_format": {"type": "json_schema"}}, 400, "json_schema should be an object with name and schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}},
            400,
            "response_format.json_schema.schema: is not valid (Invalid type: thing)",
        ),
        ({"response_format": {"type": "regex", "regex": "(a"}}, 400, "response_format.regex: is not valid"),
        ({"response_format": {"type": "regex"}}, 400, "response_format: regex should be a text"),
        ({"response_format": {"type": "grammar", "grammar": "start: x"}}, 400, 'unknown name: "x"'),
    ],
)
def test_invalid_requests(chat_server: RunningServer, changes: dict[str, Any], status: int, fact: str) -> None:
    for stream in (False, True):
        response = chat_server.post("/v1/chat/completions", BODY | changes | {"stream": stream})
        assert response.status_code == status
        assert fact in response.json()["error"]["message"]


def test_constrained_answers_without_the_package(chat_server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    response = chat_server.post("/v1/chat/completions", BODY | {"response_format": {"type": "json_object"}})
    assert response.status_code == 501
    assert "pip install 'regard[constrained]'" in response.json()["error"]["message"]


def test_a_template_that_loops_is_one_message(talker: Path, tmp_path: Path) -> None:
    for path in talker.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path)
    loop = "{% for i in range(99999) %}" * 2 + "{% endfor %}" * 2
    (tmp_path / "chat_template.jinja").write_text(loop)
    with run_server(Service(load_models([f"loop={tmp_path}"]))) as running:
        response = running.post("/v1/chat/completions", BODY | {"model": "loop"})
        assert response.status_code == 500
        message = response.json()["error"]["message"]
        assert message.startswith("The chat template of loop makes more than 200,000 steps in line 1")
        assert str(tmp_path) not in message
