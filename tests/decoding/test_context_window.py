"""A language model sees no more at once than it was trained on, where its positions do not go on past that."""

import json
import random
from pathlib import Path

import pytest

import regard
from regard.config import Config, load_config
from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions
from regard.models import build, save
from regard.models.folder_files import read_config
from small_runs import run

LINE = "{} and {} makes {}.\n"
CONTEXT = 64


def text(path: Path) -> Path:
    draw = random.Random(0)
    path.write_text("".join(LINE.format(n, (n + 1) % 10, (2 * n + 1) % 10) for n in draw.choices(range(10), k=1500)))
    return path


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_it_writes_as_well_past_its_context_as_before(positions: str, tmp_path: Path) -> None:
    kind = ["model.kind=decoder-only", "tokenizer.kind=character", f"data.context_length={CONTEXT}"]
    shape = ["model.width=64", "model.layers=2", "model.dropout=0.0", "model.norm_order=pre"]
    how = ["training.batch_tokens=512", "training.label_smoothing=0.0", "training.steps=300", "validation.every=300"]
    out = run(tmp_path / "run", text(tmp_path / "t.txt"), *kind, *shape, f"model.positions={positions}", *how)
    wish = GenerationOptions(
        SamplingOptions(constraints=OutputConstraints(max_length=6 * CONTEXT), temperature=0.5, seed=1)
    )
    written = regard.load(out).generate("1", wish)
    assert isinstance(written, str)
    lines = written.split("\n")[2:-1]
    right = {LINE.format(n, (n + 1) % 10, (2 * n + 1) % 10).strip() for n in range(10)}
    assert len(lines) >= 10
    assert sum(line in right for line in lines) >= 0.8 * len(lines)


def config(*settings: str) -> Config:
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
def test_the_folder_tells_how_much_it_should_see(settings: list[str], window: int | None, tmp_path: Path) -> None:
    made = config("data.context_length=32", *settings)
    save(tmp_path / "model", build(made.model), made)
    assert read_config(tmp_path / "model").context_window == window


def test_a_folder_without_a_context_sees_all(tmp_path: Path) -> None:
    made = config("model.positions=rotary")
    save(tmp_path / "model", build(made.model), made)
    assert "data" not in json.loads((tmp_path / "model" / "config.json").read_text())
    assert read_config(tmp_path / "model").context_window is None
