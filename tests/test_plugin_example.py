"""The example plugin: a package outside regard adds components through entry points, without any change to regard."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each test starts processes

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"
SMALL = [
    "training.task=gpt",
    "model.kind=decoder-only",
    "tokenizer.kind=byte-level",
    "model.vocab_size=300",
    "model.width=16",
    "model.layers=1",
    "model.heads=2",
    "model.feed_forward=16",
    "training.steps=4",
    "training.log_every=1",
    "training.threads=1",
    "data.context_length=16",
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the example is installed: its entry points are where pip would write them."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]
    info = site / "regard_plugin_example-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group, points in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    paths = [str(site), str(PLUGIN / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


def regard(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regard", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)


def documented_config() -> str:
    """The config in the docstring of the optimizer."""
    tree = ast.parse((PLUGIN / "src" / "regard_plugin_example" / "lion.py").read_text("utf-8"))
    return "\n".join(line for line in (ast.get_docstring(tree, clean=False) or "").split("\n") if line[:4] == "    ")


def test_a_run_uses_positions_optimizer_schedule_and_reader_of_a_plugin(
    installed: dict[str, str], tmp_path: Path
) -> None:
    cues = [
        f"{n}\n00:00:0{n % 10},000 --> 00:00:0{n % 10},900\nLine {'abcdefgh'[n % 8]} of the film.\n\n"
        for n in range(300)
    ]
    (tmp_path / "film.srt").write_text("".join(cues), "utf-8")
    settings = [
        *SMALL,
        "model.positions=log-distance",
        "training.schedule.kind=warm-restarts",
        "training.schedule.learning_rate=0.01",
        "training.schedule.cycle_steps=2",
    ]
    sets = [part for setting in settings for part in ("--set", setting)]
    (tmp_path / "lion.toml").write_text(documented_config(), "utf-8")
    done = regard(installed, tmp_path, "train", "lion.toml", "--data", "film.srt", "--out", "run", "--quiet", *sets)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["learning_rate"] for line in lines if "learning_rate" in line] == [0.01, 0.005, 0.01, 0.005]
    program = (
        "import regard\nfrom regard.cli import app\n"
        "app(['generate', 'run', '--prompt', 'Line', '--max-tokens', '5', '--seed', '1'], standalone_mode=False)\n"
        "model = regard.load('run')\n"
        "text = model.generate('Line', max_tokens=40, seed=1, temperature=5.0, logits_processors=['no-digits'])\n"
        "assert not any(map(str.isdigit, text)), text\n"
    )
    processed = subprocess.run(
        [sys.executable, "-c", program], env=installed, cwd=tmp_path, capture_output=True, text=True
    )
    assert processed.returncode == 0, processed.stderr


def test_a_lab_of_a_plugin_is_listed_and_runs(installed: dict[str, str], tmp_path: Path) -> None:
    assert "log-distance" in regard(installed, tmp_path, "lab").stdout
    done = regard(installed, tmp_path, "lab", "log-distance", "--quick", "--out", "labs")
    assert done.returncode == 0, done.stderr
    assert "The bias falls from" in done.stdout


def test_without_the_plugin_its_names_are_unknown(tmp_path: Path) -> None:
    done = regard(dict(os.environ), tmp_path, "model", "tiny", "--set", "model.positions=log-distance")
    assert done.returncode == 2
    assert "log-distance" in done.stderr
    assert "sinusoidal" in done.stderr


def test_a_module_in_the_current_folder_registers_components(tmp_path: Path) -> None:
    (tmp_path / "my_positions.py").write_text(
        "from typing import ClassVar, Literal\n"
        "from regard.config import PositionsConfig\n"
        "from regard.config.positions import POSITIONS\n"
        "\n"
        "def build(config, model, *, encoder):\n"
        "    from regard.nn import Positions\n"
        "    return Positions()\n"
        "\n"
        '@POSITIONS.register("mine")\n'
        "class MineConfig(PositionsConfig):\n"
        '    kind: Literal["mine"] = "mine"\n'
        "    builder: ClassVar = build\n",
        "utf-8",
    )
    arguments = ["--plugin", "my_positions", "model", "tiny", "--set", "model.positions=mine"]
    done = regard(dict(os.environ), tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
