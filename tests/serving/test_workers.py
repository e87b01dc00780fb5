"""`regard serve --workers`: processes behind one port, their metrics, their restarts and their end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from commands import run_process, start_process
from regard.errors import ModelError, ServerError
from regard.serving.workers import MAX_DELAY_SECONDS, STABLE_SECONDS, Supervisor, Worker
from servers import TEST_TIMEOUT, wait_until

READY = "is ready"
START_SECONDS = 120.0  # that the imports of a process may take on a busy machine


class RunningWorkers:
    """A process of `regard serve --workers` and what it has logged."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.url = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if " at http://" in line:
                self.url = line.split(" at ")[1].split()[0]
            self.lines.append(json.loads(line))

    def logged(self, text: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if text in line["message"]]

    @property
    def workers(self) -> list[int]:
        """Process ids of the workers, by their log."""
        ended = {line["message"].split("(process ")[1].split(")")[0] for line in self.logged("another one starts")}
        ready = [line["message"].split("(process ")[1].split(")")[0] for line in self.logged(READY)]
        return [int(pid) for pid in ready if pid not in ended]

    def handlers(self) -> list[int]:
        """Process ids of the workers that have handled requests, in the order of the log."""
        return [line["process"] for line in self.lines if line.get("path") == "/v1/translate"]

    def translate(self, count: int) -> None:
        """Send requests, each with a connection of its own, and wait until they are counted and logged."""
        expected = len(self.handlers()) + count
        for _ in range(count):
            response = httpx.post(f"{self.url}/v1/translate", json={"text": "w4 w5"}, timeout=TEST_TIMEOUT)
            assert response.status_code == 200, response.text
        wait_until(lambda: len(self.handlers()) == expected)

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics", timeout=TEST_TIMEOUT).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for a while: the other workers accept all connections."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def running(model_folders: dict[str, Path]) -> Iterator[RunningWorkers]:
    """A server with two workers; at the end, it must have exited without an error."""
    options = ["--workers", "2", "--port", "0", "--log-format", "json", "--verbose"]
    process = start_process("serve", model_folders["en-it"], *options)
    running = RunningWorkers(process)
    try:
        wait_until(lambda: running.url or process.poll() is not None, START_SECONDS)
        assert running.lines[-1]["message"] == f"en-it (en-it) at {running.url} with 2 workers (Ctrl-C stops)"
        yield running
        process.send_signal(signal.SIGTERM)
        assert process.wait(TEST_TIMEOUT) == 0
        assert not running.logged("Traceback")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/livez")
    finally:
        process.kill()
        running.reader.join(TEST_TIMEOUT)
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the state of processes from /proc")
class TestWorkers:
    """Two real workers."""

    def test_metrics_are_sums_over_the_workers(self, running: RunningWorkers) -> None:
        first, second = running.workers
        names = ("regard_texts_total", 'regard_request_seconds_count{route="/v1/translate"}')
        before = [running.metric(name) for name in names]
        with stopped(second):
            running.translate(3)
        with stopped(first):
            running.translate(4)
            after = [running.metric(name) for name in names]
        assert [new - old for new, old in zip(after, before, strict=True)] == [7, 7]
        assert running.handlers()[-7:] == [first] * 3 + [second] * 4
        assert running.metric("regard_queued_requests") == 0

    def test_a_worker_that_ends_is_replaced(self, running: RunningWorkers) -> None:
        first, second = running.workers
        with stopped(second):
            running.translate(2)  # so that the counters of the worker that ends are not zero
        texts = running.metric("regard_texts_total")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: running.logged(f"(process {first}) was ended"))
        running.translate(2)  # by the other one
        wait_until(lambda: len(running.workers) == 2)
        (line,) = running.logged(f"(process {first}) was ended")
        message = rf"worker [12] \(process {first}\) was ended by SIGKILL; another one starts in 0 s"
        assert re.fullmatch(message, line["message"])
        (replacement,) = {*running.workers} - {second}
        with stopped(second):
            running.translate(1)
            assert running.metric("regard_texts_total") == texts + 3
        assert running.handlers()[-1] == replacement

    def test_a_hangup_reloads_the_models_of_all_workers(self, running: RunningWorkers) -> None:
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: {line["process"] for line in running.logged("en-it was reloaded")} >= {*running.workers})
        running.translate(2)


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_gets_one_message(tmp_path: Path) -> None:
    done = run_process("serve", tmp_path / "none", "--workers", "2", "--port", "0")
    message = f"regard: {tmp_path / 'none'}: does not exist; give the path of a model folder, or of a run.\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", message)


class TestSupervisor:
    """Decisions of the supervisor, without processes."""

    @pytest.fixture
    def supervisor(self) -> Supervisor:
        def ignore(*_: object) -> Any:
            pass

        return Supervisor(ignore, ignore, 1, drain_seconds=1, describe=ignore, on_ready=ignore)  # type: ignore[arg-type]

    @staticmethod
    def ended(supervisor: Supervisor, code: int = 1, *, is_ready: bool = True, seconds: float = 0.0) -> Worker:
        process: Any = SimpleNamespace(pid=1, exitcode=code, join=lambda: None)
        worker = Worker(1, process, SimpleNamespace(closed=True))  # type: ignore[arg-type]
        worker.is_ready = is_ready
        worker.started -= seconds
        supervisor._workers[1] = worker
        return worker

    def test_workers_that_do_not_last_are_delayed(
        self, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1000.0]
        monkeypatch.setattr("time.monotonic", lambda: now[0])
        supervisor._has_started = True
        delays = []
        for _ in range(8):
            supervisor._handle_end(self.ended(supervisor))
            delays.append(supervisor._due.pop(1) - now[0])
        assert delays == [0, 1, 2, 4, 8, 16, MAX_DELAY_SECONDS, MAX_DELAY_SECONDS]
        supervisor._handle_end(self.ended(supervisor, seconds=STABLE_SECONDS))
        assert supervisor._due.pop(1) == now[0]

    def test_a_worker_that_never_was_ready_ends_the_start(self, supervisor: Supervisor) -> None:
        with pytest.raises(ServerError, match="worker 1 was ended by SIGSEGV before it was ready"):
            supervisor._handle_end(self.ended(supervisor, -signal.SIGSEGV, is_ready=False))
        worker = self.ended(supervisor, 3, is_ready=False)
        worker.error = ModelError("x: does not exist.")
        with pytest.raises(ModelError, match="x: does not exist"):
            supervisor._handle_end(worker)

    def test_nothing_starts_while_it_stops(self, supervisor: Supervisor) -> None:
        supervisor._has_started, supervisor._stop_time = True, 0.0
        supervisor._handle_end(self.ended(supervisor, 0))
        assert not supervisor._workers
        assert not supervisor._due
