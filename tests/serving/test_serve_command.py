"""`regard serve` as a user runs it: one line when it is ready, a sentence when it cannot be, a quiet end."""

import errno
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from command_line import COMMAND, ENVIRONMENT
from commands import regard
from regard.serving.languages import guess
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel, load_models, parse_model_argument
from regard.serving.service import Service
from servers import PATIENCE, until


def test_it_says_where_it_is_answers_and_ends_quietly(folders: dict[str, Path], models: list[LoadedModel]) -> None:
    asked = [*COMMAND, "serve", f"mine[de-fr]={folders['en-it']}", str(folders["writer"]), "--port", "0"]
    process = subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    url = line.split(" at ")[1].split()[0]
    assert line == f"regard: mine (de-fr), writer at {url} (Ctrl-C stops)\n"
    with ThreadPoolExecutor(6) as pool:
        asked_for = {"q": "w4 w5", "source": "de", "target": "fr"}
        answers = [pool.submit(httpx.post, f"{url}/translate", json=asked_for, timeout=30) for _ in range(12)]
        assert answers[0].result().status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    for answer in answers:  # answered, or never accepted
        error = answer.exception()
        assert isinstance(error, httpx.TransportError) if error else answer.result().status_code == 200


def test_told_twice_it_ends_at_once(folders: dict[str, Path]) -> None:
    asked = [*COMMAND, "serve", str(folders["en-it"]), "--port", "0"]
    process = subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT
    )
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().split(" at http://127.0.0.1:")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port)) as unfinished:  # it waits for the rest of the body
            unfinished.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nq")
            assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=PATIENCE).is_success
            process.send_signal(signal.SIGINT)
            until(lambda: not _reached(port))
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out, err) == (130, "", "regard: stopped; what was not finished is lost.\n")


def _reached(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=PATIENCE).is_success
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
def test_how_much_it_says_can_be_chosen(
    folders: dict[str, Path], option: str, level: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ready(_: object, taken: socket.socket, say: Callable[[str], None]) -> None:
        taken.close()
        say("http://here")

    logger = logging.getLogger("regard")
    monkeypatch.setattr(logger, "handlers", [])
    before = logger.level
    monkeypatch.setattr("regard.serving.server.serve", ready)
    done = regard("serve", folders["en-it"], "--port", "0", option)
    assert (done.code, done.out, done.err) == (0, "", line)
    assert logger.level == level
    logger.setLevel(before)


def test_every_limit_can_be_set(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Service] = []

    def ready(service: Service, taken: socket.socket, _: object) -> None:
        taken.close()
        found.append(service)

    monkeypatch.setattr("regard.serving.server.serve", ready)
    monkeypatch.setattr(logging.getLogger("regard"), "handlers", [])
    given = {
        "--max-body": 11,
        "--max-characters": 12,
        "--max-texts": 13,
        "--max-beam": 14,
        "--max-tokens": 15,
        "--queue": 16,
        "--deadline": 17.5,
    }
    options = [f"{option}={value}" for option, value in given.items()]
    done = regard("serve", folders["en-it"], "--port", "0", "--beam", "3", *options)
    assert (done.code, done.err) == (0, "")
    limits = Limits(body=11, characters=12, texts=13, beam=14, tokens=15, queue=16, deadline=17.5)
    assert [(service.limits, service.beam) for service in found] == [(limits, 3)]


def test_a_port_that_is_taken_gets_a_sentence(folders: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = regard("serve", folders["en-it"], "--port", str(port))
    assert (done.code, done.err) == (
        1,
        f"regard: port {port} of 127.0.0.1 is taken; choose another with --port, or 0 for any.\n",
    )


def test_a_port_that_is_not_for_everyone_gets_a_sentence(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: socket.socket, __: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    done = regard("serve", folders["en-it"], "--port", "80")
    sentence = "port 80 of 127.0.0.1 may not be used by you; choose one above 1023 with --port."
    assert (done.code, done.err) == (1, f"regard: {sentence}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--port", "99999"], 1, "there is no port 99999; choose one from 0 to 65535 with --port."),
        (
            ["--host", "192.0.2.1", "--no-auth"],
            1,
            "--host 192.0.2.1: is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all of them.",
        ),
        (
            ["--host", "0.0.0.0"],
            2,
            "--host 0.0.0.0: others can reach this address; give --api-key-file or REGARD_API_KEY, or say --no-auth.",
        ),
        (["--engine", "torhc"], 2, "--engine torhc: should be auto, torch or ctranslate2 (did you mean torch?)."),
        (["--precision", "int4"], 2, "--precision int4: should be int8 or float32 (did you mean int8?)."),
        (
            ["--api-key-file", "/nonexistent/key"],
            3,
            "/nonexistent/key: cannot be read (No such file or directory); give the path of a file with a key.",
        ),
        (["--beam", "20"], 2, "--beam 20: is more than --max-beam 16; raise that, or lower this."),
        (["--cors", "page"], 2, "--cors page: should be a page's origin such as https://example.org, or *."),
    ],
)
def test_wrong_options_get_a_sentence(
    folders: dict[str, Path], arguments: list[str], code: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGARD_API_KEY", raising=False)
    done = regard("serve", folders["en-it"], *arguments)
    assert (done.code, done.err) == (code, f"regard: {sentence}\n")


def test_models_that_cannot_be_served_get_a_sentence(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["en-it"]
    done = regard("serve", tmp_path / "none")
    assert (done.code, done.err) == (
        3,
        f"regard: {tmp_path / 'none'}: is not a folder; give the path of a model folder, or of a run.\n",
    )
    done = regard("serve", folder, folder)
    assert (done.code, done.err) == (
        2,
        f"regard: {folder}: there is a model called en-it already; give it another, as in other={folder}.\n",
    )
    done = regard("serve", f"mine[en]={folder}")
    assert (done.code, done.err) == (
        2,
        f"regard: mine[en]={folder}: two languages should stand in the brackets, as in mine[en-it]=folder.\n",
    )
    done = regard("serve", f"my model={folder}")
    assert (done.code, done.err) == (
        2,
        f"regard: my model={folder}: 'my model' is no name for a model; give one, as in en-it={folder}.\n",
    )


class TestLanguages:
    """Which languages a translator has."""

    def test_they_can_be_given(self, folders: dict[str, Path]) -> None:
        assert parse_model_argument("mine=a/b")[::2] == ("mine", None)
        assert parse_model_argument("[en-it]=a/b") == ("b", Path("a/b"), ("en", "it"))
        assert parse_model_argument("m[zh-Hans:en]=b").pair == ("zh-Hans", "en")
        (given,) = load_models([str(folders["en-it"])], pair=("de", None))
        assert (given.source, given.target) == ("de", "it")

    def test_a_folder_with_an_equals_sign_is_a_folder(self, tmp_path: Path) -> None:
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
    def test_a_folders_name_may_tell_them(self, tmp_path: Path, name: str, pair: tuple[str, str]) -> None:
        (tmp_path / name).mkdir()
        assert guess(tmp_path / name) == pair

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
    def test_a_runs_files_may_tell_them(self, tmp_path: Path, train: str, pair: tuple[str, str]) -> None:
        (tmp_path / "best").mkdir()
        (tmp_path / "config.toml").write_text(f"[data.train]\n{train}\n")
        assert guess(tmp_path) == guess(tmp_path / "best") == pair
