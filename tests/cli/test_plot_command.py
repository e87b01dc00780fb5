"""`regard plot`: every figure is written in every format, and wrong arguments are explained."""

import re
from pathlib import Path
from typing import Any

import pytest

from commands import regard
from random_models import SMALL, saved
from regard.config import (
    BigBirdAttentionConfig,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
)

MODEL_PLOTS = ("attention", "alignment", "heads")
FREE_PLOTS = ("positions", "mask", "pattern", "lookup", "lstm", "graph")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    recurrent: dict[str, Any] = {"vocab_size": 29, "width": 24}
    kinds: dict[str, ModelConfig] = {
        "writer": DecoderOnlyConfig(**SMALL, positions=LearnedPositionsConfig(max_length=40)),
        "bigbird": EncoderOnlyConfig(**SMALL, attention=BigBirdAttentionConfig(block_size=2)),
        "lstm": RecurrentLanguageModelConfig(**recurrent, layers=2),
        "bahdanau": RecurrentEncoderDecoderConfig(**recurrent, layers=1, cell="lstm"),
        "rnn": RecurrentLanguageModelConfig(**recurrent, layers=1, cell="rnn"),
    }
    for name, model in kinds.items():
        saved(root / name, model)
    return {name: root / name for name in kinds}


@pytest.mark.slow
@pytest.mark.parametrize("plot", MODEL_PLOTS)
def test_figures_of_a_model(translator: Path, tmp_path: Path, plot: str) -> None:
    done = regard("plot", plot, translator, "w5 w9 w12", "-o", tmp_path / "x.svg")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert "<svg" in (tmp_path / "x.svg").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("plot", FREE_PLOTS)
def test_figures_without_a_model(tmp_path: Path, plot: str) -> None:
    done = regard("plot", plot, "-o", tmp_path / "x.png")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_pdf_is_written(tmp_path: Path) -> None:
    assert regard("plot", "lookup", "-o", tmp_path / "x.pdf").code == 0
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def svg(tmp_path: Path, *arguments: str | Path) -> str:
    done = regard("plot", *arguments, "-o", tmp_path / "x.svg")
    assert (done.code, done.out, done.err) == (0, "", "")
    return (tmp_path / "x.svg").read_text("utf-8")


@pytest.mark.slow
def test_positions_of_any_length_and_width(tmp_path: Path) -> None:
    assert "sinusoidal positions: 9 positions, width 7" in svg(tmp_path, "positions", "--length", "9", "--width", "7")
    assert "rotary positions: 64 positions" in svg(tmp_path, "positions", "--set", "model.positions=rotary")


@pytest.mark.slow
def test_positions_and_pattern_of_a_model(folders: dict[str, Path], tmp_path: Path) -> None:
    assert "learned positions: 12 positions, width 24" in svg(
        tmp_path, "positions", folders["writer"], "--length", "12"
    )
    assert "bigbird, encoder" in svg(tmp_path, "pattern", folders["bigbird"])


def test_pattern_of_settings(tmp_path: Path) -> None:
    arguments = ("--set", "model.attention=window", "--set", "model.attention.window=1", "--length", "5")
    content = svg(tmp_path, "pattern", *arguments)
    assert "13 of 25 pairs" in content  # encoder
    assert "9 of 25 pairs" in content  # decoder


def test_mask_of_a_model(folders: dict[str, Path], tmp_path: Path) -> None:
    content = svg(tmp_path, "mask", folders["writer"], "w5 w9", "--target", "w7", "--at", "decoder.1.attention[2]")
    assert "decoder.1.attention[2]: one row per query" in content
    assert "−∞" in content


@pytest.mark.slow
def test_small_networks_are_the_same_every_time(tmp_path: Path) -> None:
    assert svg(tmp_path, "lstm") == svg(tmp_path, "lstm")


def test_single_argument_of_recurrent_figures_is_the_text(tmp_path: Path) -> None:
    assert "LSTM cell at 'down'" in svg(tmp_path, "lstm", "the cat sat down")
    content = svg(tmp_path, "graph", "the cat sat down")
    assert "RNN unrolled" in content
    assert ": [EOS]" in content


@pytest.mark.parametrize(
    ("name", "layer", "step", "target"),
    [("lstm", "decoder.1.forwards", "2", []), ("bahdanau", "encoder.0.backwards", "1", ["--target", "w7 w8"])],
)
def test_recurrent_figures_of_a_model(
    folders: dict[str, Path], tmp_path: Path, name: str, layer: str, step: str, target: list[str]
) -> None:
    content = svg(tmp_path, "lstm", folders[name], "w5 w9", "--step", step, "--at", layer)
    assert f"LSTM cell at 'w9', step {step} of {layer} in " in content
    assert "LSTM unrolled: decoder." in svg(tmp_path, "graph", folders[name], "w5 w9", *target)


def errors(folders: dict[str, Path], translator: Path) -> dict[str, tuple[tuple[str | Path, ...], int]]:
    lstm, usage = folders["lstm"], "the arguments of `regard plot"
    return {
        "PLOT heatmap: should be attention, alignment, heads, positions, mask, pattern, lookup, lstm or graph.": (
            ("heatmap", translator, "w5"),
            2,
        ),
        "PLOT pattrn: should be attention, alignment, heads, positions, mask, pattern, lookup, lstm or graph "
        "(did you mean pattern?).": (("pattrn",), 2),
        f"MODEL and TEXT are missing; {usage} heads` are: MODEL TEXT.": (("heads",), 2),
        f"TEXT is missing; {usage} attention` are: MODEL TEXT.": (("attention", translator), 2),
        f"TEXT is missing; {usage} mask` are: [MODEL TEXT].": (("mask", translator), 2),
        f"TEXT 'w5': is not used; {usage} pattern` are: [MODEL].": (("pattern", translator, "w5"), 2),
        f"MODEL {translator}: is not used; {usage} lookup` are: none.": (("lookup", translator), 2),
        f"{lstm}: is a folder, and the text is missing; {usage} lstm` are: [[MODEL] TEXT].": (("lstm", lstm), 2),
        "--at decoder.1.attention: does not apply to `regard plot heads`; remove it.": (
            ("heads", translator, "w5", "--at", "decoder.1.attention"),
            2,
        ),
        "--set model.positions=none: does not apply to `regard plot mask`; remove it.": (
            ("mask", "--set", "model.positions=none"),
            2,
        ),
        "--at decoder.0.attention: selects the attention of a model; pass MODEL and TEXT, or remove it.": (
            ("mask", "--at", "decoder.0.attention"),
            2,
        ),
        "--length 1: should be from 2 to 4,096.": (("positions", "--length", "1"), 2),
        "--length 0: should be from 2 to 256.": (("pattern", "--length", "0"), 2),
        f"--width: the network is that of {folders['writer']}; remove --width, or MODEL.": (
            ("positions", folders["writer"], "--width", "8"),
            2,
        ),
        f"{lstm}: is a recurrent language model, which has no position scheme and no attention pattern.": (
            ("positions", lstm),
            2,
        ),
        "model.kind = 'recurrent-language-model' is not a Transformer, and has no positions or patterns to plot.": (
            ("pattern", "--set", "model.kind=recurrent-language-model"),
            2,
        ),
        "--target: is for a translator; pass MODEL too, or remove it.": (("lstm", "a b", "--target", "c"), 2),
        "Positions of the kind none add nothing, so there is nothing to plot; choose another kind.": (
            ("positions", "--set", "model.positions=none"),
            2,
        ),
        "Positions of the kind syntax depend on a parse, not on the place alone; plot another kind.": (
            ("positions", "--set", "model.positions=syntax"),
            2,
        ),
        "The projection is for 8 tokens at most; lower --length.": (
            ("pattern", "--set", "model.attention=linformer", "--set", "model.attention.max_length=8"),
            2,
        ),
        "This network has no cross-attention, so there is nothing to align.": (
            ("alignment", folders["writer"], "w5"),
            2,
        ),
        "This network has no self-attention, so it has no mask to plot.": (("mask", lstm, "w5"), 2),
        "decoder.1.cross_attention: is not self-attention over tokens, so it has no look-ahead mask; choose another.": (
            ("mask", translator, "w5", "--at", "decoder.1.cross_attention"),
            2,
        ),
        "decoder.1.attention[9]: there is no head 9; the heads are 0 to 3.": (
            ("mask", translator, "w5", "--at", "decoder.1.attention[9]"),
            2,
        ),
        "This network has no LSTM, so it has no gates to plot; train one with model.cell = 'lstm'.": (
            ("lstm", folders["rnn"], "w5"),
            2,
        ),
        "decoder.7.forwards: is not an LSTM layer of this network; the layers are decoder.0.forwards, "
        "decoder.1.forwards.": (("lstm", lstm, "w5", "--at", "decoder.7.forwards"), 2),
        "--step 9: there is no such step; the steps are 0 to 2.": (("lstm", "a b", "--step", "9"), 2),
        "This network has no recurrent decoder to unroll; pass a recurrent model, or only a text.": (
            ("graph", translator, "w5"),
            2,
        ),
        "TEXT is empty; give at least one word.": (("lstm", ""), 2),
        "The text has 61 steps, and the figure has room for 12; shorten it.": (("graph", "word " * 60), 2),
        "The text has 14 steps, and the figure has room for 12; shorten it.": (
            ("graph", " ".join("abcdefghijklm")),
            2,
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", range(31))
def test_invalid_arguments_are_an_error(
    folders: dict[str, Path], translator: Path, tmp_path: Path, number: int
) -> None:
    cases = errors(folders, translator)
    assert len(cases) == 31
    message, (arguments, code) = list(cases.items())[number]
    done = regard("plot", *arguments, "-o", tmp_path / "x.png")
    assert (done.code, done.out, done.err) == (code, "", f"regard: {message}\n")
    assert not (tmp_path / "x.png").exists()


def test_output_is_checked_before_anything_is_computed(tmp_path: Path) -> None:
    missing = regard("plot", "lookup")
    message = "regard: --output is missing: pass the image file to write, such as -o figure.png.\n"
    assert (missing.code, missing.err) == (2, message)
    other = regard("plot", "heads", "nowhere", "w5", "-o", "x.gif")
    assert (other.code, other.err) == (2, "regard: --output x.gif: should end in .png, .svg or .pdf.\n")


@pytest.mark.slow
@pytest.mark.parametrize("plot", FREE_PLOTS)
def test_figures_in_the_docs_are_those_of_the_command(tmp_path: Path, plot: str) -> None:
    """Names and numbers are compared; outlines may differ between versions of matplotlib."""
    stored = (Path(__file__).parents[2] / "docs" / "figures" / f"{plot}.svg").read_text("utf-8")
    assert svg_texts(stored) == svg_texts(svg(tmp_path, plot))
    assert len(svg_texts(stored)) > 10


def svg_texts(content: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", content)
