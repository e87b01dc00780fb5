"""The page in a real browser: views, URLs, messages and accessibility; it requests nothing from other servers."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from page_site import (  # noqa: F401  # fixtures
    STEPS,
    TEXT,
    chromium,
    figure,
    number,
    page,
    site,
    source,
    table,
    trace,
    translator,
    visit,
)
from pages import accessibility_violations, wait_for_view
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig
from regard.decoding.domain import DOMAIN_FILE, Domain
from regard.decoding.options import TranslationOptions
from regard.interpret.trace import Trace
from regard.serving.access import AccessPolicy
from regard.serving.app import WEB
from regard.serving.loaded_models import LoadedModel, load_models
from regard.serving.service import Service
from servers import RunningServer, run_server

pytestmark = pytest.mark.browser

EVERYWHERE = ["use", "hand", "card", *(f"look/{step}" for step in STEPS["en-it"].split())]


def test_a_translation_appears_while_typing(page: Page, translator: LoadedModel) -> None:
    page.goto("/")
    page.locator("#source").press_sequentially(TEXT)
    (expected,) = translator.model.translate([TEXT])
    expect(page.locator("#target")).to_have_text(re.compile(rf"^\s*{re.escape(expected)}\s*$"))
    expect(page.locator("#latency")).to_contain_text("ms in the model")
    expect(page.locator(".alternatives li")).to_have_count(2)
    page.locator(".output-word").first.click()
    expect(page.locator(".detail h3").first).to_have_text("Source words")
    expect(page.locator(".detail .candidate")).to_have_count(6)


def test_a_line_says_what_the_model_covers_and_flags_other_text(chromium: Browser, tmp_path: Path) -> None:
    saved(tmp_path / "en-it", EncoderDecoderConfig(**SMALL))
    domain = Domain(description="words with <b>numbers</b>.", rare_tokens=(7,))
    (tmp_path / "en-it" / DOMAIN_FILE).write_text(domain.to_json())
    with run_server(Service(load_models([str(tmp_path / "en-it")]))) as server:
        page = chromium.new_page(base_url=server.url)
        page.goto("/")
        line = page.locator("#domain")
        expect(line).to_have_text("Covers: words with <b>numbers</b>.")
        page.locator("#source").fill("w4 w7")
        expect(line).to_have_text(
            "Unlike the training data (unknown words: w7): do not rely on this translation. "
            "Covers: words with <b>numbers</b>."
        )
        page.locator("#source").fill("w4 w8")
        expect(line).to_have_text("Covers: words with <b>numbers</b>.")
        page.close()


def test_a_text_is_continued_and_every_token_has_candidates(page: Page) -> None:
    visit(page, "use", "writer")
    page.locator("#length").fill("4")
    page.locator("#temperature").fill("0")
    page.get_by_role("button", name="Generate").click()
    page.locator(".output-word").last.wait_for()
    page.locator(".output-word").last.click()
    expect(page.locator(".detail .candidate")).to_have_count(10)
    assert 0 < float(page.locator(".output-word").last.get_attribute("data-probability") or 0) <= 1


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
    expect(page.locator(".result .location")).to_have_text(text)
    reopen(page)
    expect(page.locator(".node.chosen")).to_have_attribute("data-number", str(number_))
    expect(page.locator(".result .location")).to_have_text(text)


def test_the_url_of_a_word_restores_it(page: Page) -> None:
    visit(page, "use")
    page.locator(".output-word").nth(1).click()
    page.locator(".detail .candidate").first.wait_for()
    detail = page.locator(".detail").text_content()
    reopen(page)
    expect(page.locator(".output-word[aria-pressed=true]")).to_have_count(1)
    expect(page.locator(".output-word").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".detail")).to_have_text(detail or "")
    page.locator("#source").press_sequentially(" w5")
    page.wait_for_url(re.compile(r"^(?!.*word=).*w5\+w5"))  # another text has other words


def test_the_url_of_an_attention_cell_restores_it(page: Page, trace: Trace, source: list[str]) -> None:
    visit(page, "look/kinds", at="decoder.1", head=2)
    figure(page, "Cross-attention").locator("svg").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    text = f"Cross-attention: {trace.decoder_input[2]} attends to {source[1]}"
    expect(page.locator(".location")).to_have_text(text)
    reopen(page)
    expect(page.locator(".location")).to_have_text(text)
    expect(page.locator(".cursor:visible")).to_have_count(1)
    weight = float(trace.activation("decoder.1.cross_attention.weights")[2, 2, 1])
    assert float(page.locator(".calculation").get_attribute("data-computed") or "nan") == pytest.approx(
        weight, abs=1e-5
    )


def test_the_url_of_an_edited_example_restores_it(page: Page) -> None:
    visit(page, "hand")
    page.get_by_label("W_key, row 2, column 3").fill("-0.5")
    page.locator("#masked").check()
    page.locator("#scaled").uncheck()
    changed = figure(page, "output").get_attribute("data-values")
    reopen(page)
    assert figure(page, "output").get_attribute("data-values") == changed
    expect(page.get_by_label("W_key, row 2, column 3")).to_have_value("-0.5")
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_label("W_key, row 2, column 3")).to_have_value("0")
    assert "edits" not in page.url


def test_the_url_of_a_player_step_restores_it(page: Page, trace: Trace) -> None:
    visit(page, "look/player")
    page.get_by_role("button", name="Next step").click(click_count=2)
    reopen(page)
    expect(page.locator("#time")).to_have_value("2")
    expect(page.locator(".predicted")).to_have_text(trace.steps[2].token)


def test_words_show_the_models_probabilities(page: Page, translator: LoadedModel, site: RunningServer) -> None:
    visit(page, "use")
    search = site.service.search(translator, n_best=3)
    (line,) = translator.translate([TEXT], TranslationOptions(search, token_scores=True))
    best, *others = line.sentences[0].alternatives
    assert best.token_scores is not None
    shown = page.locator(".output-word").evaluate_all(
        "elements => elements.map(element => [element.textContent, +element.dataset.probability])"
    )
    assert [word for word, _ in shown] == best.tokens
    sure = [math.exp(score) for score in best.token_scores[: len(best.tokens)]]
    assert [probability for _, probability in shown] == pytest.approx(sure, abs=1e-4)
    listed = page.locator(".alternatives li").evaluate_all(
        "elements => elements.map(element => element.firstChild.textContent)"
    )
    assert listed == [other.text for other in others]


def test_a_repeated_word_is_explained_at_its_position(page: Page, translator: LoadedModel) -> None:
    visit(page, "use")
    page.evaluate(
        """() => {
          const send = window.fetch;
          window.fetch = async (path, options) => {
            if (path !== '/v1/translate') return send(path, options);
            const tokens = 'w7 w9 w7'.split(' ');
            const best = { text: 'w7 w9 w7', tokens, token_scores: [-1, -2, -3], log_probability: -6 };
            const sentences = [{ source: 'w16 w28', alternatives: [best], flags: [], unknown_words: [] }];
            return new Response(JSON.stringify({ translations: [{ sentences }], timings: { compute_ms: 1 } }));
          };
        }"""
    )
    page.locator("#source").press_sequentially(" w5")
    expect(page.locator(".output-word")).to_have_count(3)
    page.locator(".output-word").nth(2).click()
    page.locator(".detail .highlighted").first.wait_for()
    trace = translator.model.look("w16 w28", target="w7 w9 w7")
    weights = trace.alignment().weights[2].tolist()
    shown = page.locator(".detail .highlighted .highlight").evaluate_all(
        "elements => elements.map(element => Number(element.style.opacity))"
    )
    assert shown == pytest.approx(weights, abs=1e-3)


def test_byte_tokens_are_shown_as_text(page: Page) -> None:
    visit(page, "hand")
    detokenize = "async tokens => (await import('/words.js')).detokenize(tokens)"
    assert page.evaluate(detokenize, ["caff", "Ã¨", "Ġbello", "Ċ"]) == ["caff", "è", " bello", "\n"]
    assert page.evaluate(detokenize, ["Ã", "¨"]) == ["", "è"]
    assert page.evaluate(detokenize, ["▁caff", "è"]) == [" caff", "è"]
    assert page.evaluate(detokenize, ["▁", "<0xC3>", "<0xA8>"]) == [" ", "", "è"]


def test_a_stopped_server_gets_a_message(chromium: Browser, loaded_models: list[LoadedModel]) -> None:
    page = chromium.new_page()
    with run_server(Service(loaded_models[:1])) as soon_gone:
        page.goto(f"{soon_gone.url}/#look/projection?text=w5+w6")
        wait_for_view(page)
        page.locator("svg.matrix").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.get_by_role("button", name="Close").click()
    page.locator(".step-links [rel=next]").click()
    expect(page.get_by_role("alert")).to_contain_text("start it again with regard serve")
    expect(page.locator("#header")).to_be_visible()
    page.get_by_role("link", name="Translate").click()
    page.locator("#source").press_sequentially("w7")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.close()


def test_accessibility(chromium: Browser, site: RunningServer) -> None:
    """No serious or critical finding of axe-core on a small phone, in both color schemes; no horizontal scrolling."""
    context = chromium.new_context(base_url=site.url, viewport={"width": 320, "height": 640})
    page = context.new_page()
    for place, model in [*((place, "en-it") for place in EVERYWHERE), ("look/gates", "rnn"), ("use", "writer")]:
        visit(page, place, model)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place
        assert accessibility_violations(page) == [], place
    context.close()


def test_the_api_key_is_requested_and_sent(chromium: Browser, loaded_models: list[LoadedModel]) -> None:
    key = "a key that is hard to guess"
    with run_server(Service(loaded_models[:1], access=AccessPolicy(key.encode()))) as locked:
        page = chromium.new_page()
        page.goto(locked.url)
        page.get_by_label("This server requires an API key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#source")).to_be_visible()
        page.close()


def test_a_network_without_causal_mask_gets_a_message(chromium: Browser, tmp_path: Path) -> None:
    saved(tmp_path / "seer", EncoderDecoderConfig(**SMALL, causal_mask=False))
    with run_server(Service(load_models([f"seer[en-it]={tmp_path / 'seer'}"]))) as site:
        page = chromium.new_page()
        page.goto(f"{site.url}/#look?text=w5+w6")
        expect(page.get_by_role("alert")).to_contain_text(
            "has no causal mask, so one pass over the whole target differs"
        )
        page.close()


def test_the_page_loads_nothing_from_other_servers() -> None:
    for path in WEB.rglob("*.*"):
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
    options["skipLibCheck"] = True  # of TypeScript
    modules = {"module": "es2022", "moduleResolution": "bundler", "lib": ["es2023", "dom", "dom.iterable"]}
    project = tmp_path / "jsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options | modules, "include": [f"{WEB}/**/*.js"]}))
    checked = subprocess.run(
        [str(tmp_path / "node_modules/.bin/tsc"), "-p", str(project)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
