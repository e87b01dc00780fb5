"""`--help` of every command: descriptions, panels and examples; and `--plugin`."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from commands import regard, run_process
from regard.cli import app
from regard.cli.options import HARDWARE_PANEL, PANELS, WORKERS_PANEL

MIN_HELP_LENGTH = 15
GROUP = typer.main.get_command(app)


def commands(group: typer.core.TyperGroup, *path: str) -> dict[tuple[str, ...], typer.core.TyperCommand]:
    """All commands by their path, those of groups such as `config` included."""
    found: dict[tuple[str, ...], typer.core.TyperCommand] = {}
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            found |= commands(command, *path, name)
        else:
            assert isinstance(command, typer.core.TyperCommand)
            found[*path, name] = command
    return found


assert isinstance(GROUP, typer.core.TyperGroup)
COMMANDS = commands(GROUP)


def example_commands(command: typer.core.TyperCommand) -> list[str]:
    """The command lines of the examples, without what comes before or after a pipe."""
    lines = [line.removeprefix("$ ") for line in (command.epilog or "").splitlines() if line.startswith("$ ")]
    return ["regard" + line.partition("regard")[2] for line in lines]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_has_a_description_and_a_panel(path: tuple[str, ...]) -> None:
    for parameter in COMMANDS[path].params:
        assert len(getattr(parameter, "help", None) or "") >= MIN_HELP_LENGTH, parameter.name
        if isinstance(parameter, typer.core.TyperOption):
            assert parameter.rich_help_panel, parameter.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_panels_have_the_same_order_in_all_commands(path: tuple[str, ...]) -> None:
    options = [option for option in COMMANDS[path].params if isinstance(option, typer.core.TyperOption)]
    panels = [PANELS.index(option.rich_help_panel or "") for option in options]
    assert panels == sorted(panels)
    devices = {option.rich_help_panel for option in options if option.name == "device"}
    assert devices <= {WORKERS_PANEL if path[0] == "batch" else HARDWARE_PANEL}


def test_global_options_have_a_description_and_a_panel() -> None:
    assert isinstance(GROUP, typer.core.TyperGroup)
    for parameter in GROUP.params:
        assert isinstance(parameter, typer.core.TyperOption)
        assert len(parameter.help or "") >= MIN_HELP_LENGTH, parameter.name
        assert parameter.rich_help_panel, parameter.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_examples_with_existing_options(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert example_commands(command)
    for line in example_commands(command):
        arguments = shlex.split(line.partition("<")[0], comments=True)
        assert arguments[: 1 + len(path)] == ["regard", *path]
        with command.make_context("regard", arguments[1 + len(path) :]) as context:
            assert context.params


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_panels_and_examples(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    text = regard(*path, "--help").out
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, typer.core.TyperOption):
            assert f"─ {parameter.rich_help_panel} ─" in text
            for name in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"(?<![\w-]){name}(?![\w-])", text), "names are not cut short"
    assert "Example" in text
    assert f"$ regard {' '.join(path)}" in text or f"| regard {' '.join(path)}" in text


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_help_has_brackets_as_written_and_no_type_of_flags(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")
    text = regard(*path, "--help").out
    assert "<bool>" not in text
    assert "BOOLEAN" not in text
    for parameter in COMMANDS[path].params if path else ():
        assert (getattr(parameter, "help", None) or "") in text
    if path == ("serve",):
        assert "mine[en-it]=runs/demo" in text


PLUGIN = '''
from typing import ClassVar, Literal
from regard.config import POSITIONS, PositionsConfig

@POSITIONS.register("constant")
class ConstantPositionsConfig(PositionsConfig):
    """Adds one learned vector to every embedding."""
    builder: ClassVar = "my_positions:build"
    kind: Literal["constant"] = "constant"

def build(config, model, *, encoder):
    from regard.nn import LearnedPositions
    return LearnedPositions(7, model.width)
'''


@pytest.mark.slow
def test_a_plugin_adds_a_position_scheme(tmp_path: Path) -> None:
    (tmp_path / "my_positions.py").write_text(PLUGIN)
    arguments = ["model", "tiny", "--set", "model.positions=constant"]
    without = run_process(*arguments, cwd=tmp_path)
    assert without.returncode == 2
    assert "model.positions.kind = 'constant' should be 'alibi', " in without.stderr
    done = run_process("--plugin", "my_positions", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tiny: encoder-decoder Transformer")


@pytest.mark.parametrize("name", ["no_such_module", ".relative", ""])
def test_a_plugin_that_cannot_be_imported_is_an_error(name: str) -> None:
    done = regard("--plugin", name, "model", "tiny")
    assert done.code == 2
    assert done.err.startswith(f"regard: --plugin {name}: cannot be imported (")
    assert done.err.count("\n") == 1
