"""Safe defaults: API key, host names, origins, limits on requests, and no internal details in responses."""

import asyncio
import base64
import gzip
import hashlib
import json
import logging
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from regard.decoding.results import Generation, TextChunk
from regard.errors import ConfigError, DataError
from regard.serving import server as server_module
from regard.serving.access import AccessMiddleware, AccessPolicy, _is_same_origin, read_api_key, resolve_access
from regard.serving.app import build_app
from regard.serving.errors import ApiError
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.server import bind_socket, build_server
from regard.serving.service import Service
from servers import TEST_TIMEOUT, RunningServer, UppercaseModel, run_server, wait_until

KEY = "a key that is hard to guess"
BODY = {"q": "w4", "source": "en", "target": "it"}
ORIGIN = "https://page.example"


def address(server: RunningServer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def send_raw(server: RunningServer, request: bytes) -> bytes:
    """Send bytes, and return the beginning of the response."""
    with socket.create_connection(address(server)) as raw:
        raw.settimeout(TEST_TIMEOUT)
        raw.sendall(request)
        return raw.recv(100)


def _call_app(service: Service, path: str, send: Send) -> None:
    """Send a GET request to the application, without a server."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(build_app(service)(scope, receive, send))


def read_response(raw: socket.socket) -> tuple[int, str]:
    """Return status and body of the next response."""
    with closing(HTTPResponse(raw)) as response:
        response.begin()
        return response.status, response.read().decode()


@pytest.fixture(scope="module")
def locked(loaded_models: list[LoadedModel]) -> Iterator[RunningServer]:
    """A server with an API key, one allowed origin, and a small body limit."""
    access = AccessPolicy(KEY.encode(), origins=frozenset({ORIGIN}))
    with run_server(Service(loaded_models, Limits(max_body_bytes=2000), access)) as server:
        yield server


class TestApiKey:
    """With a key, no request is processed without it."""

    def test_own_routes_need_the_key_in_the_header(self, locked: RunningServer) -> None:
        for path in ("/v1/translate", "/v1/look"):
            response = locked.post(path, {"text": "w4"})
            message = "This server requires an API key; send it as Authorization: Bearer KEY."
            assert (response.status_code, response.json()) == (401, {"error": message})
            assert response.headers["www-authenticate"] == "Bearer"
        assert locked.get("/metrics").status_code == 401
        assert locked.get("/metrics", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        assert locked.post("/v1/translate", {"text": "w4"}, headers={"authorization": f"bearer {KEY}"}).is_success

    def test_the_key_is_checked_before_the_body_is_parsed(self, locked: RunningServer) -> None:
        for content in (b"", b"{", b"[]", b'{"unknown": 1}'):
            assert locked.post("/v1/translate", content=content).status_code == 401

    def test_every_route_needs_the_key_unless_it_is_public(self, locked: RunningServer) -> None:
        public = {
            "/translate",
            "/detect",
            "/languages",
            "/frontend/settings",
            "/health",
            "/livez",
            "/healthz",
            "/readyz",
        }
        for path, operations in locked.get("/openapi.json").json()["paths"].items():
            for method, operation in operations.items():
                assert ("security" in operation) == (path not in public), path
                if path not in public:
                    response = locked.client.request(method, path.replace("{name}", "writer"))
                    assert response.status_code == 401, path

    def test_openai_clients_get_its_error_format(self, locked: RunningServer) -> None:
        error = locked.get("/v1/models", headers={"authorization": "Bearer wrong"}).json()["error"]
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        assert error["message"] == "The API key is wrong; ask the server's operator for the right one."

    def test_libretranslate_clients_send_the_key_in_the_body(self, locked: RunningServer) -> None:
        assert LibreTranslateAPI(locked.url, api_key=KEY).translate("w4", "en", "it")
        missing, wrong = locked.post("/translate", BODY), locked.post("/detect", {"q": "w4", "api_key": "wrong"})
        message = "Please contact the server operator to get an API key"
        assert (missing.status_code, missing.json()) == (400, {"error": message})
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert locked.post("/translate", BODY, params={"api_key": KEY}).is_success
        assert locked.post("/translate", BODY, headers={"authorization": f"Bearer {KEY}"}).is_success
        for key in (7, ["a"], {"a": 1}, "ключ"):
            assert locked.post("/translate", BODY | {"api_key": key}).status_code == 403

    def test_a_key_may_have_any_characters(self, loaded_models: list[LoadedModel]) -> None:
        key = "ключ, который не угадать"
        with run_server(Service(loaded_models[:1], access=AccessPolicy(key.encode()))) as server:
            headers = {"authorization": b"Bearer " + key.encode()}
            assert server.get("/v1/about", headers=headers).is_success
            assert server.post("/translate", BODY | {"api_key": key}).is_success

    def test_health_and_documentation_are_public(self, locked: RunningServer) -> None:
        for path in ("/health", "/livez", "/healthz", "/readyz", "/languages", "/docs", "/openapi.json"):
            assert locked.get(path).is_success
        assert locked.get("/frontend/settings").json()["keyRequired"] is True

    def test_the_key_is_read_from_a_file_or_the_environment(self, tmp_path: Path) -> None:
        file = tmp_path / "key"
        file.write_text(f"{KEY}\n")
        assert read_api_key(file, "another one that is long enough") == KEY.encode()
        file.write_text(f"\ufeff{KEY}\r\n")  # as an editor on Windows saves it
        assert read_api_key(file, None) == KEY.encode()
        assert read_api_key(None, KEY) == KEY.encode()
        assert read_api_key(None, None) is None

    def test_invalid_keys_get_a_message(self, tmp_path: Path) -> None:
        file = tmp_path / "key"
        with pytest.raises(DataError) as error:
            read_api_key(file, None)
        assert str(error.value) == (
            f"{file}: cannot be read (No such file or directory); pass the path of a file with a key."
        )
        file.write_bytes(b"\xff")
        with pytest.raises(DataError) as error:
            read_api_key(file, None)
        assert str(error.value) == f"{file}: is not UTF-8 text; pass the path of a file with a key."
        file.write_text("\n")
        with pytest.raises(ConfigError) as config_error:
            read_api_key(file, None)
        assert str(config_error.value) == f"{file}: has no key; add one of 16 characters or more."
        file.write_text(f"{KEY}\n{KEY}\n")
        with pytest.raises(ConfigError) as config_error:
            read_api_key(file, None)
        assert str(config_error.value) == f"{file}: a key is one line of printable characters; remove the others."
        with pytest.raises(ConfigError) as config_error:
            read_api_key(None, "short")
        assert str(config_error.value) == "REGARD_API_KEY: a key of 5 characters is easily guessed; use 16 or more."


class TestHosts:
    """Other machines need a key or an explicit option, and requests must name this server."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.org"])
    def test_other_addresses_need_a_key_or_no_auth(self, host: str) -> None:
        with pytest.raises(ConfigError) as error:
            resolve_access(host, key=None)
        assert str(error.value) == (
            f"--host {host}: other machines can reach this address; set --api-key-file or REGARD_API_KEY, "
            "or pass --no-auth."
        )
        assert resolve_access(host, key=b"k").key == b"k"
        assert resolve_access(host, key=None, no_auth=True).key is None

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_loopback_addresses_need_no_key(self, host: str) -> None:
        assert resolve_access(host, key=None).key is None

    @pytest.mark.parametrize(
        "host",
        ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "localhost.evil", "[::1]evil.example",
         "[::1", "127.0.0.1:8000:evil", "localhost@evil.example"],
    )  # fmt: skip
    def test_other_host_names_are_rejected(self, server: RunningServer, host: str) -> None:
        for response in (
            server.get("/health", headers={"host": host}),
            server.post("/translate", BODY, headers={"host": host}),
        ):
            message = "The Host header does not name this server; use its address, or start it with --allow-host."
            assert (response.status_code, response.json()) == (421, {"error": message})

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8000", "localhost."])
    def test_own_host_names_are_accepted(self, server: RunningServer, host: str) -> None:
        assert server.get("/health", headers={"host": host}).is_success

    def test_two_host_headers_are_rejected(self, server: RunningServer) -> None:
        for hosts in (b"Host: evil.example\r\nHost: localhost", b"Host: localhost\r\nHost: evil.example"):
            assert send_raw(server, b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n\r\n").startswith(b"HTTP/1.1 421")

    def test_more_names_can_be_allowed(self) -> None:
        policy = resolve_access("127.0.0.1", key=None, names=("Translate.Example",))
        assert policy.allows_host("translate.example:443")
        assert resolve_access("0.0.0.0", key=b"k").allows_host(socket.gethostname())


class TestOrigins:
    """Pages of other sites may not send requests unless their origin is allowed."""

    def test_by_default_other_origins_are_rejected(self, server: RunningServer) -> None:
        requests: list[dict[str, Any]] = [{"json": BODY}, {"data": BODY}, {"content": b"q=w4"}]
        for options in requests:
            response = server.client.post("/translate", headers={"origin": ORIGIN}, **options)
            message = "Pages of other sites may not use this server; start it with --cors ORIGIN to allow one."
            assert (response.status_code, response.json()) == (403, {"error": message})
            assert "access-control-allow-origin" not in response.headers
        assert server.client.options("/translate", headers={"origin": ORIGIN}).status_code == 403
        assert "access-control-allow-origin" not in server.get("/health", headers={"origin": ORIGIN}).headers

    def test_the_own_origin_is_accepted(self, server: RunningServer) -> None:
        assert server.post("/translate", BODY, headers={"origin": server.url}).is_success

    def test_an_allowed_origin_is_accepted(self, locked: RunningServer) -> None:
        preflight = locked.client.options(
            "/v1/translate", headers={"origin": ORIGIN, "access-control-request-method": "POST"}
        )
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, ORIGIN)
        assert preflight.headers["access-control-allow-headers"] == "Authorization, Content-Type"
        headers = {"origin": ORIGIN, "access-control-request-headers": "authorization,x-stainless-os"}  # OpenAI's
        preflight = locked.client.options("/v1/completions", headers=headers)
        assert preflight.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        response = locked.post("/translate", BODY | {"api_key": KEY}, headers={"origin": ORIGIN})
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert response.headers["vary"] == "Origin"
        assert locked.post("/translate", BODY, headers={"origin": "https://other.example"}).status_code == 403
        rejected = locked.post("/v1/translate", {"text": "w4"}, headers={"origin": ORIGIN})
        assert (rejected.status_code, rejected.headers["access-control-allow-origin"]) == (401, ORIGIN)

    @pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "https://example.org/page"])
    def test_invalid_origins_get_a_message(self, origin: str) -> None:
        with pytest.raises(ConfigError) as error:
            resolve_access("127.0.0.1", key=None, origins=(origin,))
        assert str(error.value) == f"--cors {origin}: should be an origin such as https://example.org, or *."
        assert AccessPolicy(origins=frozenset("*")).allows_origin("null")


class TestRequestLimits:
    """Heads and bodies of requests are bounded in size and time."""

    @pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
    def test_an_announced_size_over_the_limit_is_rejected(self, locked: RunningServer, path: str) -> None:
        response = locked.post(path, BODY | {"q": "w" * 3000})
        message = "The request is larger than 2,000 bytes; send less at a time."
        assert (response.status_code, response.json()) == (413, {"error": message})

    @pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
    def test_a_chunked_body_is_read_up_to_the_limit(self, locked: RunningServer, path: str) -> None:
        chunks = (b"x" * 500 for _ in range(100))
        assert locked.post(path, content=chunks).status_code == 413

    def test_an_absurd_content_length_is_rejected(self, locked: RunningServer) -> None:
        head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999999999\r\n\r\n"
        assert send_raw(locked, head).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))

    @pytest.mark.slow
    @pytest.mark.parametrize("path", [b"/translate", b"/v1/translate"])
    def test_an_incomplete_body_times_out(self, loaded_models: list[LoadedModel], path: bytes) -> None:
        with run_server(Service(loaded_models[:1], Limits(timeout=0.2))) as server:
            head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nq"
            message = "The request body did not arrive in time; send it again."
            with socket.create_connection(address(server)) as raw:
                raw.settimeout(TEST_TIMEOUT)
                raw.sendall(head)
                assert read_response(raw) == (408, json.dumps({"error": message}))

    @pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nHost: loc"])
    def test_an_incomplete_head_times_out(
        self, loaded_models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch, head: bytes
    ) -> None:
        monkeypatch.setattr(server_module, "MAX_HEAD_SECONDS", 0.1)
        with run_server(Service(loaded_models[:1])) as server:
            assert send_raw(server, head) == b""
            assert server.get("/health").is_success

    def test_an_endless_head_is_rejected(self, server: RunningServer) -> None:
        for _ in range(2):
            assert server.get("/health", headers={"x": "a" * 10_000}).is_success
        with socket.create_connection(address(server)) as raw:
            raw.settimeout(TEST_TIMEOUT)
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
            with suppress(OSError):  # the server stops reading, and closes
                for _ in range(100):
                    raw.sendall(b"x: " + b"a" * 10_000)
                assert raw.recv(100).startswith(b"HTTP/1.1 400")
        assert server.get("/health").is_success

    def test_the_limit_of_a_head_is_in_the_message(self, server: RunningServer) -> None:
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        with socket.create_connection(address(server)) as raw:
            raw.settimeout(TEST_TIMEOUT)
            raw.sendall(head + b"\r\n" + head + b"x: ")
            assert read_response(raw) == (200, '{"status":"ok"}')  # the next head has begun
            raw.sendall(b"a" * (server_module.MAX_HEAD_BYTES + 1))
            assert read_response(raw) == (400, "The head of a request may have at most 65,536 bytes.")

    @pytest.mark.parametrize("path", [b"/translate", b"/v1/translate"])
    def test_a_client_that_disconnects_is_not_a_failure(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture, path: bytes
    ) -> None:
        with caplog.at_level(logging.INFO, "regard.serving"), run_server(Service(loaded_models[:1])) as server:
            with socket.create_connection(address(server)) as raw:
                raw.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nq")
            wait_until(lambda: 'status="499"' in server.get("/metrics").text)
        assert 'status="500"' not in caplog.text
        assert not any(record.exc_info for record in caplog.records)


class TestNothingLeaks:
    """Details of failures are in the log, not in responses."""

    @pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
    def test_a_failure_has_no_traceback(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture, path: str
    ) -> None:
        model = UppercaseModel(loaded_models[0])
        model.failure = RuntimeError("secret detail in /home/user/model.bin")
        with caplog.at_level(logging.ERROR, "regard"), run_server(Service([model])) as server:
            response = server.post(path, BODY if path == "/translate" else {"text": "w4"})
            assert server.get("/health").is_success
        assert response.status_code == 500
        start = "Cannot translate text: internal" if path == "/translate" else "Internal"
        message = response.json()["error"]
        assert message == f"{start} error; the server's log has the details under {response.headers['x-request-id']}."
        assert not any(part in response.text for part in ("secret", "Traceback", "File", "home", "RuntimeError"))
        number = message.split()[-1].rstrip(".")
        assert number in caplog.text
        assert "secret detail" in caplog.text

    def test_a_failure_in_a_stream_is_its_last_event(
        self, loaded_models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: object, options: object, results: list[Generation], *__: object) -> Iterator[TextChunk]:
            results.append(Generation("w4", 0))
            yield TextChunk(0, "w9")
            raise RuntimeError("secret")

        monkeypatch.setattr(loaded_models[2], "generate", fail)
        with run_server(Service(loaded_models[2:])) as server:
            response = server.post("/v1/completions", {"model": "writer", "prompt": "w4", "stream": True})
        assert "w9" in response.text
        request_id = response.headers["x-request-id"]
        assert f"Internal error; the server's log has the details under {request_id}." in response.text
        assert f"the stream of request {request_id} failed" in caplog.text
        assert "secret" not in response.text
        assert "secret" in caplog.text
        assert "[DONE]" not in response.text

    def test_the_log_has_a_line_per_request_without_its_texts(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "regard.serving"), run_server(Service(loaded_models[:1])) as server:
            server.post("/translate", BODY, params={"q": "secret"})
            server.get("/no%0Asuch")
        lines = [record.getMessage() for record in caplog.records if record.name.startswith("regard.serving")]
        assert len(lines) == 2
        assert re.fullmatch(r"127\.0\.0\.1 POST /translate 200, \d+ ms, request [0-9a-f]{16}", lines[0])
        assert re.fullmatch(r"127\.0\.0\.1 GET /no%0Asuch 404, \d+ ms, request [0-9a-f]{16}", lines[1])
        assert all(record.levelno == logging.INFO for record in caplog.records)

    def test_head_requests_get_headers_only(self, server: RunningServer) -> None:
        for path in ("/health", "/languages", "/docs", "/", "/metrics"):
            head, get = server.client.head(path), server.get(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-type"] == get.headers["content-type"]
        assert server.client.head("/translate").status_code == 405
        assert server.client.head("/none").status_code == 404

    def test_every_route_answers_head_requests(self, server: RunningServer) -> None:
        """As GET, without a body; routes without GET answer 405, and no connection hangs."""
        for path, operations in server.get("/openapi.json").json()["paths"].items():
            head = server.client.head(path)
            assert head.content == b""
            assert (head.status_code != 405) == ("get" in operations), path
            if head.status_code == 405:
                assert head.headers["allow"] == "POST"

    @pytest.mark.parametrize("path", ["/", "/health", "/openapi.json", "/main.js", "/translate", "/nowhere"])
    def test_a_connection_continues_after_a_head_request(self, server: RunningServer, path: str) -> None:
        head = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        with socket.create_connection(address(server)) as raw:
            raw.settimeout(TEST_TIMEOUT)
            for request in (head, head, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
                raw.sendall(request)
                with closing(HTTPResponse(raw, method="HEAD" if request is head else "GET")) as response:
                    response.begin()
                    assert response.getheader("content-length")
                    body = response.read()
            assert (response.status, json.loads(body)) == (200, {"status": "ok"})
            assert raw.recv(1) == b""  # closed, as requested

    def test_the_log_has_the_method_of_head_requests(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "regard.serving"), run_server(Service(loaded_models[:1])) as server:
            server.client.head("/health")
        assert " HEAD /health 200, " in caplog.messages[0]

    def test_unknown_routes_get_json(self, server: RunningServer) -> None:
        response = server.get("/../../etc/passwd")
        assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
        assert response.json() == {"error": "There is no route /etc/passwd; see /docs."}
        response = server.get("/v1/translate")
        message = "GET is not allowed for /v1/translate; see /docs."
        assert (response.status_code, response.json()) == (405, {"error": message})
        assert response.headers["allow"] == "POST"

    def test_every_response_has_security_headers(self, server: RunningServer, locked: RunningServer) -> None:
        responses = [server.get("/health"), server.get("/none"), locked.post("/v1/translate", {}), server.get("/docs")]
        for response in responses:
            assert response.headers["content-security-policy"].startswith("default-src 'none'")
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "server" not in response.headers


class TestPages:
    """HTML pages load nothing from other servers."""

    def test_the_documentation_loads_nothing(self, server: RunningServer) -> None:
        page = server.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert not any(part in page.text for part in ("http://", "https://", "src=", "<link", "<script", "@import"))
        for path in ("/translate", "/v1/translate", "/v1/completions", "/metrics"):
            assert path in page.text
        for field in ("n_best", "length_penalty", "alternatives", "temperature", "interventions"):
            assert field in page.text

    def test_the_policy_allows_only_the_own_style(self, server: RunningServer) -> None:
        page = server.get("/docs")
        style = page.text.partition("<style>")[2].partition("</style>")[0]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.headers["content-security-policy"]

    def test_without_a_page_the_root_leads_to_the_documentation(
        self, loaded_models: list[LoadedModel], tmp_path: Path
    ) -> None:
        client = TestClient(build_app(Service(loaded_models[:1]), tmp_path), base_url="http://localhost")
        assert client.get("/", follow_redirects=False).headers["location"] == "/docs"

    def test_the_files_of_a_page_are_served_at_the_root(self, loaded_models: list[LoadedModel], tmp_path: Path) -> None:
        (tmp_path / "index.html").write_text("<h1>Hello</h1>")
        client = TestClient(build_app(Service(loaded_models[:1]), tmp_path), base_url="http://localhost")
        response = client.get("/")
        assert response.text == "<h1>Hello</h1>"
        assert "script-src 'self'" in response.headers["content-security-policy"]
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/%2e%2e/secret").status_code == 404

    def test_large_responses_are_compressed_where_the_client_accepts_it(self, server: RunningServer) -> None:
        with server.client.stream("GET", "/openapi.json", headers={"accept-encoding": "gzip"}) as response:
            assert response.headers["content-encoding"] == "gzip"
            document = json.loads(gzip.decompress(b"".join(response.iter_raw())))
        plain = server.get("/openapi.json", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.json() == document
        assert "content-encoding" not in server.get("/health").headers


def test_an_origin_that_only_begins_like_the_host_is_another_site() -> None:
    assert _is_same_origin("http://127.0.0.1:8000", "127.0.0.1:8000")
    assert _is_same_origin("http://LOCALHOST:8000", "localhost:8000")
    for origin in ("http://127.0.0.1:80", "http://127.0.0.1:8000.evil.example", "http://localhost", "null", ""):
        assert not _is_same_origin(origin, "127.0.0.1:8000")


def test_a_page_whose_origin_begins_with_the_host_is_rejected(server: RunningServer) -> None:
    for origin in (f"{server.url}.evil.example", server.url[:-1], f"{server.url}0"):
        assert server.post("/translate", BODY, headers={"origin": origin}).status_code == 403


@pytest.mark.parametrize("length", [1, 15, 16, 17])
def test_keys_need_sixteen_characters(length: int) -> None:
    if length >= 16:
        assert read_api_key(None, "k" * length) == b"k" * length
    else:
        with pytest.raises(ConfigError, match=f"a key of {length} characters is easily guessed; use 16 or more"):
            read_api_key(None, "k" * length)


class TestAbortedResponses:
    """Connections that end early leave one line in the log, and no traceback."""

    @pytest.mark.parametrize(
        "error",
        [
            RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),
            ConnectionResetError("Connection lost"),
        ],
    )
    @pytest.mark.parametrize("fails_at", ["http.response.start", "http.response.body"])
    def test_writing_to_a_closed_transport(
        self, error: Exception, fails_at: str, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        async def send(message: Message) -> None:
            if message["type"] == fails_at:
                raise error

        with caplog.at_level(logging.INFO, "regard.serving"):
            _call_app(Service(loaded_models[:1]), "/languages", send)
        assert len(caplog.records) == 1
        assert re.fullmatch(
            r"127\.0\.0\.1 GET /languages 499, \d+ ms \(the client closed its connection\), request [0-9a-f]{16}",
            caplog.messages[0],
        )
        assert not caplog.records[0].exc_info

    def test_other_errors_of_the_server_are_failures(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                raise RuntimeError("Unexpected ASGI message")

        _call_app(Service(loaded_models[:1]), "/languages", send)
        assert "Unexpected ASGI message" in caplog.text

    def test_an_error_after_the_response_has_started_closes_the_connection(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail_late(scope: Scope, receive: Receive, send: Send) -> None:
            headers = [(b"content-length", b"100")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise ApiError(504, "The request timed out.")

        service = Service(loaded_models[:1])
        app = AccessMiddleware(fail_late, service.access, service.metrics)
        bound, server = bind_socket("127.0.0.1", 0), build_server(service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        with caplog.at_level(logging.INFO):
            server.config.app = app
            server.config.lifespan = "off"
            thread.start()
            wait_until(lambda: server.started)
            with socket.create_connection(bound.getsockname()) as raw:
                raw.settimeout(TEST_TIMEOUT)
                raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                received = b""
                while part := raw.recv(1000):
                    received += part
            server.should_exit = True
            thread.join(TEST_TIMEOUT)
        assert received.endswith(b"half")
        (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert re.fullmatch(
            r"127\.0\.0\.1 GET / 200, \d+ ms \(The request timed out\.\), request [0-9a-f]{16}", message
        )
        assert not any(record.exc_info for record in caplog.records)

    def test_pipelined_requests_of_a_client_that_resets(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        reset = struct.pack("ii", 1, 0)  # close with RST
        with caplog.at_level(logging.INFO), run_server(Service(loaded_models[:1])) as server:
            for round in range(10):
                with socket.create_connection(address(server)) as raw:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                    raw.sendall(b"GET /main.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
                    time.sleep(0.001 * round)
            assert server.get("/health").is_success
        assert not any(record.exc_info for record in caplog.records)
        assert not any(record.levelno >= logging.ERROR for record in caplog.records)
