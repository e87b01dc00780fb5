"""Access control: allowed host names, origins and the API key, and the middleware around every request."""

import asyncio
import hmac
import logging
import os
import re
import socket
import time
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import ConfigError, DataError
from regard.html import visible
from regard.serving.errors import CLIENT_CLOSED_STATUS, JSON_TYPE, ApiError, shutdown_error
from regard.serving.metrics import Metrics

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
MIN_KEY_LENGTH = 16
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
POLICY_HEADER = (b"content-security-policy", CONTENT_SECURITY_POLICY)
_REQUEST_ID = re.compile(rb"[\w.:/+=@-]{1,128}", re.ASCII)  # safe in headers, logs and file names of tickets
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d*)?")  # a name or an address, and a port
RawHeaders = list[tuple[bytes, bytes]]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AccessPolicy:
    """Conditions that a request must meet."""

    key: bytes | None = None
    """API key that clients must send; None allows every client that reaches the server."""
    hosts: frozenset[str] = LOOPBACK_NAMES
    """Host names of the server; IP addresses are always allowed."""
    origins: frozenset[str] = frozenset()
    """Origins of other sites' pages that may send requests, as `https://example.org`; `*` allows all."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` header names the client."""

    def accepts_key(self, key: str | bytes | None) -> bool:
        """Return whether a client's key is right, compared in constant time; a server without a key accepts all."""
        if self.key is None:
            return True
        if key is None:
            return False
        return hmac.compare_digest(key.encode("utf-8", "replace") if isinstance(key, str) else key, self.key)

    def allows_host(self, host: str) -> bool:
        """Return whether a Host header names this server.

        A page of another site can make its own name resolve to this machine (DNS rebinding), but it cannot send a
        different name. A request with an address, or with a known name, is therefore meant for this server.

        >>> policy = AccessPolicy()
        >>> policy.allows_host("127.0.0.1:8000"), policy.allows_host("[::1]"), policy.allows_host("evil.example:8000")
        (True, True, False)
        """
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        return name in self.hosts or _is_address(name.removeprefix("[").removesuffix("]"))

    def allows_origin(self, origin: str) -> bool:
        """Return whether a page of another site may send requests."""
        return "*" in self.origins or origin in self.origins


def resolve_access(
    host: str,
    *,
    key: bytes | None,
    no_auth: bool = False,
    names: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    proxies: tuple[str, ...] = (),
) -> AccessPolicy:
    """Return the policy of a server at an address; one that other machines reach needs a key or `no_auth`."""
    if key is None and not no_auth and not is_loopback(host):
        raise ConfigError(
            f"--host {host}: other machines can reach this address; set --api-key-file or REGARD_API_KEY, "
            "or pass --no-auth."
        )
    for origin in origins:
        if origin != "*" and ("://" not in origin or origin.count("/") != 2):
            raise ConfigError(f"--cors {origin}: should be an origin such as https://example.org, or *.")
    for proxy in proxies:
        if not _is_network(proxy):
            raise ConfigError(f"--trusted-proxy {proxy}: should be an IP address or a network such as 10.0.0.0/8.")
    hosts = {host.lower(), *(name.lower() for name in names)}
    if not is_loopback(host):
        hosts.add(socket.gethostname().lower())  # not the full name: looking it up can take long
    return AccessPolicy(key, LOOPBACK_NAMES | hosts, frozenset(origins), proxies)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


@lru_cache(64)  # most clients send the same name with every request
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_api_key(path: Path | None, environment_value: str | None) -> bytes | None:
    """Return the API key in a file, else the one of the environment variable."""
    location, key = "REGARD_API_KEY", environment_value
    if path is not None:
        location = str(path)
        try:
            key = path.read_text("utf-8-sig")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); pass the path of a file with a key.") from None
        except UnicodeDecodeError:
            raise DataError(f"{path}: is not UTF-8 text; pass the path of a file with a key.") from None
    if key is None:
        return None
    key = key.strip()
    if not key:
        raise ConfigError(f"{location}: has no key; add one of {MIN_KEY_LENGTH} characters or more.")
    if not key.isprintable():
        raise ConfigError(f"{location}: a key is one line of printable characters; remove the others.")
    if len(key) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"{location}: a key of {len(key)} characters is easily guessed; use {MIN_KEY_LENGTH} or more."
        )
    return key.encode()


bearer_scheme = HTTPBearer(auto_error=False, description="API key of the server, where it has one.")


async def require_api_key(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)]
) -> None:
    """Dependency of routes that need the API key in the Authorization header."""
    check_api_key(request.app.state.service.access, None if credentials is None else credentials.credentials)


def check_request_key(policy: AccessPolicy, request: Request) -> None:
    """Raise an error unless the Authorization header of a request has the API key, where the server has one."""
    if policy.key is not None:
        check_api_key(policy, bearer_credentials(request))


def bearer_credentials(request: Request) -> str | None:
    """Return the bearer credentials of the Authorization header."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    return credentials if scheme.lower() == "bearer" else None


def check_api_key(policy: AccessPolicy, credentials: str | None) -> None:
    """Raise an error unless the credentials of the Authorization header are the API key."""
    key = None if credentials is None else credentials.strip().encode("latin-1")
    if policy.accepts_key(key):
        return
    message = (
        "This server requires an API key; send it as Authorization: Bearer KEY."
        if key is None
        else "The API key is wrong; ask the server's operator for the right one."
    )
    raise ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


class AccessMiddleware:
    """ASGI middleware around every request: host and origin check, request id, headers, metrics, log, failures."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy, metrics: Metrics) -> None:
        self._app = app
        self._policy = policy
        self._metrics = metrics
        self._allows_host = lru_cache(64)(policy.allows_host)  # most clients send the same name with every request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        method = scope["method"]
        headers = _RequestHeaders(scope["headers"])
        scope["request_id"] = headers.request_id
        response = _Response(send, self._policy, headers, headers_only=method == "HEAD")
        if response.headers_only:
            scope = {**scope, "method": "GET"}  # a copy: uvicorn needs the original method
        failed = False
        try:
            is_preflight = self._check(scope["method"], headers.host, headers.origin)
            if is_preflight:
                await response.allow(headers.requested_headers)
            else:
                await self._app(scope, receive, response.send)
        except ApiError as error:
            await response.send_error(error, scope["path"])
        except asyncio.CancelledError:  # the time to drain has passed; uvicorn cancels for no other reason
            await response.send_error(shutdown_error(), scope["path"])
        except Exception:
            failed = True
            log.exception("request %s failed", headers.request_id, extra={"fields": {"request_id": headers.request_id}})
            await response.send_error(ApiError(500, _failure_message(scope, headers.request_id)), scope["path"])
        route, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - start
        self._metrics.count_request(route, response.status, seconds)
        if not failed:
            _log_request(scope, method, response, seconds)

    def _check(self, method: str, host: str, origin: str) -> bool:
        """Raise an error for a request that is not allowed; return whether it is a CORS preflight request."""
        if not self._allows_host(host):
            raise ApiError(
                421, "The Host header does not name this server; use its address, or start it with --allow-host."
            )
        is_foreign = bool(origin) and not _is_same_origin(origin, host)
        if is_foreign and method not in ("GET", "HEAD") and not self._policy.allows_origin(origin):
            raise ApiError(
                403, "Pages of other sites may not use this server; start it with --cors ORIGIN to allow one."
            )
        return is_foreign and method == "OPTIONS"


class _RequestHeaders:
    """Headers of a request that every request is checked for, read in one pass."""

    __slots__ = ("host", "origin", "request_id", "requested_headers")

    def __init__(self, headers: RawHeaders) -> None:
        self.host = self.origin = self.request_id = ""
        self.requested_headers = b""
        for name, value in headers:
            if name == b"host":
                self.host = value.decode("latin-1") if not self.host else ","  # two Host headers name no server
            elif name == b"origin":
                self.origin = value.decode("latin-1")
            elif name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                self.request_id = value.decode("ascii")
            elif name == b"access-control-request-headers":
                self.requested_headers = value
        if not self.request_id:
            self.request_id = os.urandom(8).hex()


class _Response:
    """Response of one request as it is sent, with the headers that every response has."""

    def __init__(self, send: Send, policy: AccessPolicy, request: _RequestHeaders, *, headers_only: bool) -> None:
        self._send = send
        self._policy = policy
        self.request = request
        self.headers_only = headers_only
        self.status = 0
        self.aborted = ""
        """Why the response ended before it was complete."""

    async def send(self, message: Message) -> None:
        """Send a message of the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], *SECURITY_HEADERS, (b"x-request-id", self.request.request_id.encode())]
            if POLICY_HEADER[0] not in [name for name, _ in message["headers"]]:
                headers.append(POLICY_HEADER)
            if self.request.origin:
                headers += self._cors_headers()
            message["headers"] = headers
        elif self.headers_only:
            message = {**message, "body": b""}
        if self.status == CLIENT_CLOSED_STATUS:
            return
        try:
            await self._send(message)
        except (OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "closed" not in str(error):
                raise
            self.status, self.aborted = CLIENT_CLOSED_STATUS, "the client closed its connection"

    async def send_error(self, error: ApiError, path: str) -> None:
        """Send an error; a response that has started can only be aborted: the server closes its connection."""
        if self.status:
            self.aborted = self.aborted or error.message
            return
        headers = [(name.encode(), value.encode()) for name, value in (error.headers or {}).items()]
        await self._send_all(error.status_code, [(b"content-type", JSON_TYPE.encode()), *headers], error.body(path))

    async def allow(self, requested_headers: bytes) -> None:
        """Answer a CORS preflight request: GET and POST with the requested headers, which differ between clients."""
        headers = [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", requested_headers or b"Authorization, Content-Type"),
            (b"access-control-max-age", b"600"),
        ]
        await self._send_all(204, headers, None)

    async def _send_all(self, status: int, headers: RawHeaders, body: bytes | None) -> None:
        length = [] if body is None else [(b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
        await self.send({"type": "http.response.body", "body": body or b""})

    def _cors_headers(self) -> RawHeaders:
        origin = self.request.origin
        if not self._policy.allows_origin(origin):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"X-Request-ID"),
            (b"vary", b"Origin"),
        ]


def _log_request(scope: Scope, method: str, response: _Response, seconds: float) -> None:
    """Log a request without its texts: overload and failures as warnings, all others as info."""
    status = response.status
    is_failure = status == 429 or status >= 500 or (response.aborted and status != CLIENT_CLOSED_STATUS)
    level = logging.WARNING if is_failure else logging.INFO
    if log.isEnabledFor(level):
        client, path = (scope.get("client") or ("-",))[0], visible(scope.get("raw_path", b"").decode("latin-1")[:100])
        fields = {"client": client, "method": method, "path": path, "status": status}
        aborted, request_id = f" ({response.aborted})" if response.aborted else "", response.request.request_id
        text = "%s %s %s %d, %.0f ms%s, request %s"
        extra = fields | {"seconds": round(seconds, 4), "request_id": request_id}
        if response.aborted:
            extra["aborted"] = response.aborted
        log.log(level, text, *fields.values(), 1000 * seconds, aborted, request_id, extra={"fields": extra})


def _is_same_origin(origin: str, host: str) -> bool:
    """Return whether the page that sends a request was served by this server."""
    return origin.partition("://")[2].lower() == host.lower()


def _failure_message(scope: Scope, request_id: str) -> str:
    """Return the message of an internal error, with the prefix of its route if that has one."""
    text = f"internal error; the server's log has the details under {request_id}."
    prefix = getattr(scope.get("route"), "failure_prefix", "")
    return f"{prefix}{text}" if prefix else text.capitalize()
