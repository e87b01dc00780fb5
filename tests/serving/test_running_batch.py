"""Streams of a language model share one batch: each has the text of its request alone, and they come and go."""

import asyncio
import gc
import json
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from random_models import SMALL, random_network, words
from regard.config import Config, DecoderOnlyConfig
from regard.decoding.batch_request import BatchRequest
from regard.decoding.continuous_batch import ContinuousBatch
from regard.models import save
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel, load_models
from regard.serving.running_batch import FairLock, compute_with
from regard.serving.service import Service
from servers import TEST_TIMEOUT, RunningServer, run_server, wait_until

ENDLESS: dict[str, Any] = {"model": "endless", "prompt": "w4", "max_tokens": 1000, "seed": 1}


@pytest.fixture
def writer(model_folders: dict[str, Path]) -> LoadedModel:
    """The language model, which runs with PyTorch."""
    (model,) = load_models([str(model_folders["writer"])], engine="torch")
    return model


def save_endless(folder: Path, seed: int = 0) -> None:
    """Write a language model whose texts do not end before their maximum length."""
    config = Config(model=DecoderOnlyConfig(**SMALL, tie_output=False, output_bias=True))
    network = random_network(config.model, seed)
    with torch.no_grad():
        network.get_parameter("output.bias")[config.tokens.end] = -1e4
    save(folder, network, config, extra_files={"tokenizer.json": words().to_str().encode()})


@pytest.fixture(scope="module")
def endless_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("endless") / "endless"
    save_endless(folder)
    return folder


@pytest.fixture
def endless(endless_folder: Path) -> LoadedModel:
    (model,) = load_models([str(endless_folder)], engine="torch")
    return model


def metrics_of(server: RunningServer) -> dict[str, float]:
    lines = [line for line in server.get("/metrics").text.splitlines() if 'model="' in line]
    return {line.partition("{")[0]: float(line.split()[-1]) for line in lines}


def requests() -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = [{"temperature": 0}, {"top_k": 5}, {"top_p": 0.9, "n": 3}]
    bodies: list[dict[str, Any]] = []
    for n in range(12):
        prompt = " ".join(f"w{4 + n * k % 25}" for k in range(1, 3 + 5 * n % 17))
        body: dict[str, Any] = {"model": "writer", "prompt": prompt, "max_tokens": 5 + n, "seed": n, "logprobs": 2}
        bodies.append(body | changes[n % 3] | ({"stop": f"w{n}"} if n % 4 == 0 else {}))
    return bodies


def choices_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["choices"]


def streamed_text(response: httpx.Response) -> dict[int, str]:
    texts: dict[int, str] = {}
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    for event in map(json.loads, events):
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def test_concurrent_requests_get_what_they_get_alone(writer: LoadedModel) -> None:
    with run_server(Service([writer], Limits(max_batch=4))) as server:
        alone = [choices_of(server.post("/v1/completions", body)) for body in requests()]

        async def scene() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT) as client:
                whole = [client.post("/v1/completions", json=body) for body in requests()]
                streams = [client.post("/v1/completions", json=body | {"stream": True}) for body in requests()]
                return await asyncio.gather(*(one for pair in zip(whole, streams, strict=True) for one in pair))

        responses = asyncio.run(scene())
        for expected, whole, stream in zip(alone, responses[::2], responses[1::2], strict=True):
            found = choices_of(whole)
            assert [choice["text"] for choice in found] == [choice["text"] for choice in expected]
            assert [choice["finish_reason"] for choice in found] == [choice["finish_reason"] for choice in expected]
            for one, other in zip(found, expected, strict=True):
                assert one["logprobs"]["tokens"] == other["logprobs"]["tokens"]
                assert one["logprobs"]["token_logprobs"] == pytest.approx(other["logprobs"]["token_logprobs"], abs=1e-4)
            assert streamed_text(stream) == {choice["index"]: choice["text"] for choice in expected}
        generated = sum(len(choice["logprobs"]["tokens"]) for choices in alone for choice in choices)
        metrics = metrics_of(server)
        assert metrics["regard_generated_tokens_total"] >= 3 * generated
        assert (metrics["regard_running_texts"], metrics["regard_waiting_texts"]) == (0, 0)
        assert metrics["regard_queued_requests"] == 0


def test_texts_beyond_the_limit_wait_and_a_client_that_leaves_makes_room(endless: LoadedModel) -> None:
    with run_server(Service([endless], Limits(max_batch=2))) as server:

        async def scene() -> str:
            async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT) as client:
                leaving = asyncio.ensure_future(client.post("/v1/completions", json=ENDLESS | {"n": 3}))
                await asyncio.to_thread(wait_until, lambda: metrics_of(server)["regard_waiting_texts"] == 1)
                assert metrics_of(server)["regard_running_texts"] == 2
                short = ENDLESS | {"max_tokens": 2}
                staying = asyncio.ensure_future(client.post("/v1/completions", json=short))
                await asyncio.to_thread(wait_until, lambda: metrics_of(server)["regard_waiting_texts"] == 2)
                assert not staying.done()
                leaving.cancel()
                return str(choices_of(await staying)[0]["finish_reason"])

        assert asyncio.run(scene()) == "length"
        wait_until(lambda: metrics_of(server)["regard_queued_requests"] == 0)
        assert metrics_of(server)["regard_cancelled_total"] == 1


def test_the_queue_is_bounded(endless: LoadedModel) -> None:
    with run_server(Service([endless], Limits(max_batch=1, max_queue=1))) as server:
        pool = server.service.generation_pools["endless"]
        most = pool._max_requests

        async def scene() -> httpx.Response:
            async with httpx.AsyncClient(base_url=server.url, timeout=TEST_TIMEOUT) as client:
                queued = [asyncio.ensure_future(client.post("/v1/completions", json=ENDLESS)) for _ in range(most)]
                await asyncio.to_thread(wait_until, lambda: pool.is_full)
                rejected = await client.post("/v1/completions", json=ENDLESS)
                for request in queued:
                    request.cancel()
                return rejected

        rejected = asyncio.run(scene())
        assert (rejected.status_code, rejected.headers["retry-after"]) == (429, "1")
        assert f"{most} requests are already queued" in rejected.text


def test_a_shutdown_finishes_texts_of_the_batch(endless: LoadedModel) -> None:
    with ThreadPoolExecutor(2) as pool:
        with run_server(Service([endless], Limits(max_batch=1))) as server:
            body = ENDLESS | {"max_tokens": 60}
            url = f"{server.url}/v1/completions"
            accepted = [pool.submit(httpx.post, url, json=body, timeout=TEST_TIMEOUT) for _ in range(2)]
            wait_until(lambda: metrics_of(server)["regard_queued_requests"] == 2)
        assert [choices_of(future.result())[0]["finish_reason"] for future in accepted] == ["length"] * 2
    assert not [thread for thread in threading.enumerate() if thread.name == "batch-endless"]


def test_a_stream_finishes_with_the_model_that_it_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, body = tmp_path / "endless", ENDLESS | {"max_tokens": 12}
    save_endless(tmp_path / "new", seed=1)
    save_endless(folder)
    (model,) = load_models([str(folder)], engine="torch")
    gate, accepted, accept = threading.Event(), threading.Event(), BatchRequest.accept

    def wait_and_accept(*arguments: Any) -> Any:
        if threading.current_thread().name == "batch-endless":  # not the one that loads the new model
            accepted.set()
            assert gate.wait(TEST_TIMEOUT)
        return accept(*arguments)

    with run_server(Service([model])) as server, ThreadPoolExecutor(1) as pool:
        expected = choices_of(server.post("/v1/completions", body))
        old = weakref.ref(model.model)
        monkeypatch.setattr(BatchRequest, "accept", wait_and_accept)
        running = pool.submit(server.post, "/v1/completions", body)
        assert accepted.wait(TEST_TIMEOUT)
        shutil.rmtree(folder)
        (tmp_path / "new").rename(folder)
        server.service.reload()
        gate.set()
        assert choices_of(running.result()) == expected
        assert choices_of(server.post("/v1/completions", body)) != expected
        del running
        wait_until(lambda: gc.collect() >= 0 and old() is None)


def test_a_step_that_fails_ends_its_requests_and_not_the_server(
    writer: LoadedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"model": "writer", "prompt": "w4", "max_tokens": 3, "seed": 1}
    with run_server(Service([writer])) as server:
        with monkeypatch.context() as patch:
            patch.setattr(ContinuousBatch, "step", lambda _: 1 / 0)
            response = server.post("/v1/completions", body)
        assert response.status_code == 500
        assert "ZeroDivisionError" in caplog.text
        assert "the batch of writer failed" in caplog.text
        assert choices_of(server.post("/v1/completions", body))
        assert metrics_of(server)["regard_queued_requests"] == 0


def test_engines_other_than_torch_do_not_use_the_batch(model_folders: dict[str, Path]) -> None:
    (model,) = load_models([str(model_folders["writer"])], engine="ctranslate2")
    with run_server(Service([model])) as server:
        body = {"model": "writer", "prompt": "w4", "max_tokens": 3}
        assert choices_of(server.post("/v1/completions", body))
        assert metrics_of(server)["regard_generated_tokens_total"] == 0


def test_a_thread_of_its_own_number_of_threads_leaves_others_theirs() -> None:
    def count() -> int:
        return torch.get_num_threads()

    def lower() -> int:
        compute_with(1)
        return count()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            assert first.submit(lower).result() == 1
            assert first.submit(count).result() == 1
            assert second.submit(count).result() == 2
            assert count() == 2
    finally:
        torch.set_num_threads(before)


def test_a_fair_lock_goes_to_the_thread_that_has_waited_longest() -> None:
    lock, order = FairLock(), list[int]()

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    with lock:
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: len(lock._waiting) == number + 1)  # type: ignore[misc]
    with lock:  # the thread that has just released it comes last
        order.append(4)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
