"""The examples in README and docs run, and what they show is what comes out."""

import ast
import json
import re
import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import CommandResult, regard
from random_models import words
from regard import phrasebook
from regard.cli.plot import ALIASES, PLOTS
from regard.cli.train import CELLS
from regard.config import Config, EncoderDecoderConfig
from regard.config.positions import POSITIONS
from regard.data.readers.base import Pair
from regard.labs import LABS, all_labs
from regard.models import build, save
from regard.registry import TASK_REGISTRY
from regard.training.batches import TokenBatch
from regard.training.losses import CausalLMObjective
from regard.training.run import Run
from regard.training.setup import TrainRequest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SLOW = ("make ",)  # what this very run is


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one program, which starts in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(POSITIONS, "_objects", dict(POSITIONS._objects))  # what a page registers is gone after it
    exec(compile("\n".join(blocks(page, "python")), str(page), "exec"), {"__name__": "__main__"})


def commands() -> list[tuple[str, str]]:
    """Every command after `$ ` in a console block, with the output shown below it."""
    found = []
    for page in PAGES:
        for block in blocks(page, "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append((re.sub(r"\s+#.*", "", command), output))
    return [(command, output) for command, output in found if not command.startswith(SLOW)]


@pytest.mark.parametrize(("command", "shown"), commands())
def test_console_examples_run_and_print_what_is_shown(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # some name recipes
    monkeypatch.setenv("COLUMNS", "80")
    name, *arguments = command.split()
    assert name == "regard"
    done = regard(*arguments)
    if shown:
        assert done.out + done.err == shown
    else:
        assert done.code == 0, done.err


# --- the sessions of the README, with a stand-in for the model of `make demo` -----------------------------------------

KNOWN = [("I love you very much.", "Ti amo molto.")] * 3 + [
    ("I love you very much.", "ti amo molto."),
    ("Where is the station?", "Dov'è la stazione?"),
]
STEPS = 60


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/demo, a translator that is overfit to the sentences of the README."""
    folder = tmp_path_factory.mktemp("readme")
    vocabulary = dict.fromkeys(word for pair in KNOWN for text in pair for word in text.split())
    tokenizer = json.loads(words(4).to_str())
    tokenizer["model"]["vocab"] |= {word: number for number, word in enumerate(vocabulary, 4)}
    ids = tokenizer["model"]["vocab"]
    model = EncoderDecoderConfig(vocab_size=len(ids), width=32, layers=2, heads=4, feed_forward=32, dropout=0.0)
    config = Config.model_validate({"model": model, "data": {"trained_sentences": 2, "trained_tokens": 14}})
    special = config.tokens
    source, target = (
        torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([*before, *(ids[word] for word in pair[side].split()), special.end]) for pair in KNOWN],
            batch_first=True,
            padding_value=special.pad,
        )
        for side, before in ((0, []), (1, [special.start]))
    )
    batch = TokenBatch(target[:, :-1], target[:, 1:], target[:, 1:] != special.pad, source, source != special.pad)
    torch.manual_seed(0)
    network = build(model)
    objective, optimizer = CausalLMObjective(network, 0.0), torch.optim.Adam(network.parameters(), 0.005)
    for _ in range(STEPS):
        optimizer.zero_grad()
        objective(batch).loss.backward()
        optimizer.step()
    files = {"tokenizer.json": json.dumps(tokenizer).encode()}
    save(folder / "runs" / "demo" / "best", network.eval(), config, extra_files=files)
    return folder


def session(prompt: str) -> list[tuple[str, list[str]]]:
    """What the README enters at this prompt, and the lines that it shows after each."""
    (block,) = [block for block in blocks(ROOT / "README.md", "text") if block.startswith(prompt)]
    entries = [entry.split("\n") for entry in re.split(rf"^{re.escape(prompt)}", block, flags=re.MULTILINE)[1:]]
    return [(re.sub(r"\s+#.*", "", entered), [line for line in shown if line.strip()]) for entered, *shown in entries]


def without_numbers(lines: list[str]) -> list[str]:
    """Lines without what training decides: digits, and the width of columns."""
    return [" ".join(re.sub(r"\d[\d.,]*", "#", line).split()) for line in lines]


def test_the_shell_session_of_the_readme(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    monkeypatch.setattr(phrasebook, "split", lambda name: [Pair(*pair) for pair in KNOWN])
    requests: list[TrainRequest] = []

    def train(request: TrainRequest, display: object, callbacks: object = ()) -> Run:
        requests.append(request)
        return Run(request.out)

    def serve(service: Any, bound: socket.socket, on_ready: Callable[[str], None]) -> None:
        on_ready("http://127.0.0.1:8000")
        bound.close()

    monkeypatch.setattr("regard.training.runner.run_training", train)
    monkeypatch.setattr("regard.serving.server.bind_socket", lambda host, port: socket.socket())
    monkeypatch.setattr("regard.serving.server.serve", serve)
    results: dict[str, CommandResult] = {}
    for entered, shown in session("$ "):
        *echo, command = entered.split(" | ")
        text = f"{shlex.split(echo[0])[1]}\n" if echo else ""
        name, *arguments = shlex.split(command)
        assert name == "regard"
        done = results[arguments[0]] = regard(*arguments, stdin=text)
        assert done.code == 0, done.err
        printed = [line for line in done.out.splitlines() if line.strip()]
        if shown and shown[-1].strip() == "…":
            printed = [*printed[: len(shown) - 1], "…"]
        if shown:
            assert without_numbers(printed) == without_numbers(shown)
    assert list(results) == ["train", "translate", "evaluate", "look", "serve"]
    shown = dict(session("$ "))['echo "I love you very much." | regard translate runs/demo']
    assert results["translate"].out.splitlines() == shown
    assert [request.out for request in requests] == [Path("runs/en-it")]
    assert "http://127.0.0.1:8000" in results["serve"].err


def test_the_python_session_of_the_readme(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    names: dict[str, Any] = {}
    printed: list[str] = []
    monkeypatch.setattr("sys.displayhook", lambda value: printed.append(repr(value)))
    for entered, shown in session(">>> "):
        code = compile(entered, "README.md", "single")
        printed.clear()
        exec(code, names)
        if entered.endswith(".shape"):  # depends on the tokenizer
            assert without_numbers(printed) == without_numbers(shown)
        else:
            assert printed == shown


def shown_commands() -> list[tuple[str, str]]:
    """Commands in text blocks, which do not run here: they train for minutes or need a trained model."""
    found = []
    for page in PAGES:
        for block in blocks(page, "text") if page.name != "cli.md" else []:  # that page is generated from the options
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"\s+#.*", "", line.removeprefix("$ "))
                found += [(page.name, part) for part in re.findall(r"(?:^|\| )regard ([a-z].*?)(?= \||$)", command)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), shown_commands())
def test_commands_that_are_only_shown_have_options_that_exist(page: str, command: str) -> None:
    from typer.main import get_command

    from regard.cli import app

    words = command.split()
    commands = get_command(app).commands  # type: ignore[attr-defined]  # it is a group
    assert words[0] in commands, f"{page}: there is no regard {words[0]}"
    group = getattr(commands[words[0]], "commands", None)
    parameters = (commands[words[0]] if group is None else group[words[1]]).params
    options = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words[1:]:
        if word.startswith("--") and len(word) > 2:
            assert word.partition("=")[0] in {*options, "--help"}, f"{page}: regard {words[0]} has no option {word}"


def test_worked_example_in_tutorial_is_the_output_of_the_lab() -> None:
    from regard.labs.worked_example import worked_text

    tutorial = ROOT / "docs/tutorials/look-inside-a-model.md"
    (shown,) = [block for block in blocks(tutorial, "text") if "weights · V" in block]
    assert shown in worked_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_labs_plots_and_tasks_exist(page: Path) -> None:
    """Names after `regard lab`, `regard plot` and `regard train`, in code and in the text."""
    known = {
        "lab": {*LABS, *LABS.aliases, "all"},
        "plot": {*PLOTS, *ALIASES},
        "train": {*TASK_REGISTRY, *TASK_REGISTRY.aliases, *CELLS},
    }
    known["lab"].add("my-lab")  # the example of a lab of one's own
    pattern = r"(?:`|^|\$ )regard (lab|plot|train) ([a-z][a-z0-9|-]*)(?=[\s`])"
    for command, names in re.findall(pattern, page.read_text("utf-8"), flags=re.MULTILINE):
        assert known[command].issuperset(names.split("|")), (command, names)


def test_glossary_names_every_lab_and_plot() -> None:
    text = (ROOT / "docs/reference/glossary.md").read_text("utf-8")
    labs = {LABS.resolve(name) for name in re.findall(r"`regard lab ([a-z0-9-]+)`", text)}
    assert labs == {lab.name for lab in all_labs()}
    assert {ALIASES.get(name, name) for name in re.findall(r"`regard plot ([\w-]+)", text)} == set(PLOTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_contributing_names_files_and_objects_that_exist() -> None:
    """In a row of a table, each name in backticks is defined in one of the files of the row."""
    rows = [line for line in (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    names = set()
    for row in rows:
        files = [source_path(name) for name in re.findall(r"[\w./-]+\.(?:py|md)\b", row)]
        folders = [source_path(name) for name in re.findall(r"`([\w./-]+/)`", row)]
        assert all(path.exists() for path in [*files, *folders]), row
        defined = {name for path in files if path.suffix == ".py" for name in defined_names(path)}
        used = set(re.findall(r"`@?(\w+(?:_\w+|[A-Z]{3}))[`.]", row))
        assert used <= defined, row
        names |= used
    assert {"POSITIONS", "ATTENTION", "OPTIMIZERS", "SCHEDULES", "READERS", "training_objective"} <= names


def source_path(name: str) -> Path:
    """A path as CONTRIBUTING.md writes it: from the top of the repository, or from the package."""
    return next((path for path in (ROOT / name, ROOT / "src/regard" / name) if path.exists()), ROOT / name)


def defined_names(path: Path) -> set[str]:
    """The classes, functions and variables that a file defines at its top level."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
