"""Several server processes behind one port, and the supervisor that starts, restarts and stops them.

The supervisor binds the port and forks the workers, each of which loads the models and accepts connections from the
same socket: the worker that accepts a connection first handles it, and one that ends loses no waiting connection. The
supervisor itself loads no model and has no threads, which makes forking safe.

    SIGTERM, SIGINT     workers finish their running requests and exit, then the supervisor does
    second SIGINT       all exit at once
    SIGHUP              every worker loads its models again

A worker that ends otherwise is replaced: at once, or after a growing delay if it did not last. Workers exit as on
SIGTERM when the supervisor is gone.
"""

import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NoReturn

from regard.errors import ConfigError, RegardError, ServerError
from regard.machine import available_cores, limited_cores

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

    from regard.serving.service import Service

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # environment variable that prometheus_client reads when it is imported
STABLE_SECONDS = 10.0  # that a worker lasts, so that its successor starts without a delay
MAX_DELAY_SECONDS = 30.0
KILL_SECONDS = 5.0  # that a worker may take to exit after its own limits
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
log = logging.getLogger(__name__)


@contextmanager
def prepared_workers(count: int, threads: int | None = None) -> Iterator[None]:
    """Prepare this process to start workers; call it before prometheus_client and torch are imported.

    Each worker gets its share of the cores, or `threads`. The metrics of all workers are in files of a temporary
    folder, so that each worker can return their sums.
    """
    if not hasattr(os, "fork"):
        raise ConfigError(f"--workers {count}: this system cannot fork processes; start one server per port.")
    share = max(1, available_cores() // count)
    with (
        limited_cores(threads or share, overrides=threads is not None),
        tempfile.TemporaryDirectory(prefix="regard-metrics-") as folder,
    ):
        os.environ[METRICS_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[METRICS_FOLDER]


class Worker:
    """Process of a server, and the supervisor's knowledge about it."""

    def __init__(self, number: int, process: "ForkProcess", connection: Connection) -> None:
        self.number = number
        self.process = process
        self.connection = connection
        """Receives the description of the models when the worker is ready, or the error that it cannot start with."""
        self.started = time.monotonic()
        self.is_ready = False
        self.error: RegardError | None = None

    def receive(self) -> str | None:
        """Receive what the worker has sent; return the description if it is ready."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):  # it has exited; its sentinel says so
            message = None
        self.connection.close()
        if isinstance(message, RegardError):
            self.error = message
        self.is_ready = isinstance(message, str)
        return message if self.is_ready else None

    @property
    def ending(self) -> str:
        """How the process has ended, for the log."""
        code = self.process.exitcode or 0
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


class Supervisor:
    """Starts `count` workers and keeps them running until a signal."""

    def __init__(
        self,
        make_service: "Callable[[], Service]",
        bound: socket.socket,
        count: int,
        *,
        drain_seconds: float,
        describe: "Callable[[Service], str]",
        on_ready: Callable[[str], None],
    ) -> None:
        self._make_service = make_service
        self._bound = bound
        self._count = count
        self._exit_seconds = drain_seconds + KILL_SECONDS
        self._describe = describe
        self._on_ready = on_ready
        self._workers: dict[int, Worker] = {}
        self._delays: dict[int, float] = {}  # of the next start of a worker, by its number
        self._due: dict[int, float] = {}  # when to start the next worker of a number
        self._has_started = False  # whether all workers have been ready
        self._stop_time: float | None = None  # when workers that still run are killed

    def run(self) -> None:
        """Run until all workers have exited after a signal; raise the error of a worker that cannot start."""
        gc.freeze()  # modules stay in memory that the workers share, and are not collected again and again
        with _signal_socket() as signals:
            self._due = dict.fromkeys(range(1, self._count + 1), 0.0)
            try:
                while self._workers or (self._due and self._stop_time is None):
                    self._start_due_workers()
                    self._wait(signals)
            finally:
                self._bound.close()
                for worker in self._workers.values():
                    worker.process.kill()
                    worker.process.join()

    def _start_due_workers(self) -> None:
        if self._stop_time is not None:
            return
        for number, due in list(self._due.items()):
            if due <= time.monotonic():
                del self._due[number]
                self._start(number)

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=self._run_worker, args=(sender,), name=f"worker-{number}")
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the worker has its own handlers
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        sender.close()
        self._workers[number] = Worker(number, process, receiver)

    def _wait(self, signals: socket.socket) -> None:
        """Wait for signals, messages of workers and the end of workers, and handle them."""
        by_sentinel = {worker.process.sentinel: worker for worker in self._workers.values()}
        by_connection = {worker.connection: worker for worker in self._workers.values() if not worker.connection.closed}
        times = [*self._due.values()] if self._stop_time is None else [self._stop_time]
        timeout = max(0.0, min(times) - time.monotonic()) if times else None
        events = wait([signals, *by_sentinel, *by_connection], timeout)
        for connection, worker in by_connection.items():
            if connection in events and (description := worker.receive()) is not None:
                log.info("worker %d (process %d) is ready", worker.number, worker.process.pid)
                self._count_ready(description)
        for sentinel, worker in by_sentinel.items():
            if sentinel in events:
                self._handle_end(worker)
        if signals in events:
            for number in signals.recv(100):
                self._handle_signal(number)
        if self._stop_time is not None and time.monotonic() >= self._stop_time:
            for worker in self._workers.values():
                worker.process.kill()

    def _count_ready(self, description: str) -> None:
        ready = sum(worker.is_ready for worker in self._workers.values())
        if not self._has_started and ready == self._count:
            self._has_started = True
            self._on_ready(description)

    def _handle_end(self, worker: Worker) -> None:
        worker.process.join()
        del self._workers[worker.number]
        _forget_metrics(worker.process.pid or 0)
        if not worker.connection.closed:
            worker.receive()
        if self._stop_time is not None:
            return
        if not self._has_started:
            raise worker.error or ServerError(
                f"worker {worker.number} {worker.ending} before it was ready; its last lines say why."
            )
        lasted = worker.is_ready and time.monotonic() - worker.started >= STABLE_SECONDS
        delay = 0.0 if lasted else self._delays.get(worker.number, 0.0)
        self._delays[worker.number] = min(MAX_DELAY_SECONDS, 2 * delay or 1.0)
        self._due[worker.number] = time.monotonic() + delay
        reason = f": {worker.error}" if worker.error is not None else ""
        log.error(
            "worker %d (process %d) %s%s; another one starts in %.0f s",
            worker.number,
            worker.process.pid,
            worker.ending,
            reason,
            delay,
        )

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._send(signal.SIGHUP)
        elif self._stop_time is None:
            self._stop_time = time.monotonic() + self._exit_seconds
            self._bound.close()  # workers close their own; then no connection is accepted
            self._send(signal.SIGTERM)
        elif number == signal.SIGINT:
            self._exit_at_once()

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid or 0, number)

    def _exit_at_once(self) -> NoReturn:
        from regard.serving.server import INTERRUPTED_EXIT_CODE, LOST_REQUESTS

        os.write(2, LOST_REQUESTS)
        sys.exit(INTERRUPTED_EXIT_CODE)  # `run` kills the workers

    def _run_worker(self, connection: Connection) -> None:
        """Run a server; the first lines undo what the supervisor has set up for itself."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        from regard.serving.server import serve

        try:
            service = self._make_service()
            serve(service, self._bound, lambda url: connection.send(self._describe(service)))
        except RegardError as error:
            connection.send(error)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:  # SIGTERM between loading and serving
            return


@contextmanager
def _signal_socket() -> Iterator[socket.socket]:
    """Return a socket that receives the numbers of signals; SIGHUP stays ignored if it is, as by nohup."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    numbers = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}
    previous = signal.set_wakeup_fd(sender.fileno())
    try:
        yield receiver
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        receiver.close()
        sender.close()


def _exit_with_parent() -> None:
    """Shut down this worker when its supervisor is gone; runs in a thread."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _forget_metrics(pid: int) -> None:
    """Remove the gauges of a worker that has ended; its counters still count."""
    if METRICS_FOLDER in os.environ:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]
