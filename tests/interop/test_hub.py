"""`regard import organization/name` downloads from the hub, here a server of the test, and from nowhere else."""

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from commands import regard as command
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig
from regard.interop import export_huggingface
from regard.models import load_network

COMMIT = "0" * 39 + "1"
NAME = "org/tiny-gpt"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    saved(folder / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"))
    export_huggingface(folder / "ours", folder / "tiny-gpt")
    (folder / "tiny-gpt" / "pytorch_model.bin").write_bytes(b"a pickle, which is not downloaded")
    return folder / "tiny-gpt"


@pytest.fixture
def hub(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths requested from a stub of the hub."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = self.path.partition("?")[0]
            paths.append(path)
            if path.startswith(f"/api/models/{NAME}/tree/"):
                files = [
                    {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": "0" * 40}
                    for file in sorted(exported.iterdir())
                ]
                self.send(json.dumps(files).encode(), {})
            elif path.startswith(f"/api/models/{NAME}"):
                siblings = [{"rfilename": file.name} for file in sorted(exported.iterdir())]
                info = {"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": siblings, "tags": []}
                self.send(json.dumps(info).encode(), {})
            elif path.startswith(f"/{NAME}/resolve/{COMMIT}/"):
                content = (exported / path.rpartition("/")[2]).read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()}"'
                self.send(content, {"ETag": etag, "X-Repo-Commit": COMMIT})
            else:
                self.send(b"{}", {"X-Error-Code": "RepoNotFound"}, 404)

        def send(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # set for all other tests
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield paths
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_is_downloaded_and_imported(hub: list[str], exported: Path, tmp_path: Path) -> None:
    result = command("import", NAME)
    assert result.code == 0, result.err
    assert result.out.startswith("gpt2: ")
    assert f"from {NAME} to tiny-gpt-regard" in result.out
    network = load_network(tmp_path / "tiny-gpt-regard").network
    expected = load_network(exported.parent / "ours").network
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        torch.testing.assert_close(network(ids), expected(ids), rtol=1e-4, atol=1e-4)
    assert f"Hugging Face folder {NAME} (gpt2)" in (tmp_path / "tiny-gpt-regard" / "README.md").read_text("utf-8")
    assert f"/{NAME}/resolve/{COMMIT}/model.safetensors" in hub
    assert not any("pytorch_model.bin" in path for path in hub)


def test_a_local_folder_of_that_name_wins(hub: list[str], exported: Path, tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / NAME).symlink_to(exported)
    assert command("import", NAME, "--out", "ours").code == 0
    assert hub == []


def test_a_model_that_the_hub_does_not_have(hub: list[str]) -> None:
    result = command("import", "org/other")
    assert result.code == 3
    assert "org/other: is neither a local folder nor a model on http://127.0.0.1:" in result.err
    assert hub


def test_without_a_network_there_is_one_message(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where no server listens
    result = command("import", NAME)
    assert result.code == 3
    assert f"{NAME}: is not a local folder, and cannot be downloaded from http://127.0.0.1:9 (" in result.err
    assert "Traceback" not in result.err
    assert hub == []


def test_without_the_client_nothing_is_downloaded(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = command("import", NAME)
    assert result.code == 3
    assert f"{NAME}: is not a local folder. To download it" in result.err
    assert "pip install 'regard[hub]'" in result.err
    assert hub == []
