"""Operations: versions of models, request ids, readiness, draining, and reloading while requests run."""

import gc
import json
import logging
import shutil
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from starlette.testclient import TestClient

from commands import regard
from regard.cli.serve import JsonFormatter
from regard.decoding.options import TranslationOptions
from regard.serving import server as server_module
from regard.serving.access import AccessPolicy
from regard.serving.app import build_app
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel, check_arguments, load_models, order_versions
from regard.serving.server import build_server
from regard.serving.service import Service
from servers import TEST_TIMEOUT, RunningServer, UppercaseModel, run_server, wait_until

TEXT = "w4 w5 w6"


class TestVersions:
    """Models named name@version."""

    @pytest.fixture(scope="class")
    def versions(self, model_folders: dict[str, Path]) -> Iterator[RunningServer]:
        first, second, writer = (model_folders[name] for name in ("en-it", "it-en", "writer"))
        arguments = [f"tiny@v9[en-it]={first}", str(writer), f"tiny@v10[en-it]={second}"]
        with run_server(Service(load_models(arguments))) as server:
            yield server

    @pytest.mark.parametrize(
        ("name", "used"), [("tiny", "tiny@v10"), ("tiny@v9", "tiny@v9"), ("tiny@v10", "tiny@v10"), (None, "tiny@v10")]
    )
    def test_a_request_chooses_a_version(
        self, versions: RunningServer, loaded_models: list[LoadedModel], name: str | None, used: str
    ) -> None:
        response = versions.post("/v1/translate", {"text": TEXT} | ({} if name is None else {"model": name})).json()
        assert response["model"] == used
        model = loaded_models[0 if used == "tiny@v9" else 1]
        (expected,) = model.translate([TEXT], TranslationOptions(versions.service.search(model)))
        assert response["translations"][0]["translation"] == expected.text

    def test_languages_choose_the_default_version(self, versions: RunningServer) -> None:
        body = {"q": TEXT, "source": "en", "target": "it"}
        newest = versions.post("/v1/translate", {"text": TEXT, "model": "tiny@v10"}).json()
        assert versions.post("/translate", body).json()["translatedText"] == newest["translations"][0]["translation"]

    def test_the_versions_are_listed(self, versions: RunningServer) -> None:
        names = ["tiny@v10", "tiny@v9", "writer"]
        assert [model["id"] for model in versions.get("/v1/models").json()["data"]] == names
        assert versions.get("/v1/models/tiny").json()["id"] == "tiny@v10"
        models = versions.get("/v1/about").json()["models"]
        assert [(model["name"], model.get("version"), model["default"]) for model in models] == [
            ("tiny@v10", "v10", True),
            ("tiny@v9", "v9", False),
            ("writer", None, True),
        ]
        schemas = versions.get("/openapi.json").json()["components"]["schemas"]
        choices = schemas["TranslateRequest"]["properties"]["model"]["anyOf"][0]["enum"]
        assert choices == ["tiny", "tiny@v10", "tiny@v9"]

    def test_an_unknown_version_gets_404(self, versions: RunningServer) -> None:
        response = versions.post("/v1/translate", {"text": TEXT, "model": "tiny@v11"})
        message = "There is no model 'tiny@v11' (did you mean tiny@v10?)."
        assert (response.status_code, response.json()) == (404, {"error": message})

    def test_the_default_version_comes_first(self) -> None:
        def order(names: list[str], *defaults: str) -> list[str]:
            models: Any = [SimpleNamespace(name=name) for name in names]
            for model in models:
                model.base_name, _, model.version = model.name.partition("@")
            return [model.name for model in order_versions(models, defaults)]

        assert order(["a@1", "b", "a@2", "a@1.5"]) == ["a@2", "a@1.5", "a@1", "b"]
        assert order(["a@1", "b", "a@2", "a@1.5"], "a@1") == ["a@1", "a@2", "a@1.5", "b"]
        assert order(["b@x", "a@1", "a"]) == ["b@x", "a", "a@1"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["--default", "m@v3"],
                "--default m@v3: is not one of the models (did you mean m@v2?); pass name@version of one of them.",
            ),
            (
                ["--default", "m@v1", "--default", "m@v2"],
                "--default m@v2: m@v1 is already the default; a name has one default version.",
            ),
            (["m@=x"], "m@=x: 'm@' is not a valid model name; choose one, as in en-it=x."),
            (["m@1@2=x"], "m@1@2=x: 'm@1@2' is not a valid model name; choose one, as in en-it=x."),
        ],
    )
    def test_invalid_versions_get_a_message(self, arguments: list[str], message: str) -> None:
        done = regard("serve", "m@v1=none", "m@v2=none", *arguments)
        assert (done.code, done.err) == (2, f"regard: {message}\n")

    def test_names_may_have_a_version_and_languages(self) -> None:
        (argument,) = check_arguments(["en-it@2024-12[en-it]=runs/a"], ["en-it@2024-12"])
        assert argument == ("en-it@2024-12", Path("runs/a"), ("en", "it"))


class TestRequestIds:
    """X-Request-ID in responses, logs and messages of failures."""

    @pytest.mark.parametrize("request_id", ["a", "4bf92f35-77b3.4da6:a3ce_929d/0e0e+47@36=", "x" * 128])
    def test_an_id_of_the_client_is_returned(self, server: RunningServer, request_id: str) -> None:
        for response in (
            server.get("/health", headers={"x-request-id": request_id}),
            server.post("/v1/translate", {"text": 3}, headers={"x-request-id": request_id}),
            server.get("/nowhere", headers={"x-request-id": request_id}),
            server.get("/health", headers={"x-request-id": request_id, "host": "evil.example"}),
        ):
            assert response.headers.get_list("x-request-id") == [request_id]

    def test_clients_read_the_id_of_an_error_from_the_header(self, server: RunningServer) -> None:
        headers = {"X-Request-ID": "ticket-8"}
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, default_headers=headers)
        for model, status in (("writer", 400), ("none", 404)):
            with pytest.raises(openai.APIStatusError) as error:
                client.completions.create(model=model, prompt="w4", best_of=300)
            assert (error.value.status_code, error.value.request_id) == (status, "ticket-8")

    def test_the_openapi_document_has_the_header(self, server: RunningServer) -> None:
        operations = [
            operation for path in server.get("/openapi.json").json()["paths"].values() for operation in path.values()
        ]
        responses = [response for operation in operations for response in operation["responses"].values()]
        assert len(responses) > 20
        assert all("X-Request-ID" in response["headers"] for response in responses)

    @pytest.mark.parametrize("request_id", ["", "two words", "x" * 129, "<b>", 'a"b', "\x80\xff"])
    def test_other_ids_are_replaced(self, server: RunningServer, request_id: str) -> None:
        headers = {"x-request-id": request_id.encode("latin-1")}
        ids = [server.client.get("/health", headers=headers).headers["x-request-id"] for _ in range(2)]  # type: ignore[arg-type]
        assert len({*ids, request_id}) == 3
        assert all(len(name) == 16 and int(name, 16) >= 0 for name in ids)

    def test_the_log_has_the_id(self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "regard.serving"), run_server(Service(loaded_models[:1])) as server:
            server.get("/health", headers={"x-request-id": "ticket-7"})
        (record,) = caplog.records
        assert record.getMessage().endswith(" ms, request ticket-7")
        fields = json.loads(JsonFormatter().format(record))
        assert (fields["request_id"], fields["path"], fields["process"]) == ("ticket-7", "/health", record.process)

    def test_pages_of_other_sites_may_read_the_id(self, loaded_models: list[LoadedModel]) -> None:
        access = AccessPolicy(origins=frozenset({"https://example.org"}))
        with TestClient(build_app(Service(loaded_models[:1], access=access)), base_url="http://localhost") as client:
            response = client.get("/health", headers={"origin": "https://example.org"})
        assert response.headers["access-control-expose-headers"] == "X-Request-ID"


class TestDraining:
    """Shutdown: no longer ready, running requests are finished or, after the limit, get 503."""

    def test_a_draining_server_is_alive_but_not_ready(self, loaded_models: list[LoadedModel]) -> None:
        service = Service(loaded_models[:1])
        with TestClient(build_app(service), base_url="http://localhost") as client:
            assert [client.get(path).status_code for path in ("/livez", "/healthz", "/readyz")] == [200, 200, 200]
            service.is_draining = True
            assert [client.get(path).status_code for path in ("/livez", "/healthz", "/readyz")] == [200, 200, 503]
            assert client.get("/readyz").json() == {"error": "The server is shutting down; send the request again."}

    def test_a_signal_starts_draining_with_a_limit(
        self, loaded_models: list[LoadedModel], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        timers: list[tuple[float, object]] = []

        class Timer:
            daemon = False

            def __init__(self, seconds: float, function: object) -> None:
                timers.append((seconds, function))

            def start(self) -> None:
                assert self.daemon

        monkeypatch.setattr(server_module, "threading", SimpleNamespace(Timer=Timer))
        service = Service(loaded_models[:1], Limits(drain_seconds=7))
        server = build_server(service)
        for _ in range(2):
            server.handle_exit(signal.SIGTERM, None)
        assert service.is_draining
        assert server.should_exit
        assert timers == [(7 + server_module.EXIT_SECONDS, server_module._exit_at_limit)]

    def test_running_requests_get_503_after_the_limit(
        self, loaded_models: list[LoadedModel], caplog: pytest.LogCaptureFixture
    ) -> None:
        model = UppercaseModel(loaded_models[0])
        model.gate.clear()
        service = Service([model], Limits(drain_seconds=0.05))
        with ThreadPoolExecutor(2) as pool, caplog.at_level(logging.WARNING), run_server(service) as server:
            fields: dict[str, Any] = {"json": {"text": "w4"}, "timeout": TEST_TIMEOUT}
            running = [pool.submit(httpx.post, f"{server.url}/v1/translate", **fields) for _ in range(2)]
            wait_until(lambda: server.queued() == 2)
            server.server.should_exit = True
            responses = [future.result() for future in running]
            model.gate.set()  # the threads end
        message = {"error": "The server is shutting down; send the request again."}
        assert [(response.status_code, response.json()) for response in responses] == [(503, message)] * 2
        assert [response.headers["retry-after"] for response in responses] == ["1", "1"]
        assert service.is_draining
        assert [record.levelname for record in caplog.records if "/v1/translate 503" in record.getMessage()] == [
            "WARNING"
        ] * 2
        assert not any(record.exc_info for record in caplog.records)


class GatedModel(LoadedModel):
    """Translator whose first translation waits at a gate, with the network that it has started with."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.name, model.model, ("en", "it"), "ctranslate2")
        self.gate, self.is_waiting = threading.Event(), threading.Event()

    @contextmanager
    def locked(self, engine: str) -> Iterator[None]:
        if not self.is_waiting.is_set():
            self.is_waiting.set()
            assert self.gate.wait(TEST_TIMEOUT)
        with super().locked(engine):
            yield


class TestReloading:
    """Models are replaced while requests run."""

    @pytest.fixture
    def folder(self, model_folders: dict[str, Path], tmp_path: Path) -> Path:
        shutil.copytree(model_folders["en-it"], tmp_path / "en-it")
        return tmp_path / "en-it"

    @staticmethod
    def replace(folder: Path, source: Path) -> None:
        """Put the weights of another model into a folder, as a deployment does."""
        shutil.copyfile(source / "model.safetensors", folder / "new.safetensors")
        (folder / "new.safetensors").rename(folder / "model.safetensors")

    @staticmethod
    def translate(server: RunningServer) -> str:
        response = server.post("/v1/translate", {"text": TEXT})
        assert response.status_code == 200
        return str(response.json()["translations"][0]["translation"])

    @staticmethod
    def expected(service: Service, *folders: Path) -> list[str]:
        models = [load_models([f"x[en-it]={folder}"], engine="ctranslate2")[0] for folder in folders]
        return [model.translate([TEXT], TranslationOptions(service.search(model)))[0].text for model in models]

    @pytest.mark.slow
    def test_a_running_request_finishes_with_the_old_model(self, folder: Path, model_folders: dict[str, Path]) -> None:
        (loaded,) = load_models([str(folder)], engine="ctranslate2")
        loaded.warm_up()
        model = GatedModel(loaded)
        del loaded
        service = Service([model])
        old, new = self.expected(service, model_folders["en-it"], model_folders["it-en"])
        assert old != new
        old_model = weakref.ref(model.model)
        with run_server(service) as server, ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.translate, server)
            assert model.is_waiting.wait(TEST_TIMEOUT)
            self.replace(folder, model_folders["it-en"])
            service.reload()
            assert self.translate(server) == new
            assert not running.done()
            model.gate.set()
            assert running.result() == old
            wait_until(lambda: gc.collect() >= 0 and old_model() is None)

    @pytest.mark.slow
    def test_no_request_fails_under_load(self, folder: Path, model_folders: dict[str, Path]) -> None:
        service = Service(load_models([str(folder)], engine="ctranslate2"))
        old, new = self.expected(service, model_folders["en-it"], model_folders["it-en"])
        reloaded = threading.Event()

        def send_requests(server: RunningServer) -> list[str]:
            translations = []
            while not reloaded.is_set():
                translations.append(self.translate(server))
            return translations

        with run_server(service) as server, ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(send_requests, server) for _ in range(4)]
            for source in ("it-en", "en-it", "it-en"):
                self.replace(folder, model_folders[source])
                service.reload()
            reloaded.set()
            translations = [translation for client in clients for translation in client.result()]
            assert translations
            assert set(translations) <= {old, new}
            assert self.translate(server) == new

    @pytest.mark.slow
    def test_stored_traces_belong_to_the_new_model(self, folder: Path) -> None:
        service = Service(load_models([str(folder)], engine="torch"))
        with run_server(service) as server:
            trace = server.post("/v1/look", {"text": TEXT}).json()["id"]
            assert server.post("/v1/look/tree", {"trace": trace}).is_success
            service.reload()
            assert server.post("/v1/look/tree", {"trace": trace}).status_code == 404
            assert server.post("/v1/look", {"text": TEXT}).json()["id"] == trace
