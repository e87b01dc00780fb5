"""The page of a trace in a real browser: it asks for nothing, its script runs, and what is chosen is shown."""

from pathlib import Path

import pytest

from browsers import browser
from looking import traced
from regard.interpret.render.page import trace_page

HEAD = "Encoder, layer 0: self-attention, head 2"


def test_heads_and_their_numbers_can_be_chosen(tmp_path: Path) -> None:
    trace, file = traced("encoder-decoder"), tmp_path / "trace.html"
    file.write_text(trace_page(trace), "utf-8")
    wrong, asked = list[str](), list[str]()
    with browser() as chromium:
        shown = chromium.new_page()
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        shown.on("console", lambda message: wrong.append(message.text))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(file.as_uri())
        detail = shown.locator("#detail")
        assert detail.locator("b").inner_text() == "Decoder, layer 1: cross-attention, head 0"
        shown.get_by_role("button", name=HEAD).click()
        assert detail.locator("b").inner_text() == HEAD
        assert shown.locator("#gallery [aria-pressed=true]").get_attribute("title") == HEAD
        detail.get_by_role("button", name="scores", exact=True).click()
        cells = detail.locator("tbody tr").first.locator("td").all_inner_texts()
        parts = shown.locator("details", has_text="All parts")
        part = parts.get_by_text("decoder.1.cross_attention", exact=True)
        assert not part.is_visible()
        parts.locator("summary").click()
        assert part.is_visible()
    scores = trace.activation("encoder.0.attention.scores")[2, 0].tolist()
    assert [float(cell or 0) for cell in cells] == pytest.approx(scores, abs=0.006)
    assert wrong == []
    assert asked == [file.as_uri()]
