"""The page with encoders: a view for each ability, and the steps that encoders have."""

from collections.abc import Iterator
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from browsers import browser
from pages import accessibility_violations, wait_for_view, walk_steps
from regard.serving.loaded_models import LoadedModel
from servers import RunningServer

pytestmark = pytest.mark.browser

TEXT = "w16 w22 w17 w5"
ATTENTION = "tokens embedding positions projection scores sum heads kinds residual feed_forward"
STEPS = {
    "mood": f"{ATTENTION} pooling head_output",
    "names": f"{ATTENTION} head_output",
    "holes": f"{ATTENTION} head_output",
    "vectors": f"{ATTENTION} pooling",
    "elmo": "tokens embedding gates mixing head_output",
}
TEXTS = {"holes": "w16 [MASK] w17 [MASK]", "vectors": "w16 w22\tw17", "elmo": "w16 w22\tw17"}
PATIENCE = 20_000  # milliseconds


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as chromium:
        yield chromium


@pytest.fixture
def page(chromium: Browser, encoder_server: RunningServer) -> Iterator[Page]:
    context = chromium.new_context(base_url=encoder_server.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    page, failed, requested = context.new_page(), list[str](), list[str]()
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    yield page
    context.close()
    assert failed == []
    assert requested, "the page was loaded"
    assert all(url.startswith((f"{encoder_server.url}/", "data:", "blob:")) for url in requested), (
        "a request left the origin"
    )


def visit(page: Page, place: str, model: str, text: str | None = None) -> None:
    text = TEXTS.get(model, TEXT) if text is None else text
    page.goto("about:blank")
    page.goto(f"/#{place}?model={model}&text={quote(text)}")
    wait_for_view(page)


def test_labels_appear_while_typing(page: Page, loaded_encoders: dict[str, LoadedModel]) -> None:
    visit(page, "use", "mood", "")
    expect(page.locator("#target")).to_have_text("This model has 3 labels: bad, good, so-so.")
    page.locator("#source").press_sequentially(TEXT)
    (expected,) = loaded_encoders["mood"].model.classify_detailed([TEXT])
    expect(page.locator(".top-label")).to_have_text(expected.label)
    shown = page.locator("[data-label]").evaluate_all(
        "elements => elements.map(element => [element.dataset.label, Number(element.dataset.probability)])"
    )
    assert [label for label, _ in shown] == sorted(
        expected.probabilities, key=lambda label: -expected.probabilities[label]
    )
    assert dict(shown) == pytest.approx(expected.probabilities, abs=1e-5)
    page.locator("summary", has_text="Pair of texts").click()
    page.locator("#second").fill("w9")
    (pair,) = loaded_encoders["mood"].model.classify_detailed([(TEXT, "w9")])
    expect(page.locator(f'[data-label="{pair.label}"]')).to_have_attribute(
        "data-probability", str(round(pair.probability, 6))
    )
    assert quote(f"{TEXT}\tw9").replace("%20", "+") in page.url, "the link has both texts"


def test_words_have_their_tags(page: Page, loaded_encoders: dict[str, LoadedModel]) -> None:
    visit(page, "use", "names", "(w16 w22)")
    shown = page.locator("[data-tag]").evaluate_all(
        "elements => elements.map(element => [element.textContent, element.dataset.tag])"
    )
    assert shown == [list(pair) for pair in loaded_encoders["names"].model.tag([["(", "w16", "w22", ")"]])[0]]
    page.locator("#split-punctuation").uncheck()
    expect(page.locator("[data-tag]")).to_have_count(2)


def test_a_mask_has_candidates_and_takes_one(page: Page, loaded_encoders: dict[str, LoadedModel]) -> None:
    visit(page, "use", "holes")
    (expected,) = loaded_encoders["holes"].model.fill_detailed(TEXTS["holes"], top_k=10)
    expect(page.locator(".filled")).to_have_text([mask[0].text for mask in expected.masks])
    page.locator(".filled").nth(1).click()
    expect(page.locator(".detail code")).to_have_text([candidate.text for candidate in expected.masks[1]])
    page.locator(".detail .candidate").nth(2).click()
    expect(page.locator("#source")).to_have_value(f"w16 [MASK] w17 {expected.masks[1][2].text}")
    expect(page.locator(".filled")).to_have_count(1)
    page.locator("#insert-mask").click()
    expect(page.locator(".filled")).to_have_count(2)


@pytest.mark.parametrize("model", ["vectors", "elmo"])
def test_the_similarity_of_two_texts_is_their_cosine(
    page: Page, loaded_encoders: dict[str, LoadedModel], model: str
) -> None:
    visit(page, "use", model)
    first, second = loaded_encoders[model].model.embed(["w16 w22", "w17"], normalize=True)
    shown = float(page.locator("[data-cosine]").get_attribute("data-cosine") or "nan")
    assert shown == pytest.approx(float(np.dot(first, second)), abs=1e-5)


@pytest.mark.parametrize("model", STEPS)
def test_every_step_of_an_encoder(page: Page, model: str) -> None:
    visit(page, "look", model)
    walked = []
    for step in walk_steps(page):
        walked.append(step)
        assert page.locator(".map").get_by_text("cross").count() == 0
        checked = page.locator(".calculation[data-model-value]").count()
        assert page.locator(".calculation").count() == checked or step == "kinds", (
            "a number is checked against the model's"
        )
    assert walked == STEPS[model].split()


def test_accessibility(chromium: Browser, encoder_server: RunningServer) -> None:
    context = chromium.new_context(base_url=encoder_server.url, viewport={"width": 320, "height": 640})
    page = context.new_page()
    places = [
        *(("use", model) for model in STEPS),
        ("card", "mood"),
        ("look/head_output", "holes"),
        ("look/mixing", "elmo"),
    ]
    for place, model in places:
        visit(page, place, model)
        assert accessibility_violations(page) == [], (place, model)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (place, model)
    context.close()
