"""`/v1/translate`: everything that is known about a translation."""

from typing import Any

import pytest

from regard.serving.loaded_models import LoadedModel
from servers import Running


def test_it_tells_tokens_scores_alignments_and_alternatives(server: Running, models: list[LoadedModel]) -> None:
    found = server.post("/v1/translate", {"text": "w4 w5 w6", "nbest": 3, "scores": True, "alignment": True}).json()
    assert found["model"] == "en-it"
    (translation,) = found["translations"]
    assert translation["translation"] == models[0].model.translate("w4 w5 w6")
    (sentence,) = translation["sentences"]
    assert sentence["tokens"] == ["w4", "w5", "w6"]
    assert len(sentence["alternatives"]) == 3
    for one in sentence["alternatives"]:
        assert len(one["token_scores"]) == len(one["tokens"]) + one["ended"]
        assert len(one["alignment"]) == len(one["tokens"])
        assert sum(one["token_scores"]) == pytest.approx(one["log_probability"], abs=1e-3)
    assert found["timings"]["together"] == 1
    assert found["timings"]["worked_ms"] > 0


def test_several_texts_come_back_in_order(server: Running) -> None:
    texts = ["w4", "", "w20 w21 w22", "w5"]
    found = server.post("/v1/translate", {"text": texts, "model": "it-en"}).json()
    assert [one["source"] for one in found["translations"]] == texts
    assert server.post("/v1/translate", {"text": []}).json()["translations"] == []


def test_what_only_torch_can_do_is_done_by_torch(server: Running) -> None:
    found = server.post("/v1/translate", {"text": "w4 w5", "prefix": "w9", "forbid": ["w10"]}).json()
    assert found["translations"][0]["translation"].startswith("w9")
    assert "w10" not in found["translations"][0]["translation"].split()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "text is missing."),
        ({"text": 7}, "text = 7 should be a valid string."),
        ({"text": "w4", "baem": 2}, "baem is not known here (did you mean beam?)."),
        ({"txt": "w4"}, "txt is not known here (did you mean text?)."),
        ({"text": "w4", "nbest": 17}, "nbest: 17 is more than this server's limit of 16; ask for less."),
        ({"text": "w4", "beam": 0}, "beam = 0 should be greater than or equal to 1."),
        ({"text": "w4", "beam": 17}, "beam: 17 is more than this server's limit of 16; ask for less."),
        ({"text": "w4", "beam": "wide"}, 'beam = "wide" should be a valid integer.'),
        (
            {"text": "w4", "beam": 2, "nbest": 3},
            "a beam of 2 gives at most as many translations, not 3; widen the beam.",
        ),
        (
            {"text": "w4", "nbest": 2, "beam": 4, "patience": 0.25},
            "patience: 0.25 times a beam of 4 ends the search before nbest = 2 are found; raise it.",
        ),
        (
            {"text": "w4", "max_length": 1001},
            "max_length: 1,001 is more than this server's limit of 1,000; ask for less.",
        ),
        (
            {"text": "w4", "min_length": 9, "max_length": 8},
            "a maximum length of 8 is less than the minimum length, 9; raise it.",
        ),
        ({"text": ["w4"] * 257}, "text: 257 is more than this server's limit of 256; ask for less."),
        ({"text": "w" * 20_001}, "characters: 20,001 is more than this server's limit of 20,000; ask for less."),
        ({"text": "w4", "length_penalty": 10**400}, None),
        ({"text": "w4", "deadline": 0}, "deadline = 0 should be greater than 0."),
        (
            {"text": "w4", "model": "writer"},
            "The model writer is of the kind decoder-only Transformer: none that translates.",
        ),
    ],
)
def test_what_is_wrong_is_said(server: Running, content: Any, sentence: str | None) -> None:
    found = server.post("/v1/translate", content)
    assert found.status_code == 400
    assert found.json()["error"] == sentence or sentence is None


def test_a_model_that_is_not_there_is_not_found(server: Running) -> None:
    found = server.post("/v1/translate", {"text": "w4", "model": "en-ti"})
    assert (found.status_code, found.json()) == (
        404,
        {"error": "There is no model 'en-ti' here (did you mean en-it?)."},
    )


@pytest.mark.parametrize(
    "text", ["\x00", "w4\x00w5", "\u202e\u200b", "🏳️‍🌈", "e\u0301" * 50, "\ufffe", "\U0010ffff", "<script>", " " * 500]
)
def test_odd_text_is_text(server: Running, text: str) -> None:
    found = server.post("/v1/translate", {"text": text})
    assert found.status_code == 200
    assert found.json()["translations"][0]["source"] == text


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The body is not JSON: EOF while parsing a value at line 1 column 0."),
        (b"text=w4", "The body is not JSON: expected ident at line 1 column 2."),
        (b'{"text": "w4",\n "length_penalty": NaN}', "The body is not JSON: expected value at line 2 column 20."),
        (b'{"text": "\\ud800"}', "The body is not JSON: unexpected end of hex escape at line 1 column 17."),
        (b"[]", "The body is JSON, but no object; put the fields into braces."),
    ],
)
def test_a_body_that_is_no_json_is_told_where(server: Running, body: bytes, sentence: str) -> None:
    found = server.post("/v1/translate", content=body)
    assert (found.status_code, found.json()) == (400, {"error": sentence})
