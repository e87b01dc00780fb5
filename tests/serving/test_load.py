"""Under load: full queues, timeouts, clients that disconnect, and shutdown."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from regard.decoding.options import GenerationOptions, TranslationOptions
from regard.decoding.results import Generation, TextChunk
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.metrics import Metrics
from regard.serving.service import Service
from regard.serving.trace_store import TraceRequest
from servers import TEST_TIMEOUT, RunningServer, UppercaseModel, run_server, wait_until

BODY = {"q": "w4", "source": "en", "target": "it"}
QUEUE_FULL = "Slowdown: 2 requests are already queued; retry in 1 s."


@pytest.fixture
def uppercase(loaded_models: list[LoadedModel]) -> UppercaseModel:
    return UppercaseModel(loaded_models[0])


def test_a_full_queue_gets_429_and_says_when_to_retry(uppercase: UppercaseModel) -> None:
    uppercase.gate.clear()
    with run_server(Service([uppercase], Limits(max_queue=2))) as server, ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(server.post, "/translate", BODY) for _ in range(2)]
        wait_until(lambda: server.queued() == 2)
        for path, body in (("/translate", BODY), ("/v1/translate", {"text": "w4"})):
            response = server.post(path, body)
            assert (response.status_code, response.json()) == (429, {"error": QUEUE_FULL})
            assert response.headers["retry-after"] == "1"
        ready = server.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"error": "The queue of en-it is full."})
        uppercase.gate.set()
        assert [future.result().json() for future in accepted] == [{"translatedText": "W4"}] * 2
        assert server.get("/readyz").is_success
        assert 'regard_rejected_total{model="en-it"} 2.0' in server.get("/metrics").text


def test_a_timeout_gets_504(uppercase: UppercaseModel) -> None:
    uppercase.gate.clear()
    with run_server(Service([uppercase], Limits(timeout=5))) as server:
        response = server.post("/v1/translate", {"text": "w4", "timeout": 0.05})
        message = "The request timed out after 0.05 s; send less text, or retry later."
        assert (response.status_code, response.json()) == (504, {"error": message})
        assert server.queued() == 0
        uppercase.gate.set()


@pytest.mark.slow
def test_texts_of_disconnected_clients_are_not_translated(uppercase: UppercaseModel) -> None:
    uppercase.gate.clear()
    with run_server(Service([uppercase])) as server:

        async def scene() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT) as client:

                def send(q: str) -> "asyncio.Task[httpx.Response]":
                    return asyncio.ensure_future(client.post("/translate", json=BODY | {"q": q}))

                started = [send(q) for q in ("a", "b")]
                await asyncio.to_thread(wait_until, lambda: len(uppercase.batches) == 2)  # both workers are busy
                left, stays = send("left"), send("stays")
                await asyncio.to_thread(wait_until, lambda: server.queued() == 4)
                left.cancel()
                await asyncio.to_thread(wait_until, lambda: server.queued() == 3)
                uppercase.gate.set()
                responses = await asyncio.gather(*started, stays)
                assert [response.json()["translatedText"] for response in responses] == ["A", "B", "STAYS"]

        asyncio.run(scene())
        assert 'regard_cancelled_total{model="en-it"} 1.0' in server.get("/metrics").text
    assert not any("left" in batch for batch in uppercase.batches)


def test_requests_are_counted_by_route(server: RunningServer) -> None:
    server.post("/v1/translate", {"text": []})
    server.get("/v1/models/writer")
    metrics = server.get("/metrics").text
    for route in ("/v1/translate", "/v1/models/{name}"):
        assert f'regard_requests_total{{route="{route}",status="200"}}' in metrics
        assert f'regard_request_seconds_count{{route="{route}"}}' in metrics


class TestTraces:
    """Traces are created one at a time, while no other thread holds the lock of the network."""

    @pytest.mark.slow
    def test_a_full_queue_gets_429(self, uppercase: UppercaseModel) -> None:
        service = Service([uppercase], Limits(max_queue=2))
        with run_server(service) as server, ThreadPoolExecutor(2) as pool:
            with uppercase.torch_lock:
                accepted = [pool.submit(server.post, "/v1/look", {"text": text}) for text in ("w4", "w5")]
                wait_until(lambda: service.traces._requests == 2)
                for path, body in (("/v1/look", {"text": "w6"}), ("/v1/look/tree", {"trace": "any"})):
                    response = server.post(path, body)
                    assert (response.status_code, response.json()) == (429, {"error": QUEUE_FULL})
                    assert response.headers["retry-after"] == "1"
            assert all(future.result().is_success for future in accepted)
            wait_until(lambda: service.traces._requests == 0)
            assert server.post("/v1/look", {"text": "w6"}).is_success

    @pytest.mark.slow
    def test_a_timeout_gets_504(self, uppercase: UppercaseModel) -> None:
        with run_server(Service([uppercase], Limits(timeout=0.5))) as server, uppercase.torch_lock:
            response = server.post("/v1/look", {"text": "w4"})
            message = "The request timed out after 0.5 s; send less text, or retry later."
            assert (response.status_code, response.json()) == (504, {"error": message})

    @pytest.mark.slow
    def test_requests_of_disconnected_clients_are_not_traced(self, uppercase: UppercaseModel) -> None:
        service = Service([uppercase])
        ids = [TraceRequest(uppercase.name, text, None, 4, 0.6, None).id for text in ("w4", "w5")]
        with run_server(service) as server:

            async def scene() -> httpx.Response:
                async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT) as client:
                    with uppercase.torch_lock:
                        stays = asyncio.ensure_future(client.post("/v1/look", json={"text": "w4"}))
                        await asyncio.to_thread(wait_until, lambda: service.traces._requests == 1)
                        left = asyncio.ensure_future(client.post("/v1/look", json={"text": "w5"}))
                        await asyncio.to_thread(wait_until, lambda: service.traces._requests == 2)
                        left.cancel()
                        await asyncio.to_thread(wait_until, lambda: service.traces._requests == 1)
                    return await stays

            assert asyncio.run(scene()).json()["id"] == ids[0]
            statuses = [server.post("/v1/look/tree", {"trace": trace_id}).status_code for trace_id in ids]
            assert statuses == [200, 404]


class EndlessModel(LoadedModel):
    """Language model that generates until it is stopped."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__("endless", model.model, ("", ""))
        self.stopped = threading.Event()
        self.steps = 0

    def generate(
        self, prompts: object, options: GenerationOptions, results: list[Generation], seeded: bool
    ) -> Iterator[TextChunk]:
        results.append(Generation("w4", 0))
        try:
            while not self.stopped.wait(0.002):
                self.steps += 1
                yield TextChunk(0, "w")
        finally:
            self.stopped.set()


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_generation_stops_when_the_client_disconnects(loaded_models: list[LoadedModel], stream: bool) -> None:
    endless = EndlessModel(loaded_models[2])
    with run_server(Service([endless])) as server:

        async def scene() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT) as client:
                body = {"model": "endless", "prompt": "w4", "stream": stream}
                request = asyncio.ensure_future(client.post("/v1/completions", json=body))
                await asyncio.to_thread(wait_until, lambda: endless.steps > 3)
                request.cancel()

        asyncio.run(scene())
        assert endless.stopped.wait(TEST_TIMEOUT)
        wait_until(lambda: server.queued() == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "status"), [(True, 200), (False, 504)])
def test_generation_stops_at_the_timeout(loaded_models: list[LoadedModel], stream: bool, status: int) -> None:
    endless = EndlessModel(loaded_models[2])
    with run_server(Service([endless], Limits(timeout=0.2))) as server:
        response = server.post("/v1/completions", {"model": "endless", "prompt": "w4", "stream": stream})
        assert response.status_code == status
        assert "The request timed out after" in response.text
    assert endless.stopped.is_set()


def test_a_generation_pool_has_a_queue_limit(loaded_models: list[LoadedModel]) -> None:
    service = Service([EndlessModel(loaded_models[2])], Limits(max_queue=1, timeout=2))
    with run_server(service) as server:
        pool = service.generation_pools["endless"]
        pool._requests = pool._max_requests  # as if the queue were full
        response = server.post("/v1/completions", {"model": "endless"})
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
        pool._requests = 0


def test_a_shutdown_finishes_accepted_requests(uppercase: UppercaseModel) -> None:
    uppercase.gate.clear()
    with ThreadPoolExecutor(3) as pool:
        with run_server(Service([uppercase])) as server:
            url = f"{server.url}/translate"
            accepted = [pool.submit(httpx.post, url, json=BODY, timeout=TEST_TIMEOUT) for _ in range(3)]
            wait_until(lambda: server.queued() == 3)
            server.server.should_exit = True
            wait_until(lambda: not _listens(server.url))
            assert not any(future.done() for future in accepted)
            uppercase.gate.set()
        assert [future.result().json() for future in accepted] == [{"translatedText": "W4"}] * 3


class PausingModel(LoadedModel):
    """Language model that pauses after its first chunk until its gate is open."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__("pausing", model.model, ("", ""))
        self.gate = threading.Event()

    def generate(
        self, prompts: object, options: GenerationOptions, results: list[Generation], seeded: bool
    ) -> Iterator[TextChunk]:
        results.append(Generation("w4", 0))
        yield TextChunk(0, "one ")
        assert self.gate.wait(TEST_TIMEOUT)
        yield TextChunk(0, "two")


def test_a_shutdown_finishes_streams(loaded_models: list[LoadedModel]) -> None:
    pausing = PausingModel(loaded_models[2])
    body = {"model": "pausing", "prompt": "w4", "stream": True}
    with run_server(Service([pausing])) as server:
        with server.client.stream("POST", "/v1/completions", json=body) as stream:
            lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line)
            received = [next(lines)]
            server.server.should_exit = True
            wait_until(lambda: not _listens(server.url))
            pausing.gate.set()
            received += lines
        *events, end = received
        assert "".join(json.loads(event)["choices"][0]["text"] for event in events) == "one two"
        assert end == "[DONE]"


@pytest.mark.slow
def test_many_concurrent_clients_get_their_own_translations(
    server: RunningServer, loaded_models: list[LoadedModel]
) -> None:
    options = TranslationOptions(server.service.search(loaded_models[0]))
    texts = [f"w{4 + n % 25} w{4 + n * 7 % 25} w{4 + n * 3 % 25}" for n in range(120)]
    expected = {text: loaded_models[0].translate([text], options)[0].text for text in texts}

    async def scene() -> list[str]:
        limits = httpx.Limits(max_connections=24)
        async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT, limits=limits) as client:
            requests = [client.post("/translate", json=BODY | {"q": text}) for text in texts]
            return [response.json()["translatedText"] for response in await asyncio.gather(*requests)]

    assert asyncio.run(scene()) == [expected[text] for text in texts]


def _listens(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=TEST_TIMEOUT)
    except httpx.ConnectError:
        return False
    except httpx.TransportError:  # the socket was closed before this connection was accepted
        pass
    return True


def test_counters_beyond_a_million_are_exact() -> None:
    metrics = Metrics()
    metrics.texts.labels("en-it").inc(12_345_677)
    metrics.texts.labels("en-it").inc()
    (line,) = [line for line in metrics.render().decode().splitlines() if line.startswith("regard_texts_total{")]
    assert float(line.split()[-1]) == 12_345_678
