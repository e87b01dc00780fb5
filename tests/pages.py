"""What tests of the page share: waiting for a view, walking its steps, and the numbers that the browser worked out."""

from collections.abc import Iterator

from playwright.sync_api import Locator, Page

CLOSE = 2e-3  # what two ways to add the same numbers may differ by


PICTURES = """() => {
  const shown = '#main svg, #main canvas, .gallery, .board, .stage';
  const bare = [...document.querySelectorAll(shown)].filter(one => !one.closest('figure'));
  const parts = ['details.behind > summary', '[aria-label$="as SVG"]', '[aria-label$="as PNG"]'];
  const poor = [...document.querySelectorAll('figure')].filter(one => !parts.every(part => one.querySelector(part)));
  return [...bare, ...poor].map(one => one.outerHTML.slice(0, 120));
}"""


def arrived(page: Page) -> None:
    """The view is there, with all that it asked for."""
    page.wait_for_selector("#main[data-shown]", state="attached")
    page.wait_for_selector("[aria-busy=true]", state="detached")


def on_to(page: Page, link: Locator) -> None:
    page.evaluate("delete document.getElementById('main').dataset.shown")
    link.click()
    arrived(page)


def sums(page: Page) -> list[tuple[str, float, float]]:
    """Every number that the browser worked out, and the model's."""
    found = page.locator(".sum[data-theirs]").evaluate_all(
        "all => all.map(one => [one.dataset.name, one.dataset.mine, one.dataset.theirs])"
    )
    return [(name, *(float("-inf") if value == "null" else float(value) for value in pair)) for name, *pair in found]


def walk(page: Page) -> Iterator[str]:
    """From step to step up to the last.

    Nothing is refused, what is worked out is what the model has, and every picture has its table and its files.
    """
    while True:
        step = page.locator(".workbench").get_attribute("data-ready") or ""
        for name, mine, theirs in sums(page):
            assert mine == theirs or abs(mine - theirs) <= CLOSE * max(1, abs(theirs)), (step, name)
        assert page.locator(".refused").count() == 0, step
        assert page.locator(".map .here").count() >= 1, step
        assert page.evaluate(PICTURES) == [], step
        yield step
        following = page.locator(".around [rel=next]")
        if not following.count():
            return
        on_to(page, following)
