"""What stands before every route: it lets in who may ask, counts, and lets out only what is meant for clients."""

import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import ConfigError, InputError
from regard.serving.access import Access
from regard.serving.metrics import Metrics
from regard.serving.refusal import Refusal, is_openai
from regard.serving.waiting import ClientLeft

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
KEYED = ("/v1/", "/metrics")  # `/translate` and `/detect` check by themselves: their clients put the key into the body
LEFT = 499  # what is counted for a client that left; nobody reads it
ASKS_FOR_KEY = "This server asks for an API key; send it as Authorization: Bearer KEY."
OTHER_KEY = "The API key is not this server's; ask who runs it for the right one."
log = logging.getLogger(__name__)


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self._app = app
        self._access = access
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(send, self._access, bare=scope["method"] == "HEAD")
        if answer.bare:
            scope = {**scope, "method": "GET"}  # a copy: the server has to remember what was asked
        told = False
        try:
            given = _Given(scope["headers"])
            answer.origin = given.origin
            if not self._check(scope, given):
                await answer.permit(given.announced)
            else:
                await self._app(scope, receive, answer.send)
        except ClientLeft:
            answer.status = LEFT
        except Refusal as refusal:
            await answer.refuse(scope["path"], refusal)
        except (ConfigError, InputError) as error:  # a wish that cannot be granted; its sentence says why
            await answer.refuse(scope["path"], Refusal(400, str(error)))
        except Exception:
            number = secrets.token_hex(4)
            log.exception("request %s failed", number)
            told = True
            await answer.refuse(scope["path"], Refusal(500, _failure(scope["path"], number)))
        route, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - began
        self._metrics.requests.add(route=route, status=str(answer.status))
        self._metrics.seconds.add(seconds, route=route)
        if not told:
            _note(scope, answer.status, seconds)

    def _check(self, scope: Scope, given: "_Given") -> bool:
        """Whether a request goes on to its route; else it only asked whether it may."""
        access, path, method = self._access, scope["path"], scope["method"]
        if not access.addresses(given.host):
            raise Refusal(421, "This server does not go by that name; use its address, or start it with --allow-host.")
        foreign = bool(given.origin) and not _same(given.origin, given.host)
        if foreign and method not in ("GET", "HEAD") and not access.allows(given.origin):
            raise Refusal(403, "Other pages may not ask this server; start it with --cors ORIGIN to allow it.")
        if foreign and method == "OPTIONS":
            return False
        if path.startswith(KEYED) and not access.knows(given.key):
            sentence = ASKS_FOR_KEY if given.key is None else OTHER_KEY
            raise Refusal(401, sentence, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
        return True


class _Given:
    """The headers that matter here."""

    __slots__ = ("announced", "host", "key", "origin")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.host = self.origin = ""
        self.announced = b""
        self.key: str | None = None
        for name, value in headers:
            if name == b"host":
                self.host = value.decode("latin-1") if not self.host else ","  # two names mean nobody
            elif name == b"origin":
                self.origin = value.decode("latin-1")
            elif name == b"authorization" and value[:7].lower() == b"bearer ":
                self.key = value[7:].strip().decode("utf-8", "replace")
            elif name == b"access-control-request-headers":
                self.announced = value


class _Answer:
    """The answer to one request, as it goes out."""

    def __init__(self, send: Send, access: Access, *, bare: bool = False) -> None:
        self._send = send
        self._access = access
        self.bare = bare
        """Whether only the headers were asked for."""
        self.origin = ""
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send on what a route sends, with headers of our own."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], *HEADERS, *self._cors()]
            if not any(name == b"content-security-policy" for name, _ in headers):
                headers.append((b"content-security-policy", POLICY))
            message["headers"] = headers
        elif self.bare:
            message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, path: str, refusal: Refusal) -> None:
        """Send a refusal; where the answer has begun already, it can only be broken off."""
        if self.status:
            raise ConnectionAbortedError("the answer had begun")
        body = refusal.body(path)
        headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
        await self._whole(refusal.status, [(b"content-type", b"application/json"), *headers], body)

    async def permit(self, announced: bytes) -> None:
        """Tell a page from elsewhere that it may ask, with the headers that it announced: clients have their own."""
        allowed = [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", announced or b"Authorization, Content-Type"),
            (b"access-control-max-age", b"600"),
        ]
        await self._whole(204, allowed, b"")

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        length: Any = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
        await self.send({"type": "http.response.body", "body": body})

    def _cors(self) -> list[tuple[bytes, bytes]]:
        if not self.origin or not self._access.allows(self.origin):
            return []
        return [(b"access-control-allow-origin", self.origin.encode("latin-1")), (b"vary", b"Origin")]


def _note(scope: Scope, status: int, seconds: float) -> None:
    """A line in the log: that the server had too much to do always, all else where it is asked for; never a text."""
    level = logging.WARNING if status == 429 or status >= 500 else logging.INFO
    if log.isEnabledFor(level):
        client, path = (scope.get("client") or ("-",))[0], scope.get("raw_path", b"").decode("latin-1")[:100]
        log.log(level, "%s %s %s %d, %.0f ms", client, scope["method"], path, status, 1000 * seconds)


def _same(origin: str, host: str) -> bool:
    """Whether a page that asks came from this very server."""
    return origin.partition("://")[2].lower() == host.lower()


def _failure(path: str, number: str) -> str:
    """What is said when something broke: LibreTranslate's words where its clients read them."""
    told = f"something failed here; the server's log has it under {number}."
    return f"Cannot translate text: {told}" if not is_openai(path) and path == "/translate" else told.capitalize()
