"""Fixtures and helpers of page tests: a site with a translator, a language model and a recurrent network."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page

from browsers import browser
from pages import wait_for_view
from random_models import SMALL, VOCABULARY, saved
from regard.config import EncoderDecoderConfig, RecurrentEncoderDecoderConfig
from regard.interpret.trace import Trace
from regard.models.initialization import initialize
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
