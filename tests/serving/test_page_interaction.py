"""How the page responds to its users, in a real browser: links, explanations on phones, messages, sentences."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from page_site import (  # noqa: F401  # fixtures
    TEXT,
    chromium,
    page,
    site,
    trace,
    translator,
    visit,
)
from pages import follow, wait_for_view
from regard.interpret.trace import Trace
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import RunningServer, run_server

pytestmark = pytest.mark.browser
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 740}, "has_touch": True, "is_mobile": True}


def box(locator: Locator) -> dict[str, float]:
    """The bounding box of an element, with its bottom."""
    found = locator.bounding_box()
    assert found
    return {"y": found["y"], "height": found["height"], "bottom": found["y"] + found["height"]}


def test_the_tabs_keep_a_text_that_was_just_typed(page: Page) -> None:
    visit(page, "use", text="")
    page.locator("#source").fill("w7 w9")
    follow(page, page.get_by_role("navigation", name="Views").get_by_role("link", name="Look inside"))
    expect(page.locator("#look-text")).to_have_value("w7 w9")
    page.locator("#look-text").fill("w9 w7 w8")  # not sent
    follow(page, page.get_by_role("navigation", name="Views").get_by_role("link", name="Look inside"))
    expect(page.locator(".summary-line .from")).to_have_text("w9 w7 w8")
    follow(page, page.get_by_role("navigation", name="Views").get_by_role("link", name="Translate"))
    expect(page.locator("#source")).to_have_value("w9 w7 w8")


def test_the_tabs_keep_a_prompt_that_was_not_sent(page: Page) -> None:
    visit(page, "use", "writer", text="")
    page.locator("#source").fill("w7 w9")
    follow(page, page.get_by_role("navigation", name="Views").get_by_role("link", name="Look inside"))
    expect(page.locator("#look-text")).to_have_value("w7 w9")


def test_the_next_step_keeps_the_selected_cell(page: Page) -> None:
    visit(page, "look/scores", at="encoder.1.attention")
    page.locator("svg.matrix").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    follow(page, page.locator(".step-links [rel=next]"))
    assert "row=2" in page.url
    assert "column=1" in page.url
    expect(page.locator(".calculation").first).to_have_attribute("data-name", "output[2, 1]")


def test_explanations_on_phones_are_next_to_the_finger(chromium: Browser, site: RunningServer) -> None:
    context = chromium.new_context(base_url=site.url, **PHONE)
    page = context.new_page()
    visit(page, "look/scores")
    for number in (0, 2):
        matrix = page.locator("svg.matrix").nth(number)
        matrix.scroll_into_view_if_needed()
        matrix.locator(".ground").nth(11).tap(force=True)
        cell, panel = box(matrix.locator(".cursor")), box(page.locator(".computation"))
        expect(page.locator(".computation")).to_be_in_viewport(ratio=0.99)
        gap = min(abs(panel["y"] - cell["bottom"]), abs(cell["y"] - panel["bottom"]))
        assert gap <= 16, "the panel is directly above or below the cell"
        assert panel["bottom"] <= cell["y"] or panel["y"] >= cell["bottom"], "and does not cover it"
        expect(page.locator(".location")).to_have_text("w17 → w28")
    page.locator("#step-title").tap()
    expect(page.locator(".floating")).to_have_count(0)
    context.close()


@pytest.mark.parametrize("height", [700, 900])
def test_explanations_never_cover_the_sentence(page: Page, height: int) -> None:
    visit(page, "look/scores")
    page.set_viewport_size({"width": 1000, "height": height})
    floated = 0
    for scrolled in (0, 120, 240):
        page.evaluate("y => scrollTo(0, y)", scrolled)
        for matrix in page.locator("svg.matrix").all():
            cell = matrix.locator(".ground").nth(7).bounding_box()
            if not cell or not 0 < cell["y"] < height - 30:
                continue
            page.mouse.move(cell["x"] + 9, cell["y"] + 9)
            if page.locator(".floating").count():
                floated += 1
                panel, sentence = box(page.locator(".floating")), box(page.locator(".summary-line"))
                assert panel["y"] >= sentence["bottom"] or panel["bottom"] <= sentence["y"]
    assert floated >= 3


def test_hovering_a_word_shows_its_probability_outside_the_sentence(page: Page) -> None:
    visit(page, "use")
    word = page.locator(".output-word").first
    assert word.get_attribute("title") is None, "a tooltip would cover the sentence"
    expect(page.locator(".hint")).to_contain_text("Select a word")
    word.hover()
    expect(page.locator(".hint")).to_have_text(re.compile(rf"^{word.text_content()}: .*%$"))
    page.locator("#header").hover()
    expect(page.locator(".hint")).to_contain_text("Select a word")


@pytest.mark.parametrize("height", [640, 860])
def test_the_sidebar_shows_the_current_step(page: Page, height: int) -> None:
    page.set_viewport_size({"width": 1280, "height": height})
    for step in ("switchboard", "tree", "tokens"):
        visit(page, f"look/{step}")
        current, guide = box(page.locator(".steps [aria-current]")), box(page.locator(".guide"))
        assert guide["y"] - 1 <= current["y"]
        assert current["bottom"] <= guide["bottom"] + 1
        assert guide["bottom"] <= height, "the sidebar ends with the window"
    page.evaluate("scrollTo(0, 300)")
    for _ in range(100):  # not `wait_for_function`: it compiles its text in the page, which the policy forbids
        if height - box(page.locator(".guide"))["bottom"] < 40:
            break
        page.wait_for_timeout(50)
    assert height - box(page.locator(".guide"))["bottom"] < 40
    assert page.locator(".guide").evaluate("element => element.scrollTop") == 0, "the map stays visible if it can"


class TestHeadAblation:
    """Costs on the board and in the list of tokens have the same sign and the same color."""

    def test_the_board_is_drawn_before_the_costs(self, page: Page, trace: Trace) -> None:
        held = list[Any]()
        page.route("**/v1/look/heads", lambda route: held.append(route))
        page.goto(f"/#look/switchboard?model=en-it&text={TEXT.replace(' ', '+')}")
        costs = trace.head_costs()
        expect(page.locator(".switch:not(.part)")).to_have_count(len(costs))
        expect(page.locator(".switch-cost").first).to_have_text("…")
        page.locator(".switch.part").first.click()
        expect(page.locator("[data-cost]")).to_be_visible()  # and can be used
        for _ in range(100):
            if held:
                break
            page.wait_for_timeout(50)
        held[0].continue_()
        wait_for_view(page)
        shown = page.locator(".switch:not(.part)").evaluate_all(
            """elements => elements.map(element => [element.dataset.name,
            Number(element.querySelector('.switch-cost').textContent.replace('−', '-'))])"""
        )
        assert dict(shown) == pytest.approx({str(head.intervention): head.cost for head in costs}, abs=0.06)

    def test_orange_is_a_cost_and_blue_a_gain(self, page: Page, trace: Trace) -> None:
        visit(page, "look/switchboard")
        orange, blue = (
            page.locator(f".cost-color{kind}").evaluate("element => getComputedStyle(element).backgroundColor")
            for kind in (".c2", ":not(.c2)")
        )
        assert orange != blue
        costs = {str(head.intervention): head.cost or 0.0 for head in trace.head_costs()}
        assert min(costs.values()) < -0.1 < 0.1 < max(costs.values()), "this network has both"
        colors = page.locator(".switch:not(.part)").evaluate_all(
            """elements => elements.map(element => {
              const color = element.querySelector('.highlight');
              return [element.dataset.name, color.classList.contains('c2'), Number(color.style.opacity)];
            })"""
        )
        largest = max(map(abs, costs.values()))
        for name, is_orange, opacity in colors:
            assert is_orange == (costs[name] > 0), name
            assert opacity == pytest.approx((abs(costs[name]) / largest) ** 0.5, abs=0.01), name

    def test_every_token_has_a_bar_and_a_sign(self, page: Page, trace: Trace) -> None:
        name = next(
            str(head.intervention)
            for head in trace.head_costs()
            if len({step.before > step.after for step in trace.intervene(head.intervention).steps}) == 2
        )
        visit(page, "look/switchboard", off=name)
        result = page.locator(".ablation-result")
        shown = result.locator(".step-costs li").evaluate_all(
            """elements => elements.map(element => {
              const bar = element.querySelector('.bar');
              const number = element.querySelector('.percentage').textContent.replace('−', '-');
              return [number, bar.classList.contains('c2'), parseFloat(bar.firstElementChild.style.width)];
            })"""
        )
        steps = trace.intervene(next(h.intervention for h in trace.head_costs() if str(h.intervention) == name)).steps
        costs = [step.before - step.after for step in steps]
        largest = max(map(abs, costs))
        assert len(shown) == len(costs)
        for (number, is_orange, width), cost in zip(shown, costs, strict=True):
            assert float(number) == pytest.approx(cost, abs=0.06)
            assert is_orange == (cost > 0)
            assert width == pytest.approx(100 * abs(cost) / largest, abs=0.5), "also where the cost is negative"
        direction = "decreases" if sum(costs) > 0 else "increases"
        expect(result.locator("[data-cost]")).to_contain_text(f"original output {direction} by {abs(sum(costs)):.3f}")


def test_the_player_starts_with_the_head_of_the_alignment(page: Page, trace: Trace) -> None:
    chosen = trace.alignment().chosen
    location = chosen.point.removesuffix(".weights")
    visit(page, "look/player", at="encoder.0.attention", head=1)
    expect(page.locator("#location")).to_have_value(location)
    expect(page.locator("#head")).to_have_value(str(chosen.head))
    weights = trace.activation(chosen.point)[chosen.head, 0].tolist()
    shown = page.locator("[data-weight]").evaluate_all(
        "elements => elements.map(element => Number(element.dataset.weight))"
    )
    assert shown == pytest.approx(weights, abs=1e-5)
    expect(page.locator(".stage")).to_contain_text("Predicted next token")
    other = "0" if chosen.head else "1"
    page.locator("#head").select_option(other)  # also head 0 can be selected
    page.wait_for_url(re.compile(rf"at={re.escape(location)}"))
    wait_for_view(page)
    expect(page.locator("#head")).to_have_value(other)


def test_one_of_several_sentences_is_chosen(page: Page, translator: LoadedModel) -> None:
    visit(page, "look", text="W5 w6. W7 w8 w9! W5")
    menu = page.locator("#sentence")
    expect(menu.locator("option")).to_have_text(["1: W5 w6.", "2: W7 w8 w9!", "3: W5", "all as one text"])
    expect(page.locator(".summary-line .from")).to_have_text("W5 w6.")
    menu.select_option("1")
    expect(page.locator(".summary-line .from")).to_have_text("W7 w8 w9!")
    output = translator.model.look("W7 w8 w9!", beam=4).output
    expect(page.locator(".summary-line b")).to_have_text(output)
    follow(page, page.locator(".step-links [rel=next]"))
    expect(page.locator(".summary-line .from")).to_have_text("W7 w8 w9!")
    menu.select_option("3")
    expect(page.locator(".summary-line .from")).to_have_text("W5 w6. W7 w8 w9! W5")
    visit(page, "look")
    expect(page.locator("#step-title")).to_be_visible()
    expect(menu).to_have_count(0)


@pytest.mark.parametrize(("model", "count"), [("en-it", 200), ("writer", 61)])
def test_a_text_that_is_too_long_is_traced_from_its_beginning(page: Page, model: str, count: int) -> None:
    """The limits are 600 characters, and 64 tokens for the language model: a start token, 61 words and two more."""
    words = ["w5"] * 400
    visit(page, "look", model, text=" ".join(words))
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".beginning")).to_contain_text(f"the first {3 * count - 1} of 1,199 characters")
    expect(page.locator(".summary-line .from")).to_have_text(" ".join(words[:count]))
    expect(page.locator("#look-text")).to_have_value(" ".join(words))


def test_text_of_users_and_models_has_its_own_direction(page: Page) -> None:
    visit(page, "use", text="שלום w5")
    directions = "element => getComputedStyle(element).direction"
    assert page.locator("#source").evaluate(directions) == "rtl"
    for selector in ("#target", "#target p", ".alternatives span[lang]"):
        assert page.locator(selector).first.get_attribute("dir") == "auto", selector
    page.locator(".output-word").first.click()
    page.locator(".detail .highlighted").first.wait_for()
    assert page.locator(".detail .token b").first.get_attribute("dir") == "auto"
    visit(page, "look/tokens", text="שלום w5")
    for selector in ("#look-text", ".summary-line .from"):
        assert page.locator(selector).evaluate(directions) == "rtl", selector
    assert page.locator("header").evaluate(directions) == "ltr"


def test_a_text_in_a_link_may_end_with_a_question_mark(page: Page) -> None:
    page.goto("/#use?model=en-it&text=w5+w6?")
    wait_for_view(page)
    expect(page.locator("#source")).to_have_value("w5 w6?")


def test_a_stopped_server_leaves_no_old_results_and_can_be_tried_again(
    chromium: Browser, loaded_models: list[LoadedModel]
) -> None:
    page = chromium.new_page()
    with run_server(Service(loaded_models[:1])) as server:
        page.goto(f"{server.url}/#use?text=w5+w6")
        wait_for_view(page)
        page.locator(".output-word").first.click()
        page.locator(".detail .candidate").first.wait_for()
        assert page.locator(".alternatives li").count()
        page.route("**/v1/**", lambda route: route.abort())
        page.locator("#source").fill("w7")
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
        for old in (".alternatives", ".detail > *", ".output-word"):
            expect(page.locator(old)).to_have_count(0)
        expect(page.locator("#latency")).to_have_text("")
        page.unroute("**/v1/**")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".output-word").first).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
    page.close()


def test_notices_go_away(page: Page) -> None:
    visit(page, "look/projection")
    page.route("**/v1/**", lambda route: route.abort())
    page.locator("svg.matrix").first.press("ArrowDown")
    notice = page.locator(".notice")
    expect(notice).to_contain_text("The server does not answer.")
    page.unroute("**/v1/**")
    page.locator("svg.matrix").first.press("ArrowRight")  # answered
    expect(notice).to_have_count(0)
    page.route("**/v1/**", lambda route: route.abort())
    page.locator("svg.matrix").first.press("ArrowDown")
    expect(notice).to_be_visible()
    page.unroute("**/v1/**")
    notice.get_by_role("button", name="Try again").click()
    expect(notice).to_have_count(0)
    expect(page.locator(".calculation").first).to_have_attribute("data-name", "q[2, 1]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lab_figures_are_legible_on_a_small_phone(chromium: Browser, site: RunningServer, scheme: Any) -> None:
    context = chromium.new_context(base_url=site.url, viewport={"width": 320, "height": 640}, color_scheme=scheme)
    page = context.new_page()
    page.goto("/labs")
    sizes = page.locator("figure svg").evaluate_all(
        """elements => elements.map(svg => {
          const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
          const fonts = [...svg.querySelectorAll('text')].map(text => parseFloat(getComputedStyle(text).fontSize));
          return scale * Math.min(...fonts);
        })"""
    )
    assert len(sizes) > 10
    assert min(sizes) >= 9, "pixels"
    assert page.evaluate("document.documentElement.scrollWidth") == 320, "figures scroll, the page does not"
    assert "darker" not in (page.locator("main").text_content() or ""), "on a dark page, larger values are lighter"
    context.close()
