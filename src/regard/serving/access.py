"""Who may ask: which names of this machine are good, which keys, and which other pages."""

import hmac
import logging
import re
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import ConfigError, DataError, InputError
from regard.serving.errors import ApiError, is_openai_path
from regard.serving.metrics import Metrics
from regard.serving.streaming import ClientDisconnectedError

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
SHORTEST = 16  # characters of a key
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d*)?")  # a name or an address, and a port


@dataclass(frozen=True)
class AccessPolicy:
    """The conditions under which a request is heard."""

    key: bytes | None = None
    """What a client must know; without it, whoever can reach the server may ask."""
    hosts: frozenset[str] = LOOPBACK_NAMES
    """Names under which the server may be addressed; addresses are always good."""
    origins: frozenset[str] = frozenset()
    """Pages from elsewhere that may ask, as `https://example.org`; `*` is all of them."""

    def knows(self, key: str | None) -> bool:
        """Whether a client has the key, compared in constant time; without a key, everyone does."""
        return self.key is None or (key is not None and hmac.compare_digest(key.encode("utf-8", "replace"), self.key))

    def addresses(self, host: str) -> bool:
        """Whether a Host header means this server.

        A page from elsewhere can let its own name lead to this machine (DNS rebinding), but it cannot take another
        name: who uses an address, or a name that the server knows, means the server.

        >>> Access().addresses("127.0.0.1:8000"), Access().addresses("[::1]"), Access().addresses("evil.example:8000")
        (True, True, False)
        """
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        return name in self.hosts or _is_address(name.removeprefix("[").removesuffix("]"))

    def allows(self, origin: str) -> bool:
        """Whether a page from elsewhere may ask."""
        return "*" in self.origins or origin in self.origins


def resolve_access(
    host: str,
    *,
    key: bytes | None,
    open_to_all: bool = False,
    names: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
) -> AccessPolicy:
    """What applies to a server at an address: beyond this machine, a key, or that everyone was said to be welcome."""
    if key is None and not open_to_all and not is_loopback(host):
        raise ConfigError(
            f"--host {host}: others can reach this address; give --api-key-file or REGARD_API_KEY, or say --no-auth."
        )
    for origin in origins:
        if origin != "*" and ("://" not in origin or origin.count("/") != 2):
            raise ConfigError(f"--cors {origin}: should be a page's origin such as https://example.org, or *.")
    known = {host.lower(), *(name.lower() for name in names)}
    if not is_loopback(host):
        known.add(socket.gethostname().lower())  # no more: whoever asks for its full name may wait for long
    return AccessPolicy(key, LOOPBACK_NAMES | known, frozenset(origins))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES


@lru_cache(64)  # most clients go on under the name that they began with
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_api_key(path: Path | None, given: str | None) -> bytes | None:
    """The key in a file, else the one in the environment."""
    where, key = "REGARD_API_KEY", given
    if path is not None:
        where = str(path)
        try:
            key = path.read_text("utf-8-sig")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); give the path of a file with a key.") from None
        except UnicodeDecodeError:
            raise DataError(f"{path}: is not UTF-8 text; give the path of a file with a key.") from None
    if key is None:
        return None
    key = key.strip()
    if not key:
        raise ConfigError(f"{where}: holds no key; put one of {SHORTEST} characters or more there.")
    if not key.isprintable():
        raise ConfigError(f"{where}: a key is one line of characters that can be typed; take out the others.")
    if len(key) < SHORTEST:
        raise ConfigError(f"{where}: a key of {len(key)} characters is easily guessed; take {SHORTEST} or more.")
    return key.encode()


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


class AccessMiddleware:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, access: AccessPolicy, metrics: Metrics) -> None:
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
        except ClientDisconnectedError:
            answer.status = LEFT
        except ApiError as refusal:
            await answer.refuse(scope["path"], refusal)
        except (ConfigError, InputError) as error:  # a wish that cannot be granted; its sentence says why
            await answer.refuse(scope["path"], ApiError(400, str(error)))
        except Exception:
            number = secrets.token_hex(4)
            log.exception("request %s failed", number)
            told = True
            await answer.refuse(scope["path"], ApiError(500, _failure(scope["path"], number)))
        route, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - began
        self._metrics.requests.add(route=route, status=str(answer.status))
        self._metrics.seconds.add(seconds, route=route)
        if not told:
            _note(scope, answer.status, seconds)

    def _check(self, scope: Scope, given: "_Given") -> bool:
        """Whether a request goes on to its route; else it only asked whether it may."""
        access, path, method = self._access, scope["path"], scope["method"]
        if not access.addresses(given.host):
            raise ApiError(421, "This server does not go by that name; use its address, or start it with --allow-host.")
        foreign = bool(given.origin) and not _same(given.origin, given.host)
        if foreign and method not in ("GET", "HEAD") and not access.allows(given.origin):
            raise ApiError(403, "Other pages may not ask this server; start it with --cors ORIGIN to allow it.")
        if foreign and method == "OPTIONS":
            return False
        if path.startswith(KEYED) and not access.knows(given.key):
            sentence = ASKS_FOR_KEY if given.key is None else OTHER_KEY
            raise ApiError(401, sentence, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
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

    def __init__(self, send: Send, access: AccessPolicy, *, bare: bool = False) -> None:
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

    async def refuse(self, path: str, refusal: ApiError) -> None:
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
    return f"Cannot translate text: {told}" if not is_openai_path(path) and path == "/translate" else told.capitalize()
