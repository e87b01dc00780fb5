"""The steps of the page in a real browser: figures and calculations show the values of the trace."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
import torch
from playwright.sync_api import Page, expect

from page_site import (  # noqa: F401  # fixtures
    STEPS,
    TEXT,
    chromium,
    figure,
    number,
    page,
    site,
    source,
    table,
    trace,
    translator,
    visit,
)
from pages import computed_values, wait_for_view, walk_steps
from random_models import SMALL
from regard.config import EncoderDecoderConfig
from regard.interpret.interventions import Intervention
from regard.interpret.trace import Trace
from regard.labs import LABS
from regard.models.assembly import ACTIVATIONS, GATED_ACTIVATIONS
from regard.serving.app import WEB

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("model", STEPS)
def test_every_step_shows_the_models_numbers(page: Page, model: str) -> None:
    visit(page, "look", model)
    assert list(walk_steps(page)) == STEPS[model].split()


def test_figures_show_the_values_of_the_trace(page: Page, trace: Trace) -> None:
    visit(page, "look/scores", at="decoder.1.attention", head=2, row=1, column=0)
    for title, point in (("1 · scores", "scores"), ("3 · masked", "masked"), ("4 · weights", "weights")):
        expected = trace.tensor(f"decoder.1.attention.{point}[2]").values.tolist()
        shown = [[number(cell) for cell in row] for row in table(figure(page, title))]
        assert [len(row) for row in shown] == [len(row) for row in expected]
        for shown_row, expected_row in zip(shown, expected, strict=True):
            assert shown_row == pytest.approx(expected_row, abs=1e-4)
    names = [name for name, _, _ in computed_values(page)]
    assert names == ["q · k", "÷ √d_k", "mask", "softmax"]
    assert computed_values(page)[3][2] == pytest.approx(
        float(trace.activation("decoder.1.attention.weights")[2, 1, 0]), abs=1e-5
    )


def test_arrow_keys_move_in_a_matrix_and_update_the_url(page: Page, trace: Trace) -> None:
    visit(page, "look/projection", at="encoder.1.attention", head=1)
    page.locator("svg.matrix").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".calculation b")).to_have_text("q[1, 1]")
    assert computed_values(page)[0][2] == pytest.approx(trace.product("encoder.1.attention.q[1]", 1, 1).value, abs=1e-5)
    address = page.url
    assert "row=1" in address
    assert "column=1" in address
    page.goto("about:blank")
    page.goto(address)
    wait_for_view(page)
    assert computed_values(page)[0][0] == "q[1, 1]", "the link leads back to the cell"


@pytest.mark.parametrize(
    ("step", "named"), [("projection", "q[2, 3]"), ("heads", "Concat · W_O"), ("feed_forward", "x · W₁ + b₁")]
)
def test_hovering_a_cell_shows_its_calculation(
    page: Page, trace: Trace, source: list[str], step: str, named: str
) -> None:
    """Before a cell is selected, with the pointer and with the keyboard."""
    visit(page, f"look/{step}", at="encoder.1")
    picture = page.locator("svg.matrix[tabindex]").first
    box = picture.locator(".ground").nth(2 * 16 + 3 if step != "projection" else 2 * 6 + 3)
    box.hover(force=True)
    calculation = page.locator(".calculation").first
    expect(page.locator(".location")).to_contain_text(re.compile(rf"^{source[2]}, .*unit 3\b"))
    assert calculation.get_attribute("data-name") == named
    points = {"projection": "attention.q[0]", "heads": "attention_residual.added", "feed_forward": "feed_forward.inner"}
    cell = trace.product(f"encoder.1.{points[step]}", 2, 3)
    assert float(calculation.get_attribute("data-model-value") or "nan") == pytest.approx(cell.value, abs=1e-5)
    assert "column=3" not in page.url, "what is only pointed at is not noted"
    picture.press("ArrowUp")
    expect(page.locator(".location")).to_contain_text(re.compile(rf"^{source[1]}, .*unit 3\b"))


@pytest.mark.parametrize("text", [TEXT, "w16", "w16 w28 w17 w5 w16 w28 w17"])
def test_labels_of_sinusoids_do_not_overlap(text: str, page: Page) -> None:
    visit(page, "look/positions", text=text)
    heights = page.locator(".wave text").evaluate_all("texts => texts.map(text => Number(text.getAttribute('y')))")
    assert len(heights) == 4
    assert all(below - above >= 12.9 for above, below in pairwise(sorted(heights)))


def test_all_terms_of_a_sum_can_be_shown(page: Page, trace: Trace, source: list[str]) -> None:
    visit(page, "look/scores", at="encoder.1.attention", row=1, column=2)
    dot, softmax = page.locator(".calculation[data-name='q · k']"), page.locator(".calculation[data-name=softmax]")
    assert (dot.locator(".expression").text_content() or "").count(" · ") == 1 + 3, "the first few, with q · k itself"
    page.locator("figure button").last.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    width = trace.activation("encoder.1.attention.q").size(-1)
    expect(dot.locator("summary")).to_have_text(f"All {width} terms")
    products = (dot.locator(".terms p").text_content() or "").split(" + ")
    assert len(products) == width
    factors = [[number(factor) for factor in product.split(" · ")] for product in products]
    assert sum(x * y for x, y in factors) == pytest.approx(
        float(dot.get_attribute("data-model-value") or "nan"), abs=1e-3
    )
    softmax.locator("summary").click()
    expect(softmax.locator(".terms sup")).to_have_count(1 + len(source))
    exponents = softmax.locator(".terms sup").all_text_contents()
    numerator, denominator = number(exponents[0]), [number(exponent) for exponent in exponents[1:]]
    assert len(denominator) == len(source)
    assert math.exp(numerator) / sum(map(math.exp, denominator)) == pytest.approx(
        float(softmax.get_attribute("data-model-value") or "nan"), abs=1e-3
    )
    page.locator("svg.matrix").first.press("ArrowDown")
    expect(page.locator(".location")).to_contain_text(f"{source[2]} → ")
    expect(page.locator(".calculation .terms[open]")).to_have_count(2)  # they stay open from cell to cell


def test_the_browser_computes_every_activation(page: Page) -> None:
    visit(page, "hand")
    inputs = torch.linspace(-6, 6, 49, dtype=torch.float64)
    gates = inputs.flip(0) / 2
    activation = "([name, x]) => import('/arithmetic.js').then(({ ACTIVATIONS }) => x.map(ACTIVATIONS[name]))"
    gate = (
        "([name, x, y]) => import('/arithmetic.js').then(({ GATED }) => x.map((value, n) => GATED[name](value, y[n])))"
    )
    for name in get_args(EncoderDecoderConfig.model_fields["activation"].annotation):
        if name in GATED_ACTIVATIONS:
            computed = page.evaluate(gate, [name, inputs.tolist(), gates.tolist()])
            expected = ACTIVATIONS[GATED_ACTIVATIONS[name]]()(inputs) * gates
        else:
            computed, expected = page.evaluate(activation, [name, inputs.tolist()]), ACTIVATIONS[name]()(inputs)
        assert computed == pytest.approx(expected.tolist(), abs=1e-7), name


def test_active_hidden_units_are_counted(page: Page, trace: Trace) -> None:
    visit(page, "look/feed_forward", at="encoder.1", row=1)
    on = (trace.activation("encoder.1.feed_forward.hidden") > 0).sum(-1).tolist()
    assert [[number(cell) for cell in row] for row in table(figure(page, "Active hidden units"))] == [on]
    expect(page.locator(".location")).to_contain_text(f"{on[1]} of {SMALL['feed_forward']} units are active")


def test_hidden_units_are_counted_by_the_server(page: Page) -> None:
    requests: list[Any] = []
    page.on("request", lambda request: requests.append(request.post_data_json) if "/tensor" in request.url else None)
    visit(page, "look/feed_forward", at="encoder.1", row=1)
    hidden = [request for request in requests if request["at"] == "encoder.1.feed_forward.hidden"]
    assert len(hidden) == 1
    assert hidden[0]["columns"] == [0, 16]


def test_a_head_can_be_switched_off_and_compared(page: Page, trace: Trace) -> None:
    visit(page, "look/switchboard")
    name = "decoder.1.cross_attention[0]"
    switch = page.locator(f'[data-name="{name}"]')
    switch.press("Space")
    expect(switch).to_have_attribute("aria-pressed", "false")
    result = trace.intervene(Intervention.parse(name))
    expect(page.locator(".compared dd").nth(1)).to_have_text(result.after or "empty output")
    assert float(page.locator("[data-cost]").get_attribute("data-cost") or "nan") == pytest.approx(
        result.cost, abs=1e-3
    )
    page.goto(page.url)
    page.reload()
    wait_for_view(page)
    expect(switch).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".compared dd").nth(1)).to_have_text(result.after or "empty output")
    page.get_by_role("button", name="All on").click()
    expect(page.locator(".result")).to_contain_text("All heads are on")
    expect(switch).to_have_attribute("aria-pressed", "true")
    assert "off=" not in page.url


def test_the_player_steps_through_decoding(page: Page, trace: Trace) -> None:
    visit(page, "look/player", at="decoder.1.cross_attention", head=3)
    for time, step in enumerate(trace.steps[:3]):
        expect(page.locator(".predicted")).to_have_text(step.token)
        weights = trace.activation("decoder.1.cross_attention.weights")[3, time].tolist()
        shown = page.locator("[data-weight]").evaluate_all(
            "elements => elements.map(element => Number(element.dataset.weight))"
        )
        assert shown == pytest.approx(weights, abs=1e-5)
        page.get_by_role("button", name="Next step").click()
    page.locator("#time").press("Home")
    expect(page.locator(".predicted")).to_have_text(trace.steps[0].token)


def test_a_node_of_the_tree_shows_its_attention(page: Page, trace: Trace) -> None:
    assert trace.tree is not None
    visit(page, "look/tree")
    assert page.locator(".tree .node").count() == len(trace.tree.nodes)
    pruned = next(node for node in trace.tree.nodes if node.state == "pruned" and node.step == 1)
    page.locator(f'.node[data-number="{pruned.number}"]').click()
    expect(page.locator(".result .location")).to_have_text(trace.model.target_tokenizer.decode(trace.tree.path(pruned)))
    assert len(table(page.locator(".result figure"))) == 4, "a row for every head"


def test_the_tree_is_compact(page: Page, trace: Trace) -> None:
    """Alternatives are near the step that they belong to, no nodes overlap, and no lines of different parents cross."""
    assert trace.tree is not None
    visit(page, "look/tree")
    circles: list[list[float]] = page.locator(".tree .node circle").evaluate_all(
        "circles => circles.map(circle => [circle.cx.baseVal.value, circle.cy.baseVal.value])"
    )
    nodes, y = trace.tree.nodes, [circle[1] for circle in circles]
    assert len({tuple(circle) for circle in circles}) == len(nodes)
    children: dict[int, list[int]] = {}
    for node in nodes[1:]:
        assert node.parent is not None
        children.setdefault(node.parent, []).append(node.number)
    for parent, numbers in children.items():
        assert min(y[number] for number in numbers) == y[parent], "the first child is in its parent's row"
    for step in {node.step for node in nodes[1:]}:
        spans = sorted(
            (y[parent], max(y[number] for number in numbers))
            for parent, numbers in children.items()
            if nodes[parent].step == step - 1
        )
        assert all(end < start for (_, end), (start, _) in pairwise(spans))
    leaves = len(nodes) - len(children)
    assert len(set(y)) <= 0.8 * leaves, "several leaves share a row"


def test_the_worked_example_is_right_and_editable(page: Page) -> None:
    visit(page, "hand")

    def values(title: str) -> Any:
        return json.loads(figure(page, title).get_attribute("data-values") or "")

    assert values("K") == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert values("scores") == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    scaled = [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]
    plain = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
    assert [value for row in values("output") for value in row] == pytest.approx(
        [value for row in scaled for value in row], abs=5e-5
    )
    page.locator("#scaled").uncheck()
    assert [value for row in values("output") for value in row] == pytest.approx(
        [value for row in plain for value in row], abs=5e-5
    )
    page.locator("#masked").check()
    assert values("weights")[0] == [1, 0, 0]
    figure(page, "K").locator("svg.matrix").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".computation .expression")).to_have_text(
        re.compile(r"^K = 0\.00000 · 0\.00000 \+ .* = 4\.00000$")
    )
    assert "model" not in (page.locator(".computation").text_content() or ""), "no model is used"
    page.get_by_label("X, row 1, column 1").fill("3")
    assert values("Q")[0] == [3, 0, 4]


def test_a_new_step_gets_the_focus_and_the_back_button_works(page: Page) -> None:
    visit(page, "look/scores")
    page.locator(".step-links [rel=next]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#step-title")).to_have_text("Weighted sum")
    expect(page.locator("#step-title")).to_be_focused()
    expect(page.locator("#step-title")).to_be_in_viewport()
    page.go_back()
    expect(page.locator("#step-title")).to_have_text("Scores to weights")


def test_the_computation_details_are_visible_and_never_cover_their_cell(page: Page) -> None:
    visit(page, "look/scores")
    page.set_viewport_size({"width": 1100, "height": 700})
    for matrix in page.locator("svg.matrix").all():
        matrix.hover()
        expect(page.locator(".computation")).to_be_in_viewport(ratio=1)
        details, cell = page.locator(".computation").bounding_box(), matrix.locator(".cursor").bounding_box()
        assert details
        assert cell
        assert cell["y"] + cell["height"] <= details["y"] or details["y"] + details["height"] <= cell["y"]
    page.locator("#step-title").hover()
    expect(page.locator(".floating")).to_have_count(0)


def test_a_step_links_to_its_lab(page: Page) -> None:
    visit(page, "look/scores")
    expect(page.locator(".labs code").first).to_have_text("regard lab scaling")
    page.locator(".labs a").first.click()
    expect(page.locator("#scaling h2")).to_be_in_viewport()
    visit(page, "look/tokens")
    expect(page.locator("#step-title")).to_have_text("Subwords and ids")
    expect(page.locator(".labs")).to_have_count(0)


def test_every_lab_is_linked_from_a_step() -> None:
    named = re.findall(r'"([a-z-]+)"[,\]]', (WEB / "labs.js").read_text("utf-8").partition("};")[0])
    assert named
    assert set(LABS) <= set(named)


def test_the_kinds_of_attention_are_side_by_side(page: Page) -> None:
    visit(page, "look/kinds")
    tops = page.locator(".step figure").evaluate_all(
        "elements => elements.map(element => element.getBoundingClientRect().top)"
    )
    assert len(tops) == 3
    assert max(tops) - min(tops) < 1


def test_matrices_can_be_saved(page: Page) -> None:
    visit(page, "look/kinds")
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as saved_:
            page.get_by_role("button", name=f"Save Cross-attention as {kind}").click()
        assert Path(saved_.value.path()).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("step", "pictures"),
    [
        ("heads", {"Map of the network": {"Softmax", "2×"}, "Weights of every head": {"head", "3"}}),
        ("switchboard", {"Cost of removing each head": {"decoder", "head", "whole"}}),
        ("player", {"This step": {"w16", "Predicted"}}),
    ],
)
def test_other_figures_can_be_saved(page: Page, step: str, pictures: dict[str, set[str]]) -> None:
    visit(page, f"look/{step}")
    for title, words in pictures.items():
        svg = saved_as(page, title)
        assert words <= {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}


def saved_as(page: Page, title: str) -> ElementTree.Element:
    """The saved SVG of a figure, which needs no style sheet; the PNG has the same size."""
    files = dict[str, bytes]()
    for kind in ("SVG", "PNG"):
        with page.expect_download() as saved_:
            page.get_by_role("button", name=f"Save {title} as {kind}").click()
        files[kind] = Path(saved_.value.path()).read_bytes()
    assert not re.search(rb"var\(|color\(|class=|href=", files["SVG"])
    svg = ElementTree.fromstring(files["SVG"])
    assert [int.from_bytes(files["PNG"][n : n + 4]) for n in (16, 20)] == [
        2 * int(svg.attrib[side]) for side in ("width", "height")
    ]
    return svg


def test_the_tables_of_map_and_player_have_their_values(page: Page, trace: Trace) -> None:
    visit(page, "look/player", at="decoder.1.cross_attention", head=3)
    assert ["decoder", "2"] in table(page.locator(".map figure"))
    rows = table(figure(page, "This step"))
    assert [row[:2] for row in rows] == [[step.input_token, step.token] for step in trace.steps]
    expected = trace.activation("decoder.1.cross_attention.weights")[3].tolist()
    for row, step, weights in zip(rows, trace.steps, expected, strict=True):
        assert [number(cell) for cell in row[2:]] == pytest.approx([step.probability, step.entropy, *weights], abs=1e-4)
