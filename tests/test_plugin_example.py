"""The example plugin: a package outside regard adds components through entry points, without any change to regard.

Most tests install it in this process, by entry points in a folder of `sys.path`, and restore the registries afterwards.
"""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from commands import regard as run_command
from regard.config import ATTENTION, POSITIONS, load_config
from regard.config.optimization import OPTIMIZERS, SCHEDULES
from regard.data.readers import READERS
from regard.decoding.logits_processors import LOGITS_PROCESSORS
from regard.labs import LABS
from regard.models import Network, build
from regard.nn import attend, make_layout
from regard.nn.layout import Layout
from regard.registry import TASK_REGISTRY, Registry
from regard.training.batches import TokenBatch

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"
REGISTRIES: list[Registry[Any]] = [
    POSITIONS,
    ATTENTION,
    TASK_REGISTRY,
    OPTIMIZERS,
    SCHEDULES,
    READERS,
    LOGITS_PROCESSORS,
    LABS,
]
SMALL = [
    "training.task=unlikelihood",
    "model.kind=decoder-only",
    "model.attention=sink",
    "model.positions=log-distance",
    "tokenizer.kind=byte-level",
    "model.vocab_size=300",
    "model.width=16",
    "model.layers=1",
    "model.heads=2",
    "model.feed_forward=16",
    "training.steps=4",
    "training.log_every=1",
    "training.threads=1",
    "training.schedule.kind=warm-restarts",
    "training.schedule.learning_rate=0.01",
    "training.schedule.cycle_steps=2",
    "data.context_length=16",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the entry points of the example, where pip would write them."""
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
    assert set(project["entry-points"]) == {f"regard.{registry.group}" for registry in REGISTRIES}
    return site


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is installed; its names are unknown again afterwards."""
    _restore_registries(monkeypatch)
    monkeypatch.syspath_prepend(PLUGIN / "src")
    monkeypatch.syspath_prepend(site)


def _restore_registries(patch: pytest.MonkeyPatch) -> None:
    """Let the registries look for entry points again; at the end they have the same entries as before."""
    for registry in REGISTRIES:
        registry.names()  # the modules of its package register themselves once
        for table in ("_objects", "_paths"):
            patch.setattr(registry, table, dict(getattr(registry, table)))
        patch.setattr(registry, "_scanned", False)


def documented_config() -> str:
    """The config in the docstring of the optimizer."""
    tree = ast.parse((PLUGIN / "src" / "regard_plugin_example" / "lion.py").read_text("utf-8"))
    return "\n".join(line for line in (ast.get_docstring(tree, clean=False) or "").split("\n") if line[:4] == "    ")


def test_a_run_uses_components_of_a_plugin(installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions, attention, task, optimizer, schedule and reader, and then a logits processor."""
    monkeypatch.chdir(tmp_path)
    cues = [
        f"{n}\n00:00:0{n % 10},000 --> 00:00:0{n % 10},900\nLine {'abcdefgh'[n % 8]} of the film.\n\n"
        for n in range(300)
    ]
    (tmp_path / "film.srt").write_text("".join(cues), "utf-8")
    (tmp_path / "lion.toml").write_text(documented_config(), "utf-8")
    sets = [part for setting in SMALL for part in ("--set", setting)]
    done = run_command("train", "lion.toml", "--data", "film.srt", "--out", "run", "--quiet", *sets)
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["learning_rate"] for line in lines if "learning_rate" in line] == [0.01, 0.005, 0.01, 0.005]
    assert all(line["loss"] > line["cross_entropy"] for line in lines if "loss" in line)  # by the unlikelihood
    info = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert info["task"] == "language model that avoids repetition"
    model = regard.load("run")
    text = model.generate("Line", max_tokens=40, seed=1, temperature=5.0, logits_processors=["no-digits"])
    assert not any(map(str.isdigit, text)), text
    weights = model.look("Line a of").tensor("decoder.0.attention.weights").values
    assert ((weights.sum(-1) > 0) & (weights.sum(-1) < 1)).all()  # the rest is on the sink
    done = run_command("train", "lion.toml", "--data", "film.srt", "--out", "no", *sets, "--set", "training.rdrop=1")
    assert done.code == 2
    assert "regard train unlikelihood has no R-Drop; set training.rdrop = 0." in done.err


def tiny_network(*settings: str) -> Network:
    values = ["model.kind=decoder-only", "model.vocab_size=30", "model.width=16", "model.layers=1", "model.heads=4"]
    return build(load_config("tiny", [*values, "model.attention=sink", *settings]).model).double().eval()


def sink_layout(length: int, *, padded: bool) -> Layout:
    mask = torch.tensor([[True] * length, [True] * (length - 2) + [False] * 2]) if padded else None
    return make_layout(torch.zeros(2, length, dtype=torch.long), mask, causal=True)


@pytest.mark.parametrize("padded", [False, True])
def test_a_sink_is_a_key_with_a_learned_score_and_value_zero(installed: None, padded: bool) -> None:
    from regard_plugin_example.attention import SinkAttention

    kernel = SinkAttention(4, 0.5).double().eval()
    torch.nn.init.normal_(kernel.sink)
    q, k, v = torch.randn(2, 4, 5, 3).double(), torch.randn(2, 2, 5, 3).double(), torch.randn(2, 2, 5, 6).double()
    layout = sink_layout(5, padded=padded)
    allowed = layout.mask.allowed
    assert allowed is not None
    # a further component of queries and keys: the score of the sink in the key of the sink, 0 in others
    sink_scores = (kernel.sink / 0.5)[None, :, None, None].expand(2, 4, 5, 1)
    keys = torch.cat([torch.cat([k.repeat_interleave(2, 1), torch.zeros(2, 4, 5, 1).double()], -1), unit_key(3)], 2)
    values = torch.nn.functional.pad(v.repeat_interleave(2, 1), (0, 0, 0, 1))
    expected, _ = attend(
        torch.cat([q, sink_scores], -1), keys, values, torch.nn.functional.pad(allowed, (0, 1), value=True), scale=0.5
    )
    torch.testing.assert_close(kernel(q, k, v, layout), expected)
    nothing = kernel(q, k, v, make_layout(torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 5, dtype=torch.bool)))
    assert (nothing == 0).all()  # all weight is on the sink


def unit_key(width: int) -> Tensor:
    key = torch.zeros(2, 4, 1, width + 1).double()
    key[..., -1] = 1
    return key


def test_a_sink_decodes_with_a_cache_as_without(installed: None) -> None:
    network = tiny_network("model.positions=log-distance", "model.kv_heads=2")
    ids = torch.randint(4, 30, (2, 6))
    cache = network.new_cache()
    steps = [network.decode(ids[:, n : n + 1], cache=cache) for n in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), network.decode(ids))


def test_a_sink_with_a_soft_cap_is_an_error(installed: None) -> None:
    with pytest.raises(regard.ConfigError, match=r"'sink' does not cap scores; leave out model.attention_soft_cap"):
        tiny_network("model.attention_soft_cap=5.0")


@pytest.mark.parametrize("padded", [False, True])
def test_unlikelihood_adds_the_probability_of_earlier_tokens(installed: None, padded: bool) -> None:
    from regard_plugin_example.unlikelihood import UnlikelihoodObjective

    network = tiny_network()
    ids = torch.randint(4, 9, (2, 7))  # some repeat
    lengths = [6, 4] if padded else [6, 6]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    batch = TokenBatch(target=ids[:, :-1], labels=ids[:, 1:], target_mask=mask if padded else None)
    loss = UnlikelihoodObjective(network, 0.0)(batch)
    p = network.logits(network.decode(ids[:, :-1], mask=mask)).softmax(-1)
    likelihood = expected = torch.zeros(())
    for row, length in enumerate(lengths):
        for t in range(length):
            following = int(ids[row, t + 1])
            earlier = {*ids[row, : t + 1].tolist()} - {following}
            likelihood = likelihood - p[row, t, following].log()
            expected = expected - sum((1 - p[row, t, token]).log() for token in earlier)
    assert loss.targets == sum(lengths)
    torch.testing.assert_close(loss.cross_entropy, likelihood.float().detach(), check_dtype=False)
    torch.testing.assert_close(loss.loss, (likelihood + expected).float(), check_dtype=False)


def test_a_lab_of_a_plugin_is_listed_and_runs(installed: None, tmp_path: Path) -> None:
    assert "log-distance" in run_command("lab").out
    done = run_command("lab", "log-distance", "--quick", "--out", tmp_path / "labs")
    assert done.code == 0, done.err
    assert "The bias falls from" in done.out


@pytest.mark.slow  # starts a process
def test_a_new_process_finds_the_entry_points(site: Path) -> None:
    paths = [str(site), str(PLUGIN / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "regard", "train", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "translation, unlikelihood, word2vec" in done.stdout, done.stderr


def test_without_the_plugin_its_names_are_unknown() -> None:
    done = run_command("model", "tiny", "--set", "model.positions=log-distance")
    assert done.code == 2
    assert "log-distance" in done.err
    assert "sinusoidal" in done.err


def test_a_module_in_the_current_folder_registers_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _restore_registries(monkeypatch)
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
    done = run_command(*arguments)
    assert done.code == 0, done.err
