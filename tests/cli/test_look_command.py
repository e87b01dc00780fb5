"""`regard look`: traces, values, interventions, training steps and error messages."""

import json
import math
import re
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands import regard
from random_models import SMALL, saved
from regard.api import load
from regard.cli.look import _print
from regard.config import (
    BidirectionalLanguageModelConfig,
    ClassHeadConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    SyntaxPositionsConfig,
    TagHeadConfig,
    TokenHeadConfig,
)
from regard.interpret.render.terminal import render_trace
from regard.tables import new_table, split_table
from toy_trees import conllu

RECURRENT: dict[str, Any] = {"vocab_size": 29, "width": 24, "layers": 2}
LABELS = ("bad", "good")
NUMBER = re.compile(r"-?\d+\.\d+")
STYLE = re.compile(r"\x1b\[[\d;]*m")


class Terminal(StringIO):
    """Output that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


SECTIONS = {  # heading that only this kind of model has
    "attending": "Alignment",
    "syntax": "depth in the tree",
    "masked": "Predicted tokens",
    "classifier": "Label",
    "tagger": "Tags",
    "both ways": "Bidirectional predictions",
    "both ways, classes": "Mixing",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    kinds: dict[str, ModelConfig] = {
        "translator": EncoderDecoderConfig(**SMALL),
        "writer": DecoderOnlyConfig(**SMALL),
        "encoder": EncoderOnlyConfig(**SMALL),
        "attending": RecurrentEncoderDecoderConfig(**RECURRENT),
        "syntax": EncoderDecoderConfig(**SMALL, positions=SyntaxPositionsConfig()),
        "masked": EncoderOnlyConfig(**SMALL, head=TokenHeadConfig()),
        "classifier": EncoderOnlyConfig(**SMALL, head=ClassHeadConfig(labels=LABELS)),
        "tagger": EncoderOnlyConfig(**SMALL, head=TagHeadConfig(labels=LABELS)),
        "both ways": BidirectionalLanguageModelConfig(**RECURRENT),
        "both ways, classes": BidirectionalLanguageModelConfig(**RECURRENT, head=ClassHeadConfig(labels=LABELS)),
    }
    for name, model in kinds.items():
        saved(root / name, model)
    return {name: root / name for name in kinds}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["translator", "writer", "encoder"])
def test_trace_of_every_kind_of_model(folders: dict[str, Path], kind: str) -> None:
    done = regard("look", folders[kind], "w5 w9 w12")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("w5 w9 w12")
    assert "Encoder, layer 1" in done.out or "Decoder, layer 1" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("kind", ["translator", "writer", "attending"])
def test_a_terminal_breaks_no_number(
    folders: dict[str, Path], kind: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines fit into the terminal, and have all numbers that a pipe gets."""
    trace = load(folders[kind]).look("w5 w9 w12 w16 w28 w17")
    monkeypatch.setenv("COLUMNS", str(width))
    outputs = list[str]()
    for file in (StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stdout", file)
        _print(render_trace(trace))
        outputs.append(STYLE.sub("", file.getvalue()))
    piped, shown = outputs
    assert max(map(len, piped.splitlines())) > width
    assert max(map(len, shown.splitlines())) <= width
    assert not Counter(NUMBER.findall(piped)) - Counter(NUMBER.findall(shown))


def test_a_wide_table_is_split_between_its_columns() -> None:
    console = Console(width=27, no_color=True)
    table = new_table("token", "first", "second", "third")
    table.add_row("w5", "-10.25", "0.125", "123.5")
    with console.capture() as captured:
        for part in split_table(table, console):
            console.print(part)
    lines = [line.split() for line in captured.get().splitlines() if line.strip(" ─")]
    assert lines == [["token", "first", "second"], ["w5", "-10.25", "0.125"], ["token", "third"], ["w5", "123.5"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SECTIONS)
def test_sections_of_some_networks_only(folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    parses = tmp_path / "parses.conllu"
    parses.write_text(conllu(["w5", "w9", "w12"], [2, 0, 2]), "utf-8")
    arguments: list[str | Path] = ["look", folders[kind], "w5 w9 w12"]
    if kind == "syntax":
        arguments += ["--parses", parses]
    walk, data = regard(*arguments), regard(*arguments, "--json")
    page = regard(*arguments, "--html", tmp_path / "x.html")
    assert [done.code for done in (walk, data, page)] == [0, 0, 0]
    assert SECTIONS[kind] in walk.out
    head = json.loads(data.out)["head"]
    assert (head is None) == (kind in ("attending", "syntax"))
    if kind != "syntax":
        assert f"<h2>{SECTIONS[kind]}</h2>" in (tmp_path / "x.html").read_text("utf-8")


def test_probabilities_of_labels_at_an_address(folders: dict[str, Path]) -> None:
    (probabilities,) = json.loads(
        regard("look", folders["classifier"], "w5 w9", "--at", "head.probabilities", "--json").out
    )
    assert probabilities["labels"] == [["bad", "good"]]
    assert sum(probabilities["values"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_plot_of_a_network_with_syntax_positions(folders: dict[str, Path], tmp_path: Path) -> None:
    parses = tmp_path / "parses.conllu"
    parses.write_text(conllu(["w5", "w9"], [2, 0]), "utf-8")
    done = regard("plot", "attention", folders["syntax"], "w5 w9", "--parses", parses, "-o", tmp_path / "x.svg")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_json_has_outline_and_search_tree(folders: dict[str, Path]) -> None:
    done = regard("look", folders["translator"], "w5 w9", "--json", "--beam", "2")
    result = json.loads(done.out)
    assert result["source"]["tokens"] == ["w5", "w9", "[EOS]"]
    assert result["search"]["beam"] == 2
    assert result["tree"]["beam"] == 2


@pytest.mark.slow
def test_values_at_an_address(folders: dict[str, Path]) -> None:
    address = "decoder.1.cross_attention.weights[2]@0"
    shown = regard("look", folders["translator"], "w5 w9", "--at", address)
    (numbers,) = json.loads(regard("look", folders["translator"], "w5 w9", "--at", address, "--json").out)
    assert numbers["labels"] == [["[SOS]"], ["w5", "w9", "[EOS]"]]
    assert sum(numbers["values"][0]) == pytest.approx(1, abs=1e-5)
    assert shown.out.startswith(f"{address}  softmax along each row: attention weights  (1 target × 3 source")
    wide = regard("look", folders["translator"], "w5 w9", "--at", "encoder.states", "--at", "encoder.0.attention.q")
    assert "first 12 of 24 columns; use --json for all" in wide.out
    assert "head 3" in wide.out
    mean = regard("look", folders["translator"], "w5 w9", "--at", "encoder.0.attention_residual.mean")
    assert mean.out.startswith("encoder.0.attention_residual.mean  mean of each token's vector  (3 source)")


def test_decoding_without_parts(folders: dict[str, Path]) -> None:
    arguments = (
        "look",
        folders["translator"],
        "w5 w9",
        "--off",
        "decoder.1.cross_attention",
        "--off",
        "decoder.0.attention[1]",
    )
    result = json.loads(regard(*arguments, "--json").out)
    assert result["interventions"] == ["decoder.1.cross_attention", "decoder.0.attention[1]"]
    shown = regard(*arguments).out
    assert shown.startswith("Changed: decoder.1.cross_attention, decoder.0.attention[1]\n")
    assert f"before  {result['before']}\n" in shown
    assert f"falls by {result['cost']:.3f}." in shown


def test_attention_override(folders: dict[str, Path]) -> None:
    change = "decoder.1.cross_attention[2]=0.25,0.75,0"
    shown = regard("look", folders["translator"], "w5 w9", "--off", change)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Changed: {change}\n")


def test_gradient_norms_are_printed(folders: dict[str, Path]) -> None:
    arguments = ("look", folders["translator"], "w5 w9", "--target", "w4 w20", "--gradients")
    result = json.loads(regard(*arguments, "--json").out)
    assert list(result) == ["loss", "grad_norm", "modules"]
    lines = [line.split() for line in regard(*arguments).out.splitlines()]
    for part in result["modules"]:
        row = next(line for line in lines if line[:1] == [part["module"]])
        assert row[1] == f"{part['grad_norm']:.3f}"
        assert row[-2:] == [f"{part['relative_grad_norm']:.4f}", f"{part['parameters']:,}"]
    assert f"loss {result['loss']:.3f}, total gradient norm {result['grad_norm']:.3f}".split() in lines


@pytest.mark.parametrize("kind", ["translator", "writer"])
def test_training_step_is_printed(folders: dict[str, Path], kind: str) -> None:
    target = ["--target", "w4 w20"] if kind == "translator" else []
    arguments: list[str | Path] = ["look", folders[kind], "w5 w9", *target, "--training"]
    result, shown = json.loads(regard(*arguments, "--json").out), regard(*arguments)
    assert (shown.code, shown.err) == (0, "")
    words = ["w4", "w20"] if kind == "translator" else ["w5", "w9"]
    assert result["decoder_input"] == ["[SOS]", *words]
    assert f"decoder input  [SOS] {' '.join(words)}\nlabels         {' '.join(words)} [EOS]\n" in shown.out
    lines = [line.split() for line in shown.out.splitlines()]
    for position in result["positions"]:
        row = next(line for line in lines if line[:3] == [str(position["position"]), *_tokens(position)])
        assert f"{position['probability']:.3f}" in row
        assert [f"{position[name]:.4f}" for name in ("cross_entropy", "smoothing", "loss")] == row[-4:-1]
    total = sum(position["loss"] for position in result["positions"])
    assert result["loss"] == pytest.approx(total / 3)
    assert f"loss {result['loss']:.4f} = {total:.4f} / 3 labels\n" in shown.out
    assert "label smoothing: loss = 0.9 · (−log p) + 0.1 · mean of −log p over 29 choices\n" in shown.out


def _tokens(position: dict[str, Any]) -> list[str]:
    return [position["input_token"], position["label"]]


@pytest.mark.parametrize(
    ("kind", "start", "columns"),
    [
        ("classifier", "The label ", ["label", "p"]),
        ("tagger", "The tags ", ["token", "tag"]),
        ("masked", "The predictions ", ["at", "token"]),
        ("both ways", "The predictions ", ["at", "token"]),
    ],
)
def test_encoder_predictions_after_an_intervention(
    folders: dict[str, Path], kind: str, start: str, columns: list[str]
) -> None:
    arguments = ("look", folders[kind], "w5 w9", "--off", "encoder.0" if kind == "both ways" else "encoder.0.attention")
    result, shown = json.loads(regard(*arguments, "--json").out), regard(*arguments).out.splitlines()
    assert shown[1:3] == [f"before  {result['before']}", f"after   {result['after']}"]
    assert shown[3].startswith(start)
    assert shown[3].endswith(f"falls by {result['cost']:.3f}.")
    assert shown[5].split()[:2] == columns
    assert regard("look", folders[kind], "w5 w9", "--gradients").out.startswith("Gradient norm of each module")


def test_target_label_of_an_encoder(folders: dict[str, Path]) -> None:
    losses = [
        json.loads(regard("look", folders["classifier"], "w5", "--target", label, "--gradients", "--json").out)["loss"]
        for label in LABELS
    ]
    assert sum(math.exp(-loss) for loss in losses) == pytest.approx(1, abs=1e-4)


def test_html_page_is_written(folders: dict[str, Path], tmp_path: Path) -> None:
    done = regard("look", folders["writer"], "w5 w9", "--max-tokens", "3", "--html", tmp_path / "x.html")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{tmp_path / 'x.html'}: a self-contained page; open it in a browser.\n"
    assert (tmp_path / "x.html").read_text("utf-8").startswith("<!doctype html>")


def test_forced_target(folders: dict[str, Path]) -> None:
    result = json.loads(regard("look", folders["translator"], "w5 w9", "--target", "w4 w20", "--json").out)
    assert result["forced"] is True
    assert result["output"] == "w4 w20"
    assert result["tree"] is None


def errors(folders: dict[str, Path]) -> dict[str, tuple[tuple[str | Path, ...], int]]:
    m = folders["translator"]
    return {
        "regard: The text is empty; give at least one word.": (("look", m, " "), 2),
        "regard: the model has syntax positions and needs a parse of every sentence; "
        "pass the parses as CoNLL-U (--parses on the command line).": (("look", folders["syntax"], "w5"), 2),
        "regard: the model has no syntax positions and uses no parses; remove them.": (
            ("look", m, "w5", "--parses", "x.conllu"),
            2,
        ),
        "regard: There is no point 'decoder.1.weights' in this network (did you mean decoder.1.attention.weights?); "
        "the outline lists all points.": (
            ("look", m, "w5", "--at", "decoder.1.weights"),
            2,
        ),
        "regard: decoder.1.cross_attention=99: there is no key 99; the keys are 0 to 2, 3 in all.": (
            ("look", m, "w5 w9", "--off", "decoder.1.cross_attention=99"),
            2,
        ),
        "regard: nowhere: does not exist; give the path of a model folder, or of a run.": (
            ("look", "nowhere", "w5"),
            3,
        ),
        "regard: --at and --html print different things; pass one of them at a time.": (
            ("look", m, "w5", "--at", "encoder.states", "--html", "x.html"),
            2,
        ),
        "regard: --off and --gradients print different things; pass one of them at a time.": (
            ("look", m, "w5", "--off", "encoder.0", "--gradients"),
            2,
        ),
        "regard: --html and --json print different things; pass one of them at a time.": (
            ("look", m, "w5", "--html", "x.html", "--json"),
            2,
        ),
        "regard: --training: needs the translation to learn; pass it with --target.": (
            ("look", m, "w5", "--training"),
            2,
        ),
        "regard: --gradients and --training print different things; pass one of them at a time.": (
            ("look", m, "w5", "--gradients", "--training"),
            2,
        ),
        "regard: beam is 0; it should be 1 (greedy) to 1,000.": (("look", m, "w5", "--beam", "0"), 2),
    }


@pytest.mark.parametrize("number", range(12))
def test_invalid_input_is_an_error(folders: dict[str, Path], number: int) -> None:
    message, (arguments, code) = list(errors(folders).items())[number]
    done = regard(*arguments)
    assert (done.code, done.out, done.err) == (code, "", f"{message}\n")
