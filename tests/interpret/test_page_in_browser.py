"""The HTML page of a trace in a real browser."""

from pathlib import Path

import pytest

from browsers import browser
from regard.interpret.render.page import trace_page
from traces import make_trace

HEAD = "Encoder, layer 0: self-attention, head 2"


@pytest.mark.slow
def test_heads_and_points_can_be_selected(tmp_path: Path) -> None:
    trace, file = make_trace("encoder-decoder"), tmp_path / "trace.html"
    file.write_text(trace_page(trace), "utf-8")
    errors, requests = list[str](), list[str]()
    with browser() as chromium:
        page = chromium.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        detail = page.locator("#detail")
        assert detail.locator("b").inner_text() == "Decoder, layer 1: cross-attention, head 0"
        page.get_by_role("button", name=HEAD).click()
        assert detail.locator("b").inner_text() == HEAD
        assert page.locator("#gallery [aria-pressed=true]").get_attribute("title") == HEAD
        detail.get_by_role("button", name="scores", exact=True).click()
        cells = detail.locator("tbody tr").first.locator("td").all_inner_texts()
        modules = page.locator("details", has_text="All modules")
        module = modules.get_by_text("decoder.1.cross_attention", exact=True)
        assert not module.is_visible()
        modules.locator("summary").click()
        assert module.is_visible()
    scores = trace.activation("encoder.0.attention.scores")[2, 0].tolist()
    assert [float(cell or 0) for cell in cells] == pytest.approx(scores, abs=0.006)
    assert errors == []
    assert requests == [file.as_uri()]
