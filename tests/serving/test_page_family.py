"""The page with other networks: every step is shown, and tokens with markup stay text."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from browsers import browser
from pages import computed_values, wait_for_view, walk_steps
from random_models import SMALL, VOCABULARY, saved
from regard.config import (
    AlibiPositionsConfig,
    BigBirdAttentionConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LinformerAttentionConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
)
from regard.serving.loaded_models import load_models
from regard.serving.service import Service
from servers import RunningServer, run_server

pytestmark = pytest.mark.browser

MARKUP = "<img/src=x/onerror=struck=1>"  # which stands for w5 in every vocabulary here
TEXT = f"w16 {MARKUP} w17"
PATIENCE = 20_000  # milliseconds
_SMALL: dict[str, Any] = {**SMALL, "layers": 1}
_RECURRENT: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 16, "layers": 1, "cell": "lstm"}
NETWORKS: dict[str, ModelConfig] = {
    "rotary": EncoderDecoderConfig(**_SMALL, positions=RotaryPositionsConfig(), activation="swiglu"),
    "alibi": DecoderOnlyConfig(**_SMALL, positions=AlibiPositionsConfig(), activation="swish"),
    "relative": EncoderDecoderConfig(
        **_SMALL, positions=RelativePositionsConfig(max_distance=2), activation="gelu-tanh"
    ),
    "linformer": EncoderDecoderConfig(
        **_SMALL, attention=LinformerAttentionConfig(projected_length=3, max_length=64), activation="gelu", norm="rms"
    ),
    "bigbird": EncoderDecoderConfig(
        **_SMALL, attention=BigBirdAttentionConfig(block_size=1, window_blocks=1, global_blocks=1, random_blocks=1)
    ),
    "experts": DecoderOnlyConfig(**_SMALL, experts=3, activation="swiglu"),
    "lstm": RecurrentEncoderDecoderConfig(**_RECURRENT),
    "lstm-writer": RecurrentLanguageModelConfig(**_RECURRENT),
}
SEEDS = {"rotary": 1, "linformer": 4, "bigbird": 7}  # with which they soon come to an end; others do with 0
IN_WORDS = {"tokens", "positions", "output"}  # steps that may have no picture but the map


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("family")
    for name, config in NETWORKS.items():
        saved(home / name, config, seed=SEEDS.get(name, 0))
        words = home / name / "tokenizer.json"
        words.write_text(words.read_text("utf-8").replace('"w5"', json.dumps(MARKUP)), "utf-8")
    with run_server(
        Service(load_models([f"{name}[en-it]={home / name}" for name in NETWORKS], engine="torch"))
    ) as server:
        yield server


@pytest.fixture(scope="module")
def page(site: RunningServer) -> Iterator[Page]:
    with browser() as chromium:
        page = chromium.new_page(base_url=site.url, viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        yield page


@pytest.mark.parametrize("name", NETWORKS)
def test_every_step_of_a_network_equals_the_trace(page: Page, name: str) -> None:
    failed = list[str]()
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto("about:blank")
    page.goto(f"/#look?model={name}&text={quote(TEXT)}")
    wait_for_view(page)
    steps = list[str]()
    for step in walk_steps(page):
        steps.append(step)
        assert page.locator(".mismatch").count() == 0, step
        if step not in IN_WORDS:
            assert page.locator(".step figure").count() > 0, step
        if step == "experts":
            assert {"probability", "gate", "y, unit 0"} <= {name_ for name_, _, _ in computed_values(page)}
        if step == "feed_forward":
            activation = getattr(NETWORKS[name], "activation", None)
            assert activation in [name_ for name_, _, _ in computed_values(page)]
        _only_text(page)
    assert failed == []
    assert ("experts" in steps) == (name == "experts")
    assert not {"experts", "feed_forward"} <= set(steps)


def test_typed_markup_stays_text(page: Page) -> None:
    page.goto("about:blank")
    page.goto("/#use?model=lstm")
    wait_for_view(page)
    page.locator("#source").fill(TEXT)
    expect(page.locator(".output-word")).to_have_text([MARKUP])  # it is the translation too
    page.locator(".output-word").click()
    expect(page.locator(".detail .highlighted b").nth(1)).to_have_text(MARKUP)
    _only_text(page)


def _only_text(page: Page) -> None:
    assert page.locator("img").count() == 0
    assert page.evaluate("window.struck") is None
