"""The page in a real browser: it shows what the model computes, and requests nothing from other servers."""

import gzip
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from browsers import browser
from pages import computed_values, wait_for_view, walk_steps
from random_models import SMALL, VOCABULARY, saved
from regard.config import EncoderDecoderConfig, RecurrentEncoderDecoderConfig
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.interpret.interventions import Intervention
from regard.interpret.trace import Trace
from regard.labs import LABS
from regard.models.components import ACTIVATIONS
from regard.models.initialization import initialize
from regard.serving.access import AccessPolicy
from regard.serving.app import WEB
from regard.serving.loaded_models import LoadedModel, load_models
from regard.serving.service import Service
from servers import RunningServer, run_server

TEXT = "w16 w28 w17 w5"  # which the translator below answers with four tokens and the end
STEPS = {
    "en-it": "tokens embedding positions projection scores sum heads kinds residual feed_forward output player tree "
    "switchboard",
    "writer": "tokens embedding positions projection scores sum heads kinds residual feed_forward output player "
    "switchboard",
    "rnn": "tokens embedding gates kinds output player tree switchboard",
}
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "web-page.md"
PATIENCE = 20_000  # milliseconds


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("translator") / "en-it"
    whole = partial(
        initialize, scale_residual=False
    )  # the stream changes more, so that it does not only repeat what it reads
    with patch("regard.models.assembly.initialize", whole):
        saved(folder, EncoderDecoderConfig(**SMALL), seed=6)
    return load_models([str(folder)])[0]


@pytest.fixture(scope="module")
def site(
    translator: LoadedModel, loaded_models: list[LoadedModel], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("recurrent") / "rnn"
    saved(folder, RecurrentEncoderDecoderConfig(vocab_size=VOCABULARY, width=16, layers=2, cell="gru"))
    with run_server(Service([translator, loaded_models[2], *load_models([f"rnn[en-it]={folder}"])])) as server:
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as chromium:
        yield chromium


@pytest.fixture
def page(chromium: Browser, site: RunningServer) -> Iterator[Page]:
    context = chromium.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    requested, failed = list[str](), list[str]()
    page.on("response", lambda response: failed.append(response.url) if response.status >= 500 else None)
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda message: failed.append(message.text) if _is_error(message.type, message.text) else None)
    yield page
    context.close()
    assert failed == []
    assert all(url.startswith((f"{site.url}/", "data:", "blob:")) for url in requested), "a request left the origin"


def _is_error(kind: str, text: str) -> bool:
    return kind == "error" and not text.startswith("Failed to load resource")  # which is how a refusal is logged


@pytest.fixture(scope="module")
def trace(translator: LoadedModel) -> Trace:
    return translator.model.look(TEXT, beam=4)


@pytest.fixture(scope="module")
def source(trace: Trace) -> list[str]:
    """The source tokens."""
    assert trace.source is not None
    return trace.source.tokens


def visit(page: Page, place: str, model: str = "en-it", **more: Any) -> None:
    query = "&".join(f"{name}={quote(str(value))}" for name, value in {"model": model, "text": TEXT, **more}.items())
    page.goto("about:blank")
    page.goto(f"/#{place}?{query}")
    wait_for_view(page)


def table(figure: Locator) -> list[list[str]]:
    """The table of a figure."""
    figure.locator("summary").first.click()
    figure.locator("tbody tr").first.wait_for()
    rows: list[list[str]] = figure.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent))"
    )
    return rows


def figure(page: Page, title: str) -> Locator:
    return page.locator("figure", has=page.locator("figcaption b", has_text=re.compile(f"^{re.escape(title)}$")))


def number(text: str) -> float:
    return float(text.replace("−∞", "-inf").replace("−", "-"))


def test_a_translation_appears_while_typing(page: Page, translator: LoadedModel) -> None:
    page.goto("/")
    page.locator("#source").press_sequentially(TEXT)
    (expected,) = translator.model.translate([TEXT])
    expect(page.locator("#target")).to_have_text(re.compile(rf"^\s*{re.escape(expected)}\s*$"))
    expect(page.locator("#latency")).to_contain_text("ms in the model")
    expect(page.locator(".alternatives li")).to_have_count(2)
    page.locator(".said").first.click()
    expect(page.locator(".detail h3").first).to_have_text("Where it comes from")
    expect(page.locator(".detail .candidate")).to_have_count(6)


def test_a_text_is_continued_and_every_token_has_candidates(page: Page) -> None:
    visit(page, "use", "writer")
    page.locator("#length").fill("4")
    page.locator("#temperature").fill("0")
    page.get_by_role("button", name="Go on").click()
    page.locator(".said").last.wait_for()
    page.locator(".said").last.click()
    expect(page.locator(".detail .candidate")).to_have_count(10)
    assert 0 < float(page.locator(".said").last.get_attribute("data-probability") or 0) <= 1


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
    expect(page.locator(".sum b")).to_have_text("q[1, 1]")
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
    calculation = page.locator(".sum").first
    expect(page.locator(".where")).to_contain_text(re.compile(rf"^{source[2]}, .*unit 3\b"))
    assert calculation.get_attribute("data-name") == named
    points = {"projection": "attention.q[0]", "heads": "attention_residual.added", "feed_forward": "feed_forward.inner"}
    cell = trace.product(f"encoder.1.{points[step]}", 2, 3)
    assert float(calculation.get_attribute("data-theirs") or "nan") == pytest.approx(cell.value, abs=1e-5)
    assert "column=3" not in page.url, "what is only pointed at is not noted"
    picture.press("ArrowUp")
    expect(page.locator(".where")).to_contain_text(re.compile(rf"^{source[1]}, .*unit 3\b"))


def test_all_terms_of_a_sum_can_be_shown(page: Page, trace: Trace, source: list[str]) -> None:
    visit(page, "look/scores", at="encoder.1.attention", row=1, column=2)
    dot, softmax = page.locator(".sum[data-name='q · k']"), page.locator(".sum[data-name=softmax]")
    assert (dot.locator(".how").text_content() or "").count(" · ") == 1 + 3, "the first few, with q · k itself"
    page.locator("figure button").last.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    width = trace.activation("encoder.1.attention.q").size(-1)
    expect(dot.locator("summary")).to_have_text(f"All {width} terms")
    products = (dot.locator(".terms p").text_content() or "").split(" + ")
    assert len(products) == width
    factors = [[number(factor) for factor in product.split(" · ")] for product in products]
    assert sum(x * y for x, y in factors) == pytest.approx(float(dot.get_attribute("data-theirs") or "nan"), abs=1e-3)
    softmax.locator("summary").click()
    expect(softmax.locator(".terms sup")).to_have_count(1 + len(source))
    exponents = softmax.locator(".terms sup").all_text_contents()
    numerator, denominator = number(exponents[0]), [number(exponent) for exponent in exponents[1:]]
    assert len(denominator) == len(source)
    assert math.exp(numerator) / sum(map(math.exp, denominator)) == pytest.approx(
        float(softmax.get_attribute("data-theirs") or "nan"), abs=1e-3
    )
    page.locator("svg.matrix").first.press("ArrowDown")
    expect(page.locator(".where")).to_contain_text(f"{source[2]} → ")
    expect(page.locator(".sum .terms[open]")).to_have_count(2)  # they stay open from cell to cell


def test_the_browser_computes_every_activation(page: Page) -> None:
    visit(page, "hand")
    inputs = torch.linspace(-6, 6, 49, dtype=torch.float64)
    gates = inputs.flip(0) / 2
    activation = "([name, x]) => import('/arithmetic.js').then(({ ACTIVATIONS }) => x.map(ACTIVATIONS[name]))"
    gate = (
        "([name, x, y]) => import('/arithmetic.js').then(({ GATED }) => x.map((value, n) => GATED[name](value, y[n])))"
    )
    for name in get_args(EncoderDecoderConfig.model_fields["activation"].annotation):
        if name == "swiglu":
            computed = page.evaluate(gate, [name, inputs.tolist(), gates.tolist()])
            expected = torch.nn.functional.silu(inputs) * gates
        else:
            computed, expected = page.evaluate(activation, [name, inputs.tolist()]), ACTIVATIONS[name]()(inputs)
        assert computed == pytest.approx(expected.tolist(), abs=1e-7), name


def test_active_hidden_units_are_counted(page: Page, trace: Trace) -> None:
    visit(page, "look/feed_forward", at="encoder.1", row=1)
    on = (trace.activation("encoder.1.feed_forward.hidden") > 0).sum(-1).tolist()
    assert [[number(cell) for cell in row] for row in table(figure(page, "Hidden units on"))] == [on]
    expect(page.locator(".where")).to_contain_text(f"{on[1]} of {SMALL['feed_forward']} units are on")


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
    expect(page.locator(".compared dd").nth(1)).to_have_text(result.after or "nothing")
    assert float(page.locator("[data-cost]").get_attribute("data-cost") or "nan") == pytest.approx(
        result.cost, abs=1e-3
    )
    page.goto(page.url)
    page.reload()
    wait_for_view(page)
    expect(switch).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".compared dd").nth(1)).to_have_text(result.after or "nothing")
    page.get_by_role("button", name="All on").click()
    expect(page.locator(".result")).to_contain_text("Everything is on")
    expect(switch).to_have_attribute("aria-pressed", "true")
    assert "off=" not in page.url


def test_the_player_steps_through_decoding(page: Page, trace: Trace) -> None:
    visit(page, "look/player", at="decoder.1.cross_attention", head=3)
    for time, step in enumerate(trace.steps[:3]):
        expect(page.locator(".written")).to_have_text(step.token)
        weights = trace.activation("decoder.1.cross_attention.weights")[3, time].tolist()
        shown = page.locator("[data-weight]").evaluate_all(
            "elements => elements.map(element => Number(element.dataset.weight))"
        )
        assert shown == pytest.approx(weights, abs=1e-5)
        page.get_by_role("button", name="Step on").click()
    page.locator("#time").press("Home")
    expect(page.locator(".written")).to_have_text(trace.steps[0].token)


def test_a_node_of_the_tree_shows_its_attention(page: Page, trace: Trace) -> None:
    assert trace.tree is not None
    visit(page, "look/tree")
    assert page.locator(".tree .node").count() == len(trace.tree.nodes)
    pruned = next(node for node in trace.tree.nodes if node.state == "pruned" and node.step == 1)
    page.locator(f'.node[data-number="{pruned.number}"]').click()
    expect(page.locator(".result .where")).to_have_text(trace.model.target_tokenizer.decode(trace.tree.path(pruned)))
    assert len(table(page.locator(".result figure"))) == 4, "a row for every head"


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
    expect(page.locator(".readout .how")).to_have_text(re.compile(r"^K = 0\.00000 · 0\.00000 \+ .* = 4\.00000$"))
    assert "model" not in (page.locator(".readout").text_content() or ""), "no model is used"
    page.get_by_label("X, row 1, column 1").fill("3")
    assert values("Q")[0] == [3, 0, 4]


def reopen(page: Page) -> None:
    """Open the current URL in a fresh page."""
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    wait_for_view(page)


def test_the_url_of_a_tree_node_restores_it(page: Page, trace: Trace) -> None:
    """Keys: right is the next step, down another hypothesis of the same length, Enter selects."""
    assert trace.tree is not None
    visit(page, "look/tree")
    page.locator(".node[tabindex='0']").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    number_ = int(page.evaluate("document.activeElement.dataset.number"))
    node = trace.tree.nodes[number_]
    assert (node.step, node.on_best_path) == (1, False)
    page.keyboard.press("ArrowLeft")
    assert trace.tree.nodes[int(page.evaluate("document.activeElement.dataset.number"))].step == 0
    page.locator(f'.node[data-number="{number_}"]').press("Enter")
    text = trace.model.target_tokenizer.decode(trace.tree.path(node))
    expect(page.locator(".result .where")).to_have_text(text)
    reopen(page)
    expect(page.locator(".node.chosen")).to_have_attribute("data-number", str(number_))
    expect(page.locator(".result .where")).to_have_text(text)


def test_the_url_of_a_word_restores_it(page: Page) -> None:
    visit(page, "use")
    page.locator(".said").nth(1).click()
    page.locator(".detail .candidate").first.wait_for()
    detail = page.locator(".detail").text_content()
    reopen(page)
    expect(page.locator(".said[aria-pressed=true]")).to_have_count(1)
    expect(page.locator(".said").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".detail")).to_have_text(detail or "")
    page.locator("#source").press_sequentially(" w5")
    page.wait_for_url(re.compile(r"^(?!.*word=).*w5\+w5"))  # another text has other words


def test_the_url_of_an_attention_cell_restores_it(page: Page, trace: Trace, source: list[str]) -> None:
    visit(page, "look/kinds", at="decoder.1", head=2)
    figure(page, "Cross-attention").locator("svg").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    text = f"Cross-attention: {trace.decoder_input[2]} looks at {source[1]}"
    expect(page.locator(".where")).to_have_text(text)
    reopen(page)
    expect(page.locator(".where")).to_have_text(text)
    expect(page.locator(".cursor:visible")).to_have_count(1)
    weight = float(trace.activation("decoder.1.cross_attention.weights")[2, 2, 1])
    assert float(page.locator(".sum").get_attribute("data-mine") or "nan") == pytest.approx(weight, abs=1e-5)


def test_the_url_of_an_edited_example_restores_it(page: Page) -> None:
    visit(page, "hand")
    page.get_by_label("W_key, row 2, column 3").fill("-0.5")
    page.locator("#masked").check()
    page.locator("#scaled").uncheck()
    changed = figure(page, "output").get_attribute("data-values")
    reopen(page)
    assert figure(page, "output").get_attribute("data-values") == changed
    expect(page.get_by_label("W_key, row 2, column 3")).to_have_value("-0.5")
    page.get_by_role("button", name="Start again").click()
    expect(page.get_by_label("W_key, row 2, column 3")).to_have_value("0")
    assert "edits" not in page.url


def test_the_url_of_a_player_step_restores_it(page: Page, trace: Trace) -> None:
    visit(page, "look/player")
    page.get_by_role("button", name="Step on").click(click_count=2)
    reopen(page)
    expect(page.locator("#time")).to_have_value("2")
    expect(page.locator(".written")).to_have_text(trace.steps[2].token)


def test_words_show_the_models_probabilities(page: Page, translator: LoadedModel, site: RunningServer) -> None:
    visit(page, "use")
    search = SearchOptions(beam=max(site.service.beam, 3), n_best=3)
    (line,) = translator.translate([TEXT], TranslationOptions(search, token_scores=True))
    best, *others = line.sentences[0].alternatives
    assert best.token_scores is not None
    shown = page.locator(".said").evaluate_all(
        "elements => elements.map(element => [element.textContent, +element.dataset.probability])"
    )
    assert [word for word, _ in shown] == best.tokens
    sure = [math.exp(score) for score in best.token_scores[: len(best.tokens)]]
    assert [probability for _, probability in shown] == pytest.approx(sure, abs=1e-4)
    listed = page.locator(".alternatives li").evaluate_all(
        "elements => elements.map(element => element.firstChild.textContent)"
    )
    assert listed == [other.text for other in others]


def test_a_new_step_gets_the_focus_and_the_back_button_works(page: Page) -> None:
    visit(page, "look/scores")
    page.locator(".around [rel=next]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#step-title")).to_have_text("Weighted sum")
    expect(page.locator("#step-title")).to_be_focused()
    expect(page.locator("#step-title")).to_be_in_viewport()
    page.go_back()
    expect(page.locator("#step-title")).to_have_text("Scores to weights")


def test_the_readout_is_visible_and_never_covers_its_cell(page: Page) -> None:
    visit(page, "look/scores")
    page.set_viewport_size({"width": 1100, "height": 700})
    for matrix in page.locator("svg.matrix").all():
        matrix.hover()
        expect(page.locator(".readout")).to_be_in_viewport(ratio=1)
        readout, cell = page.locator(".readout").bounding_box(), matrix.locator(".cursor").bounding_box()
        assert readout
        assert cell
        assert cell["y"] + cell["height"] <= readout["y"] or readout["y"] + readout["height"] <= cell["y"]
    page.locator("#step-title").hover()
    expect(page.locator(".afloat")).to_have_count(0)


def test_a_step_links_to_its_lab(page: Page) -> None:
    visit(page, "look/scores")
    expect(page.locator(".labs code").first).to_have_text("regard lab scaling")
    page.locator(".labs a").first.click()
    expect(page.locator("#scaling h2")).to_be_in_viewport()
    visit(page, "look/tokens")
    expect(page.locator("#step-title")).to_have_text("Sub-words and ids")
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


def test_a_repeated_word_is_explained_at_its_position(page: Page, translator: LoadedModel) -> None:
    visit(page, "use")
    page.evaluate(
        """() => {
          const send = window.fetch;
          window.fetch = async (path, options) => {
            if (path !== '/v1/translate') return send(path, options);
            const tokens = 'w7 w9 w7'.split(' ');
            const best = { text: 'w7 w9 w7', tokens, token_scores: [-1, -2, -3], log_probability: -6 };
            const sentences = [{ source: 'w16 w28', alternatives: [best] }];
            return new Response(JSON.stringify({ translations: [{ sentences }], timings: { compute_ms: 1 } }));
          };
        }"""
    )
    page.locator("#source").press_sequentially(" w5")
    expect(page.locator(".said")).to_have_count(3)
    page.locator(".said").nth(2).click()
    page.locator(".detail .lit").first.wait_for()
    trace = translator.model.look("w16 w28", target="w7 w9 w7")
    weights = trace.alignment().weights[2].tolist()
    shown = page.locator(".detail .lit .light").evaluate_all(
        "elements => elements.map(element => Number(element.style.opacity))"
    )
    assert shown == pytest.approx(weights, abs=1e-3)


def test_byte_tokens_are_shown_as_text(page: Page) -> None:
    visit(page, "hand")
    spell = "async tokens => (await import('/spelling.js')).spelled(tokens)"
    assert page.evaluate(spell, ["caff", "Ã¨", "Ġbello", "Ċ"]) == ["caff", "è", " bello", "\n"]
    assert page.evaluate(spell, ["Ã", "¨"]) == ["", "è"]
    assert page.evaluate(spell, ["▁caff", "è"]) == [" caff", "è"]
    assert page.evaluate(spell, ["▁", "<0xC3>", "<0xA8>"]) == [" ", "", "è"]


def test_a_stopped_server_gets_a_message(chromium: Browser, loaded_models: list[LoadedModel]) -> None:
    page = chromium.new_page()
    with run_server(Service(loaded_models[:1])) as soon_gone:
        page.goto(f"{soon_gone.url}/#look/projection?text=w5+w6")
        wait_for_view(page)
        page.locator("svg.matrix").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.get_by_role("button", name="Close").click()
    page.locator(".around [rel=next]").click()
    expect(page.get_by_role("alert")).to_contain_text("start it again with regard serve")
    expect(page.locator("#header")).to_be_visible()
    page.get_by_role("link", name="Translate").click()
    page.locator("#source").press_sequentially("w7")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.close()


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
        ("switchboard", {"What losing each head costs": {"decoder", "head", "of"}}),
        ("player", {"This step": {"w16", "writes"}}),
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


CELLS = {"exclude": [["svg.matrix g"]]}  # there are thousands, and they say nothing that their table does not
ONLY = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
EVERYWHERE = ["use", "hand", "card", *(f"look/{step}" for step in STEPS["en-it"].split())]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(chromium: Browser, site: RunningServer, scheme: Any) -> None:
    """No serious or critical finding of axe-core on a small phone, and no horizontal scrolling."""
    context = chromium.new_context(base_url=site.url, viewport={"width": 320, "height": 640}, color_scheme=scheme)
    page, axe = context.new_page(), Axe()
    for place, model in [*((place, "en-it") for place in EVERYWHERE), ("look/gates", "rnn"), ("use", "writer")]:
        visit(page, place, model)
        violations = axe.run(page, context=CELLS, options=ONLY).response["violations"]
        serious = [
            (violation["id"], violation["nodes"][0]["html"][:200])
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]
        assert serious == [], place
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place
    context.close()


def test_the_api_key_is_requested_and_sent(chromium: Browser, loaded_models: list[LoadedModel]) -> None:
    key = "a key that is hard to guess"
    with run_server(Service(loaded_models[:1], access=AccessPolicy(key.encode()))) as locked:
        page = chromium.new_page()
        page.goto(locked.url)
        page.get_by_label("This server asks for an API key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#source")).to_be_visible()
        page.close()


def test_a_text_that_cannot_be_traced_gets_a_message(page: Page) -> None:
    visit(page, "look", text=" ".join(["w5"] * 400))
    expect(page.get_by_role("alert")).to_contain_text("characters: 1,199 exceeds this server's limit of 600")


def test_a_network_without_causal_mask_gets_a_message(chromium: Browser, tmp_path: Path) -> None:
    saved(tmp_path / "seer", EncoderDecoderConfig(**SMALL, causal_mask=False))
    with run_server(Service(load_models([f"seer[en-it]={tmp_path / 'seer'}"]))) as site:
        page = chromium.new_page()
        page.goto(f"{site.url}/#look?text=w5+w6")
        expect(page.get_by_role("alert")).to_contain_text(
            "has no causal mask, so one pass over the whole target differs"
        )
        page.close()


def test_the_page_is_small_and_loads_nothing_from_other_servers() -> None:
    files = [path for path in WEB.rglob("*") if path.is_file()]
    size = sum(len(gzip.compress(path.read_bytes())) for path in files)
    assert size <= 150_000
    size_in_docs = re.search(r"about\s(\d+) KB in all with every file gzipped", DOCS.read_text("utf-8"))
    assert size_in_docs
    assert int(size_in_docs[1]) == pytest.approx(size / 1000, abs=3)
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"https?://|@import|eval\(|innerHTML", text), path


def test_the_scripts_type_check(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("There is no Node here, so the types of the page's scripts are not checked.")
    install = [npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(tmp_path), "typescript@5.9.3"]
    if subprocess.run(install, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip("npm cannot get typescript here, so the types of the page's scripts are not checked.")
    options = {"checkJs": True, "allowJs": True, "noEmit": True, "strict": True, "target": "es2022", "types": []}
    modules = {"module": "es2022", "moduleResolution": "bundler", "lib": ["es2023", "dom", "dom.iterable"]}
    project = tmp_path / "jsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options | modules, "include": [f"{WEB}/**/*.js"]}))
    checked = subprocess.run(
        [str(tmp_path / "node_modules/.bin/tsc"), "-p", str(project)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
