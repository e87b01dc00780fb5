"""Under load: who comes too late is told when to come back, who leaves costs nothing, who was accepted is answered."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from regard.decoding.options import GenerationOptions, SearchOptions, TranslationOptions
from regard.decoding.results import Generation, TextChunk
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from regard.serving.trace_store import TraceRequest
from servers import PATIENCE, Echo, Running, running, until

ASKED = {"q": "w4", "source": "en", "target": "it"}
SLOWDOWN = "Slowdown: 2 requests are waiting already; try again in 1 s."


@pytest.fixture
def echo(models: list[LoadedModel]) -> Echo:
    return Echo(models[0])


def waiting(server: Running) -> int:
    line = next(line for line in server.get("/metrics").text.splitlines() if line.startswith("regard_waiting"))
    return int(line.split()[-1])


def test_a_full_queue_answers_429_and_when_to_come_back(echo: Echo) -> None:
    echo.gate.clear()
    with running(Service([echo], Limits(queue=2))) as server, ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(server.post, "/translate", ASKED) for _ in range(2)]
        until(lambda: waiting(server) == 2)
        for path, asked in (("/translate", ASKED), ("/v1/translate", {"text": "w4"})):
            found = server.post(path, asked)
            assert (found.status_code, found.json()) == (429, {"error": SLOWDOWN})
            assert found.headers["retry-after"] == "1"
        ready = server.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"error": "The queue of en-it is full."})
        echo.gate.set()
        assert [one.result().json() for one in accepted] == [{"translatedText": "W4"}] * 2
        assert server.get("/readyz").is_success
        assert 'regard_refused_total{model="en-it"} 2' in server.get("/metrics").text


def test_a_deadline_that_passes_is_told(echo: Echo) -> None:
    echo.gate.clear()
    with running(Service([echo], Limits(deadline=5))) as server:
        found = server.post("/v1/translate", {"text": "w4", "deadline": 0.05})
        sentence = "The answer was not ready within 0.05 s; ask for less, or try again later."
        assert (found.status_code, found.json()) == (504, {"error": sentence})
        assert waiting(server) == 0
        echo.gate.set()


def test_whose_client_leaves_is_not_translated(echo: Echo) -> None:
    echo.gate.clear()
    with running(Service([echo])) as server:

        async def scene() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
                begun = [asyncio.ensure_future(client.post("/translate", json=ASKED | {"q": q})) for q in ("a", "b")]
                await asyncio.to_thread(until, lambda: len(echo.seen) == 2)  # both workers have something to do
                left = asyncio.ensure_future(client.post("/translate", json=ASKED | {"q": "left"}))
                stays = asyncio.ensure_future(client.post("/translate", json=ASKED | {"q": "stays"}))
                await asyncio.to_thread(until, lambda: waiting(server) == 4)
                left.cancel()
                await asyncio.to_thread(until, lambda: waiting(server) == 3)
                echo.gate.set()
                assert [one.json()["translatedText"] for one in await asyncio.gather(*begun, stays)] == [
                    "A",
                    "B",
                    "STAYS",
                ]

        asyncio.run(scene())
        assert 'regard_cancelled_total{model="en-it"} 1' in server.get("/metrics").text
    assert not any("left" in batch for batch in echo.seen)


class TestLooking:
    """Traces are made one at a time, while nobody else runs the network: whoever holds it lets the others wait."""

    def test_a_full_queue_answers_429(self, echo: Echo) -> None:
        service = Service([echo], Limits(queue=2))
        with running(service) as server, ThreadPoolExecutor(2) as pool:
            with echo.torch:
                accepted = [pool.submit(server.post, "/v1/look", {"text": text}) for text in ("w4", "w5")]
                until(lambda: service.traces._requests == 2)
                for path, asked in (("/v1/look", {"text": "w6"}), ("/v1/look/tree", {"trace": "any"})):
                    found = server.post(path, asked)
                    assert (found.status_code, found.json()) == (429, {"error": SLOWDOWN})
                    assert found.headers["retry-after"] == "1"
            assert all(one.result().is_success for one in accepted)
            until(lambda: service.traces._requests == 0)
            assert server.post("/v1/look", {"text": "w6"}).is_success

    def test_a_deadline_that_passes_is_told(self, echo: Echo) -> None:
        with running(Service([echo], Limits(deadline=0.5))) as server, echo.torch:
            found = server.post("/v1/look", {"text": "w4"})
            sentence = "The answer was not ready within 0.5 s; ask for less, or try again later."
            assert (found.status_code, found.json()) == (504, {"error": sentence})

    def test_whose_client_leaves_is_not_looked_at(self, echo: Echo) -> None:
        service = Service([echo])
        ids = [TraceRequest(echo.name, text, None, service.beam, 0.6, None).id for text in ("w4", "w5")]
        with running(service) as server:

            async def scene() -> httpx.Response:
                async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
                    with echo.torch:
                        stays = asyncio.ensure_future(client.post("/v1/look", json={"text": "w4"}))
                        await asyncio.to_thread(until, lambda: service.traces._requests == 1)
                        left = asyncio.ensure_future(client.post("/v1/look", json={"text": "w5"}))
                        await asyncio.to_thread(until, lambda: service.traces._requests == 2)
                        left.cancel()
                        await asyncio.to_thread(until, lambda: service.traces._requests == 1)
                    return await stays

            assert asyncio.run(scene()).json()["id"] == ids[0]
            kept = [server.post("/v1/look/tree", {"trace": id_}).status_code for id_ in ids]
            assert kept == [200, 404]


class Endless(LoadedModel):
    """A writer that writes until it is stopped."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__("endless", model.model, ("", ""))
        self.stopped = threading.Event()
        self.steps = 0

    def write(
        self, prompts: object, wish: GenerationOptions, into: list[Generation], seeded: bool
    ) -> Iterator[TextChunk]:
        into.append(Generation("w4", 0))
        try:
            while not self.stopped.wait(0.002):
                self.steps += 1
                yield TextChunk(0, "w")
        finally:
            self.stopped.set()


@pytest.mark.parametrize("stream", [True, False])
def test_whose_client_leaves_is_no_longer_written_for(models: list[LoadedModel], stream: bool) -> None:
    endless = Endless(models[2])
    with running(Service([endless])) as server:

        async def scene() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
                asked = {"model": "endless", "prompt": "w4", "stream": stream}
                asking = asyncio.ensure_future(client.post("/v1/completions", json=asked))
                await asyncio.to_thread(until, lambda: endless.steps > 3)
                asking.cancel()

        asyncio.run(scene())
        assert endless.stopped.wait(PATIENCE)
        until(lambda: waiting(server) == 0)


@pytest.mark.parametrize(("stream", "status"), [(True, 200), (False, 504)])
def test_writing_past_the_deadline_is_told_and_ends(models: list[LoadedModel], stream: bool, status: int) -> None:
    endless = Endless(models[2])
    with running(Service([endless], Limits(deadline=0.2))) as server:
        found = server.post("/v1/completions", {"model": "endless", "prompt": "w4", "stream": stream})
        assert found.status_code == status
        assert "The answer was not ready within" in found.text
    assert endless.stopped.is_set()


def test_writers_have_a_queue_too(models: list[LoadedModel]) -> None:
    service = Service([Endless(models[2])], Limits(queue=1, deadline=2))
    with running(service) as server:
        desk = service.desks["endless"]
        desk._requests = desk._queue  # as if so many wrote
        found = server.post("/v1/completions", {"model": "endless"})
        assert (found.status_code, found.headers["retry-after"]) == (429, "1")
        assert found.json()["error"]["code"] == "rate_limit_exceeded"
        desk._requests = 0


def test_a_shutdown_finishes_what_was_accepted(echo: Echo) -> None:
    echo.gate.clear()
    with ThreadPoolExecutor(3) as pool:
        with running(Service([echo])) as server:
            url = server.url
            accepted = [pool.submit(httpx.post, f"{url}/translate", json=ASKED, timeout=PATIENCE) for _ in range(3)]
            until(lambda: waiting(server) == 3)
            server.server.should_exit = True
            until(lambda: not _listens(url))
            assert not any(one.done() for one in accepted)
            echo.gate.set()
        assert [one.result().json() for one in accepted] == [{"translatedText": "W4"}] * 3


class Pausing(LoadedModel):
    """A writer that stops in the middle, until it is let."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__("pausing", model.model, ("", ""))
        self.gate = threading.Event()

    def write(
        self, prompts: object, wish: GenerationOptions, into: list[Generation], seeded: bool
    ) -> Iterator[TextChunk]:
        into.append(Generation("w4", 0))
        yield TextChunk(0, "one ")
        assert self.gate.wait(PATIENCE)
        yield TextChunk(0, "two")


def test_a_shutdown_lets_a_stream_come_to_its_end(models: list[LoadedModel]) -> None:
    pausing = Pausing(models[2])
    asked = {"model": "pausing", "prompt": "w4", "stream": True}
    with running(Service([pausing])) as server:
        with server.client.stream("POST", "/v1/completions", json=asked) as stream:
            lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line)
            told = [next(lines)]
            server.server.should_exit = True
            until(lambda: not _listens(server.url))
            pausing.gate.set()
            told += lines
        *events, end = told
        assert "".join(json.loads(event)["choices"][0]["text"] for event in events) == "one two"
        assert end == "[DONE]"


def test_many_clients_at_once_get_their_own_answers(server: Running, models: list[LoadedModel]) -> None:
    texts = [f"w{4 + n % 25} w{4 + n * 7 % 25} w{4 + n * 3 % 25}" for n in range(120)]
    alone = {text: models[0].translate([text], _wish(server))[0].text for text in texts}

    async def scene() -> list[str]:
        limits = httpx.Limits(max_connections=24)
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=limits) as client:
            asked = [client.post("/translate", json=ASKED | {"q": text}) for text in texts]
            return [found.json()["translatedText"] for found in await asyncio.gather(*asked)]

    assert asyncio.run(scene()) == [alone[text] for text in texts]


def _wish(server: Running) -> TranslationOptions:
    return TranslationOptions(SearchOptions(width=server.service.beam))


def _listens(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=PATIENCE)
    except httpx.ConnectError:
        return False
    return True
