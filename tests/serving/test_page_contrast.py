"""Contrast of text in drawn cells, in a real browser: at least 4.5 in light and dark mode."""

from typing import Any

import pytest
from playwright.sync_api import Page

from page_site import chromium, page, site, translator, visit  # noqa: F401  # fixtures

pytestmark = pytest.mark.browser

CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = color => {  // any CSS color, as the browser draws it
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = ([r, g, b, alpha], [R, G, B]) => [[r, R], [g, G], [b, B]].map(([x, y]) => alpha * x + (1 - alpha) * y);
  const luminance = rgb => {
    const [r, g, b] = rgb.map(value => value / 255).map(x => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const page = rgba(getComputedStyle(document.body).backgroundColor).slice(0, 3);
  const paint = (style, property, below, opacity) => {
    const [r, g, b, alpha] = rgba(style[property]);
    return over([r, g, b, alpha * Number(opacity)], below);
  };
  const found = [];
  for (const number of document.querySelectorAll('svg.matrix .number')) {
    const cells = [];
    for (let rect = number.previousElementSibling; rect?.tagName === 'rect'; rect = rect.previousElementSibling)
      cells.unshift(getComputedStyle(rect));
    const cell = cells.reduce((below, style) => paint(style, 'fill', below, style.fillOpacity), page);
    found.push([number.textContent, contrast(paint(getComputedStyle(number), 'fill', cell, 1), cell)]);
  }
  for (const color of document.querySelectorAll('.highlighted .highlight, .switch .highlight')) {
    const box = color.parentElement;
    const below = paint(getComputedStyle(box), 'backgroundColor', page, 1);
    const cell = paint(getComputedStyle(color), 'backgroundColor', below, color.style.opacity);
    for (const text of box.querySelectorAll('b, i, .switch-name, .switch-cost'))
      found.push([text.textContent, contrast(paint(getComputedStyle(text), 'color', cell, 1), cell)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_in_cells_has_enough_contrast(page: Page, scheme: Any) -> None:
    """Computed from the colors as drawn: 4.5 is WCAG's minimum for text of this size."""
    page.emulate_media(color_scheme=scheme)
    counts = dict[str, int]()
    for step in ("positions", "scores", "feed_forward", "player", "switchboard"):
        visit(page, f"look/{step}", at="decoder.1")
        found = page.evaluate(CONTRASTS)
        counts[step] = len(found)
        assert [(text, contrast) for text, contrast in found if contrast < 4.5] == [], step
    assert min(counts.values()) > 4
    assert sum(counts.values()) > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_shade_of_a_cell_has_enough_contrast(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    visit(page, "hand")
    page.evaluate(
        """async () => {
          const { matrix } = await import('/matrix.js');
          const shades = (sign, from) => Array.from({ length: 16 }, (_, n) => (sign * (n + from)) / 16);
          const values = [shades(1, 1), shades(-1, 1), shades(1, 0.5), shades(-1, 0.5)];
          const { element } = matrix({ title: 'shades', values, rows: ['a', 'b', 'c', 'd'], digits: 3 });
          document.getElementById('main').replaceChildren(element);
        }"""
    )
    found = page.evaluate(CONTRASTS)
    assert len(found) == 4 * 16
    assert [(text, contrast) for text, contrast in found if contrast < 4.5] == []
