"""Encoders over HTTP: equal to the Python API, alone and in batches, with messages for what they cannot do."""

import base64
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from commands import start_process
from regard.serving.encoder_jobs import ClassifyJob, EmbedJob, TagJob, limited_encoder
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import RunningServer, run_server, wait_until

TEXT = "w5 w9 w12"
MASKED_TEXT = "w5 [MASK] w12 [MASK]"
CLOSE = 1e-5


def post(server: RunningServer, path: str, body: Any) -> Any:
    response = server.post(path, body)
    assert response.is_success, response.text
    return response.json()


class TestClassify:
    """Labels of texts and of pairs of texts: `/v1/classify`."""

    def test_labels_are_sorted_by_probability(
        self, encoder_server: RunningServer, loaded_encoders: dict[str, LoadedModel]
    ) -> None:
        response = post(encoder_server, "/v1/classify", {"text": TEXT})
        (item,) = response["classifications"]
        (expected,) = loaded_encoders["mood"].model.classify_detailed([TEXT])
        assert response["model"] == "mood"
        assert (item["text"], item["label"], item["truncated"]) == (TEXT, expected.label, False)
        assert item["probability"] == item["labels"][0]["probability"] == pytest.approx(expected.probability, abs=CLOSE)
        probabilities = [label["probability"] for label in item["labels"]]
        assert probabilities == sorted(probabilities, reverse=True)
        assert {label["label"]: label["probability"] for label in item["labels"]} == pytest.approx(
            expected.probabilities, abs=CLOSE
        )
        assert response["timings"]["batch_size"] == 1

    def test_pairs_of_texts(self, encoder_server: RunningServer, loaded_encoders: dict[str, LoadedModel]) -> None:
        pairs = [("w5 w6", "w7"), ("w7", "w5 w6")]
        firsts, seconds = ([pair[side] for pair in pairs] for side in (0, 1))
        items = post(encoder_server, "/v1/classify", {"text": firsts, "second": seconds})["classifications"]
        expected = loaded_encoders["mood"].model.classify_detailed(pairs)
        for item, pair, expected_item in zip(items, pairs, expected, strict=True):
            assert (item["text"], item["second"]) == pair
            assert item["probability"] == pytest.approx(expected_item.probability, abs=CLOSE)
        single = post(encoder_server, "/v1/classify", {"text": "w5 w6", "second": "w7"})["classifications"]
        assert single[0]["label"] == items[0]["label"]

    def test_a_long_text_is_truncated(self, encoder_server: RunningServer) -> None:
        (item,) = post(encoder_server, "/v1/classify", {"text": "w5 " * 3000})["classifications"]
        assert item["truncated"]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({}, "text is missing."),
            ({"text": 7}, "text = 7 should be a valid string."),
            ({"text": "w4", "secnod": "w5"}, "Unknown field secnod (did you mean second?)."),
            (
                {"text": ["w4"], "second": "w5"},
                "text is a list and second is one text; send two texts or two lists.",
            ),
            (
                {"text": "w4", "second": ["w5"]},
                "second is a list and text is one text; send two texts or two lists.",
            ),
            ({"text": ["w4"], "second": ["w5", "w6"]}, "second: there are 2 for 1 texts; send one for each."),
            ({"text": ["w4"] * 257}, "text: 257 exceeds this server's limit of 256; reduce it."),
            ({"text": "w" * 20_001}, "characters: 20,001 exceeds this server's limit of 20,000; reduce it."),
            (
                {"text": "w" * 15_000, "second": "w" * 15_000},
                "characters: 30,000 exceeds this server's limit of 20,000; reduce it.",
            ),
            ({"text": "w4", "timeout": 0}, "timeout = 0 should be greater than 0."),
        ],
    )
    def test_invalid_requests_get_a_message(self, encoder_server: RunningServer, fields: Any, message: str) -> None:
        response = encoder_server.post("/v1/classify", fields)
        assert (response.status_code, response.json()) == (400, {"error": message})


class TestTag:
    """Tags of words and spans: `/v1/tag`."""

    def test_every_word_has_a_tag(self, encoder_server: RunningServer, loaded_encoders: dict[str, LoadedModel]) -> None:
        text = "w5  w6 w7 w8 w9 w10 w11 w12 w13 w14"  # more than the network reads at a time
        response = post(encoder_server, "/v1/tag", {"text": ["", text]})
        empty, item = response["sentences"]
        (expected,) = loaded_encoders["names"].model.tag([text])
        assert (empty["words"], empty["tags"], empty["spans"]) == ([], [], [])
        assert list(zip(item["words"], item["tags"], strict=True)) == expected
        assert all(0 < probability <= 1 for probability in item["probabilities"])

    def test_spans_have_word_and_character_positions(self, encoder_server: RunningServer) -> None:
        labels = set()
        for number in range(4, 20):
            text = f" w{number} w{number + 2}  w{number + 1} w{number + 5}"
            (item,) = post(encoder_server, "/v1/tag", {"text": text})["sentences"]
            for span in item["spans"]:
                start, end = span["characters"]
                first, after = span["words"]
                assert text[start:end] == span["text"]
                assert span["text"].split() == item["words"][first:after]
                assert {tag[2:] for tag in item["tags"][first:after]} == {span["label"]}
                labels.add(span["label"])
        assert labels == {"LOC", "PER"}

    def test_punctuation_can_be_split(self, encoder_server: RunningServer) -> None:
        text = "(w5 w6)."
        apart = post(encoder_server, "/v1/tag", {"text": text, "split_punctuation": True})["sentences"][0]
        assert apart["words"] == ["(", "w5", "w6", ")", "."]
        assert post(encoder_server, "/v1/tag", {"text": text})["sentences"][0]["words"] == ["(w5", "w6)."]


class TestFill:
    """Candidates for mask tokens: `/v1/fill`."""

    def test_masks_are_filled_as_in_python(
        self, encoder_server: RunningServer, loaded_encoders: dict[str, LoadedModel]
    ) -> None:
        response = post(encoder_server, "/v1/fill", {"text": MASKED_TEXT, "top_k": 3})
        (item,) = response["results"]
        (expected,) = loaded_encoders["holes"].model.fill_detailed(MASKED_TEXT, top_k=3)
        assert (item["source"], item["text"]) == (MASKED_TEXT, expected.text)
        assert [[candidate["text"] for candidate in mask] for mask in item["masks"]] == [
            [candidate.text for candidate in mask] for mask in expected.masks
        ]
        assert item["masks"][0][0]["probability"] == pytest.approx(expected.masks[0][0].probability, abs=CLOSE)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"text": TEXT}, "text: has no [MASK]; write [MASK] where a word is missing."),
            ({"text": [MASKED_TEXT, TEXT]}, "text 2: has no [MASK]; write [MASK] where a word is missing."),
            (
                {"text": "[MASK] " + "w4 " * 20},
                "text: has 23 tokens with start and end token, but this network has 12 learned positions; shorten it.",
            ),
            (
                {"text": ["[MASK]" * 10] * 26},
                "masks: 260 exceeds this server's limit of 256; reduce it.",
            ),
            ({"text": MASKED_TEXT, "top_k": 0}, "top_k = 0 should be greater than or equal to 1."),
            ({"text": MASKED_TEXT, "top_k": 101}, "top_k = 101 should be less than or equal to 100."),
        ],
    )
    def test_texts_that_cannot_be_filled_get_a_message(
        self, encoder_server: RunningServer, fields: Any, message: str
    ) -> None:
        response = encoder_server.post("/v1/fill", fields)
        assert (response.status_code, response.json()) == (400, {"error": message})

    def test_a_text_with_masks_is_not_truncated(
        self, encoder_server: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("regard.serving.routes.encoders.MAX_READ_TOKENS", 3)
        response = encoder_server.post("/v1/fill", {"text": ["[MASK]", MASKED_TEXT]})
        message = "text 2: has 4 tokens, and at most 3 are read; shorten it."
        assert (response.status_code, response.json()) == (400, {"error": message})


class TestEmbeddings:
    """`/v1/embeddings` in OpenAI's protocol."""

    @pytest.fixture(scope="class")
    def client(self, encoder_server: RunningServer) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{encoder_server.url}/v1", api_key="none", max_retries=0)

    @pytest.mark.parametrize("name", ["vectors", "mood", "names", "holes", "elmo"])
    def test_its_client_gets_normalized_vectors(
        self, client: openai.OpenAI, loaded_encoders: dict[str, LoadedModel], name: str
    ) -> None:
        texts = [TEXT, "w7", ""]
        response = client.embeddings.create(model=name, input=texts)  # the client requests base64
        vectors = np.array([item.embedding for item in response.data])
        assert np.allclose(vectors, loaded_encoders[name].model.embed(texts, normalize=True), atol=CLOSE)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=CLOSE)
        assert [item.index for item in response.data] == [0, 1, 2]
        assert (response.model, response.object) == (name, "list")
        assert (response.usage.prompt_tokens, response.usage.total_tokens) == (4, 4)

    def test_numbers_and_base64_are_equal(self, client: openai.OpenAI, encoder_server: RunningServer) -> None:
        plain = client.embeddings.create(model="vectors", input=TEXT, encoding_format="float")
        body = {"model": "vectors", "input": TEXT, "encoding_format": "base64"}
        packed = post(encoder_server, "/v1/embeddings", body)["data"][0]["embedding"]
        assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == plain.data[0].embedding

    def test_pooling_and_normalization_are_options(
        self, encoder_server: RunningServer, loaded_encoders: dict[str, LoadedModel]
    ) -> None:
        body = {"model": "vectors", "input": TEXT, "pooling": "first", "normalize": False, "dimensions": 24}
        vector = post(encoder_server, "/v1/embeddings", body)["data"][0]["embedding"]
        assert np.allclose(vector, loaded_encoders["vectors"].model.embed(TEXT, pooling="first"), atol=CLOSE)

    def test_a_long_text_is_truncated(self, encoder_server: RunningServer) -> None:
        data = post(encoder_server, "/v1/embeddings", {"model": "vectors", "input": ["w4", "w4 " * 11]})
        assert [item.get("truncated") for item in data["data"]] == [None, True]
        assert data["usage"]["prompt_tokens"] == 1 + 10

    @pytest.mark.parametrize(
        ("fields", "status", "message"),
        [
            ({"input": TEXT}, 400, "model is missing."),
            ({"model": "vectors", "input": []}, 400, "input is empty; send a text or a list of texts."),
            ({"model": "vectors", "input": [4, 5]}, 400, "input = [4, 5] should be a valid string."),
            (
                {"model": "vectors", "input": TEXT, "dimensions": 8},
                400,
                "dimensions = 8: the vectors of vectors have 24; remove it.",
            ),
            (
                {"model": "vectors", "input": TEXT, "pooling": "first-dense"},
                400,
                "pooling = first-dense: vectors has no dense pooling layer; use mean or first.",
            ),
            (
                {"model": "vectors", "input": TEXT, "pooling": "first-relu"},
                400,
                "pooling = first-relu: vectors has no ReLU pooling layer; use mean or first.",
            ),
            (
                {"model": "vectors", "input": ["w4"] * 257},
                400,
                "input: 257 exceeds this server's limit of 256; reduce it.",
            ),
            ({"model": "vecotrs", "input": TEXT}, 404, "There is no model 'vecotrs' (did you mean vectors?)."),
            (
                {"model": "en-it", "input": TEXT},
                400,
                "The model en-it cannot embed texts; it is of kind encoder-decoder Transformer and can translate.",
            ),
        ],
    )
    def test_invalid_requests_get_its_error_format(
        self, encoder_server: RunningServer, fields: Any, status: int, message: str
    ) -> None:
        response = encoder_server.post("/v1/embeddings", fields)
        code = "model_not_found" if status == 404 else None
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        assert (response.status_code, response.json()) == (status, {"error": error})


def test_models_are_listed_with_their_abilities(encoder_server: RunningServer) -> None:
    names = ["en-it", "writer", "mood", "names", "holes", "vectors", "elmo"]
    assert [item["id"] for item in encoder_server.get("/v1/models").json()["data"]] == names
    assert {item["name"]: item["abilities"] for item in encoder_server.get("/v1/about").json()["models"]} == {
        "en-it": ["translate"],
        "writer": ["generate"],
        "mood": ["classify", "embed"],
        "names": ["tag", "embed"],
        "holes": ["fill", "embed"],
        "vectors": ["embed"],
        "elmo": ["embed"],
    }


def test_other_models_are_served_together_with_encoders(encoder_server: RunningServer) -> None:
    assert post(encoder_server, "/v1/translate", {"text": "w4"})["model"] == "en-it"
    assert (
        post(encoder_server, "/v1/completions", {"model": "writer", "prompt": "w4", "max_tokens": 2})["model"]
        == "writer"
    )
    assert [item["code"] for item in encoder_server.get("/languages").json()] == ["en", "it"]


@pytest.mark.parametrize(
    ("path", "model", "message"),
    [
        (
            "/v1/classify",
            "names",
            "classify texts; it is of kind encoder-only Transformer and can tag words and embed texts",
        ),
        ("/v1/tag", "mood", "tag words; it is of kind encoder-only Transformer and can classify texts and embed texts"),
        ("/v1/fill", "vectors", "fill masks; it is of kind encoder-only Transformer and can embed texts"),
        ("/v1/fill", "elmo", "fill masks; it is of kind bidirectional language model and can embed texts"),
        ("/v1/tag", "en-it", "tag words; it is of kind encoder-decoder Transformer and can translate"),
        (
            "/v1/translate",
            "mood",
            "translate; it is of kind encoder-only Transformer and can classify texts and embed texts",
        ),
    ],
)
def test_a_model_without_the_ability_says_what_it_can_do(
    encoder_server: RunningServer, path: str, model: str, message: str
) -> None:
    response = encoder_server.post(path, {"text": "w4", "model": model})
    assert (response.status_code, response.json()) == (400, {"error": f"The model {model} cannot {message}."})


def test_an_encoder_cannot_generate(encoder_server: RunningServer) -> None:
    response = encoder_server.post("/v1/completions", {"model": "mood", "prompt": "w4"})
    message = (
        "The model mood cannot generate text; it is of kind encoder-only Transformer "
        "and can classify texts and embed texts."
    )
    assert (response.status_code, response.json()["error"]["message"]) == (400, message)


def test_an_ability_that_no_model_has_is_not_found(server: RunningServer) -> None:
    for path, ability in (("/v1/classify", "classify texts"), ("/v1/tag", "tag words"), ("/v1/fill", "fill masks")):
        response = server.post(path, {"text": "w4"})
        assert (response.status_code, response.json()) == (404, {"error": f"No model can {ability}."})


def test_an_encoder_can_be_served_alone(loaded_encoders: dict[str, LoadedModel]) -> None:
    with run_server(Service([loaded_encoders["mood"]])) as server:
        assert post(server, "/v1/classify", {"text": "w4"})["model"] == "mood"
        assert server.get("/languages").json() == []
        assert server.post("/v1/translate", {"text": "w4"}).json() == {"error": "No model can translate."}


@pytest.mark.slow
def test_the_command_serves_an_encoder(loaded_encoders: dict[str, LoadedModel]) -> None:
    folder = str(loaded_encoders["mood"].model.folder)
    process = start_process("serve", folder, "--port", "0")
    assert process.stderr is not None
    line = process.stderr.readline()
    url = line.split(" at ")[1].split()[0]
    assert line == f"regard: mood at {url} (Ctrl-C stops)\n"
    assert httpx.post(f"{url}/v1/classify", json={"text": TEXT}, timeout=30).json()["model"] == "mood"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", 0)


class TestBatches:
    """Requests share batches and get the output that they would get alone."""

    def test_a_batched_output_equals_the_single_one(self, loaded_encoders: dict[str, LoadedModel]) -> None:
        texts = [" ".join(f"w{4 + (n * m) % 24}" for m in range(1, n)) for n in range(2, 12)]
        mood, names = loaded_encoders["mood"], loaded_encoders["names"]
        for item, text in zip(mood.run_encoder(texts, ClassifyJob()), texts, strict=True):
            (single,) = mood.run_encoder([text], ClassifyJob())
            assert item.label == single.label
            assert item.probabilities == pytest.approx(single.probabilities, abs=CLOSE)
        for tags, text in zip(names.run_encoder([text.split() for text in texts], TagJob()), texts, strict=True):
            (single,) = names.run_encoder([text.split()], TagJob())
            assert [item.tag for item in tags] == [item.tag for item in single]
        for vector, text in zip(mood.run_encoder(texts, EmbedJob()), texts, strict=True):
            (single,) = mood.run_encoder([text], EmbedJob())
            assert np.allclose(vector.values, single.values, atol=CLOSE)

    def test_queued_texts_share_a_batch_and_a_full_queue_gets_429(
        self, loaded_encoders: dict[str, LoadedModel]
    ) -> None:
        mood = loaded_encoders["mood"]
        single = [item.label for item in mood.model.classify_detailed([f"w{n}" for n in range(4, 12)])]
        with run_server(Service([mood], Limits(max_queue=9))) as server, ThreadPoolExecutor(9) as pool:
            with mood.torch_lock:  # no batch runs while another thread holds the network
                first = pool.submit(post, server, "/v1/classify", {"text": "w20"})
                wait_until(lambda: "regard_queued_requests" in server.get("/metrics").text)
                wait_until(lambda: server.queued() == 1)
                futures = [pool.submit(post, server, "/v1/classify", {"text": f"w{n}"}) for n in range(4, 12)]
                wait_until(lambda: server.queued() == 9)
                for path, body in (
                    ("/v1/classify", {"text": "w4"}),
                    ("/v1/embeddings", {"model": "mood", "input": "w4"}),
                ):
                    late = server.post(path, body)
                    assert (late.status_code, late.headers["retry-after"]) == (429, "1")
            responses = [future.result() for future in futures]
            assert first.result()["timings"]["batch_size"] == 1
        assert [item["classifications"][0]["label"] for item in responses] == single
        assert {item["timings"]["batch_size"] for item in responses} == {8}

    def test_a_timeout_gets_504(self, loaded_encoders: dict[str, LoadedModel]) -> None:
        with run_server(Service([loaded_encoders["mood"]])) as server, loaded_encoders["mood"].torch_lock:
            response = server.post("/v1/classify", {"text": "w4", "timeout": 0.05})
            message = "The request timed out after 0.05 s; send less text, or retry later."
            assert (response.status_code, response.json()) == (504, {"error": message})


def test_texts_are_truncated_at_the_servers_limit(loaded_encoders: dict[str, LoadedModel]) -> None:
    (row,) = limited_encoder(loaded_encoders["mood"].model).tokenize(["w4 " * 5000])
    assert (len(row.ids), row.truncated) == (2048, True)


def test_an_encoder_can_be_traced(encoder_server: RunningServer, loaded_encoders: dict[str, LoadedModel]) -> None:
    outline = post(encoder_server, "/v1/look", {"text": TEXT, "model": "mood"})
    assert outline["kind"] == "encoding"
    best = outline["head"]["predictions"][0]["candidates"][0]
    assert best["token"] == loaded_encoders["mood"].model.classify(TEXT)
    weights = post(encoder_server, "/v1/look/tensor", {"trace": outline["id"], "at": "encoder.0.attention.weights[1]"})
    assert np.allclose(np.sum(weights["values"], axis=1), 1)
    rejected = encoder_server.post("/v1/look", {"text": TEXT, "model": "mood", "target": "w4"})
    assert rejected.status_code == 400


@pytest.mark.parametrize("text", ["\x00", "\u202e\u200b", "🏳️‍🌈", "e\u0301" * 50, "<script>", " " * 500])
def test_unusual_characters_are_accepted(encoder_server: RunningServer, text: str) -> None:
    assert post(encoder_server, "/v1/classify", {"text": text})["classifications"][0]["text"] == text
    assert post(encoder_server, "/v1/tag", {"text": text, "split_punctuation": True})["sentences"][0]["text"] == text
    assert post(encoder_server, "/v1/fill", {"text": f"{text}[MASK]"})["results"][0]["source"] == f"{text}[MASK]"
