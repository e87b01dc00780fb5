"""`/v1/translate`: tokens, scores, alignments and alternatives, and its error messages."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig
from regard.decoding.domain import DOMAIN_FILE, Domain
from regard.decoding.options import SearchOptions
from regard.serving.access import AccessPolicy
from regard.serving.app import build_app
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel, load_models
from regard.serving.service import Service
from servers import RunningServer, run_server


def test_tokens_scores_alignments_and_alternatives(server: RunningServer, loaded_models: list[LoadedModel]) -> None:
    body = {"text": "w4 w5 w6", "n_best": 3, "token_scores": True, "alignment": True}
    response = server.post("/v1/translate", body).json()
    assert response["model"] == "en-it"
    (translation,) = response["translations"]
    assert translation["translation"] == loaded_models[0].model.translate("w4 w5 w6")
    (sentence,) = translation["sentences"]
    assert sentence["tokens"] == ["w4", "w5", "w6"]
    assert len(sentence["alternatives"]) == 3
    for alternative in sentence["alternatives"]:
        assert len(alternative["token_scores"]) == len(alternative["tokens"]) + alternative["ended"]
        assert len(alternative["alignment"]) == len(alternative["tokens"])
        assert sum(alternative["token_scores"]) == pytest.approx(alternative["log_probability"], abs=1e-3)
    assert response["timings"]["batch_size"] == 1
    assert response["timings"]["compute_ms"] > 0


def test_sentences_unlike_the_training_data_are_flagged(tmp_path: Path) -> None:
    saved(tmp_path / "en-it", EncoderDecoderConfig(**SMALL))
    domain = Domain(description="numbers and words", min_confidence=1.0, rare_tokens=(7,))
    (tmp_path / "en-it" / DOMAIN_FILE).write_text(domain.to_json())
    with run_server(Service(load_models([str(tmp_path / "en-it")]))) as running:
        (translation,) = running.post("/v1/translate", {"text": "w4 w7"}).json()["translations"]
        (copied,) = running.post("/v1/translate", {"text": "12:30"}).json()["translations"]
        (about,) = running.get("/v1/about").json()["models"]
    assert translation["out_of_domain"]
    (sentence,) = translation["sentences"]
    assert sentence["flags"] == ["unknown_pieces", "low_confidence"]
    assert sentence["unknown_words"] == ["w7"]
    assert 0 < sentence["confidence"] < 1
    assert (copied["out_of_domain"], copied["sentences"][0]["flags"]) == (False, [])
    assert about["covers"] == "numbers and words"


@pytest.mark.slow
def test_search_options_of_the_model_are_used_unless_others_are_set(tmp_path: Path) -> None:
    saved(tmp_path / "en-it", EncoderDecoderConfig(**SMALL))
    file = tmp_path / "en-it" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "decoding": {"beam": 2, "length_penalty": 3.0}}))
    models = load_models([str(tmp_path / "en-it")])
    service = Service(models)
    assert service.search(models[0]) == SearchOptions(2, 3.0)
    assert service.search(models[0], length_penalty=0.0, n_best=3) == SearchOptions(3, 0.0, n_best=3)
    assert service.search(models[0], beam=5) == SearchOptions(5, 3.0)
    assert Service(models, beam=1).search(models[0]).beam == 1
    assert Service(models, Limits(max_beam=1)).search(models[0]).beam == 1
    expected = models[0].model.translate("w4 w5 w6 w7")
    with run_server(service) as running:
        native = running.post("/v1/translate", {"text": "w4 w5 w6 w7"}).json()["translations"][0]["translation"]
        libre = running.post("/translate", {"q": "w4 w5 w6 w7", "source": "en", "target": "it"}).json()
        trace = running.post("/v1/look", {"text": "w4 w5 w6 w7"}).json()["id"]
        tree = running.post("/v1/look/tree", {"trace": trace}).json()
        assert "beam" not in running.get("/v1/about").json()
    assert native == libre["translatedText"] == expected
    assert (tree["beam"], tree["length_penalty"]) == (2, 3.0)


def test_models_without_a_domain_flag_only_unknown_tokens(server: RunningServer) -> None:
    known, unknown = server.post("/v1/translate", {"text": ["w4 w7", "w4 zebra"]}).json()["translations"]
    assert (known["out_of_domain"], unknown["out_of_domain"]) == (False, True)
    assert unknown["sentences"][0]["unknown_words"] == ["zebra"]
    assert "covers" not in server.get("/v1/about").json()["models"][0]


def test_texts_are_returned_in_order(server: RunningServer) -> None:
    texts = ["w4", "", "w20 w21 w22", "w5"]
    response = server.post("/v1/translate", {"text": texts, "model": "it-en"}).json()
    assert [translation["source"] for translation in response["translations"]] == texts
    assert server.post("/v1/translate", {"text": []}).json()["translations"] == []


def test_options_that_ctranslate2_lacks_use_torch(server: RunningServer) -> None:
    response = server.post("/v1/translate", {"text": "w4 w5", "prefix": "w9", "suppress": ["w10"]}).json()
    assert response["translations"][0]["translation"].startswith("w9")
    assert "w10" not in response["translations"][0]["translation"].split()


def test_unwrap_joins_the_lines_of_a_paragraph(server: RunningServer) -> None:
    text = "w4 w5\nw6\n\nw7"
    translations = [
        server.post("/v1/translate", {"text": text, "unwrap": unwrap}).json()["translations"][0]
        for unwrap in (False, True)
    ]
    lines, paragraphs = ([sentence["source"] for sentence in item["sentences"]] for item in translations)
    assert lines == ["w4 w5", "w6", "w7"]
    assert paragraphs == ["w4 w5 w6", "w7"]
    (joined,) = server.post("/v1/translate", {"text": "w4 w5 w6\n\nw7"}).json()["translations"]
    assert translations[1]["translation"] == joined["translation"]
    assert translations[1]["translation"].count("\n\n") == 1


def test_messages_are_readable_as_they_are_sent(server: RunningServer) -> None:
    response = server.post("/v1/translate", {"text": "w4", "beam": "größer"})
    assert 'beam = \\"größer\\" should be a valid integer.'.encode() in response.content


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "text is missing."),
        ({"text": 7}, "text = 7 should be a valid string."),
        ({"text": "w4", "baem": 2}, "Unknown field baem (did you mean beam?)."),
        ({"txt": "w4"}, "Unknown field txt (did you mean text?)."),
        ({"text": "w4", "n_best": 17}, "n_best: 17 exceeds this server's limit of 16; reduce it."),
        ({"text": "w4", "beam": 0}, "beam = 0 should be greater than or equal to 1."),
        ({"text": "w4", "beam": 17}, "beam: 17 exceeds this server's limit of 16; reduce it."),
        ({"text": "w4", "beam": "wide"}, 'beam = "wide" should be a valid integer.'),
        (
            {"text": "w4", "beam": 2, "n_best": 3},
            "n_best is 3, but a beam of 2 gives at most 2; raise it.",
        ),
        (
            {"text": "w4", "n_best": 2, "beam": 4, "patience": 0.25},
            "patience: 0.25 times a beam of 4 ends the search before n_best = 2 hypotheses are finished; raise it.",
        ),
        (
            {"text": "w4", "search": "fast", "patience": 2},
            "search is 'fast', which is a patience of 1, but patience is 2; remove one.",
        ),
        ({"text": "w4", "max_tokens": 1001}, "max_tokens: 1,001 exceeds this server's limit of 1,000; reduce it."),
        (
            {"text": "w4", "min_tokens": 9, "max_tokens": 8},
            "max_tokens is 8, which is less than min_tokens, 9; raise it.",
        ),
        ({"text": ["w4"] * 257}, "text: 257 exceeds this server's limit of 256; reduce it."),
        ({"text": "w" * 20_001}, "characters: 20,001 exceeds this server's limit of 20,000; reduce it."),
        ({"text": "w4", "length_penalty": 10**400}, None),
        ({"text": "w4", "timeout": 0}, "timeout = 0 should be greater than 0."),
        (
            {"text": "w4", "model": "writer"},
            "The model writer cannot translate; it is of kind decoder-only Transformer and can generate text.",
        ),
    ],
)
def test_invalid_requests_get_a_message(server: RunningServer, body: Any, message: str | None) -> None:
    response = server.post("/v1/translate", body)
    assert response.status_code == 400
    assert response.json()["error"] == message or message is None


def test_an_unknown_model_is_not_found(server: RunningServer) -> None:
    response = server.post("/v1/translate", {"text": "w4", "model": "en-ti"})
    message = "There is no model 'en-ti' (did you mean en-it?)."
    assert (response.status_code, response.json()) == (404, {"error": message})


@pytest.mark.parametrize(
    "text", ["\x00", "w4\x00w5", "\u202e\u200b", "🏳️‍🌈", "e\u0301" * 50, "\ufffe", "\U0010ffff", "<script>", " " * 500]
)
def test_unusual_characters_are_accepted(server: RunningServer, text: str) -> None:
    response = server.post("/v1/translate", {"text": text})
    assert response.status_code == 200
    assert response.json()["translations"][0]["source"] == text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The request body is empty; send a JSON object."),
        (b"text=w4", "The request body is not JSON: expected ident at line 1 column 2."),
        (
            b'{"text": "w4",\n "length_penalty": NaN}',
            "The request body is not JSON: expected value at line 2 column 20.",
        ),
        (b'{"text": "\\ud800"}', "The request body is not JSON: unexpected end of hex escape at line 1 column 17."),
        (b"[]", "The request body is JSON, but not an object; put the fields into braces."),
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", None])
def test_invalid_json_is_located(server: RunningServer, body: bytes, message: str, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = server.post("/v1/translate", content=body, headers=headers)
    assert (response.status_code, response.json()) == (400, {"error": message})


def test_json_is_parsed_whatever_its_content_type(server: RunningServer) -> None:
    for content_type in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
        response = server.post("/v1/translate", content=b'{"text": "w4"}', headers={"content-type": content_type})
        assert response.is_success


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        (
            "/v1/translate",
            [b'{"text": "w4 w5"}', b"", b"[]", b'{"text": 3}', b'{"txt": "w4"}', b'{"text": "w4", "n_best": 0}'],
        ),
        ("/translate", [b'{"q": "w4 w5", "source": "en", "target": "it"}', b"", b'{"q": "w4"}', b'{"q"']),
    ],
)
@pytest.mark.parametrize("key", [None, "Bearer wrong-wrong-wrong", "Bearer " + "k" * 16])
def test_direct_routes_respond_as_the_documented_ones(
    loaded_models: list[LoadedModel], path: str, bodies: list[bytes], key: str | None
) -> None:
    responses = []
    for is_direct in (True, False):
        app = build_app(Service(loaded_models[:1], access=AccessPolicy(key=b"k" * 16)))
        if not is_direct:
            app.state.direct_routes.clear()
        headers = {"content-type": "application/json"} | ({} if key is None else {"authorization": key})
        with TestClient(app, base_url="http://localhost") as client:
            for body in bodies:
                response = client.post(path, content=body, headers=headers)
                fields = response.json()
                fields.pop("timings", None)
                responses.append((response.status_code, fields))
            counted = f'regard_requests_total{{route="{path}"'
            assert counted in client.get("/metrics", headers={"authorization": "Bearer " + "k" * 16}).text
    assert responses[: len(bodies)] == responses[len(bodies) :]
