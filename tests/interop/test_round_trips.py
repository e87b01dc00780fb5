"""`regard import` of what `regard export` wrote computes the same numbers, for every network that can be exported."""

from pathlib import Path

import pytest
import torch

from family import FAMILY
from random_models import ROTARY, SCALINGS, saved, sources
from regard.config import Config, ModelConfig
from regard.interop import export_gguf, export_huggingface, import_gguf_file, import_huggingface
from regard.interop.gguf_export import unsupported_by_gguf
from regard.interop.huggingface import unsupported_by_huggingface
from regard.models import Network, load_network

NETWORKS: dict[str, ModelConfig] = {**FAMILY, **ROTARY}


def outputs(network: Network) -> list[torch.Tensor]:
    """What a network computes for padded texts: the logits, or the states and vectors of an encoder."""
    network = network.double()
    texts = sources(vocabulary=20, count=4)
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    mask = torch.arange(width) < torch.tensor([[len(text)] for text in texts])
    with torch.no_grad():
        memory = network.encode(ids, mask) if network.encodes else None
        if network.decodes:
            return [network.logits(network.decode(ids, memory, mask=mask))[mask]]
        assert memory is not None
        return [memory.states[mask]]


@pytest.mark.parametrize(
    "name", [name for name, model in NETWORKS.items() if unsupported_by_huggingface(Config(model=model)) is None]
)
def test_hugging_face_folders(name: str, tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", NETWORKS[name])
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    report = import_huggingface(tmp_path / "exported", tmp_path / "again")
    assert not report.skipped
    again = load_network(tmp_path / "again")
    for actual, expected in zip(outputs(again.network), outputs(network), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert again.config.tokens == config.tokens


@pytest.mark.parametrize(
    "name", [name for name, model in NETWORKS.items() if unsupported_by_gguf(Config(model=model)) is None]
)
def test_gguf_files(name: str, tmp_path: Path) -> None:
    network, _ = saved(tmp_path / "ours", NETWORKS[name])
    file = export_gguf(tmp_path / "ours", tmp_path / "x.gguf", "F32").folder
    again = load_network(import_gguf_file(file, tmp_path / "again").folder)
    for actual, expected in zip(outputs(again.network), outputs(network), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_every_rotary_network_here_is_exported() -> None:
    for model in ROTARY.values():
        assert unsupported_by_huggingface(Config(model=model)) is None
    assert {name for name in SCALINGS if unsupported_by_gguf(Config(model=ROTARY[f"{name} scaling"])) is None} == {
        *SCALINGS
    }
