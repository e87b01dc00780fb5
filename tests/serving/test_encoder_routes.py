"""Encoders over HTTP: what they say in Python, they say there, alone or in company; and what they cannot is said."""

import base64
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from command_line import COMMAND, ENVIRONMENT
from regard.serving.encoder_jobs import ClassifyJob, EmbedJob, TagJob, limited_encoder
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import Running, running, until

TEXT = "w5 w9 w12"
HOLES = "w5 [MASK] w12 [MASK]"
CLOSE = 1e-5


def found(server: Running, path: str, fields: Any) -> Any:
    answer = server.post(path, fields)
    assert answer.is_success, answer.text
    return answer.json()


class TestClassify:
    """`/v1/classify`."""

    def test_labels_come_with_their_probabilities_the_most_probable_first(
        self, reading: Running, encoders: dict[str, LoadedModel]
    ) -> None:
        answer = found(reading, "/v1/classify", {"text": TEXT})
        (one,) = answer["classifications"]
        (theirs,) = encoders["mood"].model.classifications([TEXT])
        assert answer["model"] == "mood"
        assert (one["text"], one["label"], one["cut"]) == (TEXT, theirs.label, False)
        assert one["probability"] == one["labels"][0]["probability"] == pytest.approx(theirs.probability, abs=CLOSE)
        shares = [each["probability"] for each in one["labels"]]
        assert shares == sorted(shares, reverse=True)
        assert {each["label"]: each["probability"] for each in one["labels"]} == pytest.approx(
            theirs.probabilities, abs=CLOSE
        )
        assert answer["timings"]["together"] == 1

    def test_pairs_are_read_as_pairs(self, reading: Running, encoders: dict[str, LoadedModel]) -> None:
        pairs = [("w5 w6", "w7"), ("w7", "w5 w6")]
        firsts, seconds = ([pair[side] for pair in pairs] for side in (0, 1))
        several = found(reading, "/v1/classify", {"text": firsts, "second": seconds})["classifications"]
        theirs = encoders["mood"].model.classifications(pairs)
        for one, pair, their in zip(several, pairs, theirs, strict=True):
            assert (one["text"], one["second"]) == pair
            assert one["probability"] == pytest.approx(their.probability, abs=CLOSE)
        alone = found(reading, "/v1/classify", {"text": "w5 w6", "second": "w7"})["classifications"]
        assert alone[0]["label"] == several[0]["label"]

    def test_a_text_that_is_too_long_is_cut_and_that_is_said(self, reading: Running) -> None:
        (one,) = found(reading, "/v1/classify", {"text": "w5 " * 3000})["classifications"]
        assert one["cut"]

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({}, "text is missing."),
            ({"text": 7}, "text = 7 should be a valid string."),
            ({"text": "w4", "secnod": "w5"}, "secnod is not known here (did you mean second?)."),
            (
                {"text": ["w4"], "second": "w5"},
                "text is a list, and second is one text; give two texts, or two lists of them.",
            ),
            (
                {"text": "w4", "second": ["w5"]},
                "second is a list, and text is one text; give two texts, or two lists of them.",
            ),
            ({"text": ["w4"], "second": ["w5", "w6"]}, "second: there are 2 for 1 texts; give one for each."),
            ({"text": ["w4"] * 257}, "text: 257 is more than this server's limit of 256; ask for less."),
            ({"text": "w" * 20_001}, "characters: 20,001 is more than this server's limit of 20,000; ask for less."),
            (
                {"text": "w" * 15_000, "second": "w" * 15_000},
                "characters: 30,000 is more than this server's limit of 20,000; ask for less.",
            ),
            ({"text": "w4", "deadline": 0}, "deadline = 0 should be greater than 0."),
        ],
    )
    def test_what_is_wrong_is_said(self, reading: Running, fields: Any, sentence: str) -> None:
        answer = reading.post("/v1/classify", fields)
        assert (answer.status_code, answer.json()) == (400, {"error": sentence})


class TestTag:
    """`/v1/tag`."""

    def test_every_word_has_its_tag(self, reading: Running, encoders: dict[str, LoadedModel]) -> None:
        text = "w5  w6 w7 w8 w9 w10 w11 w12 w13 w14"  # more than the network reads at a time
        answer = found(reading, "/v1/tag", {"text": ["", text]})
        empty, one = answer["sentences"]
        (theirs,) = encoders["names"].model.tag([text])
        assert (empty["words"], empty["tags"], empty["spans"]) == ([], [], [])
        assert list(zip(one["words"], one["tags"], strict=True)) == theirs
        assert all(0 < share <= 1 for share in one["probabilities"])

    def test_spans_say_which_words_and_which_characters(self, reading: Running) -> None:
        kinds = set()
        for number in range(4, 20):
            text = f" w{number} w{number + 2}  w{number + 1} w{number + 5}"
            (one,) = found(reading, "/v1/tag", {"text": text})["sentences"]
            for span in one["spans"]:
                start, end = span["characters"]
                first, after = span["words"]
                assert text[start:end] == span["text"]
                assert span["text"].split() == one["words"][first:after]
                assert {tag[2:] for tag in one["tags"][first:after]} == {span["kind"]}
                kinds.add(span["kind"])
        assert kinds == {"LOC", "PER"}

    def test_signs_are_set_apart_where_that_is_wanted(self, reading: Running) -> None:
        text = "(w5 w6)."
        apart = found(reading, "/v1/tag", {"text": text, "split_signs": True})["sentences"][0]
        assert apart["words"] == ["(", "w5", "w6", ")", "."]
        assert found(reading, "/v1/tag", {"text": text})["sentences"][0]["words"] == ["(w5", "w6)."]


class TestFill:
    """`/v1/fill`."""

    def test_holes_are_filled_as_in_python(self, reading: Running, encoders: dict[str, LoadedModel]) -> None:
        answer = found(reading, "/v1/fill", {"text": HOLES, "best": 3})
        (one,) = answer["filled"]
        theirs = encoders["holes"].model.fill(HOLES, best=3)
        assert (one["source"], one["text"]) == (HOLES, theirs.text)
        assert [[guess["text"] for guess in hole] for hole in one["holes"]] == [
            [guess.text for guess in hole] for hole in theirs.holes
        ]
        assert one["holes"][0][0]["probability"] == pytest.approx(theirs.holes[0][0].probability, abs=CLOSE)

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({"text": TEXT}, "text: has no [MASK] to fill; write [MASK] where a word is missing."),
            ({"text": [HOLES, TEXT]}, "text 2: has no [MASK] to fill; write [MASK] where a word is missing."),
            (
                {"text": "[MASK] " + "w4 " * 20},
                "text: has 23 tokens with its start and end, but this network learned 12 positions; shorten it.",
            ),
            (
                {"text": ["[MASK]" * 10] * 26},
                "holes: 260 is more than this server's limit of 256; ask for less.",
            ),
            ({"text": HOLES, "best": 0}, "best = 0 should be greater than or equal to 1."),
            ({"text": HOLES, "best": 101}, "best = 101 should be less than or equal to 100."),
        ],
    )
    def test_what_cannot_be_filled_is_said(self, reading: Running, fields: Any, sentence: str) -> None:
        answer = reading.post("/v1/fill", fields)
        assert (answer.status_code, answer.json()) == (400, {"error": sentence})

    def test_a_text_with_holes_is_not_cut(self, reading: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("regard.serving.routes.fill.MAX_READ_TOKENS", 3)
        answer = reading.post("/v1/fill", {"text": ["[MASK]", HOLES]})
        sentence = "text 2: has 4 tokens, and up to 3 are read here; shorten it."
        assert (answer.status_code, answer.json()) == (400, {"error": sentence})


class TestEmbeddings:
    """`/v1/embeddings`, as OpenAI's client asks for them."""

    @pytest.fixture(scope="class")
    def client(self, reading: Running) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{reading.url}/v1", api_key="none", max_retries=0)

    @pytest.mark.parametrize("name", ["vectors", "mood", "names", "holes", "elmo"])
    def test_its_client_gets_vectors_of_length_one(
        self, client: openai.OpenAI, encoders: dict[str, LoadedModel], name: str
    ) -> None:
        texts = [TEXT, "w7", ""]
        answer = client.embeddings.create(model=name, input=texts)  # which asks for base64 by itself
        vectors = np.array([one.embedding for one in answer.data])
        assert np.allclose(vectors, encoders[name].model.embed(texts, normalise=True), atol=CLOSE)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=CLOSE)
        assert [one.index for one in answer.data] == [0, 1, 2]
        assert (answer.model, answer.object) == (name, "list")
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (4, 4)

    def test_numbers_and_base64_say_the_same(self, client: openai.OpenAI, reading: Running) -> None:
        plain = client.embeddings.create(model="vectors", input=TEXT, encoding_format="float")
        asked = {"model": "vectors", "input": TEXT, "encoding_format": "base64"}
        packed = found(reading, "/v1/embeddings", asked)["data"][0]["embedding"]
        assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == plain.data[0].embedding

    def test_pooling_and_length_can_be_chosen(self, reading: Running, encoders: dict[str, LoadedModel]) -> None:
        asked = {"model": "vectors", "input": TEXT, "pooling": "first", "normalise": False, "dimensions": 24}
        vector = found(reading, "/v1/embeddings", asked)["data"][0]["embedding"]
        assert np.allclose(vector, encoders["vectors"].model.embed(TEXT, pooling="first"), atol=CLOSE)

    def test_a_text_that_is_too_long_is_cut_and_that_is_said(self, reading: Running) -> None:
        data = found(reading, "/v1/embeddings", {"model": "vectors", "input": ["w4", "w4 " * 11]})
        assert [one.get("cut") for one in data["data"]] == [None, True]
        assert data["usage"]["prompt_tokens"] == 1 + 10

    @pytest.mark.parametrize(
        ("fields", "status", "sentence"),
        [
            ({"input": TEXT}, 400, "model is missing."),
            ({"model": "vectors", "input": []}, 400, "input is empty; give a text, or several."),
            ({"model": "vectors", "input": [4, 5]}, 400, "input = [4, 5] should be a valid string."),
            (
                {"model": "vectors", "input": TEXT, "dimensions": 8},
                400,
                "dimensions = 8: the vectors of vectors have 24 numbers; leave it out.",
            ),
            (
                {"model": "vectors", "input": TEXT, "pooling": "first-dense"},
                400,
                "pooling = first-dense: vectors has learned no dense layer for it; use mean or first.",
            ),
            (
                {"model": "vectors", "input": ["w4"] * 257},
                400,
                "input: 257 is more than this server's limit of 256; ask for less.",
            ),
            ({"model": "vecotrs", "input": TEXT}, 404, "There is no model 'vecotrs' here (did you mean vectors?)."),
            (
                {"model": "en-it", "input": TEXT},
                400,
                "The model en-it is of the kind encoder-decoder Transformer: none that gives vectors.",
            ),
        ],
    )
    def test_what_is_wrong_is_said_as_its_clients_read_it(
        self, reading: Running, fields: Any, status: int, sentence: str
    ) -> None:
        answer = reading.post("/v1/embeddings", fields)
        code = "model_not_found" if status == 404 else None
        error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
        assert (answer.status_code, answer.json()) == (status, {"error": error})


def test_all_models_are_listed_with_what_they_do(reading: Running) -> None:
    names = ["en-it", "writer", "mood", "names", "holes", "vectors", "elmo"]
    assert [one["id"] for one in reading.get("/v1/models").json()["data"]] == names
    assert {one["name"]: one["does"] for one in reading.get("/v1/about").json()["models"]} == {
        "en-it": ["translates"],
        "writer": ["continues"],
        "mood": ["classifies", "embeds"],
        "names": ["tags", "embeds"],
        "holes": ["fills", "embeds"],
        "vectors": ["embeds"],
        "elmo": ["embeds"],
    }


def test_other_kinds_answer_beside_them(reading: Running) -> None:
    assert found(reading, "/v1/translate", {"text": "w4"})["model"] == "en-it"
    assert found(reading, "/v1/completions", {"model": "writer", "prompt": "w4", "max_tokens": 2})["model"] == "writer"
    assert [one["code"] for one in reading.get("/languages").json()] == ["en", "it"]


@pytest.mark.parametrize(
    ("path", "model", "sentence"),
    [
        (
            "/v1/classify",
            "names",
            "encoder-only Transformer, which labels words and gives vectors: none that labels texts",
        ),
        ("/v1/tag", "mood", "encoder-only Transformer, which labels texts and gives vectors: none that labels words"),
        ("/v1/fill", "vectors", "encoder-only Transformer, which gives vectors: none that fills holes"),
        ("/v1/fill", "elmo", "bidirectional language model, which gives vectors: none that fills holes"),
        ("/v1/tag", "en-it", "encoder-decoder Transformer: none that labels words"),
        (
            "/v1/translate",
            "mood",
            "encoder-only Transformer, which labels texts and gives vectors: none that translates",
        ),
    ],
)
def test_a_model_of_another_kind_says_what_it_is(reading: Running, path: str, model: str, sentence: str) -> None:
    answer = reading.post(path, {"text": "w4", "model": model})
    assert (answer.status_code, answer.json()) == (400, {"error": f"The model {model} is of the kind {sentence}."})


def test_an_encoder_continues_nothing(reading: Running) -> None:
    answer = reading.post("/v1/completions", {"model": "mood", "prompt": "w4"})
    sentence = (
        "The model mood is of the kind encoder-only Transformer, which labels texts and gives vectors: "
        "none that continues text."
    )
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


def test_where_no_model_can_that_is_said(server: Running) -> None:
    for path, what in (("/v1/classify", "labels texts"), ("/v1/tag", "labels words"), ("/v1/fill", "fills holes")):
        answer = server.post(path, {"text": "w4"})
        assert (answer.status_code, answer.json()) == (404, {"error": f"No model here {what}."})


def test_an_encoder_alone_is_a_server(encoders: dict[str, LoadedModel]) -> None:
    with running(Service([encoders["mood"]])) as server:
        assert found(server, "/v1/classify", {"text": "w4"})["model"] == "mood"
        assert server.get("/languages").json() == []
        assert server.post("/v1/translate", {"text": "w4"}).json() == {"error": "No model here translates."}


def test_the_command_serves_it(encoders: dict[str, LoadedModel]) -> None:
    folder = str(encoders["mood"].model.folder)
    process = subprocess.Popen(
        [*COMMAND, "serve", folder, "--port", "0"], stderr=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    url = line.split(" at ")[1].split()[0]
    assert line == f"regard: mood at {url} (Ctrl-C stops)\n"
    assert httpx.post(f"{url}/v1/classify", json={"text": TEXT}, timeout=30).json()["model"] == "mood"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", 0)


class TestCompany:
    """Requests share batches, and get what they would have got alone."""

    def test_a_batched_answer_is_the_solo_answer(self, encoders: dict[str, LoadedModel]) -> None:
        texts = [" ".join(f"w{4 + (n * m) % 24}" for m in range(1, n)) for n in range(2, 12)]
        mood, names = encoders["mood"], encoders["names"]
        for one, text in zip(mood.read(texts, ClassifyJob()), texts, strict=True):
            (alone,) = mood.read([text], ClassifyJob())
            assert one.label == alone.label
            assert one.probabilities == pytest.approx(alone.probabilities, abs=CLOSE)
        for tags, text in zip(names.read([text.split() for text in texts], TagJob()), texts, strict=True):
            (alone,) = names.read([text.split()], TagJob())
            assert [one.tag for one in tags] == [one.tag for one in alone]
        for vector, text in zip(mood.read(texts, EmbedJob()), texts, strict=True):
            (alone,) = mood.read([text], EmbedJob())
            assert np.allclose(vector.values, alone.values, atol=CLOSE)

    def test_what_waits_is_read_together_and_a_full_queue_says_when_to_come_back(
        self, encoders: dict[str, LoadedModel]
    ) -> None:
        mood = encoders["mood"]
        alone = [one.label for one in mood.model.classifications([f"w{n}" for n in range(4, 12)])]
        with running(Service([mood], Limits(queue=9))) as server, ThreadPoolExecutor(9) as pool:
            with mood.torch:  # nothing is read while someone else has the network
                first = pool.submit(found, server, "/v1/classify", {"text": "w20"})
                until(lambda: "regard_waiting_requests" in server.get("/metrics").text)
                until(lambda: _waiting(server) == 1)
                asked = [pool.submit(found, server, "/v1/classify", {"text": f"w{n}"}) for n in range(4, 12)]
                until(lambda: _waiting(server) == 9)
                for path, fields in (
                    ("/v1/classify", {"text": "w4"}),
                    ("/v1/embeddings", {"model": "mood", "input": "w4"}),
                ):
                    late = server.post(path, fields)
                    assert (late.status_code, late.headers["retry-after"]) == (429, "1")
            answers = [one.result() for one in asked]
            assert first.result()["timings"]["together"] == 1
        assert [one["classifications"][0]["label"] for one in answers] == alone
        assert {one["timings"]["together"] for one in answers} == {8}

    def test_a_deadline_that_passes_is_told(self, encoders: dict[str, LoadedModel]) -> None:
        with running(Service([encoders["mood"]])) as server, encoders["mood"].torch:
            answer = server.post("/v1/classify", {"text": "w4", "deadline": 0.05})
            sentence = "The answer was not ready within 0.05 s; ask for less, or try again later."
            assert (answer.status_code, answer.json()) == (504, {"error": sentence})


def test_no_more_is_read_than_a_server_can_bear(encoders: dict[str, LoadedModel]) -> None:
    (row,) = limited_encoder(encoders["mood"].model).framed(["w4 " * 5000])
    assert (len(row.ids), row.truncated) == (2048, True)


def test_an_encoder_is_looked_into(reading: Running, encoders: dict[str, LoadedModel]) -> None:
    outline = found(reading, "/v1/look", {"text": TEXT, "model": "mood"})
    assert outline["kind"] == "encoding"
    best = outline["head"]["predictions"][0]["candidates"][0]
    assert best["token"] == encoders["mood"].model.classify(TEXT)
    weights = found(reading, "/v1/look/tensor", {"trace": outline["id"], "at": "encoder.0.attention.weights[1]"})
    assert np.allclose(np.sum(weights["values"], axis=1), 1)
    refused = reading.post("/v1/look", {"text": TEXT, "model": "mood", "target": "w4"})
    assert refused.status_code == 400


@pytest.mark.parametrize("text", ["\x00", "\u202e\u200b", "🏳️‍🌈", "e\u0301" * 50, "<script>", " " * 500])
def test_odd_text_is_text(reading: Running, text: str) -> None:
    assert found(reading, "/v1/classify", {"text": text})["classifications"][0]["text"] == text
    assert found(reading, "/v1/tag", {"text": text, "split_signs": True})["sentences"][0]["text"] == text
    assert found(reading, "/v1/fill", {"text": f"{text}[MASK]"})["filled"][0]["source"] == f"{text}[MASK]"


def _waiting(server: Running) -> int:
    line = next(line for line in server.get("/metrics").text.splitlines() if line.startswith("regard_waiting"))
    return int(line.split()[-1])
