"""Runs that train a LoRA adapter or freeze parameters: what changes, what is saved, and resuming bit by bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from commands import regard
from regard import api
from regard.config import load_sources
from regard.errors import ConfigError, ModelError, RunError
from regard.models.folder import load_network, named_tensors
from regard.training.display import ProgressDisplay
from regard.training.runner import run_training
from regard.training.setup import TrainRequest
from small_runs import numbers, write_pairs
from small_runs import run as train

LORA = ("training.lora.rank=2", "training.lora.dropout=0.1", "training.steps=8", "validation.every=4")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("base")
    data = write_pairs(folder / "pairs.tsv", count=60)
    return train(folder / "run", data, "training.steps=3"), data


def fine_tune(base: tuple[Path, Path], out: Path, *settings: str, resume: bool = False) -> Path:
    kept = () if resume else (f"training.start_from={base[0]}",)
    sets = [f"data.train.files={base[1]}", "data.validation_fraction=0.1", "training.batch_tokens=120", *kept]
    sets += ["training.log_every=1", "training.threads=1", "validation.sentences=2", "validation.samples=0"]
    sets += ["training.schedule.learning_rate=0.01", "training.schedule.warmup_steps=2", *settings]
    return run_training(TrainRequest(load_sources(None, sets), out, resume=resume)).folder


@pytest.fixture(scope="module")
def adapted(base: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with LoRA, a moving average and an average of the last validations."""
    out = tmp_path_factory.mktemp("lora") / "run"
    return fine_tune(base, out, *LORA, "training.ema_decay=0.9", "training.average_checkpoints=2")


def test_only_the_adapter_is_trained_and_saved(base: tuple[Path, Path], adapted: Path) -> None:
    before = named_tensors(load_network(base[0]).network)
    network = load_network(adapted).network
    after = named_tensors(network)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    added = {name for name in after if name not in before}
    assert {name.rpartition(".")[2] for name in added} == {"lora_a", "lora_b"}
    assert all(after[name].any() for name in added)
    (checkpoint,) = (load_file(path) for path in adapted.glob("checkpoints/step-000000008.safetensors"))
    names = {name.split("/")[1] for name in checkpoint if "/" in name}
    assert names == added  # of the network, the optimizer and the moving average: no weights of the base
    assert set(load_file(adapted / "best" / "adapter.safetensors")) == added
    assert not (adapted / "last" / "model.safetensors").exists()
    assert api.load(adapted).translate("one two", beam=2)
    assert (adapted / "report.html").exists()


def test_an_adapter_resumes_bit_by_bit(base: tuple[Path, Path], adapted: Path, tmp_path: Path) -> None:
    averages = ("training.ema_decay=0.9", "training.average_checkpoints=2")
    fine_tune(base, tmp_path / "run", *LORA, *averages, "training.steps=4")
    fine_tune(base, tmp_path / "run", "training.steps=8", resume=True)
    assert numbers(tmp_path / "run") == numbers(adapted)
    for name in ("best", "last"):
        ours, theirs = (load_file(run / name / "adapter.safetensors") for run in (tmp_path / "run", adapted))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_changed_base_is_noticed_on_resume(base: tuple[Path, Path], tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in (base[0] / "best").iterdir():
        if path.is_file():
            (model / path.name).write_bytes(path.read_bytes())
    fine_tune((model, base[1]), tmp_path / "run", *LORA, "training.steps=1", "validation.every=1")
    weights = load_file(model / "model.safetensors")
    save_file({name: tensor * 2 for name, tensor in weights.items()}, model / "model.safetensors")
    with pytest.raises(RunError, match=r"has other weights than when the run was started.*restore them"):
        fine_tune((model, base[1]), tmp_path / "run", "training.steps=2", resume=True)


class Notes(ProgressDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_frozen_parameters_keep_their_values(base: tuple[Path, Path], tmp_path: Path) -> None:
    sets = [f"data.train.files={base[1]}", f"training.start_from={base[0]}", "training.steps=2", "validation.every=2"]
    sets += [
        "training.freeze=['embedding', '^encoder.layers']",
        "validation.sentences=0",
        "data.validation_fraction=0.1",
    ]
    sets += ["training.schedule.learning_rate=0.01", "training.schedule.warmup_steps=0"]
    display = Notes()
    run_training(TrainRequest(load_sources(None, sets), tmp_path / "run"), display)
    before, after = (named_tensors(load_network(folder).network) for folder in (base[0], tmp_path / "run"))
    for name, tensor in before.items():
        frozen = "embedding" in name or name.startswith("encoder.layers")
        assert torch.equal(after[name], tensor) == frozen, name
    assert any(note.startswith("training.freeze: ") and "parameters are trained." in note for note in display.notes)


RANK = "training.lora.rank=2"


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ([RANK, "training.lora.modules=fed"], ["training.lora.modules", "'fed'", "layers.0.attention.output"]),
        (["training.freeze=['norm', 'fed']"], ["training.freeze", "'fed' matches no parameter", "embedding.weight"]),
        (["training.freeze=."], ["training.freeze = .: freezes all parameters; leave some"]),
        (["training.freeze=(a"], ["training.freeze = '(a'", "is not a valid regular expression"]),
        ([RANK, "training.parallel.kind=fsdp"], ["training.lora.rank = 2 needs training.parallel.kind = 'ddp'"]),
    ],
)
def test_settings_that_cannot_work(
    base: tuple[Path, Path], tmp_path: Path, settings: list[str], facts: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        fine_tune(base, tmp_path / "run", *settings)
    assert all(fact in str(error.value) for fact in facts), str(error.value)
    assert not (tmp_path / "run").exists()


def test_lora_needs_a_base_that_is_complete(base: tuple[Path, Path], adapted: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is an adapter itself.*merge it first: regard merge"):
        fine_tune((adapted, base[1]), tmp_path / "run", *LORA)
    done = regard("train", "translation", "--data", base[1], "--out", tmp_path / "run", "--set", "training.lora.rank=2")
    assert done.code == 2
    assert "training.lora.rank = 2 needs training.start_from, the model to adapt: pass --from MODEL." in done.err
    averaged = regard("average", adapted, "--last", "2", "--out", tmp_path / "mean")
    assert averaged.code == 3
    assert "trained an adapter" in averaged.err
    assert regard("average", adapted, base[0], "--out", tmp_path / "mean").code == 0  # merged first
    # all weights of an adapter and its base can be trained further
    full = fine_tune((adapted, base[1]), tmp_path / "full", "training.steps=1", "validation.every=1")
    assert (full / "best" / "model.safetensors").exists()
