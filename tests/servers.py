"""Servers for tests: real ones, each in a thread, at a port of its own."""

import threading
import time
from collections.abc import Iterator, Sequence
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

PATIENCE = 20.0  # seconds after which a test has failed


@dataclass(frozen=True)
class Running:
    """A server that runs, and a client of it."""

    url: str
    service: Service
    server: uvicorn.Server
    client: httpx.Client

    def post(self, path: str, fields: Any = None, **options: Any) -> httpx.Response:
        """Send fields as JSON, or whatever `options` say."""
        return self.client.post(path, **options, **({} if fields is None else {"json": fields}))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)


@contextmanager
def running(service: Service) -> Iterator[Running]:
    """A server, until the block ends; then it shuts down as it would on a signal."""
    taken = bind_socket("127.0.0.1", 0)
    url, server = socket_url(taken), build_server(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            yield Running(url, service, server, client)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until(holds: Any) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


class Echo(LoadedModel):
    """A translator that gives texts back in capitals, once it is let."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.name, model.model, (model.source, model.target))
        self.gate = threading.Event()
        self.gate.set()
        self.seen: list[list[str]] = []
        self.failure: BaseException | None = None

    def translate(self, texts: Sequence[str], wish: TranslationOptions) -> list[Translation]:
        self.seen.append(list(texts))
        assert self.gate.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        return [Translation(text, text.upper(), []) for text in texts]
