"""OpenAI's completions: its client works, whole and streamed, and reads what goes wrong."""

import json
from typing import Any

import openai
import pytest

from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import Running, running


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_text_is_gone_on_with(client: openai.OpenAI, models: list[LoadedModel]) -> None:
    found = client.completions.create(model="writer", prompt="w4 w5", max_tokens=8, temperature=0)
    wish = GenerationOptions(SamplingOptions(temperature=0, bounds=OutputConstraints(longest=8)))
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


@pytest.mark.parametrize("extreme", [{"temperature": 1e-300}, {"top_p": 1e-300, "top_k": 5}, {"min_p": 1.0}])
@pytest.mark.parametrize("seed", [None, 1])
def test_what_leaves_only_the_most_probable_takes_it(client: openai.OpenAI, extreme: Any, seed: int | None) -> None:
    asked: dict[str, Any] = {"model": "writer", "prompt": "w4", "max_tokens": 4, "seed": seed}
    greedy = client.completions.create(**asked, temperature=0).choices[0].text
    assert client.completions.create(**asked, extra_body=extreme).choices[0].text == greedy


class TestLogprobs:
    """How probable each token was, and what else, as OpenAI's clients read it."""

    def test_tokens_come_with_their_places_and_probabilities(self, client: openai.OpenAI) -> None:
        asked: dict[str, Any] = {"model": "writer", "prompt": "w4 w5", "temperature": 0, "max_tokens": 4}
        (choice,) = client.completions.create(**asked, logprobs=2).choices
        told = choice.logprobs
        assert told is not None
        tokens, scores, tops = told.tokens or [], told.token_logprobs or [], told.top_logprobs or []
        assert len(tokens) == 4
        assert "".join(tokens) == choice.text
        for token, place in zip(tokens, told.text_offset or [], strict=True):
            assert choice.text[place:].startswith(token)
        for token, score, top in zip(tokens, scores, tops, strict=True):
            assert max(top, key=lambda name: top[name]) == token  # as it was taken greedily
            assert top[token] == score < 0
            assert len(top) == 2
        assert client.completions.create(**asked).choices[0].logprobs is None

    def test_what_is_drawn_is_told_wherever_it_ranks(self, client: openai.OpenAI) -> None:
        found = client.completions.create(model="writer", prompt="w4", logprobs=0, max_tokens=3, n=2, seed=3)
        for choice in found.choices:
            told = choice.logprobs
            assert told is not None
            tokens, scores = told.tokens or [], told.token_logprobs or []
            assert told.top_logprobs == [{token: score} for token, score in zip(tokens, scores, strict=True)]

    def test_a_prompt_can_be_scored_without_writing(self, client: openai.OpenAI, models: list[LoadedModel]) -> None:
        asked: dict[str, Any] = {"model": "writer", "prompt": ["w4 w5 w6", ""], "max_tokens": 0, "echo": True}
        first, empty = client.completions.create(**asked, logprobs=1).choices
        assert (first.text, first.finish_reason, empty.text) == ("w4 w5 w6", "length", "")
        assert first.logprobs is not None
        assert first.logprobs.text_offset == [0, 2, 5]
        (expected,) = models[2].model.score_prompts(["w4 w5 w6"])
        scores = [score for _, score, _ in expected]
        assert first.logprobs.token_logprobs == pytest.approx(scores, abs=1e-5)
        assert empty.logprobs is not None
        assert empty.logprobs.tokens == []

    def test_the_scores_of_a_prompt_go_on_into_its_continuation(self, client: openai.OpenAI) -> None:
        asked: dict[str, Any] = {"model": "writer", "logprobs": 1, "echo": True}
        wrote = client.completions.create(**asked, prompt="w4 w5", temperature=0, max_tokens=3).choices[0]
        read = client.completions.create(**asked, prompt=wrote.text, max_tokens=0).choices[0]
        assert wrote.logprobs is not None
        assert read.logprobs is not None
        assert wrote.logprobs.tokens == read.logprobs.tokens
        assert wrote.logprobs.text_offset == read.logprobs.text_offset
        assert wrote.logprobs.token_logprobs == pytest.approx(read.logprobs.token_logprobs, abs=1e-4)

    @pytest.mark.parametrize("stop", [None, "w"])
    def test_a_stream_tells_the_same(self, client: openai.OpenAI, stop: str | None) -> None:
        asked: dict[str, Any] = {"model": "writer", "prompt": ["w4", "w5 w6"], "max_tokens": 5, "seed": 3}
        asked |= {"logprobs": 2, "echo": True, "stop": stop}
        whole = client.completions.create(**asked).choices
        for choice in whole:
            told: dict[str, list[Any]] = {}
            for chunk in client.completions.create(**asked, stream=True):
                for part in chunk.choices:
                    if part.index == choice.index and part.logprobs is not None:
                        for name, values in part.logprobs.model_dump().items():
                            told.setdefault(name, []).extend(values)
            assert choice.logprobs is not None
            assert told == choice.logprobs.model_dump()
            assert "".join(told["tokens"]).startswith(choice.text)  # a stop may stand within a token
            assert told["text_offset"][-1] < len(choice.text)


def test_a_recurrent_network_writes_streams_and_scores_too(recurrent: dict[str, LoadedModel]) -> None:
    asked: dict[str, Any] = {"model": "lstm", "prompt": "w4 w5", "temperature": 0, "logprobs": 2, "echo": True}
    with (
        running(Service([recurrent["lstm"]])) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        (whole,) = client.completions.create(**asked, max_tokens=5).choices
        told = [chunk.choices[0] for chunk in client.completions.create(**asked, max_tokens=5, stream=True)]
        (read,) = client.completions.create(**asked | {"prompt": whole.text}, max_tokens=0).choices
    wish = GenerationOptions(SamplingOptions(temperature=0, bounds=OutputConstraints(longest=5)))
    written = recurrent["lstm"].model.generate("w4 w5", wish)
    assert written
    assert whole.text == "".join(part.text for part in told) == f"w4 w5{written}"
    assert whole.logprobs is not None
    assert read.logprobs is not None
    assert whole.logprobs.tokens == read.logprobs.tokens
    assert whole.logprobs.token_logprobs == pytest.approx(read.logprobs.token_logprobs, abs=1e-4)
    streamed = [score for part in told if part.logprobs for score in part.logprobs.token_logprobs or []]
    assert streamed == whole.logprobs.token_logprobs


def test_of_several_the_best_are_told(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "writer", "prompt": ["w4", "w5"], "max_tokens": 4, "seed": 5, "logprobs": 0}
    drawn = client.completions.create(**asked, n=6)
    best = client.completions.create(**asked, n=2, best_of=6)
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
        ({"model": "writer", "max_tokens": -1}, 400, "max_tokens = -1 should be greater than or equal to 0."),
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
        ({"model": "writer", "logprobs": 6}, 400, "logprobs = 6 should be less than or equal to 5."),
        ({"model": "writer", "logprobs": True}, 400, "logprobs = true should be a valid integer."),
        (
            {"model": "writer", "repetition_penalty": 1e-300},
            400,
            "repetition_penalty = 1e-300 should be greater than or equal to 0.01.",
        ),
        ({"model": "writer", "suffix": "end"}, 400, "suffix is not supported here; leave it out."),
        ({"model": "writer", "logit_bias": {"4": 1}}, 400, "logit_bias is not supported here; leave it out."),
        ({"model": "writer", "presence_penalty": 1}, 400, "presence_penalty is not supported here; leave it out."),
        ({"model": "writer", "frequency_penalty": 1}, 400, "frequency_penalty is not supported here; leave it out."),
        (
            {"model": "writer", "best_of": 2, "n": 3},
            400,
            "best_of: of 2, no 3 can be told; raise it, or lower n.",
        ),
        (
            {"model": "writer", "best_of": 2, "stream": True},
            400,
            "best_of: which are the best is known only at the end; leave out best_of, or stream.",
        ),
        (
            {"model": "writer", "best_of": 257},
            400,
            "prompts times best_of: 257 is more than this server's limit of 256; ask for less.",
        ),
    ],
)
def test_what_is_wrong_is_said_as_its_clients_read_it(
    server: Running, content: Any, status: int, sentence: str
) -> None:
    found = server.post("/v1/completions", content)
    code = "model_not_found" if status == 404 else None
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
    assert (found.status_code, found.json()) == (status, {"error": error})
