"""`resolve_device`: names, defaults, and one message for a device that is not available."""

import pytest
import torch

from regard.devices import resolve_device
from regard.errors import ConfigError


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


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "CPU", "meta"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device '{name}': there is no such device; use auto, cpu, cuda"):
        resolve_device(name)
