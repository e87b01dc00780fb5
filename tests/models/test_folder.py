"""Model folders: saved networks are loaded unchanged, and every fault is reported with file and remedy."""

import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from family import FAMILY, Batch, hidden, make
from regard.config import Config, DecoderOnlyConfig
from regard.errors import ModelError
from regard.models import build, load_network, save
from regard.models.folder import assign_tensors, named_tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = Config(model=FAMILY["decoder-only"])
    save(tmp_path / "model", make(config.model).float(), config)
    return tmp_path / "model"


def load_error(folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_network(folder)
    assert error.value.exit_code == 3
    return str(error.value)


@pytest.mark.parametrize("name", FAMILY)
def test_a_loaded_network_equals_the_saved_one(name: str, tmp_path: Path) -> None:
    config = Config(model=FAMILY[name])
    network = make(config.model)
    save(tmp_path / "model", network, config)
    model = load_network(tmp_path / "model")
    assert model.config == config
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    mask = torch.tensor([[True, True, True], [True, False, True]])
    batch = Batch(ids, mask, ids, mask)
    saved, loaded = named_tensors(network), named_tensors(model.network)
    assert saved.keys() == loaded.keys()
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    # on some processors the alignment of a tensor decides the order in which its products are summed
    torch.testing.assert_close(hidden(model.network, batch), hidden(network, batch), rtol=0, atol=1e-12)
    assert not model.network.training


def test_shared_matrices_are_saved_once_and_stay_shared(tmp_path: Path) -> None:
    config = Config(model=FAMILY["encoder-decoder"])
    save(tmp_path / "model", make(config.model), config)
    names = load_file(tmp_path / "model" / "model.safetensors")
    assert "encoder.embedding.weight" in names
    assert "output.weight" not in names
    network = load_network(tmp_path / "model").network
    assert network.get_parameter("encoder.embedding.weight") is network.get_parameter("output.weight")


def test_assign_tensors_keeps_buffers() -> None:
    module = torch.nn.BatchNorm1d(3)
    tensors = {name: tensor + 1 for name, tensor in named_tensors(module).items()}
    assign_tensors(module, tensors)
    assert [name for name, _ in module.named_parameters()] == ["weight", "bias"]
    assert module.running_mean is not None
    assert module.running_mean.tolist() == [1, 1, 1]


def test_a_folder_has_only_json_safetensors_and_text(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert json.loads((folder / "config.json").read_text())["format"] == 1
    card = (folder / "README.md").read_text()
    assert card.startswith("# model\n\nDecoder-only Transformer with ")
    assert "| width | 16 |" in card


def test_a_folder_can_be_moved(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder, tmp_path / "elsewhere")
    assert load_network(tmp_path / "elsewhere").network(torch.tensor([[1, 2]])).shape == (1, 2, 23)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    assert load_error(path) == f"{path}: does not exist; give the path of a model folder, or of a run."
    path.write_text("")
    assert load_error(path) == f"{path}: is not a folder; give the path of a model folder, or of a run."


def test_a_run_without_a_model_says_how_to_continue(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert load_error(tmp_path) == (
        f"{tmp_path}: is a run that has no model yet, because it stopped before its first validation; continue it with "
        f"regard train --resume --out {tmp_path}."
    )


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file_is_an_error(folder: Path, file: str) -> None:
    (folder / file).unlink()
    assert load_error(folder) == f"{folder / file}: is missing, so {folder} is not a complete model folder."


def test_another_format_version_is_an_error(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    assert load_error(folder) == f"{path}: has format 2, but this regard reads format 1; update regard."


def test_a_config_of_another_library_is_an_error(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text('{"model_type": "gpt2"}')
    assert load_error(folder) == (
        f"{path}: has no format number, so it is not a regard model; import a Hugging Face folder with regard import."
    )


@pytest.mark.parametrize("content", ["{", "[1]", "\udcff"])
def test_a_damaged_config_is_an_error(folder: Path, content: str) -> None:
    path = folder / "config.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert load_error(folder).startswith(f"{path}: ")
    assert load_error(folder).endswith("copy the folder again.")


def test_an_invalid_setting_is_named(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"heads": 4', '"heads": 5'))
    assert load_error(folder) == f"{path}: model.heads = 5 does not divide model.width = 16: use 4 or 8."


def test_damaged_weights_are_an_error(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert load_error(folder).startswith(f"{path}: is damaged (")
    path.write_bytes(b"")
    assert load_error(folder).startswith(f"{path}: is damaged (")


@pytest.mark.parametrize("shard_bytes", [10**9, 2000], ids=["one file", "several files"])
def test_a_flipped_bit_of_the_weights_is_an_error(shard_bytes: int, tmp_path: Path) -> None:
    config = Config(model=FAMILY["decoder-only"])
    save(tmp_path / "model", make(config.model).float(), config, shard_bytes=shard_bytes)
    load_network(tmp_path / "model")
    path = sorted((tmp_path / "model").glob("*.safetensors"))[-1]
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert load_error(tmp_path / "model") == (
        f"{path}: is damaged (its content differs from the crc32 in its metadata); copy the folder again."
    )


def test_weights_of_others_need_no_checksum_and_those_of_a_model_are_always_written_alike(folder: Path) -> None:
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        assert file.metadata().keys() == {"format", "crc32"}
    contents = set()
    for n in range(8):  # safetensors orders metadata at random
        save(folder.parent / str(n), load_network(folder).network, load_network(folder).config)
        contents.add((folder.parent / str(n) / "model.safetensors").read_bytes())
    assert contents == {path.read_bytes()}
    tensors = {name: 2 * tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path)
    loaded = named_tensors(load_network(folder).network)
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_tensors_that_do_not_match_the_config_are_an_error(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "decoder.layers.0.feed_forward.inner.weight"
    save_file({**tensors, name: torch.zeros(2, 16)}, path)
    assert load_error(folder) == f"{path}: has {name} of shape 2×16, but config.json requires 24×16."
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, path)
    assert load_error(folder) == f"{path}: has no tensor {name}, which config.json requires."
    save_file({**tensors, "more": torch.zeros(1)}, path)
    assert load_error(folder) == f"{path}: has a tensor more, which config.json does not describe."


def test_integer_or_mixed_dtypes_are_an_error(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    first = next(iter(tensors))
    save_file({**tensors, first: tensors[first].half()}, path)
    remedy = "all should have one float type of 16 to 64 bits."
    assert load_error(folder) == f"{path}: has tensors of the types float16, float32; {remedy}"
    save_file({name: tensor.long() for name, tensor in tensors.items()}, path)
    assert load_error(folder) == f"{path}: has tensors of the types int64; {remedy}"


def test_a_network_is_saved_only_with_its_own_settings(tmp_path: Path) -> None:
    network = make(FAMILY["decoder-only"])
    path = tmp_path / "model"
    for config, problem in (
        (Config(model=FAMILY["encoder-only"]), "has no tensor encoder.embedding.weight, which config.json requires."),
        (Config(model=FAMILY["decoder-only, no feed-forward"]), "has a tensor decoder.layers.0.feed_forward"),
    ):
        with pytest.raises(ModelError) as error:
            save(path, network, config)
        assert str(error.value).startswith(f"{path}: cannot hold this network, which {problem}")
    for name in ("../evil", "config.json", "model.safetensors"):
        with pytest.raises(ModelError, match="cannot hold an extra file"):
            save(path, network, Config(model=FAMILY["decoder-only"]), extra_files={name: b""})
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(folder: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    config = Config(model=FAMILY["decoder-only"])
    with pytest.raises(ModelError) as error:
        save(folder, make(config.model, seed=1), config)
    assert str(error.value) == f"{folder}: already exists; choose another name or remove it first."
    assert (folder / "model.safetensors").read_bytes() == before


def test_an_unwritable_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = Config(model=FAMILY["decoder-only"])
    path = tmp_path / "file" / "model"
    with pytest.raises(ModelError) as error:
        save(path, make(config.model), config)
    assert str(error.value).startswith(f"{path}: cannot be written (")


def test_a_full_disk_is_an_error_and_leaves_no_files(tmp_path: Path) -> None:
    config = Config(model=DecoderOnlyConfig(vocab_size=1000, width=64, heads=4, layers=1))
    network = build(config.model)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # Python ignores SIGXFSZ, so that writing fails instead
    try:
        with pytest.raises(ModelError) as error:
            save(tmp_path / "model", network, config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value).startswith(f"{tmp_path / 'model'}: cannot be written (")
    assert str(error.value).endswith("free some space.")
    assert os.listdir(tmp_path) == []


def test_large_weights_are_in_several_files(tmp_path: Path) -> None:
    config = Config(model=DecoderOnlyConfig(vocab_size=50, width=16, heads=2, layers=2, feed_forward=32))
    network = build(config.model)
    save(tmp_path / "model", network, config, shard_bytes=6000)
    files = sorted(path.name for path in (tmp_path / "model").glob("model*"))
    count = len(files) - 1
    assert count > 2
    expected = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    assert files == [*expected, "model.safetensors.index.json"]
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    tensors = named_tensors(network)
    assert index["metadata"] == {"total_size": sum(tensor.nbytes for tensor in tensors.values())}
    assert set(index["weight_map"].values()) == set(expected)
    sizes = [sum(t.nbytes for t in load_file(tmp_path / "model" / file).values()) for file in expected]
    assert all(size <= 6000 for size in sizes)
    loaded = named_tensors(load_network(tmp_path / "model").network)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    (tmp_path / "model" / expected[1]).unlink()
    with pytest.raises(ModelError, match=rf"{expected[1]}: is missing, so .* is not a complete model folder"):
        load_network(tmp_path / "model")


def test_an_index_that_names_other_folders_or_tensors_is_an_error(tmp_path: Path) -> None:
    config = Config(model=DecoderOnlyConfig(vocab_size=50, width=16, heads=2, layers=1, feed_forward=32))
    save(tmp_path / "model", build(config.model), config, shard_bytes=4000)
    path = tmp_path / "model" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    first = next(iter(index["weight_map"]))
    for weight_map, message in (
        ({first: "../x.safetensors"}, "names the file '../x.safetensors', which is in another folder"),
        ([], "should map tensors to files under weight_map"),
        (index["weight_map"] | {"other": index["weight_map"][first]}, "has no tensor other, which model.safetensors"),
    ):
        path.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ModelError, match=message):
            load_network(tmp_path / "model")
