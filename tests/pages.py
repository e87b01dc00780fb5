"""Helpers for browser tests of the web page: wait for a view, step through it, read the computed values."""

from collections.abc import Iterator
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page

RELATIVE_TOLERANCE = 2e-3  # between sums in different order
CELLS = {"exclude": [["svg.matrix g"]]}  # there are thousands, and they say nothing that their table does not
RULES: dict[Literal["light", "dark"], list[str]] = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    "dark": ["color-contrast"],  # the only rule that depends on the color scheme
}


INCOMPLETE_FIGURES = """() => {
  const graphics = '#main svg, #main canvas, .gallery, .board, .stage';
  const bare = [...document.querySelectorAll(graphics)].filter(element => !element.closest('figure'));
  const parts = ['details.table-details > summary', '[aria-label$="as SVG"]', '[aria-label$="as PNG"]'];
  const figures = [...document.querySelectorAll('figure')];
  const incomplete = figures.filter(figure => !parts.every(part => figure.querySelector(part)));
  return [...bare, ...incomplete].map(element => element.outerHTML.slice(0, 120));
}"""


def wait_for_view(page: Page) -> None:
    """Wait until the view is shown and all its requests are answered."""
    page.wait_for_selector("#main[data-shown]", state="attached")
    page.wait_for_selector("[aria-busy=true]", state="detached")


def follow(page: Page, link: Locator) -> None:
    """Click a link to another view and wait for it."""
    page.evaluate("delete document.getElementById('main').dataset.shown")
    link.click()
    wait_for_view(page)


def computed_values(page: Page) -> list[tuple[str, float, float]]:
    """Every value that the browser computed, with its name and the model's value."""
    rows = page.locator(".calculation[data-model-value]").evaluate_all(
        "elements => elements.map(({ dataset }) => [dataset.name, dataset.computed, dataset.modelValue])"
    )
    return [(name, *(float("-inf") if value == "null" else float(value) for value in pair)) for name, *pair in rows]


def walk_steps(page: Page) -> Iterator[str]:
    """Step through the view to the last step, and check each one.

    No request is refused, computed values equal the model's, and every figure has its table and its download links.
    """
    while True:
        step = page.locator(".workbench").get_attribute("data-ready") or ""
        for name, computed, expected in computed_values(page):
            close = abs(computed - expected) <= RELATIVE_TOLERANCE * max(1, abs(expected))
            assert computed == expected or close, (step, name)
        assert page.locator(".error").count() == 0, step
        assert page.locator(".map .here").count() >= 1, step
        assert page.evaluate(INCOMPLETE_FIGURES) == [], step
        yield step
        next_link = page.locator(".step-links [rel=next]")
        if not next_link.count():
            return
        follow(page, next_link)


def accessibility_violations(page: Page) -> list[tuple[str, str, str]]:
    """Return the serious and critical findings of axe-core: color scheme, rule, element."""
    found = list[tuple[str, str, str]]()
    for scheme, rules in RULES.items():
        page.emulate_media(color_scheme=scheme)
        options: dict[str, Any] = {"resultTypes": ["violations"], "runOnly": rules}
        violations = Axe().run(page, context=CELLS, options=options).response["violations"]
        found += [
            (scheme, violation["id"], violation["nodes"][0]["html"][:200])
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]
    page.emulate_media(color_scheme="light")
    return found
