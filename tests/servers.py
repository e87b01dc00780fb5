"""Servers for tests: real ones, each in a thread with a port of its own."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from regard.decoding.options import TranslationOptions
from regard.decoding.results import Translation
from regard.serving.loaded_models import LoadedModel
from regard.serving.server import bind_socket, build_server, socket_url
from regard.serving.service import Service

TEST_TIMEOUT = 20.0  # seconds until a test has failed


@dataclass(frozen=True)
class RunningServer:
    """A running server and a client of it."""

    url: str
    service: Service
    server: uvicorn.Server
    client: httpx.Client

    def post(self, path: str, fields: Any = None, **options: Any) -> httpx.Response:
        """Send fields as JSON, or what `options` contain."""
        return self.client.post(path, **options, **({} if fields is None else {"json": fields}))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def queued(self) -> int:
        """Queued requests of the first model, from the metrics."""
        lines = self.get("/metrics").text.splitlines()
        return int(float(next(line for line in lines if line.startswith("regard_queued")).split()[-1]))


@contextmanager
def run_server(service: Service) -> Iterator[RunningServer]:
    """Run a server until the block ends; it shuts down as it would on a signal."""
    bound = bind_socket("127.0.0.1", 0)
    url, server = socket_url(bound), build_server(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        with httpx.Client(base_url=url, timeout=TEST_TIMEOUT) as client:
            yield RunningServer(url, service, server, client)
    finally:
        server.should_exit = True
        thread.join(TEST_TIMEOUT)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], object], seconds: float = TEST_TIMEOUT) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.005)


class UppercaseModel(LoadedModel):
    """Translator that returns texts in upper case while its gate is open."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.name, model.model, (model.source_language, model.target_language))
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.failure: BaseException | None = None

    def translate(self, texts: Sequence[str], options: TranslationOptions) -> list[Translation]:
        self.batches.append(list(texts))
        assert self.gate.wait(TEST_TIMEOUT)
        if self.failure is not None:
            raise self.failure
        return [Translation(text, text.upper(), []) for text in texts]
