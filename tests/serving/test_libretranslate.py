"""LibreTranslate's protocol: its client works, and errors have its messages."""

import re
from collections.abc import Awaitable
from html import unescape
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI
from starlette.requests import Request

from regard.serving.languages import LanguageGuess
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.routes import libretranslate
from regard.serving.service import Service
from regard.serving.streaming import wait_for_result
from servers import RunningServer, UppercaseModel, run_server


def body(q: Any = "w4 w5", source: Any = "en", target: Any = "it", **more: Any) -> dict[str, Any]:
    return {"q": q, "source": source, "target": target, **more}


def test_its_python_client_works(server: RunningServer, loaded_models: list[LoadedModel]) -> None:
    client = LibreTranslateAPI(server.url)
    (expected,) = loaded_models[0].model.translate(["w4 w5 w6"])
    assert client.translate("w4 w5 w6", "en", "it") == expected
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["it"]},
        {"code": "it", "name": "Italian", "targets": ["en"]},
    ]
    assert {guess["language"] for guess in client.detect("w4 w5")} == {"en", "it"}


def test_json_forms_and_query_strings_are_equal(server: RunningServer) -> None:
    as_json = server.post("/translate", body()).json()
    assert as_json == server.post("/translate", data=body()).json()
    assert as_json == server.post("/translate", files={key: (None, value) for key, value in body().items()}).json()
    assert as_json == server.post("/translate", params=body()).json()
    assert list(as_json) == ["translatedText"]


def test_files_of_a_multipart_form_are_ignored(server: RunningServer) -> None:
    parts: dict[str, Any] = {key: (None, value) for key, value in body().items()}
    parts["file"] = ("picture.png", b"\x89PNG\xff", "image/png")
    assert server.post("/translate", files=parts).json() == server.post("/translate", body()).json()


def test_a_list_gets_a_list(server: RunningServer) -> None:
    both = server.post("/translate", body(["w4 w5", "w20"])).json()["translatedText"]
    assert both == [server.post("/translate", body(q)).json()["translatedText"] for q in ("w4 w5", "w20")]


def test_languages_select_the_model(server: RunningServer, loaded_models: list[LoadedModel]) -> None:
    for model in loaded_models[:2]:
        (expected,) = model.model.translate(["w7 w8"])
        response = server.post("/translate", body("w7 w8", model.source_language, model.target_language)).json()
        assert response["translatedText"] == expected


def test_line_breaks_are_preserved(server: RunningServer) -> None:
    lines = ["w4 w5", "", "w20 w21", ""]
    translated = server.post("/translate", body("\n".join(lines))).json()["translatedText"].split("\n")
    assert translated == [
        server.post("/translate", body(line)).json()["translatedText"] if line else "" for line in lines
    ]


def test_html_tags_are_preserved_and_text_is_escaped(server: RunningServer) -> None:
    html = '<p class="a">w4 <b>w5</b> &amp; w6</p><script>let w7 = "w8";</script><!-- w9 -->\n'
    translated = server.post("/translate", body(html, format="html")).json()["translatedText"]
    assert translated.startswith('<p class="a">')
    assert translated.endswith('</p><script>let w7 = "w8";</script><!-- w9 -->\n')
    assert translated.count("<b>") == translated.count("</b>") == 1
    text = unescape(re.sub("</?[pb][^>]*>", "", translated.partition("<script>")[0]))
    assert text == server.post("/translate", body("w4 w5 & w6")).json()["translatedText"]
    response = server.post("/v1/translate", {"text": html, "format": "html"}).json()
    assert response["translations"][0]["translation"] == translated


def test_alternatives_of_html_have_its_tags(server: RunningServer) -> None:
    response = server.post("/translate", body("<p>w4 <b>w5</b> w6</p>", format="html", alternatives=2)).json()
    assert response["alternatives"]
    for text in response["alternatives"]:
        assert re.fullmatch(r"<p>[^<]*<b>[^<]*</b>[^<]*</p>", text)


def test_all_models_of_a_request_share_its_timeout(
    loaded_models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    german, english = UppercaseModel(loaded_models[0]), UppercaseModel(loaded_models[1])
    german.source_language, english.source_language, english.target_language = "de", "en", "it"
    timeouts: list[float] = []

    async def recorded(request: Request, result: Awaitable[Any], timeout: float, total_timeout: float) -> Any:
        timeouts.append(timeout)
        assert total_timeout == 5
        return await wait_for_result(request, result, timeout, total_timeout)

    monkeypatch.setattr(libretranslate, "wait_for_result", recorded)
    monkeypatch.setattr(libretranslate, "detect_language", lambda text, _: [LanguageGuess(text[:2], 100.0)])
    with run_server(Service([german, english], Limits(timeout=5))) as server:
        response = server.post("/translate", body(["de w4", "en w5"], "auto")).json()
    assert response["translatedText"] == ["DE W4", "EN W5"]
    assert 5 >= timeouts[0] > timeouts[1]


def test_alternatives_differ(server: RunningServer) -> None:
    response = server.post("/translate", body("w4 w5 w6", alternatives=3)).json()
    assert 1 <= len(response["alternatives"]) <= 3
    assert len({response["translatedText"], *response["alternatives"]}) == 1 + len(response["alternatives"])
    response = server.post("/translate", body(["w4", "w5"], alternatives="1")).json()
    assert [isinstance(alternatives, list) for alternatives in response["alternatives"]] == [True, True]


def test_the_best_translation_is_the_text_and_the_next_best_are_its_alternatives(server: RunningServer) -> None:
    text = "w4 w5 w6"
    (native,) = server.post("/v1/translate", {"text": text, "n_best": 3}).json()["translations"]
    expected = [alternative["text"] for alternative in native["sentences"][0]["alternatives"]]
    assert len({*expected}) == 3
    response = server.post("/translate", body(text, alternatives=2)).json()
    assert [response["translatedText"], *response["alternatives"]] == expected


def test_auto_returns_the_detected_language(server: RunningServer) -> None:
    response = server.post("/translate", body(source="auto", target="it")).json()
    assert response["detectedLanguage"]["language"] == "en"
    assert 0 <= response["detectedLanguage"]["confidence"] <= 100
    response = server.post("/translate", body(["w4", "w5"], source="auto")).json()
    assert len(response["detectedLanguage"]) == 2


def test_unknown_words_lower_the_confidence(server: RunningServer) -> None:
    known, unknown = (server.post("/detect", {"q": q}).json()[0]["confidence"] for q in ("w4 w5", "w4 elsewhere"))
    assert unknown == known / 2


def test_front_ends_get_their_settings(server: RunningServer) -> None:
    assert server.get("/frontend/settings").json() == {
        "apiKeys": False,
        "charLimit": 20_000,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": False,
        "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "it", "name": "Italian"}},
        "suggestions": False,
        "supportedFilesFormat": [],
    }
    assert server.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Invalid request: missing q parameter"),
        (body(""), "Invalid request: missing q parameter"),
        (body([]), "Invalid request: missing q parameter"),
        (body(source=None), "Invalid request: missing source parameter"),
        (body(target=""), "Invalid request: missing target parameter"),
        ({"q": "w4", "target": "it"}, "Invalid request: missing source parameter"),
        (body(7), "Invalid request: q parameter is not a text or a list of texts"),
        (body(["w4", {"a": 1}]), "Invalid request: q parameter is not a text or a list of texts"),
        (body(source="tlh"), "tlh is not supported"),
        (body(target="tlh"), "tlh is not supported"),
        (body(target="en"), "English (en) is not available as a target language from English (en)"),
        (body(format="docx"), "docx format is not supported"),
        (body("w" * 20_001), "Invalid request: request (20001) exceeds text limit (20000)"),
        (body(["w4"] * 257), "Invalid request: request (257) exceeds text limit (256)"),
        (body(alternatives="many"), "Invalid request: alternatives parameter is not a number"),
        (body(alternatives=1e300), "Invalid request: alternatives parameter must be <= 15"),
        (body(alternatives=10**30), "Invalid request: alternatives parameter must be <= 15"),
    ],
)
def test_invalid_requests_get_its_messages(server: RunningServer, fields: Any, message: str) -> None:
    response = server.post("/translate", fields)
    assert (response.status_code, response.json()) == (400, {"error": message})


def test_without_translators_no_language_is_supported(loaded_models: list[LoadedModel]) -> None:
    with run_server(Service(loaded_models[2:])) as server:
        for source in ("auto", "en"):
            response = server.post("/translate", body(source=source))
            assert (response.status_code, response.json()) == (400, {"error": f"{source} is not supported"})
        assert server.post("/detect", {"q": "w4"}).json() == []


def test_unsupported_routes_get_its_messages(server: RunningServer) -> None:
    for path, message in (
        ("/translate_file", "Files translation are disabled on this server."),
        ("/suggest", "Suggestions are disabled on this server."),
    ):
        response = server.post(path)
        assert (response.status_code, response.json()) == (403, {"error": message})


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b'{"q": "\\ud800"}', b'{"q": NaN}', b"[" * 100_000, b"\xff"])
def test_invalid_json_is_rejected(server: RunningServer, content: bytes) -> None:
    response = server.post("/translate", content=content, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()) == (400, {"error": "Invalid JSON format"})


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"q=\xff", "application/x-www-form-urlencoded"),
        (b"q=%ff&source=en", "application/x-www-form-urlencoded"),
        (b"&".join(b"q=1" for _ in range(2000)), "application/x-www-form-urlencoded"),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (b"q=w4", "multipart/form-data"),
        (b"--y\r\nnonsense", "multipart/form-data; boundary=x"),
    ],
)
def test_forms_that_cannot_be_read_are_rejected(server: RunningServer, content: bytes, content_type: str) -> None:
    response = server.post("/translate", content=content, headers={"content-type": content_type})
    message = "The form cannot be read; send it as UTF-8, or send JSON."
    assert (response.status_code, response.json()) == (400, {"error": message})


@pytest.mark.parametrize(
    "header",
    [
        b'Content-Disposition: form-data; name="' + b'\\"' * 5_000 + b'"',
        b"Content-Disposition: form-data; " + b'a="b"; ' * 8_000,
        b"Content-Disposition: form-data" + b";" * 60_000,
        b"Content-Disposition: form-data; name=" + b"(" * 50_000,
        b"Content-Disposition: form-data; name*=" + b"utf-8''" * 9_000,
    ],
)
def test_headers_of_a_form_cannot_make_the_server_recurse(
    server: RunningServer, header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    content = b"--x\r\n" + header + b"\r\n\r\nw4\r\n--x--\r\n"
    response = server.post("/translate", content=content, headers={"content-type": "multipart/form-data; boundary=x"})
    message = "The form cannot be read; send it as UTF-8, or send JSON."
    assert (response.status_code, response.json()) == (400, {"error": message})
    assert not any(record.exc_info for record in caplog.records)
