"""`regard serve` as a user runs it: one line when it is ready, one message for an error, and a clean shutdown."""

import errno
import gc
import json
import logging
import os
import shutil
import signal
import socket
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from commands import regard, start_process
from regard.decoding.options import TranslationOptions
from regard.errors import ServerError
from regard.serving.access import resolve_access
from regard.serving.languages import guess_languages
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel, load_models, parse_model_argument
from regard.serving.server import bind_socket, reload_in_background
from regard.serving.service import Service
from servers import TEST_TIMEOUT, run_server, wait_until


@pytest.mark.slow
def test_it_prints_its_url_serves_and_shuts_down(
    model_folders: dict[str, Path], loaded_models: list[LoadedModel]
) -> None:
    command = ["serve", f"mine[de-fr]={model_folders['en-it']}", str(model_folders["writer"]), "--port", "0"]
    process = start_process(*command)
    assert process.stderr is not None
    line = process.stderr.readline()
    url = line.split(" at ")[1].split()[0]
    assert line == f"regard: mine (de-fr), writer at {url} (Ctrl-C stops)\n"
    with ThreadPoolExecutor(6) as pool:
        body = {"q": "w4 w5", "source": "de", "target": "fr"}
        responses = [pool.submit(httpx.post, f"{url}/translate", json=body, timeout=30) for _ in range(12)]
        assert responses[0].result().status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    for response in responses:  # completed, or never accepted
        error = response.exception()
        assert isinstance(error, httpx.TransportError) if error else response.result().status_code == 200


@pytest.mark.slow
def test_a_second_interrupt_exits_at_once(model_folders: dict[str, Path]) -> None:
    command = ["serve", str(model_folders["en-it"]), "--port", "0"]
    process = start_process(*command)
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().split(" at http://127.0.0.1:")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port)) as unfinished:  # the rest of the body never arrives
            unfinished.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nq")
            assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=TEST_TIMEOUT).is_success
            process.send_signal(signal.SIGINT)
            wait_until(lambda: not _is_reachable(port))
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TEST_TIMEOUT)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out, err) == (130, "", "regard: stopped; unfinished requests are lost.\n")


def test_a_server_that_cannot_start_logs_json(tmp_path: Path) -> None:
    done = regard("serve", tmp_path / "none", "--port", "0", "--log-format", "json")
    assert (done.code, done.out) == (3, "")
    (line,) = done.err.splitlines()
    content = json.loads(line)
    assert (content["level"], content["process"]) == ("error", os.getpid())
    assert content["message"] == f"{tmp_path / 'none'}: does not exist; give the path of a model folder, or of a run."


@pytest.mark.slow
def test_hangup_reloads_the_models_and_logs_json(model_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "en-it"
    shutil.copytree(model_folders["en-it"], folder)
    process = start_process("serve", folder, "--port", "0", "--log-format", "json", "--verbose")
    try:
        assert process.stderr is not None
        while " at http" not in (line := json.loads(process.stderr.readline())["message"]):
            pass
        url = line.split(" at ")[1].split()[0]
        weights = folder / "model.safetensors"
        before, content = httpx.get(f"{url}/health", timeout=TEST_TIMEOUT).status_code, weights.read_bytes()
        weights.write_bytes(content[:100])
        process.send_signal(signal.SIGHUP)
        lines = [json.loads(process.stderr.readline())]
        while "reloaded" not in lines[-1]["message"]:
            lines.append(json.loads(process.stderr.readline()))
        weights.write_bytes(content)
        process.send_signal(signal.SIGHUP)
        while lines[-1]["message"] != "en-it was reloaded":
            lines.append(json.loads(process.stderr.readline()))
        after = httpx.get(f"{url}/health", timeout=TEST_TIMEOUT).status_code
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TEST_TIMEOUT)
    finally:
        process.kill()
        process.communicate()
    assert (before, after, process.returncode) == (200, 200, 0)
    assert "Traceback" not in err
    assert any(line["level"] == "error" and "was not reloaded" in line["message"] for line in lines)
    request = next(line for line in lines if line.get("path") == "/health")
    assert {name: request[name] for name in ("level", "client", "method", "status")} == {
        "level": "info",
        "client": "127.0.0.1",
        "method": "GET",
        "status": 200,
    }


def test_a_reload_replaces_the_model(model_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "en-it"
    shutil.copytree(model_folders["en-it"], folder)
    (model,) = load_models([str(folder)], engine="torch")
    service, old = Service([model]), model.model
    service.reload()
    assert model.model is not old
    assert model.translate(["w4 w5"], TranslationOptions())[0].text == old.translate("w4 w5", engine="torch")
    shutil.rmtree(folder)
    shutil.copytree(model_folders["writer"], folder)
    new = model.model
    service.reload()  # logs that it has become a model of another kind
    assert model.model is new


@pytest.mark.slow
def test_old_models_leave_memory_after_a_reload() -> None:
    class Model:
        """A model that refers to itself, as networks with hooks do."""

        def __init__(self) -> None:
            self.itself = self

    class ReloadedService:
        def __init__(self) -> None:
            self.model = Model()

        def reload(self) -> None:
            self.model = Model()

    service: Any = ReloadedService()
    old = weakref.ref(service.model)
    gc.disable()  # only the collection after the reload can remove it
    try:
        reload_in_background(service).join()
    finally:
        gc.enable()
        gc.unfreeze()
    assert old() is None


@pytest.mark.parametrize(
    ("proxy", "client"), [("127.0.0.1", "192.0.2.7"), ("127.0.0.0/8", "192.0.2.7"), (None, "127.0.0.1")]
)
def test_only_a_trusted_proxy_names_the_client(
    loaded_models: list[LoadedModel], proxy: str | None, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    access = resolve_access("127.0.0.1", key=None, proxies=(proxy,) if proxy else ())
    with (
        caplog.at_level(logging.INFO, "regard.serving"),  # until the server has ended: it logs after its response
        run_server(Service(loaded_models[:1], access=access)) as server,
    ):
        assert server.get("/health", headers={"x-forwarded-for": "192.0.2.7"}).is_success
    assert f"{client} GET /health 200" in caplog.text


def test_a_trusted_proxy_is_an_address(model_folders: dict[str, Path]) -> None:
    done = regard("serve", model_folders["en-it"], "--trusted-proxy", "proxy.example")
    message = "regard: --trusted-proxy proxy.example: should be an IP address or a network such as 10.0.0.0/8.\n"
    assert (done.code, done.err) == (2, message)


def _is_reachable(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=TEST_TIMEOUT).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("option", "level", "line"),
    [
        ("--quiet", logging.ERROR, ""),
        ("--verbose", logging.INFO, "regard: en-it (en-it) at http://here (Ctrl-C stops)\n"),
        ("--beam=4", logging.WARNING, "regard: en-it (en-it) at http://here (Ctrl-C stops)\n"),
    ],
)
def test_the_log_level_is_an_option(
    model_folders: dict[str, Path], option: str, level: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(_: object, bound: socket.socket, on_ready: Callable[[str], None]) -> None:
        bound.close()
        on_ready("http://here")

    logger = logging.getLogger("regard")
    monkeypatch.setattr(logger, "handlers", [])
    before = logger.level
    monkeypatch.setattr("regard.serving.server.serve", serve)
    done = regard("serve", model_folders["en-it"], "--port", "0", option)
    assert (done.code, done.out, done.err) == (0, "", line)
    assert logger.level == level
    monkeypatch.setattr(logger, "handlers", [])
    done = regard("serve", model_folders["en-it"], "--port", "0", option, "--log-format", "json")
    records = [json.loads(text) for text in done.err.splitlines()]  # the first line is in the format of the log too
    assert [record["message"] for record in records] == [line.removeprefix("regard: ").rstrip()] * bool(line)
    logger.setLevel(before)


def test_every_limit_can_be_set(model_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    services: list[Service] = []

    def serve(service: Service, bound: socket.socket, _: object) -> None:
        bound.close()
        services.append(service)

    monkeypatch.setattr("regard.serving.server.serve", serve)
    monkeypatch.setattr(logging.getLogger("regard"), "handlers", [])
    values = {
        "--max-body": 11,
        "--max-characters": 12,
        "--max-texts": 13,
        "--max-beam": 14,
        "--max-tokens": 15,
        "--max-queue": 16,
        "--timeout": 17.5,
    }
    options = [f"{option}={value}" for option, value in values.items()]
    done = regard("serve", model_folders["en-it"], "--port", "0", "--beam", "3", *options)
    assert (done.code, done.err) == (0, "")
    limits = Limits(
        max_body_bytes=11, max_characters=12, max_texts=13, max_beam=14, max_tokens=15, max_queue=16, timeout=17.5
    )
    assert [(service.limits, service.beam) for service in services] == [(limits, 3)]


def test_a_port_can_be_used_again_at_once() -> None:
    with bind_socket("127.0.0.1", 0) as bound:
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_a_socket_that_cannot_be_bound_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    close = socket.socket.close

    def record(self: socket.socket) -> None:
        closed.append(self.fileno())
        close(self)

    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(socket.socket, "close", record)
        with pytest.raises(ServerError, match="is in use"):
            bind_socket("127.0.0.1", other.getsockname()[1])
        monkeypatch.undo()
    assert len(closed) == 1


def test_a_port_in_use_gets_a_message(model_folders: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = regard("serve", model_folders["en-it"], "--port", str(port))
    assert (done.code, done.err) == (
        1,
        f"regard: port {port} of 127.0.0.1 is in use; choose another one with --port, or 0 for any.\n",
    )


def test_a_privileged_port_gets_a_message(model_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(_: socket.socket, __: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", deny)
    done = regard("serve", model_folders["en-it"], "--port", "80")
    message = "port 80 of 127.0.0.1 needs more privileges; choose one above 1023 with --port."
    assert (done.code, done.err) == (1, f"regard: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--port", "99999"], 2, "there is no port 99999; choose one from 0 to 65535 with --port."),
        (
            ["--host", "192.0.2.1", "--no-auth"],
            2,
            "--host 192.0.2.1: is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all of them.",
        ),
        (
            ["--host", "0.0.0.0"],
            2,
            "--host 0.0.0.0: other machines can reach this address; set --api-key-file or REGARD_API_KEY, "
            "or pass --no-auth.",
        ),
        (["--engine", "torhc"], 2, "--engine torhc: should be auto, torch or ctranslate2 (did you mean torch?)."),
        (["--precision", "int4"], 2, "--precision int4: should be int8 or float32 (did you mean int8?)."),
        (
            ["--api-key-file", "/nonexistent/key"],
            3,
            "/nonexistent/key: cannot be read (No such file or directory); pass the path of a file with a key.",
        ),
        (["--beam", "20"], 2, "--beam 20: is more than --max-beam 16; lower --beam, or raise --max-beam."),
        (["--cors", "page"], 2, "--cors page: should be an origin such as https://example.org, or *."),
    ],
)
def test_invalid_options_get_a_message(
    model_folders: dict[str, Path], arguments: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGARD_API_KEY", raising=False)
    done = regard("serve", model_folders["en-it"], *arguments)
    assert (done.code, done.err) == (code, f"regard: {message}\n")


def test_models_that_cannot_be_served_get_a_message(model_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = model_folders["en-it"]
    done = regard("serve", tmp_path / "none")
    assert (done.code, done.err) == (
        3,
        f"regard: {tmp_path / 'none'}: does not exist; give the path of a model folder, or of a run.\n",
    )
    done = regard("serve", folder, folder)
    assert (done.code, done.err) == (
        2,
        f"regard: {folder}: there is already a model named en-it; choose another name, as in other={folder}.\n",
    )
    done = regard("serve", f"mine[en]={folder}")
    assert (done.code, done.err) == (
        2,
        f"regard: mine[en]={folder}: put two languages into the brackets, as in mine[en-it]=folder.\n",
    )
    done = regard("serve", f"my model={folder}")
    assert (done.code, done.err) == (
        2,
        f"regard: my model={folder}: 'my model' is not a valid model name; choose one, as in en-it={folder}.\n",
    )


class TestLanguages:
    """Languages of a translator."""

    def test_languages_can_be_set(self, model_folders: dict[str, Path]) -> None:
        assert parse_model_argument("mine=a/b")[::2] == ("mine", None)
        assert parse_model_argument("[en-it]=a/b") == ("b", Path("a/b"), ("en", "it"))
        assert parse_model_argument("m[zh-Hans:en]=b").languages == ("zh-Hans", "en")
        (model,) = load_models([str(model_folders["en-it"])], languages=("de", None))
        assert (model.source_language, model.target_language) == ("de", "it")

    def test_a_folder_name_may_have_an_equals_sign(self, tmp_path: Path) -> None:
        (tmp_path / "a=b").mkdir()
        assert parse_model_argument(str(tmp_path / "a=b")).folder == tmp_path / "a=b"

    @pytest.mark.parametrize(
        ("name", "pair"),
        [
            ("en-it", ("en", "it")),
            ("opus-mt-de-fr", ("de", "fr")),
            ("best", ("source", "target")),
            ("xx-yy", ("source", "target")),
        ],
    )
    def test_languages_from_the_folders_name(self, tmp_path: Path, name: str, pair: tuple[str, str]) -> None:
        (tmp_path / name).mkdir()
        assert guess_languages(tmp_path / name) == pair

    @pytest.mark.parametrize(
        ("train", "pair"),
        [
            ('source = ["data/train.en"]\ntarget = ["data/train.de.gz"]', ("en", "de")),
            ('files = ["builtin:phrasebook"]', ("en", "it")),
            ('files = ["pairs.tsv"]', ("source", "target")),
            ("source = 7", ("source", "target")),
            ("[", ("source", "target")),
        ],
    )
    def test_languages_from_the_runs_files(self, tmp_path: Path, train: str, pair: tuple[str, str]) -> None:
        (tmp_path / "best").mkdir()
        (tmp_path / "config.toml").write_text(f"[data.train]\n{train}\n")
        assert guess_languages(tmp_path) == guess_languages(tmp_path / "best") == pair
