"""The process that listens: it takes its port first, loads the models, then answers until it is told to stop."""

import asyncio
import errno
import gc
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.errors import ServerError
from regard.serving.app import build_app
from regard.serving.service import Service

BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE = 30  # seconds that a connection may say nothing
INTERRUPTED = 130  # the exit code


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 is any that is free."""
    if not 0 <= port <= 65535:  # else the system would take what is left of it modulo 65536
        raise ServerError(f"there is no port {port}; choose one from 0 to 65535 with --port.")
    taken: socket.socket | None = None
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        taken = socket.socket(family, kind)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        if taken is not None:
            taken.close()
        raise ServerError(_why(host, port, error)) from None
    return taken


def socket_url(taken: socket.socket) -> str:
    """The address of a socket, as a browser wants it."""
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Told to stop, it finishes what it accepted; told again, it ends at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        if self.should_exit and sig == signal.SIGINT:
            os.write(2, b"regard: stopped; what was not finished is lost.\n")
            os._exit(INTERRUPTED)  # threads that still work would keep the interpreter waiting
        super().handle_exit(sig, frame)


def build_server(service: Service) -> uvicorn.Server:
    """A server that is ready to run."""
    config = uvicorn.Config(
        build_app(service),
        http=LimitedHttpProtocol,
        log_level="error",  # that somebody sent nonsense is no news
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        # every accepted request has its deadline; once that has passed, there is nothing left to wait for
        timeout_graceful_shutdown=round(service.limits.deadline) + 1,
    )
    return Server(config)


def serve(service: Service, taken: socket.socket, ready: Callable[[str], None]) -> None:
    """Load the models, say where they are, and answer until a signal; what was accepted is finished first."""
    for model in service.models:
        model.warm_up()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises it again when all is done
    server = build_server(service)
    gc.collect()
    gc.freeze()  # what is here stays: to look through it for garbage again and again would keep requests waiting
    taken.listen(BACKLOG)  # whoever reads the line may come at once
    ready(socket_url(taken))
    try:
        server.run(sockets=[taken])
    except KeyboardInterrupt:
        return


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; choose another with --port, or 0 for any."
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be used by you; choose one above 1023 with --port."
    return f"--host {host}: is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all of them."


MAX_HEAD_SECONDS = 20.0  # until the head of a request has come
MAX_HEAD_BYTES = 65_536  # of it


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closed if a request's head does not come to its end."""

    _waits: asyncio.TimerHandle | None = None
    _read = 0  # bytes since the head began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Someone has come, and should say something."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        self._read += len(data)
        super().data_received(data)
        if self._waits is not None and self._read > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._forget_head()
            self.send_400_response(f"The head of a request has at most {MAX_HEAD_BYTES:,} bytes.")

    def on_message_begin(self) -> None:
        """A head begins, perhaps behind another request in the same bytes."""
        super().on_message_begin()
        self._read = 0
        self._expect_head()

    def on_headers_complete(self) -> None:
        """It has come to its end."""
        self._forget_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._forget_head()
        self._waits = self.loop.call_later(MAX_HEAD_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # the request before it comes first
            self._expect_head()
        else:
            self.transport.close()
