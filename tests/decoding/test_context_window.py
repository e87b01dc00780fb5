"""The context window of a language model is its training context if its positions do not extrapolate."""

import json
import random
from pathlib import Path

import pytest

import regard
from regard.config import Config, load_config
from regard.models import build, save
from regard.models.folder_files import read_config
from small_runs import run

LINE = "{} and {} makes {}.\n"
CONTEXT = 64


def sentence(n: int) -> str:
    return LINE.format(n, (n + 1) % 10, (2 * n + 1) % 10)


def write_text(path: Path) -> Path:
    path.write_text("".join(map(sentence, random.Random(0).choices(range(10), k=1500))))
    return path


@pytest.mark.parametrize(("positions", "steps"), [("rotary", 160), ("sinusoidal", 300)])
@pytest.mark.slow
def test_generation_beyond_the_training_context_stays_correct(positions: str, steps: int, tmp_path: Path) -> None:
    model = ["model.kind=decoder-only", f"data.context_length={CONTEXT}"]
    model += ["tokenizer.kind=character", "tokenizer.byte_fallback=false"]
    shape = ["model.width=64", "model.layers=2", "model.dropout=0.0", "model.norm_order=pre"]
    training = [
        "training.batch_tokens=512",
        "training.label_smoothing=0.0",
        f"training.steps={steps}",
        f"validation.every={steps}",
    ]
    out = run(
        tmp_path / "run", write_text(tmp_path / "t.txt"), *model, *shape, f"model.positions={positions}", *training
    )
    generated = regard.load(out).generate("1", max_tokens=6 * CONTEXT, temperature=0.5, seed=1)
    lines = generated.split("\n")[2:-1]
    correct = {sentence(n).strip() for n in range(10)}
    assert len(lines) >= 10
    assert sum(line in correct for line in lines) >= 0.8 * len(lines)


def make_config(*settings: str) -> Config:
    return load_config("gpt-char", [*settings, "model.vocab_size=50", "model.width=16", "model.layers=1"])


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        (["model.positions=rotary"], 32),
        (["model.positions=sinusoidal"], 32),
        (["model.positions.kind=learned", "model.positions.max_length=48"], 32),
        (["model.positions=alibi"], None),
        (["model.positions=relative"], None),
        (["model.positions=none"], None),
        (["model.positions=rotary", "model.attention=window"], None),
        (["model.positions=sinusoidal", "model.attention=window"], 32),
    ],
)
def test_the_context_window_follows_from_the_positions(settings: list[str], window: int | None, tmp_path: Path) -> None:
    config = make_config("data.context_length=32", *settings)
    save(tmp_path / "model", build(config.model), config)
    assert read_config(tmp_path / "model").context_window == window


def test_a_model_without_a_training_context_has_no_window(tmp_path: Path) -> None:
    config = make_config("model.positions=rotary")
    save(tmp_path / "model", build(config.model), config)
    assert "data" not in json.loads((tmp_path / "model" / "config.json").read_text())
    assert read_config(tmp_path / "model").context_window is None
