"""Output, error messages and exit codes of the command line."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from commands import ENVIRONMENT, regard, run_process
from regard.config import Config, DecoderOnlyConfig, preset_names
from regard.labs import LABS
from regard.models import build, save
from regard.version import __version__

WORKING = ["translate", "generate", "evaluate", "score", "average"]
COMMANDS = [*WORKING, "model", "config", "lab", "import", "export", "train"]


@pytest.fixture(autouse=True)
def _wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.setenv(name, ENVIRONMENT[name])


@pytest.mark.slow
def test_help_does_not_import_torch() -> None:
    command_lines = [["--help"], ["--version"], ["lab"], *([command, "--help"] for command in COMMANDS)]
    program = f"""
import sys
from regard.cli import app
for arguments in {command_lines!r}:
    try:
        app(arguments)
    except SystemExit as stop:
        assert not stop.code, (arguments, stop.code)
    assert "torch" not in sys.modules, arguments
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.slow
def test_import_regard_does_not_import_torch() -> None:
    program = "import sys, regard; assert 'torch' not in sys.modules; regard.build; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_version() -> None:
    assert regard("--version").out == f"regard {__version__}\n"


def test_help_lists_the_commands() -> None:
    shown = regard("--help").out
    for command in COMMANDS:
        assert f"\n│ {command} " in shown


def test_model_prints_parameters_flops_and_memory() -> None:
    shown = regard("model", "paper-base").out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "paper-base: encoder-decoder Transformer, 63.0 million parameters"
    assert "encoder feed-forward 6 12,598,272 25,165,824" in lines
    assert "output 1 shared 37,888,000" in lines
    assert "total 63,045,632 127,148,032" in lines
    assert (
        "FLOPs per source and target token at sequence length 32: 127,148,032 forward, 381,444,096 in training" in lines
    )
    assert lines[-3:] == [
        "Memory for training in float32 with Adam, without activations: "
        "weights 240 MiB, gradients 240 MiB, optimizer 481 MiB, total 962 MiB",
        "Training: 100,000 steps of at most 25,000 source and 25,000 target tokens; adam, inverse-sqrt schedule with "
        "4,000 steps of warmup, label smoothing 0.1, average of 5 checkpoints",
        "Decoding: beam 4, length penalty 0.6, at most 50 tokens more than the source",
    ]
    shown = regard("model", "gpt-char").out
    assert "Decoding" not in shown
    assert "Training:" not in shown  # `regard train` chooses it for the text


def test_model_of_a_folder_prints_its_decoding_but_not_the_default_training(translator: Path) -> None:
    assert "Training:" not in (shown := regard("model", translator).out)
    assert shown.endswith("Decoding: beam 4, length penalty 0.6, at most 50 tokens more than the source\n")


def test_model_counts_the_parameters_of_positions() -> None:
    def parameters(*settings: str) -> int:
        shown = json.loads(regard("model", "tiny", *(f"--set={setting}" for setting in settings), "--json").out)
        return int(shown["parameters"])

    plain = parameters()
    assert parameters("model.positions=rotary") == parameters("model.positions=alibi") == plain
    layers, vectors, head = 4 + 4, 2 * 3 + 1, 128 // 4
    relative = parameters("model.positions=relative", "model.positions.max_distance=3")
    assert relative == plain + layers * vectors * 2 * head


def test_model_with_settings_and_length_as_json() -> None:
    arguments = ("model", "tiny", "--set", "model.layers=1", "--set", "model.vocab_size=100", "--length", "8", "--json")
    shown = json.loads(regard(*arguments).out)
    assert shown["length"] == 8
    assert shown["parameters"] == sum(part["parameters"] for part in shown["parts"]) < 400_000
    assert shown["training_flops_per_token"] == 3 * shown["forward_flops_per_token"]


@pytest.mark.slow
def test_model_without_a_name_lists_the_presets() -> None:
    shown = regard("model").out
    for name in preset_names():
        assert f" {name} " in shown
    assert set(json.loads(regard("model", "--json").out)) == set(preset_names())


def test_model_lists_taps() -> None:
    names = regard("model", "tiny", "--taps").out.splitlines()
    assert names[0] == "encoder.embedding.lookup"
    assert "decoder.layers.3.cross_attention.kernel.weights" in names
    assert json.loads(regard("model", "tiny", "--taps", "--json").out) == names


def test_model_of_a_model_folder(tmp_path: Path) -> None:
    config = Config(model=DecoderOnlyConfig(vocab_size=10, width=8, heads=2, layers=1, feed_forward=16))
    save(tmp_path / "mine", build(config.model), config)
    assert regard("model", tmp_path / "mine").out.startswith(f"{tmp_path / 'mine'}: decoder-only Transformer, 0.0 mill")
    refused = regard("model", tmp_path / "mine", "--set", "model.layers=2")
    assert refused.code == 2
    assert refused.err == (
        "regard: --set model.layers=2: the settings of a trained model cannot be changed; remove --set, or pass a "
        "preset.\n"
    )


def test_tables_are_not_cut_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert "63,045,632   127,148,032" in regard("model", "paper-base").out


@pytest.mark.slow
def test_lab_lists_and_runs_labs(tmp_path: Path) -> None:
    assert regard("lab").out.startswith("worked-example  ")
    shown = regard("lab", "worked-example", "--out", tmp_path).out
    assert "⎢ 0.0009  0.9088  0.0903 ⎥ · ⎢ 2  8  0 ⎥ = ⎢ 1.9991  7.8141  0.2735 ⎥" in shown


@pytest.mark.slow
def test_lab_all_resumes_with_unfinished_labs(tmp_path: Path) -> None:
    page = '<section id="{0}" data-effort="quick"><h2>{0} as it was</h2></section>'
    for lab in set(LABS) - {"worked-example"}:
        (tmp_path / lab).mkdir()
        (tmp_path / lab / "lab.html").write_text(page.format(lab))
        (tmp_path / lab / "results.json").write_text('{"holds": true}')
    done = regard("lab", "all", "--quick", "--resume", "--out", str(tmp_path))
    assert done.code == 0, done.err
    assert f"scaling: finished already, in {tmp_path / 'scaling'}" in done.err
    assert "worked-example: finished" not in done.err
    book = (tmp_path / "book.html").read_text("utf-8")
    assert book.count("as it was") == len(LABS.names()) - 1
    assert LABS["worked-example"].claim in book


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["model", "tiny", "--set", "model.heads=3"],
            2,
            "regard: --set model.heads=3: model.heads = 3 does not divide model.width = 128: use 2 or 4.\n",
        ),
        (
            ["lab", "worked"],
            2,
            "regard: there is no lab 'worked' (did you mean worked-example?); the labs are worked-example, ",
        ),
        (
            ["lab", "scaling", "--quick", "--full"],
            2,
            "regard: --quick and --full exclude each other; pass one of them, or neither.\n",
        ),
        (
            ["lab", "scaling", "--resume"],
            2,
            "regard: --resume is for regard lab all, which skips finished labs; remove it.\n",
        ),
        (
            ["lab", "worked-example", "--quiet", "--out", "/proc/labs"],
            3,
            "regard: /proc/labs/worked-example: cannot be written (No such file or directory); choose another --out.\n",
        ),
        (["import", "nowhere"], 3, "regard: nowhere: "),
        (
            ["model", "tny"],
            2,
            "regard: 'tny' is not a preset, TOML file or model folder (did you mean tiny?); the presets",
        ),
    ],
)
def test_failure_is_one_message_and_an_exit_code(arguments: list[str], code: int, message: str) -> None:
    done = regard(*arguments)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1


def test_unknown_commands_and_options_are_usage_errors() -> None:
    assert regard("trian").code == 2
    assert regard("model", "--no-such-option").code == 2
    assert "Traceback" not in regard("trian").err


@pytest.mark.slow
def test_unwritable_output_is_one_message() -> None:
    command = f"{shlex.quote(sys.executable)} -c 'from regard.cli import main; main()' lab > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "regard: the output: No space left on device.\n")
    closed = subprocess.run(["bash", "-c", command.replace("> /dev/full", ">&-")], capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_file_name_too_long_or_not_unicode_is_one_message() -> None:
    long = "x" * 300
    done = regard("model", long)
    assert (done.code, done.err) == (3, f"regard: {long}: File name too long.\n")
    odd = regard("model", "caf\udce9.toml")
    assert odd.code == 2
    assert odd.err.startswith("regard: caf\\udce9.toml: cannot be read")


@pytest.mark.slow
def test_output_is_utf8_in_any_locale(tmp_path: Path) -> None:
    done = run_process("lab", "worked-example", "--out", tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert "√d_k" in done.stdout


@pytest.mark.parametrize("arguments", ["model tiny", "model paper-big --set model.layers=60 --taps"])
@pytest.mark.slow
def test_closed_pipe_ends_the_command_silently(arguments: str) -> None:
    """Whether the output fits into the pipe, and fails only when it is flushed at the end, or not."""
    command = f"{shlex.quote(sys.executable)} -c 'from regard.cli import main; main()' {arguments} | true"
    done = subprocess.run(["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.slow
def test_openmp_spin_count_has_a_default() -> None:
    program = "import os; from regard.cli import main\ntry: main()\nfinally: print(os.environ['GOMP_SPINCOUNT'])"
    for environment, expected in (({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7")):
        command = [sys.executable, "-c", program, "--version"]
        shown = subprocess.run(command, capture_output=True, text=True, env={"PATH": "", **environment}).stdout
        assert shown.splitlines()[-1] == expected
