"""A trace as people read it: the walk in the terminal, the page, the pictures."""

import json
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path

import pytest
import torch
from rich.console import Console, RenderableType

from family import DECODERS, FAMILY
from looking import TEXT, TRANSLATORS, traced
from regard.errors import ConfigError, DataError, InputError
from regard.interpret.interventions import InterventionResult, StepChange
from regard.interpret.render.page import MAX_EMBEDDED_NUMBERS, attention_data, notebook_frame, trace_page
from regard.interpret.render.plots import plot_alignment, plot_attention, plot_head_costs
from regard.interpret.render.shared import CAUTION
from regard.interpret.render.tables import intervention_tables
from regard.interpret.render.terminal import render_trace
from regard.interpret.trace import Trace
from regard.nn.alibi import AlibiPositions, alibi_slopes
from regard.nn.relative import RelativeVectors
from regard.plotting import check_figure_path, save_figure


def shown(parts: Iterable[RenderableType]) -> list[str]:
    console = Console(width=200, no_color=True, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get().splitlines()


def walked(trace: Trace) -> str:
    return "\n".join(shown(render_trace(trace)))


@pytest.mark.parametrize("name", FAMILY)
def test_every_network_can_be_walked_through(name: str) -> None:
    text = walked(traced(name))
    assert text.startswith(TEXT)
    assert FAMILY[name].family in text
    assert ("Decoding steps" in text) == (name in DECODERS)
    assert ("\nBeam search" in text) == (name in TRANSLATORS)
    assert ("nan" in text.split()) is False


def test_the_walk_goes_from_the_tokens_to_what_was_chosen() -> None:
    trace = traced("encoder-decoder")
    text = walked(trace)
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
def test_one_query_is_shown_as_it_is_computed(name: str, place: str) -> None:
    trace = traced(name)
    lines = walked(trace).splitlines()
    row = len(trace.labels(trace.points[f"{place}.q"].axes[1]) or []) // 2
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{place}, head 0: query "))
    end = next(n for n, line in enumerate(lines) if n > start and line.startswith("weights · v"))
    q, scores, weights, v = (trace.activation(f"{place}.{point}")[0] for point in ("q", "scores", "weights", "v"))
    scale = q.size(-1) ** -0.5
    to_scores, to_values = what_positions_add(trace, place, q[row], row, len(v))
    assert (f"× {scale:.4g}, and what the positions add; q = " in lines[start]) == (to_scores is not None)
    assert (f"× {scale:.4g}; q = " in lines[start]) == (to_scores is None)
    scaled = scores[row] * scale + (0 if to_scores is None else to_scores)
    seen = [n for n in range(len(v)) if place != "decoder.0.attention" or n <= row]
    body = [[cell for cell in line.split() if cell != "…"] for line in lines[start + 4 : end - 1]]
    assert [cells[4:7] for cells in body] == [
        [f"{float(values[n]):.2f}" for values in (scores[row], scaled, weights[row])] for n in seen
    ]
    taken = weights[row] @ (v if to_values is None else v + to_values)
    how, _, shown = lines[end].partition(" = ")
    assert how == f"weights · v{'' if to_values is None else ', and what the positions add'}"
    assert [float(one) for one in shown.split()[:3]] == pytest.approx(taken[:3].tolist(), abs=0.0051)


def what_positions_add(
    trace: Trace, place: str, query: torch.Tensor, row: int, keys: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """To the scores of the first head's query (S,), and to the values (S, E), by the papers; None: nothing."""
    distance = torch.arange(keys) - row
    stack, layer, part = place.split(".")
    positions = getattr(trace.model.network.get_submodule(f"{stack}.layers.{layer}.{part}"), "positions", None)
    if isinstance(positions, AlibiPositions):
        return -alibi_slopes(4)[0] * distance.abs(), None
    if isinstance(positions, RelativeVectors):
        found = distance.clamp(-2, 2) + 2
        return positions.keys.detach()[found] @ query * len(query) ** -0.5, positions.values.detach()[found]
    return None, None


@pytest.mark.parametrize(
    ("name", "target"), [("encoder-only, classes", "bad"), ("encoder-only, tags", "noun verb noun noun")]
)
def test_what_was_asked_about_is_told(name: str, target: str) -> None:
    trace, free = traced(name, target=target), traced(name)
    assert (trace.outline()["forced"], trace.outline()["forced_target"]) == (True, target)
    assert (free.outline()["forced"], free.outline()["forced_target"]) == (False, None)
    assert f"target: {target}" in walked(trace).splitlines()
    assert f">target: {target}</p>" in trace_page(trace)
    assert "target:" not in walked(free)
    assert ">target:" not in trace_page(free)


def test_a_target_that_was_forced_is_told_as_the_output() -> None:
    trace = traced("encoder-decoder", target="w6 w8")
    assert trace.outline()["forced_target"] == trace.output == "w6 w8"
    assert "target:" not in walked(trace)
    assert ">target:" not in trace_page(trace)


def test_hidden_units_that_are_on_are_counted_everywhere() -> None:
    trace = traced("encoder-decoder")
    told = {one["layer"]: one for one in json.loads(trace.as_json())["units"]}
    assert list(told) == ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]
    text, content = walked(trace), unescape(trace_page(trace))
    for layer, one in told.items():
        hidden = trace.activation(f"{layer}.feed_forward.hidden")
        assert one["units"] == hidden.size(-1) == 24
        assert one["active"] == [int((row > 0).sum()) for row in hidden]
        assert 0 < sum(one["active"]) < hidden.numel()
    assert text.count("active units of 24") == content.count("active hidden units of 24") == 4
    first = next(
        line.split() for line in text.partition("active units of 24")[2].splitlines() if line.startswith(" w5 ")
    )
    assert first[-1] == str(told["encoder.0"]["active"][0])
    assert json.loads(traced("recurrent language model, GRU").as_json())["units"] == []


@pytest.mark.parametrize(
    ("kind", "first", "sentence"),
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
def test_a_difference_is_told_in_one_sentence(kind: str, first: int | None, sentence: str) -> None:
    places = [None] if kind == "classes" else [None, None] if kind == "output" else ["w5", "w9"]
    steps = [StepChange("good", -1.0, -1.0 - 0.5 / len(places), 0.1, at) for at in places]
    found = InterventionResult(
        kind, ["encoder.0"], "a", "a" if first is None else "b", ["good"] * len(places), first, steps
    )
    assert sentence in shown(intervention_tables(found))


@pytest.mark.parametrize("name", FAMILY)
def test_the_page_of_every_network_loads_nothing_from_elsewhere(name: str) -> None:
    content = trace_page(traced(name))
    assert "default-src 'none'" in unescape(content)
    assert re.findall(r"https?:|//[a-z]|@import|url\(|<link|<img| src=|href=", _without_comments(content)) == []
    assert content.count("<html") == content.count("</html>") == 1


def _without_comments(content: str) -> str:
    return re.sub(r"^// .*$", "", content, flags=re.MULTILINE)


def test_what_a_user_typed_stays_text() -> None:
    trace = traced("encoder-decoder", "w5 </script><b>w9")
    content = trace_page(trace)
    assert "</script><b>" not in content
    assert "w5 &lt;/script&gt;&lt;b&gt;w9" in content


def test_the_page_holds_the_weights_of_every_head() -> None:
    trace = traced("encoder-decoder")
    (data,) = re.findall(r'<script type="application/json" id="attention-data">(.*?)</script>', trace_page(trace))
    attentions = {one["name"]: one for one in json.loads(data)["attentions"]}
    assert list(attentions) == [
        name.removesuffix(".weights") for name, point in trace.points.items() if point.point == "weights"
    ]
    for name, one in attentions.items():
        embedded = torch.tensor(one["points"]["weights"])
        torch.testing.assert_close(embedded, trace.activation(f"{name}.weights").float(), atol=1e-3, rtol=1e-3)
        assert len(one["columns"]) == embedded.size(-1)
    assert attentions["decoder.0.attention"]["points"]["masked"][0][0][1] is None


def test_a_page_holds_a_bounded_number_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced("encoder-decoder")
    count = sum(trace.activation(name).numel() for name, point in trace.points.items() if point.point == "weights")
    assert count < MAX_EMBEDDED_NUMBERS
    monkeypatch.setattr("regard.interpret.render.page.MAX_EMBEDDED_NUMBERS", count)
    few = attention_data(trace)
    assert few["note"] == "Only weights are embedded; scores would make the page too large."
    assert {tuple(one["points"]) for one in few["attentions"]} == {("weights",)}
    monkeypatch.setattr("regard.interpret.render.page.MAX_EMBEDDED_NUMBERS", count // 2)
    fewer = attention_data(trace)
    assert (
        fewer["note"] == "Only the weights of the last layers are embedded; all layers would make the page too large."
    )
    assert 0 < len(fewer["attentions"]) < len(few["attentions"])


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    trace = traced("encoder-decoder")
    framed = trace._repr_html_()
    assert framed == notebook_frame(trace)
    (inside,) = re.findall(r'^<iframe srcdoc="([^"]*)"', framed)
    assert unescape(inside) == trace.as_html()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_picture_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    files = []
    for name in "ab":
        path = tmp_path / f"{name}.{suffix}"
        save_figure(plot_alignment(traced("encoder-decoder")), path)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a.{suffix}", f"b.{suffix}"]


@pytest.mark.parametrize("name", ["encoder-decoder", "decoder-only", "encoder-only", "recurrent encoder-decoder, dot"])
def test_attention_and_heads_of_every_kind_of_network_can_be_drawn(tmp_path: Path, name: str) -> None:
    trace = traced(name)
    for number, figure in enumerate((plot_attention(trace), plot_head_costs(trace))):
        save_figure(figure, tmp_path / f"{number}.svg")
        assert (tmp_path / f"{number}.svg").stat().st_size > 1000


def test_a_plot_shows_the_heads_that_were_asked_for() -> None:
    trace = traced("encoder-decoder")
    assert len(plot_attention(trace).axes) == 4
    one = plot_attention(trace, "encoder.1.attention[2]")
    assert [axes.get_title(loc="left") for axes in one.axes] == ["head 2"]
    assert [label.get_text() for label in one.axes[0].get_yticklabels()] == [*TEXT.split(), "[EOS]"]


def test_what_a_head_costs_is_drawn_where_something_is_predicted() -> None:
    titles = {
        name: [axes.get_title(loc="left") for axes in plot_head_costs(traced(name)).axes]
        for name in ("encoder-decoder", "encoder-only")
    }
    assert titles["encoder-decoder"] == ["drop in log p when off", "entropy of its attention, nats"]
    assert titles["encoder-only"] == ["entropy of its attention, nats"]


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        check_figure_path(Path("x.gif"), "--output")
    assert str(wrong.value) == "--output x.gif: should end in .png, .svg or .pdf."
    nothing = traced("recurrent language model, LSTM")
    with pytest.raises(InputError) as found:
        plot_attention(nothing)
    assert str(found.value) == "This network has no attention, so it has no weights to plot."
    with pytest.raises(InputError) as found:
        plot_head_costs(nothing)
    assert str(found.value) == "This network has no attention, so it has no heads to plot."
    with pytest.raises(InputError) as found:
        plot_attention(traced("encoder-decoder"), "encoder.1.attention[9]")
    assert str(found.value) == "encoder.1.attention[9]: there is no head 9; the heads are 0 to 3."
    path = tmp_path / "missing" / "x.png"
    with pytest.raises(DataError) as unwritten:
        save_figure(plot_head_costs(traced("encoder-decoder")), path)
    assert str(unwritten.value) == f"{path}: cannot be written (No such file or directory); choose another path."
