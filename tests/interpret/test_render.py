"""Rendering of traces: terminal, HTML page, figures."""

import json
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path

import pytest
import torch
from matplotlib.colors import to_rgb, to_rgba_array
from rich.console import Console, RenderableType

from family import DECODERS, FAMILY
from random_models import SMALL
from regard.config import DecoderOnlyConfig
from regard.errors import ConfigError, DataError, InputError
from regard.interpret.interventions import InterventionResult, StepChange
from regard.interpret.render.page import MAX_EMBEDDED_NUMBERS, attention_data, notebook_frame, trace_page
from regard.interpret.render.plots import plot_alignment, plot_attention, plot_head_costs
from regard.interpret.render.tables import CAUTION, intervention_tables
from regard.interpret.render.terminal import render_trace
from regard.interpret.trace import Trace, look
from regard.nn.positions import AlibiPositions, RelativeVectors, alibi_slopes
from regard.plotting import (
    BLUE,
    DARK_COLORS,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    check_figure_path,
    new_figure,
    save_figure,
    value_grid,
)
from traces import TEXT, TRANSLATION_MODELS, make_trace, make_traced_model


def print_lines(parts: Iterable[RenderableType]) -> list[str]:
    console = Console(width=200, no_color=True, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get().splitlines()


def terminal_text(trace: Trace) -> str:
    return "\n".join(print_lines(render_trace(trace)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_every_network_is_rendered_in_the_terminal(name: str) -> None:
    text = terminal_text(make_trace(name))
    assert text.startswith(TEXT)
    assert FAMILY[name].family in text
    assert ("Decoding steps" in text) == (name in DECODERS)
    assert ("\nBeam search" in text) == (name in TRANSLATION_MODELS)
    assert ("nan" in text.split()) is False


def test_one_layer_and_one_head_are_singular_and_tokens_have_their_words() -> None:
    model = make_traced_model(DecoderOnlyConfig(**SMALL | {"layers": 1, "heads": 1}))
    text = terminal_text(look(model, "w4 w5", target=""))
    assert ", 1 layer, 1 head, width 24, " in text
    assert "each with the word that it is part of and its id" in text


def test_terminal_sections_and_numbers() -> None:
    trace = make_trace("encoder-decoder")
    text = terminal_text(trace)
    headings = re.findall(
        r"^(Tokens|(?:Encoder|Decoder)(?:, layer \d)?|Decoding steps|Beam search|Alignment|Head costs)\b",
        text,
        flags=re.MULTILINE,
    )
    assert headings == [
        "Tokens",
        "Encoder",
        "Encoder, layer 0",
        "Encoder, layer 1",
        "Decoder",
        "Decoder, layer 0",
        "Decoder, layer 1",
        "Decoding steps",
        "Beam search",
        "Alignment",
        "Head costs",
    ]
    lines = [line.split() for line in text.splitlines()]
    assert ["w5", "w5", "5"] in lines
    assert ["[EOS]", "[EOS]", "3"] in lines
    for step in trace.steps:
        row = next(line for line in lines if line[:3] == [str(step.step), step.input_token, step.token])
        assert f"{step.probability:.3f}" in row
        assert f"{step.entropy:.2f}" in row
    weights = trace.activation("decoder.1.cross_attention.weights")[0, 0]
    most = int(weights.argmax())
    assert trace.source is not None
    assert f"{trace.source.tokens[most]} {float(weights[most]):.2f}" in text
    assert f"log p = {trace.log_probability:.3f} in total" in text
    assert CAUTION in text


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("encoder-decoder", "decoder.0.attention"),
        ("decoder-only", "decoder.0.attention"),
        ("encoder-only", "encoder.0.attention"),
        ("encoder-decoder, ALiBi", "decoder.0.attention"),
        ("encoder-decoder, relative", "encoder.0.attention"),
        ("encoder-decoder, relative", "decoder.0.attention"),
        ("encoder-decoder, relative", "decoder.0.cross_attention"),
    ],
)
def test_attention_of_one_query_follows_the_formula(name: str, place: str) -> None:
    trace = make_trace(name)
    lines = terminal_text(trace).splitlines()
    row = len(trace.labels(trace.points[f"{place}.q"].axes[1]) or []) // 2
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{place}, head 0: query "))
    end = next(n for n, line in enumerate(lines) if n > start and line.startswith("weights · v"))
    q, scores, weights, v = (trace.activation(f"{place}.{point}")[0] for point in ("q", "scores", "weights", "v"))
    scale = q.size(-1) ** -0.5
    to_scores, to_values = position_terms(trace, place, q[row], row, len(v))
    assert (f"scores × {scale:.4g} + bias of the positions; q = " in lines[start]) == (to_scores is not None)
    assert (f"scores × {scale:.4g}; q = " in lines[start]) == (to_scores is None)
    scaled = scores[row] * scale + (0 if to_scores is None else to_scores)
    seen = [n for n in range(len(v)) if place != "decoder.0.attention" or n <= row]
    body = [[cell for cell in line.split() if cell != "…"] for line in lines[start + 4 : end - 1]]
    assert [cells[4:7] for cells in body] == [
        [f"{float(values[n]):.2f}" for values in (scores[row], scaled, weights[row])] for n in seen
    ]
    taken = weights[row] @ (v if to_values is None else v + to_values)
    description, _, numbers = lines[end].partition(" = ")
    assert description == f"weights · v{'' if to_values is None else ' + values of the positions'}"
    assert [float(number) for number in numbers.split()[:3]] == pytest.approx(taken[:3].tolist(), abs=0.0051)


def position_terms(
    trace: Trace, place: str, query: torch.Tensor, row: int, keys: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What positions add to the scores (S,) and values (S, E) of the first head, by the papers; None if nothing."""
    distance = torch.arange(keys) - row
    stack, layer, part = place.split(".")
    positions = getattr(trace.model.network.get_submodule(f"{stack}.layers.{layer}.{part}"), "positions", None)
    if isinstance(positions, AlibiPositions):
        return -alibi_slopes(4)[0] * distance.abs(), None
    if isinstance(positions, RelativeVectors):
        indices = distance.clamp(-2, 2) + 2
        return positions.keys.detach()[indices] @ query * len(query) ** -0.5, positions.values.detach()[indices]
    return None, None


@pytest.mark.parametrize(
    ("name", "target"), [("encoder-only, classes", "bad"), ("encoder-only, tags", "noun verb noun noun")]
)
def test_target_of_an_encoder_is_shown(name: str, target: str) -> None:
    trace, free = make_trace(name, target=target), make_trace(name)
    assert (trace.outline()["forced"], trace.outline()["forced_target"]) == (True, target)
    assert (free.outline()["forced"], free.outline()["forced_target"]) == (False, None)
    assert f"target: {target}" in terminal_text(trace).splitlines()
    assert f">target: {target}</p>" in trace_page(trace)
    assert "target:" not in terminal_text(free)
    assert ">target:" not in trace_page(free)


def test_forced_target_is_shown_as_the_output() -> None:
    trace = make_trace("encoder-decoder", target="w6 w8")
    assert trace.outline()["forced_target"] == trace.output == "w6 w8"
    assert "target:" not in terminal_text(trace)
    assert ">target:" not in trace_page(trace)


def test_active_hidden_units_are_counted() -> None:
    trace = make_trace("encoder-decoder")
    units = {layer["layer"]: layer for layer in json.loads(trace.as_json())["units"]}
    assert list(units) == ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]
    text, content = terminal_text(trace), unescape(trace_page(trace))
    for layer, counts in units.items():
        hidden = trace.activation(f"{layer}.feed_forward.hidden")
        assert counts["units"] == hidden.size(-1) == 24
        assert counts["active"] == [int((row > 0).sum()) for row in hidden]
        assert 0 < sum(counts["active"]) < hidden.numel()
    assert text.count("active units of 24") == content.count("active hidden units of 24") == 4
    first = next(
        line.split() for line in text.partition("active units of 24")[2].splitlines() if line.startswith(" w5 ")
    )
    assert first[-1] == str(units["encoder.0"]["active"][0])
    assert json.loads(make_trace("recurrent language model, GRU").as_json())["units"] == []


@pytest.mark.parametrize(
    ("kind", "first", "message"),
    [
        ("output", None, "The output is unchanged; log p of the original output falls by 0.500."),
        ("output", 1, "The outputs differ from step 1; log p of the original output falls by 0.500."),
        ("classes", None, "The label is unchanged; log p of good falls by 0.500."),
        ("classes", 0, "The label changed; log p of good falls by 0.500."),
        ("tags", None, "The tags are unchanged; log p of the tags falls by 0.500."),
        ("tags", 1, "The tags differ from w9; log p of the tags falls by 0.500."),
        ("tokens", None, "The predictions are unchanged; log p of the tokens falls by 0.500."),
        ("tokens", 1, "The predictions differ from w9; log p of the tokens falls by 0.500."),
    ],
)
def test_intervention_result_has_a_summary(kind: str, first: int | None, message: str) -> None:
    places = [None] if kind == "classes" else [None, None] if kind == "output" else ["w5", "w9"]
    steps = [StepChange("good", -1.0, -1.0 - 0.5 / len(places), 0.1, at) for at in places]
    result = InterventionResult(
        kind, ["encoder.0"], "a", "a" if first is None else "b", ["good"] * len(places), first, steps
    )
    assert message in print_lines(intervention_tables(result))


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.slow
def test_page_of_every_network_loads_no_resources(name: str) -> None:
    content = trace_page(make_trace(name))
    assert "default-src 'none'" in unescape(content)
    assert re.findall(r"https?:|//[a-z]|@import|url\(|<link|<img| src=|href=", _without_comments(content)) == []
    assert content.count("<html") == content.count("</html>") == 1


def _without_comments(content: str) -> str:
    return re.sub(r"^// .*$", "", content, flags=re.MULTILINE)


def test_text_of_the_user_is_escaped() -> None:
    trace = make_trace("encoder-decoder", "w5 </script><b>w9")
    content = trace_page(trace)
    assert "</script><b>" not in content
    assert "w5 &lt;/script&gt;&lt;b&gt;w9" in content


def test_page_embeds_the_weights_of_every_head() -> None:
    trace = make_trace("encoder-decoder")
    (data,) = re.findall(r'<script type="application/json" id="attention-data">(.*?)</script>', trace_page(trace))
    attentions = {attention["name"]: attention for attention in json.loads(data)["attentions"]}
    assert list(attentions) == [
        name.removesuffix(".weights") for name, point in trace.points.items() if point.point == "weights"
    ]
    for name, attention in attentions.items():
        embedded = torch.tensor(attention["points"]["weights"])
        torch.testing.assert_close(embedded, trace.activation(f"{name}.weights").float(), atol=1e-3, rtol=1e-3)
        assert len(attention["columns"]) == embedded.size(-1)
    assert attentions["decoder.0.attention"]["points"]["masked"][0][0][1] is None


def test_number_of_embedded_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make_trace("encoder-decoder")
    count = sum(trace.activation(name).numel() for name, point in trace.points.items() if point.point == "weights")
    assert count < MAX_EMBEDDED_NUMBERS
    monkeypatch.setattr("regard.interpret.render.page.MAX_EMBEDDED_NUMBERS", count)
    few = attention_data(trace)
    assert few["note"] == "Only weights are embedded; scores would make the page too large."
    assert {tuple(attention["points"]) for attention in few["attentions"]} == {("weights",)}
    monkeypatch.setattr("regard.interpret.render.page.MAX_EMBEDDED_NUMBERS", count // 2)
    fewer = attention_data(trace)
    assert (
        fewer["note"] == "Only the weights of the last layers are embedded; all layers would make the page too large."
    )
    assert 0 < len(fewer["attentions"]) < len(few["attentions"])


def test_notebook_shows_the_page_in_an_iframe() -> None:
    trace = make_trace("encoder-decoder")
    framed = trace._repr_html_()
    assert framed == notebook_frame(trace)
    (inside,) = re.findall(r'^<iframe srcdoc="([^"]*)"', framed)
    assert unescape(inside) == trace.as_html()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_equal_figures_give_equal_files(tmp_path: Path, suffix: str) -> None:
    files = []
    for name in "ab":
        path = tmp_path / f"{name}.{suffix}"
        save_figure(plot_alignment(make_trace("encoder-decoder")), path)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a.{suffix}", f"b.{suffix}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder-decoder", "decoder-only", "encoder-only", "recurrent encoder-decoder, dot"])
def test_attention_and_head_costs_of_every_kind_of_network_are_plotted(tmp_path: Path, name: str) -> None:
    trace = make_trace(name)
    for number, figure in enumerate((plot_attention(trace), plot_head_costs(trace))):
        save_figure(figure, tmp_path / f"{number}.svg")
        assert (tmp_path / f"{number}.svg").stat().st_size > 1000


def test_plot_shows_the_selected_heads() -> None:
    trace = make_trace("encoder-decoder")
    assert len(plot_attention(trace).axes) == 4
    figure = plot_attention(trace, "encoder.1.attention[2]")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["head 2"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [*TEXT.split(), "[EOS]"]


def test_cost_panel_needs_predictions() -> None:
    titles = {
        name: [axes.get_title(loc="left") for axes in plot_head_costs(make_trace(name)).axes]
        for name in ("encoder-decoder", "encoder-only")
    }
    assert titles["encoder-decoder"] == ["drop in log p when off", "entropy of its attention, nats"]
    assert titles["encoder-only"] == ["entropy of its attention, nats"]


@pytest.mark.slow
def test_invalid_plots_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as config_error:
        check_figure_path(Path("x.gif"), "--output")
    assert str(config_error.value) == "--output x.gif: should end in .png, .svg or .pdf."
    nothing = make_trace("recurrent language model, LSTM")
    with pytest.raises(InputError) as input_error:
        plot_attention(nothing)
    assert str(input_error.value) == "This network has no attention, so it has no weights to plot."
    with pytest.raises(InputError) as input_error:
        plot_head_costs(nothing)
    assert str(input_error.value) == "This network has no attention, so it has no heads to plot."
    with pytest.raises(InputError) as input_error:
        plot_attention(make_trace("encoder-decoder"), "encoder.1.attention[9]")
    assert str(input_error.value) == "encoder.1.attention[9]: there is no head 9; the heads are 0 to 3."
    path = tmp_path / "missing" / "x.png"
    with pytest.raises(DataError) as data_error:
        save_figure(plot_head_costs(make_trace("encoder-decoder")), path)
    assert str(data_error.value) == f"{path}: cannot be written (No such file or directory); choose another place."


def test_numbers_in_cells_have_contrast_in_light_and_dark_mode() -> None:
    """Even on the strongest color, text has a contrast of 4.5 (WCAG)."""
    figure = new_figure(2, 2)
    ax = figure.subplots()
    for color in (BLUE, GREEN, ORANGE):
        value_grid(ax, [[0.0, 1.0]], ["a"], ["b", "c"], title="", texts=[["0", "1"]], color=color)
        weakest, strongest = to_rgba_array(ax.collections[-1].get_facecolor())[:, 3].tolist()
        assert [text.get_color() for text in ax.texts[-2:]] == [INK, INK]
        assert strongest > weakest == 0
        for theme in (dict(zip(DARK_COLORS, DARK_COLORS, strict=True)), DARK_COLORS):
            paper, fill, ink = (torch.tensor(to_rgb(theme[name])) for name in (PAPER, color, INK))
            lighter, darker = sorted(map(luminance, (ink, paper + strongest * (fill - paper))), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def luminance(color: torch.Tensor) -> float:
    linear = torch.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ torch.tensor([0.2126, 0.7152, 0.0722]))


def test_cells_of_attention_follow_dark_mode(tmp_path: Path) -> None:
    save_figure(plot_attention(make_trace("encoder-decoder")), tmp_path / "x.svg")
    content = (tmp_path / "x.svg").read_text("utf-8")
    assert "<image" not in content
    assert "fill-opacity" in content
