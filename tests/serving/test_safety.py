"""Safe by default: who may ask, under which name, from which page, how much; and what never leaves."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI

from regard.errors import ConfigError, DataError
from regard.serving import server as server_module
from regard.serving.access import AccessPolicy, read_api_key, resolve_access
from regard.serving.app import build_app
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import PATIENCE, Echo, Running, running, until

KEY = "a key that nobody guesses"
ASKED = {"q": "w4", "source": "en", "target": "it"}
PAGE = "https://page.example"


def address(server: Running) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def said(server: Running, request: bytes) -> bytes:
    """The beginning of the answer to a request that is sent byte for byte."""
    with socket.create_connection(address(server)) as raw:
        raw.settimeout(PATIENCE)
        raw.sendall(request)
        return raw.recv(100)


def answer(raw: socket.socket) -> tuple[int, str]:
    """The status and the body of what comes next."""
    with closing(HTTPResponse(raw)) as found:
        found.begin()
        return found.status, found.read().decode()


@pytest.fixture(scope="module")
def locked(models: list[LoadedModel]) -> Iterator[Running]:
    access = AccessPolicy(KEY.encode(), origins=frozenset({PAGE}))
    with running(Service(models, Limits(body=2000), access)) as found:
        yield found


class TestKey:
    """With a key, nothing is done without it."""

    def test_what_is_ours_wants_it_in_the_header(self, locked: Running) -> None:
        for path in ("/v1/translate", "/v1/look"):
            found = locked.post(path, {"text": "w4"})
            sentence = "This server asks for an API key; send it as Authorization: Bearer KEY."
            assert (found.status_code, found.json()) == (401, {"error": sentence})
            assert found.headers["www-authenticate"] == "Bearer"
        assert locked.get("/metrics").status_code == 401
        assert locked.get("/metrics", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        assert locked.post("/v1/translate", {"text": "w4"}, headers={"authorization": f"bearer {KEY}"}).is_success

    def test_openais_clients_read_why(self, locked: Running) -> None:
        error = locked.get("/v1/models", headers={"authorization": "Bearer wrong"}).json()["error"]
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        assert error["message"] == "The API key is not this server's; ask who runs it for the right one."

    def test_libretranslates_clients_put_it_into_the_body(self, locked: Running) -> None:
        assert LibreTranslateAPI(locked.url, api_key=KEY).translate("w4", "en", "it")
        missing, wrong = locked.post("/translate", ASKED), locked.post("/detect", {"q": "w4", "api_key": "wrong"})
        sentence = "Please contact the server operator to get an API key"
        assert (missing.status_code, missing.json()) == (400, {"error": sentence})
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert locked.post("/translate", ASKED, params={"api_key": KEY}).is_success
        assert locked.post("/translate", ASKED, headers={"authorization": f"Bearer {KEY}"}).is_success
        for odd in (7, ["a"], {"a": 1}, "ключ"):
            assert locked.post("/translate", ASKED | {"api_key": odd}).status_code == 403

    def test_whether_it_lives_is_no_secret(self, locked: Running) -> None:
        for path in ("/health", "/healthz", "/readyz", "/languages", "/docs", "/openapi.json"):
            assert locked.get(path).is_success
        assert locked.get("/frontend/settings").json()["keyRequired"] is True

    def test_it_comes_from_a_file_or_from_the_environment(self, tmp_path: Path) -> None:
        file = tmp_path / "key"
        file.write_text(f"{KEY}\n")
        assert read_api_key(file, "another one that is long enough") == KEY.encode()
        file.write_text(f"\ufeff{KEY}\r\n")  # as an editor on Windows saves it
        assert read_api_key(file, None) == KEY.encode()
        assert read_api_key(None, KEY) == KEY.encode()
        assert read_api_key(None, None) is None

    def test_keys_that_cannot_be_used_get_a_sentence(self, tmp_path: Path) -> None:
        file = tmp_path / "key"
        with pytest.raises(DataError) as error:
            read_api_key(file, None)
        assert str(error.value) == (
            f"{file}: cannot be read (No such file or directory); give the path of a file with a key."
        )
        file.write_bytes(b"\xff")
        with pytest.raises(DataError) as error:
            read_api_key(file, None)
        assert str(error.value) == f"{file}: is not UTF-8 text; give the path of a file with a key."
        file.write_text("\n")
        with pytest.raises(ConfigError) as refused:
            read_api_key(file, None)
        assert str(refused.value) == f"{file}: holds no key; put one of 16 characters or more there."
        file.write_text(f"{KEY}\n{KEY}\n")
        with pytest.raises(ConfigError) as refused:
            read_api_key(file, None)
        assert str(refused.value) == (
            f"{file}: a key is one line of characters that can be typed; take out the others."
        )
        with pytest.raises(ConfigError) as refused:
            read_api_key(None, "short")
        assert str(refused.value) == "REGARD_API_KEY: a key of 5 characters is easily guessed; take 16 or more."


class TestWhoCanReachIt:
    """Others reach it only with a key, or where someone said that they may."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.org"])
    def test_another_address_needs_a_key_or_a_word(self, host: str) -> None:
        with pytest.raises(ConfigError) as error:
            resolve_access(host, key=None)
        assert str(error.value) == (
            f"--host {host}: others can reach this address; give --api-key-file or REGARD_API_KEY, or say --no-auth."
        )
        assert resolve_access(host, key=b"k").key == b"k"
        assert resolve_access(host, key=None, open_to_all=True).key is None

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_this_machine_needs_none(self, host: str) -> None:
        assert resolve_access(host, key=None).key is None

    @pytest.mark.parametrize(
        "host",
        ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "localhost.evil", "[::1]evil.example",
         "[::1", "127.0.0.1:8000:evil", "localhost@evil.example"],
    )  # fmt: skip
    def test_a_name_that_is_not_ours_is_refused(self, server: Running, host: str) -> None:
        for found in (
            server.get("/health", headers={"host": host}),
            server.post("/translate", ASKED, headers={"host": host}),
        ):
            sentence = "This server does not go by that name; use its address, or start it with --allow-host."
            assert (found.status_code, found.json()) == (421, {"error": sentence})

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8000", "localhost."])
    def test_our_own_names_are_good(self, server: Running, host: str) -> None:
        assert server.get("/health", headers={"host": host}).is_success

    def test_two_names_are_none(self, server: Running) -> None:
        heads = [b"Host: evil.example\r\nHost: localhost", b"Host: localhost\r\nHost: evil.example"]
        for head in heads:
            assert said(server, b"GET /health HTTP/1.1\r\n" + head + b"\r\n\r\n").startswith(b"HTTP/1.1 421")

    def test_more_names_can_be_given(self) -> None:
        access = resolve_access("127.0.0.1", key=None, names=("Translate.Example",))
        assert access.addresses("translate.example:443")
        assert resolve_access("0.0.0.0", key=b"k").addresses(socket.gethostname())


class TestOtherPages:
    """Pages from elsewhere may not ask, unless they were named."""

    def test_without_being_asked_for_no_page_is_let_in(self, server: Running) -> None:
        asked: list[dict[str, Any]] = [{"json": ASKED}, {"data": ASKED}, {"content": b"q=w4"}]
        for options in asked:
            found = server.client.post("/translate", headers={"origin": PAGE}, **options)
            sentence = "Other pages may not ask this server; start it with --cors ORIGIN to allow it."
            assert (found.status_code, found.json()) == (403, {"error": sentence})
            assert "access-control-allow-origin" not in found.headers
        assert server.client.options("/translate", headers={"origin": PAGE}).status_code == 403
        assert "access-control-allow-origin" not in server.get("/health", headers={"origin": PAGE}).headers

    def test_our_own_page_is(self, server: Running) -> None:
        assert server.post("/translate", ASKED, headers={"origin": server.url}).is_success

    def test_a_page_that_was_named_is(self, locked: Running) -> None:
        asked = locked.client.options(
            "/v1/translate", headers={"origin": PAGE, "access-control-request-method": "POST"}
        )
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, PAGE)
        assert asked.headers["access-control-allow-headers"] == "Authorization, Content-Type"
        announced = {"origin": PAGE, "access-control-request-headers": "authorization,x-stainless-os"}  # OpenAI's
        asked = locked.client.options("/v1/completions", headers=announced)
        assert asked.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        found = locked.post("/translate", ASKED | {"api_key": KEY}, headers={"origin": PAGE})
        assert found.headers["access-control-allow-origin"] == PAGE
        assert found.headers["vary"] == "Origin"
        assert locked.post("/translate", ASKED, headers={"origin": "https://other.example"}).status_code == 403
        refused = locked.post("/v1/translate", {"text": "w4"}, headers={"origin": PAGE})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)

    @pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "https://example.org/page"])
    def test_what_is_no_origin_gets_a_sentence(self, origin: str) -> None:
        with pytest.raises(ConfigError) as error:
            resolve_access("127.0.0.1", key=None, origins=(origin,))
        assert str(error.value) == f"--cors {origin}: should be a page's origin such as https://example.org, or *."
        assert AccessPolicy(origins=frozenset("*")).allows("null")


class TestLimits:
    """A body has an end."""

    def test_a_body_that_is_announced_too_large_is_not_read(self, locked: Running) -> None:
        found = locked.post("/translate", ASKED | {"q": "w" * 3000})
        sentence = "The request is larger than 2,000 bytes; send less at a time."
        assert (found.status_code, found.json()) == (413, {"error": sentence})

    def test_a_body_that_is_not_announced_is_read_up_to_the_limit(self, locked: Running) -> None:
        endless = (b"x" * 500 for _ in range(100))
        assert locked.post("/translate", content=endless).status_code == 413

    def test_an_absurd_length_is_refused(self, locked: Running) -> None:
        head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999999999\r\n\r\n"
        assert said(locked, head).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))

    def test_a_body_that_never_ends_is_given_up(self, models: list[LoadedModel]) -> None:
        with running(Service(models[:1], Limits(deadline=0.2))) as slow:
            head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nq"
            sentence = "The request did not come to its end in time; send it again."
            with socket.create_connection(address(slow)) as raw:
                raw.settimeout(PATIENCE)
                raw.sendall(head)
                assert answer(raw) == (408, json.dumps({"error": sentence}))

    @pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nHost: loc"])
    def test_a_head_that_never_ends_is_given_up(
        self, models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch, head: bytes
    ) -> None:
        monkeypatch.setattr(server_module, "MAX_HEAD_SECONDS", 0.1)
        with running(Service(models[:1])) as impatient:
            assert said(impatient, head) == b""
            assert impatient.get("/health").is_success

    def test_a_head_has_an_end(self, server: Running) -> None:
        for _ in range(2):
            assert server.get("/health", headers={"x": "a" * 10_000}).is_success
        with socket.create_connection(address(server)) as raw:
            raw.settimeout(PATIENCE)
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
            with suppress(OSError):  # it stops reading, and closes
                for _ in range(100):
                    raw.sendall(b"x: " + b"a" * 10_000)
                assert raw.recv(100).startswith(b"HTTP/1.1 400")
        assert server.get("/health").is_success

    def test_how_long_a_head_may_be_is_told(self, server: Running) -> None:
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        with socket.create_connection(address(server)) as raw:
            raw.settimeout(PATIENCE)
            raw.sendall(head + b"\r\n" + head + b"x: ")
            assert answer(raw) == (200, '{"status":"ok"}')  # so the next head has begun
            raw.sendall(b"a" * (server_module.MAX_HEAD_BYTES + 1))
            assert answer(raw) == (400, "The head of a request has at most 65,536 bytes.")

    def test_who_leaves_before_the_end_of_a_body_is_no_failure(
        self, models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(Service(models[:1])) as fresh, caplog.at_level(logging.INFO, "regard.serving"):
            with socket.create_connection(address(fresh)) as raw:
                raw.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nq")
            until(lambda: 'status="499"' in fresh.get("/metrics").text)
        assert 'status="500"' not in caplog.text
        assert not any(record.exc_info for record in caplog.records)


class TestNothingLeaks:
    """Failures are told in the log, not to clients."""

    @pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
    def test_no_traceback_leaves(self, models: list[LoadedModel], caplog: pytest.LogCaptureFixture, path: str) -> None:
        model = Echo(models[0])
        model.failure = RuntimeError("secret detail in /home/someone/model.bin")
        with running(Service([model])) as broken, caplog.at_level(logging.ERROR, "regard"):
            found = broken.post(path, ASKED if path == "/translate" else {"text": "w4"})
            assert broken.get("/health").is_success
        assert found.status_code == 500
        begin = "Cannot translate text: something" if path == "/translate" else "Something"
        assert found.json()["error"].startswith(f"{begin} failed here; the server's log has it under ")
        assert not any(part in found.text for part in ("secret", "Traceback", "File", "home", "RuntimeError"))
        number = found.json()["error"].split()[-1].rstrip(".")
        assert number in caplog.text
        assert "secret detail" in caplog.text

    def test_a_failure_in_a_stream_is_its_last_event(
        self, models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        from regard.decoding.results import Generation, TextChunk

        def fail(_: object, wish: object, into: list[Generation], *__: object) -> Iterator[TextChunk]:
            into.append(Generation("w4", 0))
            yield TextChunk(0, "w9")
            raise RuntimeError("secret")

        monkeypatch.setattr(models[2], "write", fail)
        with running(Service(models[2:])) as broken:
            found = broken.post("/v1/completions", {"model": "writer", "prompt": "w4", "stream": True})
        assert "w9" in found.text
        assert "Something failed here; the server's log has it." in found.text
        assert "secret" not in found.text
        assert "secret" in caplog.text
        assert "[DONE]" not in found.text

    def test_the_log_has_a_line_for_a_request_and_no_text(
        self, models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(Service(models[:1])) as fresh, caplog.at_level(logging.INFO, "regard.serving"):
            fresh.post("/translate", ASKED, params={"q": "secret"})
            fresh.get("/no%0Asuch")
        found = [record.getMessage() for record in caplog.records]
        assert len(found) == 2
        assert re.fullmatch(r"127\.0\.0\.1 POST /translate 200, \d+ ms", found[0])
        assert re.fullmatch(r"127\.0\.0\.1 GET /no%0Asuch 404, \d+ ms", found[1])
        assert all(record.levelno == logging.INFO for record in caplog.records)

    def test_headers_alone_can_be_asked_for(self, server: Running) -> None:
        for path in ("/health", "/languages", "/docs", "/", "/metrics"):
            found, whole = server.client.head(path), server.get(path)
            assert (found.status_code, found.content) == (200, b"")
            assert found.headers["content-type"] == whole.headers["content-type"]
        assert server.client.head("/translate").status_code == 405
        assert server.client.head("/none").status_code == 404

    def test_what_is_not_there_is_json_too(self, server: Running) -> None:
        found = server.get("/../../etc/passwd")
        assert (found.status_code, found.headers["content-type"]) == (404, "application/json")
        assert found.json() == {"error": "There is nothing at /etc/passwd; see /docs."}
        found = server.get("/v1/translate")
        assert (found.status_code, found.json()) == (405, {"error": "GET is not for /v1/translate; see /docs."})
        assert found.headers["allow"] == "POST"

    def test_every_answer_carries_its_policy(self, server: Running, locked: Running) -> None:
        answers = [server.get("/health"), server.get("/none"), locked.post("/v1/translate", {}), server.get("/docs")]
        for answer in answers:
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "server" not in answer.headers


class TestPages:
    """Pages need nothing from elsewhere."""

    def test_the_docs_load_nothing(self, server: Running) -> None:
        page = server.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert not any(part in page.text for part in ("http://", "https://", "src=", "<link", "<script", "@import"))
        for path in ("/translate", "/v1/translate", "/v1/completions", "/metrics"):
            assert path in page.text

    def test_their_style_is_the_one_that_the_policy_allows(self, server: Running) -> None:
        import base64
        import hashlib

        page = server.get("/docs")
        style = page.text.partition("<style>")[2].partition("</style>")[0]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.headers["content-security-policy"]

    def test_without_a_page_the_docs_are_shown(self, models: list[LoadedModel], tmp_path: Path) -> None:
        from starlette.testclient import TestClient

        client = TestClient(build_app(Service(models[:1]), tmp_path), base_url="http://localhost")
        assert client.get("/", follow_redirects=False).headers["location"] == "/docs"

    def test_files_of_a_page_are_served_at_the_root(self, models: list[LoadedModel], tmp_path: Path) -> None:
        from starlette.testclient import TestClient

        (tmp_path / "index.html").write_text("<h1>Hello</h1>")
        client = TestClient(build_app(Service(models[:1]), tmp_path), base_url="http://localhost")
        found = client.get("/")
        assert found.text == "<h1>Hello</h1>"
        assert "script-src 'self'" in found.headers["content-security-policy"]
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/%2e%2e/secret").status_code == 404
