"""Start-up: the number of modules that commands import, which decides how long it takes, instead of a clock."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from commands import regard
from random_models import SMALL, saved
from regard.cli import COMMANDS, app
from regard.config import EncoderDecoderConfig

HELP_BUDGET = 125  # modules, the standard library included
TRANSLATE_BUDGET = 370
PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout

before = set(sys.modules)
from regard.cli import main

sys.argv[0] = "regard"
out = io.StringIO()
with redirect_stdout(out):
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
print(json.dumps({"out": out.getvalue(), "modules": sorted(set(sys.modules) - before)}))
"""


def run(*arguments: str) -> dict[str, Any]:
    """Run a command in a new process; return its output and the modules that it imported."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def packages(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_help_imports_no_command_and_no_library_but_typer() -> None:
    result = run("--help")
    assert "translate" in result["out"]
    own = {name for name in result["modules"] if name.startswith("regard.")}
    assert own == {
        "regard.cli",
        "regard.cli.help",
        "regard.cli.input_output",
        "regard.cli.options",
        "regard.errors",
        "regard.files",
        "regard.html",
        "regard.registry",
        "regard.version",
    }
    heavy = {"asyncio", "ctranslate2", "importlib.metadata", "numpy", "pydantic", "rich", "tokenizers", "torch"}
    assert not heavy & (packages(result["modules"]) | set(result["modules"]))
    assert len(result["modules"]) <= HELP_BUDGET


def test_translating_a_line_imports_what_it_needs(tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    arguments = ("translate", str(tmp_path / "model"), "w5 w6", "--max-tokens", "3")
    regard(*arguments)  # converts the model
    result = run(*arguments)
    assert len(result["out"].split()) == 3
    assert not {"fastapi", "numpy", "rich", "sacrebleu", "torch"} & packages(result["modules"])
    other_commands = {f"regard.cli.{name}" for name in COMMANDS} - {"regard.cli.translate"}
    unused = {"regard.decoding.beam_search", "regard.decoding.markup", "regard.data.readers", "regard.data.store"}
    assert not (other_commands | unused) & set(result["modules"])
    assert len(result["modules"]) <= TRANSLATE_BUDGET


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_description_of_a_command_is_that_of_its_help(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands[name]
    assert command.name == name
    assert COMMANDS[name].summary == " ".join((command.help or "").partition("\n\n")[0].split())


def test_training_does_not_import_the_compiler(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a {number}\tb {number}\n" for number in range(40)))
    small = ["training.steps=2", "model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=16"]
    settings = [part for setting in [*small, "validation.samples=0"] for part in ("--set", setting)]
    result = run("train", "translation", "--data", str(pairs), "--out", str(tmp_path / "run"), *settings)
    assert "torch.optim" in result["modules"]
    assert not {"torch._dynamo", "torch._inductor", "sympy"} & set(result["modules"])
