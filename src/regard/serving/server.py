"""The server process: socket, uvicorn, limits on request heads, and shutdown."""

import asyncio
import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.errors import ConfigError, RegardError, ServerError
from regard.serving.app import build_app
from regard.serving.limits import Limits
from regard.serving.service import Service

BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 30  # that a connection may be idle
MAX_HEAD_SECONDS = 20.0  # until the head of a request is complete
MAX_HEAD_BYTES = 65_536
INTERRUPTED_EXIT_CODE = 130
EXIT_SECONDS = 5.0  # for threads to end, after running requests have been aborted
LOST_REQUESTS = b"regard: stopped; unfinished requests are lost.\n"
log = logging.getLogger(__name__)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; port 0 is any free port."""
    if not 0 <= port <= 65535:  # the system would take the port modulo 65536
        raise ConfigError(f"there is no port {port}; choose one from 0 to 65535 with --port.")
    bound: socket.socket | None = None
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise _bind_error(host, port, error) from None
    return bound


def _bind_error(host: str, port: int, error: OSError) -> RegardError:
    if error.errno == errno.EADDRINUSE:
        return ServerError(f"port {port} of {host} is in use; choose another one with --port, or 0 for any.")
    if error.errno == errno.EACCES:
        return ServerError(f"port {port} of {host} needs more privileges; choose one above 1023 with --port.")
    return ConfigError(f"--host {host}: is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all of them.")


def socket_url(bound: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(service: Service, bound: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Load the models, report the URL, and serve until a signal; accepted requests are finished first."""
    try:
        for model in service.models:
            model.warm_up()
    except BaseException:
        bound.close()
        raise
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises it again at the end
    server = build_server(service)
    gc.collect()
    gc.freeze()  # models and modules stay: collecting them again and again would delay requests
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as set by nohup
        signal.signal(signal.SIGHUP, lambda number, frame: reload_in_background(service))
    bound.listen(BACKLOG)  # clients may connect as soon as the URL is printed
    on_ready(socket_url(bound))
    try:
        server.run(sockets=[bound])
    except KeyboardInterrupt:
        return


def reload_in_background(service: Service) -> threading.Thread:
    """Load the models of a service again in a thread; requests are processed meanwhile."""

    def reload() -> None:
        gc.unfreeze()  # so that the old models can be collected
        service.reload()
        gc.collect()
        gc.freeze()

    thread = threading.Thread(target=reload, name="reload", daemon=True)
    thread.start()
    return thread


def build_server(service: Service) -> uvicorn.Server:
    """Return a server that is ready to run."""
    config = uvicorn.Config(
        build_app(service),
        http=LimitedHttpProtocol,
        log_level="error",  # invalid HTTP from clients is not worth a warning
        access_log=False,
        server_header=False,
        proxy_headers=bool(service.access.trusted_proxies),
        forwarded_allow_ips=list(service.access.trusted_proxies),
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds_of(service.limits),  # type: ignore[arg-type]  # any number works
    )
    logging.getLogger("uvicorn.error").addFilter(_is_new_to_log)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # invalid forms get 400
    return Server(config, service)


def drain_seconds_of(limits: Limits) -> float:
    """Return the seconds that running requests get when the server shuts down."""
    # every accepted request has a timeout; after it, there is nothing left to wait for
    return limits.timeout + 1 if limits.drain_seconds is None else limits.drain_seconds


def _is_new_to_log(record: logging.LogRecord) -> bool:
    """Drop uvicorn's lines about aborted responses: `AccessMiddleware` logs each request with the reason."""
    return not str(record.msg).startswith(("ASGI callable returned without completing", "Cancel %s running task(s)"))


def _exit_at_limit() -> None:
    """Exit although threads still run: a batch that never ends must not keep the process alive."""
    log.warning("exiting; a batch was still running")
    os._exit(0)


class Server(uvicorn.Server):
    """Server that drains at the first signal: it accepts no connections and finishes running requests.

    After the time to drain, requests that still run get 503. A second Ctrl-C exits at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if sig == signal.SIGINT and multiprocessing.parent_process() is not None:
            return  # Ctrl-C reaches all processes of a terminal; the supervisor stops its workers
        if self.should_exit and sig == signal.SIGINT:
            os.write(2, LOST_REQUESTS)
            os._exit(INTERRUPTED_EXIT_CODE)  # running threads would keep the interpreter alive
        if not self.should_exit:
            self._service.is_draining = True
            limit = threading.Timer(drain_seconds_of(self._service.limits) + EXIT_SECONDS, _exit_at_limit)
            limit.daemon = True
            limit.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does; the server is no longer ready."""
        self._service.is_draining = True
        await super().shutdown(sockets)


class LimitedHttpProtocol(HttpToolsProtocol):
    """Connection that is closed if the head of a request is too large or takes too long.

    Bodies are limited by `limits.BodyLimitMiddleware`.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0  # since the head began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head."""
        self._head_bytes += len(data)
        super().data_received(data)
        is_too_large = self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES
        if is_too_large and not self.transport.is_closing():
            self._stop_head_timer()
            self.send_400_response(f"The head of a request may have at most {MAX_HEAD_BYTES:,} bytes.")

    def on_message_begin(self) -> None:
        """Start a new head, which may follow another request in the same bytes."""
        super().on_message_begin()
        self._head_bytes = 0
        self._start_head_timer()

    def on_headers_complete(self) -> None:
        """Stop the timer: the head is complete."""
        self._stop_head_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer: the client has disconnected."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(MAX_HEAD_SECONDS, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # the previous request is still processed
            self._start_head_timer()
        else:
            self.transport.close()
