"""LibreTranslate's protocol: its clients work, and what goes wrong is said in its words."""

import time
from collections.abc import Awaitable
from html import unescape
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI
from starlette.requests import Request

from regard.serving.html_text import Page
from regard.serving.languages import Detected
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.routes import libretranslate
from regard.serving.service import Service
from regard.serving.streaming import wait_for_answer
from servers import Echo, Running, running


def asked(q: Any = "w4 w5", source: Any = "en", target: Any = "it", **more: Any) -> dict[str, Any]:
    return {"q": q, "source": source, "target": target, **more}


def test_its_python_client_works(server: Running, models: list[LoadedModel]) -> None:
    client = LibreTranslateAPI(server.url)
    (alone,) = models[0].model.translate(["w4 w5 w6"])
    assert client.translate("w4 w5 w6", "en", "it") == alone
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["it"]},
        {"code": "it", "name": "Italian", "targets": ["en"]},
    ]
    assert {one["language"] for one in client.detect("w4 w5")} == {"en", "it"}


def test_json_and_forms_say_the_same(server: Running) -> None:
    as_json = server.post("/translate", asked()).json()
    assert as_json == server.post("/translate", data=asked()).json()
    assert as_json == server.post("/translate", files={key: (None, value) for key, value in asked().items()}).json()
    assert as_json == server.post("/translate", params=asked()).json()
    assert list(as_json) == ["translatedText"]


def test_a_list_is_answered_with_a_list(server: Running) -> None:
    both = server.post("/translate", asked(["w4 w5", "w20"])).json()["translatedText"]
    assert both == [server.post("/translate", asked(q)).json()["translatedText"] for q in ("w4 w5", "w20")]


def test_each_pair_of_languages_has_its_model(server: Running, models: list[LoadedModel]) -> None:
    for model in models[:2]:
        (alone,) = model.model.translate(["w7 w8"])
        found = server.post("/translate", asked("w7 w8", model.source, model.target)).json()
        assert found["translatedText"] == alone


def test_lines_stay_lines(server: Running) -> None:
    lines = ["w4 w5", "", "w20 w21", ""]
    found = server.post("/translate", asked("\n".join(lines))).json()["translatedText"].split("\n")
    alone = [server.post("/translate", asked(line)).json()["translatedText"] if line else "" for line in lines]
    assert found == alone


def test_tags_stay_and_text_cannot_become_one(server: Running) -> None:
    html = '<p class="a">w4 <b>w5</b> &amp; w6</p><script>let w7 = "w8";</script><!-- w9 -->\n'
    found = server.post("/translate", asked(html, format="html")).json()["translatedText"]
    assert found.startswith('<p class="a">')
    assert found.endswith('</p><script>let w7 = "w8";</script><!-- w9 -->\n')
    assert found.count("<b>") == found.count("</b>") == 1


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<p title='a > b'>w4</p>", ["w4"]),
        ("<p title=it's>w4</p>", ["w4"]),
        ("<code-block>w4</code-block>", ["w4"]),
        ("w4 < w5 > w6", ["w4 < w5 > w6"]),
        ("w4<script>w5", ["w4"]),
        ("w4<!-- w5", ["w4"]),
    ],
)
def test_what_is_text_in_a_page_is_told_as_browsers_do(html: str, texts: list[str]) -> None:
    page = Page(html)
    assert page.texts == texts
    assert unescape(page.filled(texts)) == html


@pytest.mark.parametrize("piece", ["<!--", "<script>", "<pre", "<code></cod", "<a '\"'", '<a "', "<", "</script "])
def test_no_page_keeps_the_server_busy(piece: str) -> None:
    began = time.thread_time()
    Page(piece * (200_000 // len(piece)))
    assert time.thread_time() - began < 5  # where it took time that grows with the square, it was minutes


def test_all_models_of_a_request_share_its_deadline(models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    german, english = Echo(models[0]), Echo(models[1])
    german.source, english.source, english.target = "de", "en", "it"
    given: list[float] = []

    async def watched(request: Request, answer: Awaitable[Any], deadline: float, told: float) -> Any:
        given.append(deadline)
        assert told == 5
        return await wait_for_answer(request, answer, deadline, told)

    monkeypatch.setattr(libretranslate, "wait_for_answer", watched)
    monkeypatch.setattr(libretranslate, "detect", lambda text, _: [Detected(text[:2], 100.0)])
    with running(Service([german, english], Limits(deadline=5))) as server:
        found = server.post("/translate", asked(["de w4", "en w5"], "auto")).json()
    assert found["translatedText"] == ["DE W4", "EN W5"]
    assert 5 >= given[0] > given[1]


def test_alternatives_are_other_texts(server: Running) -> None:
    found = server.post("/translate", asked("w4 w5 w6", alternatives=3)).json()
    assert 1 <= len(found["alternatives"]) <= 3
    assert len({found["translatedText"], *found["alternatives"]}) == 1 + len(found["alternatives"])
    several = server.post("/translate", asked(["w4", "w5"], alternatives="1")).json()
    assert [isinstance(one, list) for one in several["alternatives"]] == [True, True]


def test_auto_tells_what_it_took_the_text_for(server: Running) -> None:
    found = server.post("/translate", asked(source="auto", target="it")).json()
    assert found["detectedLanguage"]["language"] == "en"
    assert 0 <= found["detectedLanguage"]["confidence"] <= 100
    several = server.post("/translate", asked(["w4", "w5"], source="auto")).json()
    assert len(several["detectedLanguage"]) == 2


def test_unknown_words_are_doubted(server: Running) -> None:
    known, unknown = (server.post("/detect", {"q": q}).json()[0]["confidence"] for q in ("w4 w5", "w4 elsewhere"))
    assert unknown == known / 2


def test_front_ends_are_told_what_they_need(server: Running) -> None:
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
    ("content", "sentence"),
    [
        ({}, "Invalid request: missing q parameter"),
        (asked(""), "Invalid request: missing q parameter"),
        (asked([]), "Invalid request: missing q parameter"),
        (asked(source=None), "Invalid request: missing source parameter"),
        (asked(target=""), "Invalid request: missing target parameter"),
        (asked(7), "Invalid request: q parameter is not a text or a list of texts"),
        (asked(["w4", {"a": 1}]), "Invalid request: q parameter is not a text or a list of texts"),
        (asked(source="tlh"), "tlh is not supported"),
        (asked(target="tlh"), "tlh is not supported"),
        (asked(target="en"), "English (en) is not available as a target language from English (en)"),
        (asked(format="docx"), "docx format is not supported"),
        (asked("w" * 20_001), "Invalid request: request (20001) exceeds text limit (20000)"),
        (asked(["w4"] * 257), "Invalid request: request (257) exceeds text limit (256)"),
        (asked(alternatives="many"), "Invalid request: alternatives parameter is not a number"),
        (asked(alternatives=1e300), "Invalid request: alternatives parameter must be <= 15"),
        (asked(alternatives=10**30), "Invalid request: alternatives parameter must be <= 15"),
    ],
)
def test_what_is_wrong_is_said_in_its_words(server: Running, content: Any, sentence: str) -> None:
    found = server.post("/translate", content)
    assert (found.status_code, found.json()) == (400, {"error": sentence})


def test_where_nothing_translates_no_language_is_supported(models: list[LoadedModel]) -> None:
    with running(Service(models[2:])) as writing:
        for source in ("auto", "en"):
            found = writing.post("/translate", asked(source=source))
            assert (found.status_code, found.json()) == (400, {"error": f"{source} is not supported"})
        assert writing.post("/detect", {"q": "w4"}).json() == []


def test_what_is_not_offered_is_said_in_its_words(server: Running) -> None:
    for path, sentence in (
        ("/translate_file", "Files translation are disabled on this server."),
        ("/suggest", "Suggestions are disabled on this server."),
    ):
        found = server.post(path)
        assert (found.status_code, found.json()) == (403, {"error": sentence})


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"q": "\\ud800"}', b'{"q": NaN}', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_refused(server: Running, body: bytes) -> None:
    found = server.post("/translate", content=body, headers={"content-type": "application/json"})
    assert (found.status_code, found.json()) == (400, {"error": "Invalid JSON format"})


def test_a_form_that_is_not_utf8_is_refused(server: Running) -> None:
    for body, kind in (
        (b"q=\xff", "application/x-www-form-urlencoded"),
        (b"q=%ff&source=en", "application/x-www-form-urlencoded"),
        (b"&".join(b"q=1" for _ in range(2000)), "application/x-www-form-urlencoded"),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
    ):
        found = server.post("/translate", content=body, headers={"content-type": kind})
        sentence = "The form cannot be read; send it as UTF-8, or send JSON."
        assert (found.status_code, found.json()) == (400, {"error": sentence})
