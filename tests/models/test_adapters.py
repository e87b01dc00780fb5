"""LoRA: an adapted network begins as its base, merging changes nothing, and adapter folders name what does not fit."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from commands import regard
from family import DECODERS, FAMILY, TOLERANCE, Batch, features_of, hidden, make
from random_models import saved
from regard import api
from regard.config import Config, DecoderOnlyConfig, RotaryPositionsConfig
from regard.errors import ModelError
from regard.interop.weight_arrays import read_arrays
from regard.models import Network, load_network, save
from regard.models.adapter_files import WHOLE_PARTS, Adapter, weights_checksum
from regard.models.folder import SharedWeights, load_merged, named_tensors, read_model_weights, trained_tensors
from regard.nn import cpu
from regard.nn.cpu import decode_step as prepared
from regard.nn.lora import LoRALinear, add_lora, linear_layers, lora_disabled, merge_lora
from regard.serving.loaded_models import load_models
from regard.training.trained_parts import adapt

ADAPTABLE = [
    name for name in FAMILY if linear_layers(make(FAMILY[name]), lambda name: not name.startswith(WHOLE_PARTS))
]
IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
MASK = torch.tensor([[True] * 4, [True, True, True, False]])
BATCH = Batch(IDS, MASK, IDS, MASK)
LLAMA = DecoderOnlyConfig(
    vocab_size=29,
    width=24,
    layers=2,
    heads=4,
    kv_heads=2,
    feed_forward=20,
    activation="swiglu",
    norm="rms",
    norm_order="pre",
    positions=RotaryPositionsConfig(),
)


def adapter_for(network: Network, base: str = "", checksum: str = "", rank: int = 3) -> Adapter:
    layers = linear_layers(network, lambda name: not name.startswith(WHOLE_PARTS))
    return Adapter(base, checksum, rank, 6.0, tuple(layers))


def randomize(network: Network, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith(".lora_b"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)


@pytest.mark.parametrize("name", ADAPTABLE)
def test_an_adapter_starts_as_its_base_trains_alone_and_merges(name: str) -> None:
    network = make(FAMILY[name])
    before = hidden(network, BATCH)
    base = {name: tensor.clone() for name, tensor in named_tensors(network).items()}
    note = adapt(network, adapter_for(network), dropout=0.0)
    torch.testing.assert_close(hidden(network, BATCH), before, rtol=0, atol=0)  # B is zero
    count = len(network.adapter.modules) if network.adapter else 0
    assert f"LoRA of rank 3 on {count} linear layers" in note

    randomize(network)
    adapted = hidden(network, BATCH)
    assert not torch.allclose(adapted, before, atol=1e-3)
    adapted.square().sum().backward()
    for parameter_name, parameter in network.named_parameters():
        if parameter_name.endswith((".lora_a", ".lora_b")):
            assert parameter.grad is not None
            unused = ".experts." in parameter_name  # an expert may have no token
            assert unused or parameter.grad.abs().sum() > 0, parameter_name
        elif not parameter_name.startswith(WHOLE_PARTS):
            assert parameter.grad is None, parameter_name
    with lora_disabled(network):
        torch.testing.assert_close(hidden(network, BATCH), before, rtol=0, atol=0)

    merge_lora(network)
    torch.testing.assert_close(hidden(network, BATCH), adapted, rtol=TOLERANCE, atol=TOLERANCE)
    assert named_tensors(network).keys() == base.keys()


def test_the_formula_and_dropout_of_the_input() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(5, 3).double()
    lora = LoRALinear(linear, rank=2, alpha=8.0, dropout=0.5)
    torch.nn.init.normal_(lora.lora_b)
    x = torch.randn(2, 4, 5).double()
    expected = x @ linear.weight.T + linear.bias + 8 / 2 * (x @ lora.lora_a.T) @ lora.lora_b.T
    torch.testing.assert_close(lora.eval()(x), expected)
    dropped = lora.train()(x)
    assert not torch.allclose(dropped, expected)
    # with the added part alone: what is left of x is doubled, and W x has no dropout
    seen = torch.stack([lora(torch.ones(5).double()) for _ in range(2000)]).mean(0)
    torch.testing.assert_close(seen, lora.eval()(torch.ones(5).double()), atol=0.4, rtol=0.05)


@pytest.mark.parametrize("name", [name for name in ADAPTABLE if name in DECODERS])
def test_cached_steps_on_a_cpu_include_the_adapter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MIN_COPIED", 0)
    network = make(DECODERS[name])
    add_lora(network, adapter_for(network).modules, rank=2, alpha=4.0)
    network.double()
    randomize(network)
    features = features_of(MASK)

    def steps() -> Tensor:
        with torch.inference_mode():
            memory = network.encode(IDS, MASK, features) if network.encodes else None
            cache = network.new_cache()
            return torch.stack([network.next_logits(IDS[:, [n]], memory, cache) for n in range(3)])

    outputs = [steps()]
    with lora_disabled(network):
        outputs.append(steps())
    with cpu.disabled():
        torch.testing.assert_close(steps(), outputs[0], rtol=TOLERANCE, atol=TOLERANCE)
        with lora_disabled(network):
            torch.testing.assert_close(steps(), outputs[1], rtol=TOLERANCE, atol=TOLERANCE)
    assert not torch.allclose(outputs[0], outputs[1], atol=1e-3)


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A language model, and two adapters of it: `one` and `two`."""
    base = tmp_path / "base"
    saved(base, LLAMA)
    for seed, name in enumerate(("one", "two")):
        loaded = load_network(base)
        adapt(loaded.network, adapter_for(loaded.network, str(base), weights_checksum(base)), dropout=0.0)
        randomize(loaded.network, seed)
        files = {"tokenizer.json": (base / "tokenizer.json").read_bytes()}
        save(tmp_path / name, loaded.network, loaded.config, extra_files=files)
    return base, tmp_path / "one"


def logits(network: Network) -> Tensor:
    with torch.inference_mode():
        return network.logits(network.decode(IDS))


def test_an_adapter_folder_has_its_matrices_only_and_loads_with_its_base(folders: tuple[Path, Path]) -> None:
    base, folder = folders
    names = load_file(folder / "adapter.safetensors")
    assert {name.rpartition(".")[2] for name in names} == {"lora_a", "lora_b"}
    assert not (folder / "model.safetensors").exists()
    content = json.loads((folder / "adapter.json").read_text())
    assert content["base"] == {"path": str(base), "sha256": weights_checksum(base)}
    assert (content["lora"]["rank"], content["lora"]["alpha"]) == (3, 6.0)

    network = load_network(folder).network
    assert trained_tensors(network).keys() == names.keys()
    adapted = logits(network)
    assert not torch.allclose(adapted, logits(load_network(base).network), atol=1e-3)
    torch.testing.assert_close(logits(load_merged(folder).network), adapted, atol=1e-5, rtol=1e-5)
    merged = read_model_weights(folder)[1]
    arrays = read_arrays(folder, LLAMA)
    for name, tensor in merged.items():
        torch.testing.assert_close(torch.from_numpy(arrays[name].copy()), tensor, atol=1e-6, rtol=1e-6)


def test_a_folder_can_be_merged_and_its_base_found_by_a_relative_path(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    base, folder = folders
    adapted = logits(load_network(folder).network)
    text = (folder / "adapter.json").read_text().replace(str(base), "../base")
    (folder / "adapter.json").write_text(text)
    done = regard("merge", folder, "--out", tmp_path / "merged")
    assert done.code == 0, done.err
    assert "Merged the matrices of 8 layers" in done.out
    shutil.rmtree(base)
    model = api.load(tmp_path / "merged")
    torch.testing.assert_close(logits(model.network), adapted, atol=1e-5, rtol=1e-5)
    assert model.generate("w4 w5", max_tokens=2, temperature=0)
    assert regard("merge", tmp_path / "merged", "--out", tmp_path / "again").code == 3


def test_adapters_in_one_server_share_their_base(folders: tuple[Path, Path]) -> None:
    base, folder = folders
    models = load_models([f"base={base}", f"one={folder}", f"two={folder.parent / 'two'}"], engine="torch")
    networks = [model.model.network for model in models]
    weights = [network.get_parameter("decoder.layers.0.attention.query_key_value.weight") for network in networks]
    assert weights[0] is weights[1] is weights[2]
    copies = [prepared._copies_of(weight) for weight in weights]
    assert copies[0] is copies[1] is copies[2]
    outputs = [logits(network) for network in networks]
    for model, output in zip(models, outputs, strict=True):
        torch.testing.assert_close(output, logits(load_network(model.model.folder).network), rtol=0, atol=0)
    assert not torch.allclose(outputs[1], outputs[2], atol=1e-3)
    models[1].reload()
    reloaded = models[1].model.network
    assert reloaded.get_parameter("decoder.embedding.weight") is networks[0].get_parameter("decoder.embedding.weight")


def test_shared_weights_are_freed_with_their_models(folders: tuple[Path, Path]) -> None:
    shared = SharedWeights()
    network = load_network(folders[1], shared).network
    checksum = weights_checksum(folders[0])
    assert shared.find(checksum)
    del network
    assert not shared.find(checksum)


def change_base(base: Path, folder: Path) -> None:
    tensors = load_file(base / "model.safetensors")
    save_file({name: tensor * 2 for name, tensor in tensors.items()}, base / "model.safetensors")


def remove_base(base: Path, folder: Path) -> None:
    shutil.rmtree(base)


def change_shape(base: Path, folder: Path) -> None:
    tensors = load_file(folder / "adapter.safetensors")
    name = "decoder.layers.0.attention.output.lora_b"
    save_file({**tensors, name: tensors[name][:-1].contiguous()}, folder / "adapter.safetensors")


def rename_layer(base: Path, folder: Path) -> None:
    text = (folder / "adapter.json").read_text()
    (folder / "adapter.json").write_text(text.replace("layers.1.feed_forward.inner", "layers.9.feed_forward.inner"))


def adapt_an_adapter(base: Path, folder: Path) -> None:
    text = (folder / "adapter.json").read_text()
    (folder / "adapter.json").write_text(text.replace(str(base), str(folder.parent / "two")))


def change_rank(base: Path, folder: Path) -> None:
    text = (folder / "adapter.json").read_text()
    (folder / "adapter.json").write_text(text.replace('"rank": 3', '"rank": "3"'))


def change_format(base: Path, folder: Path) -> None:
    text = (folder / "adapter.json").read_text()
    (folder / "adapter.json").write_text(text.replace('"format": 1', '"format": 7'))


def set_lora(name: str, value: object) -> Callable[[Path, Path], None]:
    """Replace a number in `adapter.json` by an unusable one."""

    def change(base: Path, folder: Path) -> None:
        content = json.loads((folder / "adapter.json").read_text())
        content["lora"][name] = value
        (folder / "adapter.json").write_text(json.dumps(content))

    return change


def link_base(base: Path, folder: Path) -> None:
    (base / "model.safetensors").unlink()
    (base / "model.safetensors").symlink_to("/dev/zero")


def pipe_base(base: Path, folder: Path) -> None:
    (base / "model.safetensors").unlink()
    os.mkfifo(base / "model.safetensors")


def link_adapter(base: Path, folder: Path) -> None:
    (folder / "adapter.safetensors").unlink()
    (folder / "adapter.safetensors").symlink_to("/dev/zero")


def pipe_settings(base: Path, folder: Path) -> None:
    (folder / "adapter.json").unlink()
    os.mkfifo(folder / "adapter.json")


@pytest.mark.parametrize(
    ("damage", "facts"),
    [
        *(
            (set_lora(name, value), ("adapter.json", f"lora.{name}", "copy the folder again"))
            for name, value in (("rank", True), ("alpha", 10**400), ("alpha", float("nan")), ("alpha", float("inf")))
        ),
        (link_base, ("base/model.safetensors", "it is a device, not a regular file")),
        (pipe_base, ("base/model.safetensors", "it is a pipe, not a regular file")),
        (link_adapter, ("adapter.safetensors", "it is a device, not a regular file")),
        (pipe_settings, ("adapter.json", "it is a pipe, not a regular file")),
        (change_base, ("adapter.json", "belongs to other weights than those in", "set base.path")),
        (remove_base, ("adapter.json", "its base model", "does not exist", "correct base.path")),
        (change_shape, ("adapter.safetensors", "decoder.layers.0.attention.output", "23", "24")),
        (rename_layer, ("adapter.json", "decoder.layers.9.feed_forward.inner", "does not have")),
        (adapt_an_adapter, ("is an adapter itself", "regard merge", "--out MODEL")),
        (change_rank, ("adapter.json", "lora.rank", "copy the folder again")),
        (change_format, ("adapter.json", "format 7", "update regard")),
    ],
)
def test_adapters_that_do_not_fit_their_base(
    folders: tuple[Path, Path], damage: object, facts: tuple[str, ...]
) -> None:
    base, folder = folders
    assert callable(damage)
    damage(base, folder)
    for load in (load_network, lambda folder: read_arrays(folder, LLAMA)):
        if damage is rename_layer and load is not load_network:
            facts = ("adapter.safetensors", "decoder.layers.9.feed_forward.inner", "no matrix W")
        with pytest.raises(ModelError) as error:
            load(folder)
        assert error.value.exit_code == 3
        assert all(fact in str(error.value) for fact in facts), str(error.value)


def test_a_config_of_a_network_without_adapter_is_still_complete(tmp_path: Path) -> None:
    config = Config(model=LLAMA)
    save(tmp_path / "model", make(LLAMA), config)
    assert load_merged(tmp_path / "model").network.adapter is None
