"""`resolve_device`: names, defaults, and one message for a device that is not available."""

from pathlib import Path

import ctranslate2
import pytest
import torch

import regard
from commands import regard as command
from regard.decoding.engines.conversion import load_ctranslate2
from regard.errors import ConfigError
from regard.machine import ctranslate2_device, resolve_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as far as PyTorch tells."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("name", "device"), [("auto", "cuda:0"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")]
)
def test_names_with_gpus(name: str, device: str) -> None:
    assert resolve_device(name) == torch.device(device)


@pytest.mark.usefixtures("gpus")
def test_each_process_of_torchrun_has_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)


@pytest.mark.usefixtures("gpus")
def test_a_gpu_beyond_the_last() -> None:
    with pytest.raises(ConfigError, match=r"'cuda:2': PyTorch finds 2 GPUs; use cuda:N with N < 2, or cpu"):
        resolve_device("cuda:2")


@pytest.mark.usefixtures("no_gpu")
def test_auto_without_gpu_is_the_cpu() -> None:
    assert resolve_device("auto") == torch.device("cpu")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:3", "mps"])
def test_an_absent_gpu(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"device '{name}': PyTorch .*; use cpu\.") as error:
        resolve_device(name)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "gpus", "device"),
    [
        ("cpu", 2, ("cpu", 0)),
        ("auto", 2, ("cuda", 0)),
        ("auto", 0, ("cpu", 0)),
        ("cuda", 2, ("cuda", 0)),
        ("cuda:1", 2, ("cuda", 1)),
        ("cuda:2", 2, None),
        ("cuda", 0, None),
        ("mps", 2, None),
    ],
)
def test_devices_of_ctranslate2(
    name: str, gpus: int, device: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: gpus)
    assert ctranslate2_device(name) == device


def test_ctranslate2_is_given_its_device(translator: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[dict[str, object]] = []

    class Recorder:
        def __init__(self, folder: str, **options: object) -> None:
            loaded.append(options)

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    monkeypatch.setattr(ctranslate2, "Translator", Recorder)
    for device in ("cpu", "cuda:1"):
        load_ctranslate2("Translator", translator, "int8", threads=3, device=device)
    assert [(options["device"], options["device_index"], options["inter_threads"]) for options in loaded] == [
        ("cpu", 0, 3),
        ("cuda", 1, 1),  # one worker for a GPU
    ]


@pytest.mark.usefixtures("no_gpu")
def test_an_engine_that_cannot_use_the_device(translator: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine ctranslate2 cannot be used because CTranslate2 finds no such GPU"):
        regard.load(translator, device="cuda").translate("w4", engine="ctranslate2")
    with pytest.raises(ConfigError, match=r"device 'cuda': PyTorch .*; use cpu"):
        regard.load(translator, device="cuda").translate("w4")


def test_traces_are_computed_on_the_cpu(translator: Path) -> None:
    model = regard.load(translator)
    assert model.cpu_network is model.network


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "CPU", "meta"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device '{name}': there is no such device; use auto, cpu, cuda"):
        resolve_device(name)


def test_the_command_line_reports_an_absent_device(translator: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some text\n")
    commands: list[list[str | Path]] = [
        ["translate", translator, "w4"],
        ["train", "gpt", "--data", text, "--out", tmp_path / "run"],
    ]
    for arguments in commands:
        result = command(*arguments, "--device", "cuda")
        assert result.code == 2, result.err
        assert "device 'cuda': PyTorch" in result.err
        assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()
