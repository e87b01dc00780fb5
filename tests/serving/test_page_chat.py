"""The chat on the page, in a real browser: streamed answers, a stop button, and a look inside at every token."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from page_site import chromium  # noqa: F401  # fixture
from pages import follow, wait_for_view
from regard.data.chat_templates import CHATML_TEMPLATE
from regard.decoding.options import DEFAULT_TEMPERATURE
from regard.serving.loaded_models import load_models
from regard.serving.service import Service
from servers import RunningServer, run_server

PATIENCE = 20_000  # milliseconds
ACCESSIBLE = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}


@pytest.fixture(scope="module")
def chat_site(talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("chat") / "chatty"
    folder.mkdir()
    for path in talker.iterdir():
        if path.is_file():
            (folder / path.name).symlink_to(path)
    (folder / "chat_template.jinja").write_text(CHATML_TEMPLATE)
    with run_server(Service(load_models([str(folder), str(talker)]))) as running:
        yield running


@pytest.fixture
def page(chromium: Browser, chat_site: RunningServer) -> Iterator[Page]:
    context = chromium.new_context(base_url=chat_site.url, viewport={"width": 390, "height": 740})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    failed = list[str]()
    page.on("pageerror", lambda error: failed.append(str(error)))
    yield page
    context.close()
    assert failed == []


def test_conversations_are_rendered(chat_site: RunningServer) -> None:
    body: dict[str, Any] = {"model": "chatty", "messages": [{"role": "user", "content": "Hi"}]}
    response = chat_site.post("/v1/chat/render", body).json()
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert response == {"model": "chatty", "text": text, "tokens": 3 + len("user\nHi\nassistant\n")}
    whole = chat_site.post("/v1/chat/render", body | {"add_generation_prompt": False}).json()
    assert whole["text"] == "<|im_start|>user\nHi<|im_end|>\n"
    outline = chat_site.post("/v1/look", {"model": "chatty", "text": text, "special_tokens": True}).json()
    assert [step["input_token"] for step in outline["steps"]][:6] == ["<|im_start|>", *"user", "Ċ"]
    outline = chat_site.post("/v1/look", {"model": "chatty", "text": text}).json()
    assert outline["steps"][0]["input_token"] == "<"
    assert chat_site.post("/v1/chat/render", body | {"messages": [{"role": "user"}]}).status_code == 400
    chats = {model["name"]: model["chats"] for model in chat_site.get("/v1/about").json()["models"]}
    assert chats == {"chatty": True, "talker": False}


@pytest.mark.browser
@pytest.mark.parametrize("view", ["chat", "generate"])
def test_options_have_the_names_and_defaults_of_the_other_interfaces(view: str, page: Page) -> None:
    page.goto(f"/#{view}?model=chatty")
    wait_for_view(page)
    expect(page.get_by_label("Temperature")).to_have_value(f"{DEFAULT_TEMPERATURE:g}")
    expect(page.get_by_label("Max tokens")).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_continuation_begins_with_the_whole_prompt(reason: str, page: Page) -> None:
    """Without a start token nothing predicts the first token; generated tokens are counted with the end token."""
    choice = {"choices": [{"text": "abc", "index": 0, "finish_reason": reason}]}
    usage = {"choices": [], "usage": {"completion_tokens": 4 if reason == "stop" else 3}}
    events = "".join(f"data: {event}\n\n" for event in (json.dumps(choice), json.dumps(usage), "[DONE]"))
    page.route("**/v1/completions", lambda route: route.fulfill(body=events, content_type="text/event-stream"))
    page.goto("/#use?model=talker&text=Hello")
    wait_for_view(page)
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#target .output-word").last).to_be_visible()
    words = page.locator("#target .output-word:not(.prompt)").all_inner_texts()
    assert words == [*"abc", *(["<|end|>"] if reason == "stop" else [])]
    assert "".join(page.locator("#target .prompt").all_inner_texts()) == "Hello"


@pytest.mark.browser
def test_a_conversation_on_a_phone(page: Page) -> None:
    page.goto("/#chat?model=chatty")
    wait_for_view(page)
    page.locator("#system").fill("Be brief.")
    page.locator("#temperature").fill("0")
    page.locator("#length").fill("8")
    requests: list[dict[str, Any]] = []
    page.on("request", lambda request: requests.append({"path": request.url, "body": request.post_data}))
    for question in ("Hi <b>there</b>", "Bye"):
        page.locator("#message").fill(question)
        page.keyboard.press("Enter")
        expect(page.locator(".message.user .message-text").last).to_have_text(question)
        expect(page.locator(".message.assistant a.output-word").last).to_be_visible()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
    bodies = [json.loads(request["body"]) for request in requests if request["path"].endswith("completions")]
    answers = page.locator(".message.assistant .message-text").all_inner_texts()
    assert [message["role"] for message in bodies[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert bodies[1]["messages"][0]["content"] == "Be brief."
    assert len(answers) == 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        violations = Axe().run(page, options=ACCESSIBLE).response["violations"]
        serious = [violation["id"] for violation in violations if violation["impact"] in ("serious", "critical")]
        assert serious == []
    token = page.locator(".message.assistant").first.locator("a.output-word").nth(2)
    name = token.text_content() or ""
    follow(page, token)
    expect(page.locator(".summary-line .from")).to_contain_text("<|im_start|>user\nHi <b>there</b><|im_end|>")
    best = page.locator(".candidates .candidate code").first.text_content()
    assert best == name.replace(" ", "Ġ").replace("\n", "Ċ")  # of the position that predicts the token
    page.go_back()
    expect(page.locator(".message")).to_have_count(4)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".message")).to_have_count(0)
    page.goto("/#chat?model=talker")  # which has no chat template
    wait_for_view(page)
    assert page.get_by_role("link", name="Chat", exact=True).count() == 0
    expect(page.locator("#source")).to_be_visible()


@pytest.mark.browser
def test_without_a_server_there_is_one_message_and_a_retry(page: Page) -> None:
    page.goto("/#chat?model=chatty")
    wait_for_view(page)
    page.route("**/v1/**", lambda route: route.abort())
    page.locator("#length").fill("4")
    page.locator("#message").fill("Hi")
    page.keyboard.press("Enter")
    retry = page.get_by_role("button", name="Try again")
    expect(retry).to_be_visible()
    page.wait_for_timeout(100)  # a second message would be the notice of a promise without handler
    expect(page.get_by_role("alert")).to_have_count(1)
    button, field = retry.bounding_box(), page.locator("#message").bounding_box()
    assert button is not None
    assert field is not None
    assert button["y"] + button["height"] + 8 <= field["y"], "they do not touch"
    page.unroute("**/v1/**")
    retry.click()
    expect(page.locator(".message.assistant a.output-word").last).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.browser
def test_an_answer_can_be_stopped(page: Page) -> None:
    page.goto("/#chat?model=chatty")
    wait_for_view(page)
    page.route("**/v1/chat/completions", lambda route: None)  # it never answers
    page.locator("#message").fill("Hi")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator(".message")).to_have_count(1)
    page.unroute("**/v1/chat/completions")
    page.locator("#message").fill("x" * 300)  # longer than the context
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("The conversation fills")
