"""`regard average`: averaged weights and error messages."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard as package
from commands import regard
from random_models import SMALL, saved, words
from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig
from regard.models import build, save
from small_runs import run, write_pairs

WEIGHTS = "model.safetensors"


def test_weights_are_averaged_in_double_precision(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for seed, folder in enumerate(folders):
        saved(folder, EncoderDecoderConfig(**SMALL, dropout=0.1 * seed), seed=seed)
    done = regard("average", "--out", tmp_path / "mean", *folders)
    origin = f"The mean of the weights of 3 models: {', '.join(map(str, folders))}."
    assert (done.code, done.out) == (0, f"{origin}\nModel: {tmp_path / 'mean'}\n")
    weights = [load_file(folder / WEIGHTS) for folder in folders]
    mean = load_file(tmp_path / "mean" / WEIGHTS)
    assert mean.keys() == weights[0].keys()
    for name, tensor in mean.items():
        assert torch.equal(tensor, torch.stack([model[name].double() for model in weights]).mean(0).float()), name
    assert origin in (tmp_path / "mean" / "README.md").read_text("utf-8")
    assert package.load(tmp_path / "mean").translate("w4 w5")  # its tokenizer came along


def test_mean_of_a_model_with_itself_is_the_model(tmp_path: Path) -> None:
    saved(tmp_path / "a", DecoderOnlyConfig(**SMALL))
    regard("average", "--out", tmp_path / "mean", tmp_path / "a", tmp_path / "a")
    assert (tmp_path / "mean" / WEIGHTS).read_bytes() == (tmp_path / "a" / WEIGHTS).read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = write_pairs(folder / "pairs.tsv")
    return run(folder / "run", data, "training.average_checkpoints=3", "validation.every=5")


def test_last_weights_of_a_run_are_averaged(trained: Path, tmp_path: Path) -> None:
    done = regard("average", trained, "--last", "2", "--out", tmp_path / "mean")
    assert done.out.splitlines()[0] == f"The mean of the weights of {trained} at the steps 15, 20."
    kept = [load_file(trained / "weights" / f"step-{step:09d}.safetensors") for step in (15, 20)]
    for name, tensor in load_file(tmp_path / "mean" / WEIGHTS).items():
        assert torch.equal(tensor, ((kept[0][name].double() + kept[1][name].double()) / 2).float()), name
    assert (tmp_path / "mean" / "tokenizer.json").read_bytes() == (trained / "best" / "tokenizer.json").read_bytes()


def test_last_larger_than_the_saved_weights_is_an_error(trained: Path, tmp_path: Path) -> None:
    done = regard("average", trained, "--last", "5", "--out", tmp_path / "mean")
    assert (done.code, done.err) == (
        3,
        f"regard: {trained}: has the saved weights of 3 validations, not of 5; lower --last, or train with "
        "training.average_checkpoints = 5.\n",
    )


def test_weights_of_another_network_are_an_error(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "weights" / "step-000000020.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    shape = "×".join(map(str, tensors[name].shape))
    save_file({**tensors, name: torch.zeros(2, 2)}, path)
    done = regard("average", tmp_path / "run", "--last", "2", "--out", tmp_path / "mean")
    assert (done.code, done.err) == (
        3,
        f"regard: {path}: has {name} of shape 2×2, but config.json requires {shape}.\n",
    )
    path.write_bytes(b"nonsense")
    done = regard("average", tmp_path / "run", "--last", "2", "--out", tmp_path / "mean")
    assert done.code == 3
    assert done.err.startswith(f"regard: {path}: is damaged (")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "a", EncoderDecoderConfig(**SMALL))
    saved(folder / "more-heads", EncoderDecoderConfig(**{**SMALL, "heads": 2}))
    saved(folder / "gpt", DecoderOnlyConfig(**SMALL))
    saved(folder / "other-tokens", EncoderDecoderConfig(**SMALL), end=2, start=3)
    config = Config(model=EncoderDecoderConfig(**SMALL))
    tokenizer = words(prefix="v").to_str().encode()
    save(folder / "other-words", build(config.model), config, extra_files={"tokenizer.json": tokenizer})
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a"], 2, "one model has no mean; pass several models, or a run folder and --last 5."),
        (["a", "a", "--last", "2"], 2, "--last 2: is for one run folder, but there are 2; remove it."),
        (
            ["a", "--last", "2"],
            3,
            "a: has no saved weights to average; train with training.average_checkpoints = 2, or pass model folders.",
        ),
        (["nowhere", "--last", "2"], 3, "nowhere: does not exist; give the path of a model folder, or of a run."),
        (["a", "nowhere"], 3, "nowhere: does not exist; give the path of a model folder, or of a run."),
        (
            ["a", "more-heads"],
            2,
            "more-heads/config.json: has model.heads = 2, but a/config.json has 4; only networks with equal "
            "settings can be averaged.",
        ),
        (
            ["a", "gpt"],
            2,
            "gpt/config.json: has model.kind = 'decoder-only', but a/config.json has 'encoder-decoder'; only networks "
            "with equal settings can be averaged.",
        ),
        (
            ["a", "other-tokens"],
            2,
            "other-tokens/config.json: has tokens.start = 3, but a/config.json has 2; only networks with equal "
            "settings can be averaged.",
        ),
        (
            ["a", "other-words"],
            2,
            "other-words/tokenizer.json: differs from a/tokenizer.json; only networks with the same vocabulary "
            "can be averaged: train them with one tokenizer.file.",
        ),
    ],
)
def test_invalid_input_is_an_error(
    models: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(models)
    done = regard("average", *arguments, "--out", "mean")
    assert (done.code, done.out, done.err) == (code, "", f"regard: {message}\n")
    assert not (models / "mean").exists()


def test_existing_folder_is_not_replaced(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    done = regard("average", "a", "a", "--out", "gpt")
    assert (done.code, done.err) == (3, "regard: gpt: already exists; choose another name or remove it first.\n")
