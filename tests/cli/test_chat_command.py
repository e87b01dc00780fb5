"""`regard chat`: answers, commands, interrupts and the end of the input."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard as package
from commands import regard
from regard.api import Model
from regard.decoding.results import TextChunk

GREEDY = ("--temperature", "0", "--max-tokens", "8", "--engine", "torch")


def answers(folder: Path, *questions: str, system: str | None = None) -> list[str]:
    model = package.load(folder)
    messages: list[dict[str, str]] = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        answer = model.chat(messages, system=system, temperature=0, max_tokens=8, engine="torch")
        messages.append({"role": "assistant", "content": answer})
    return [message["content"] for message in messages[1::2]]


def test_lines_of_stdin_are_answered_in_turn(talker: Path) -> None:
    done = regard("chat", talker, *GREEDY, "--system", "Be brief.", stdin="Hello.\n\nBye.\n/reset\nBye.")
    assert done.code == 0
    expected = [*answers(talker, "Hello.", "Bye.", system="Be brief."), *answers(talker, "Bye.", system="Be brief.")]
    assert done.out == "".join(f"{answer}\n" for answer in expected)
    assert "has no chat template" in done.err
    assert "The conversation is empty." in done.err


def test_commands(talker: Path, tmp_path: Path) -> None:
    path, taken = tmp_path / "chat.jsonl", tmp_path / "taken"
    taken.write_text("mine")
    lines = [
        "Hello.",
        f"/save {path}",
        "Bye.",
        f"/save {path}",
        f"/save {taken}",
        "/save",
        "/help",
        "/frob",
        "/quit",
        "x",
    ]
    done = regard("chat", talker, *GREEDY, "--system", "Be brief.", stdin="\n".join(lines))
    first, second = answers(talker, "Hello.", "Bye.", system="Be brief.")
    assert done.out == f"{first}\n{second}\n"
    assert json.loads(path.read_text("utf-8"))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "Bye."},
        {"role": "assistant", "content": second},
    ]
    assert taken.read_text() == "mine"
    for fact in (
        f"Conversation: {path} (3 messages)",
        f"Conversation: {path} (5 messages)",
        f"{taken}: already exists; choose another name",
        "/save: name a file",
        "/reset      forget",
        "/frob: there is no such command; /help lists them",
    ):
        assert fact in done.err
    done = regard("chat", talker, *GREEDY, stdin=f"Hello.\n/save {tmp_path / 'missing' / 'x'}\nBye.\n")
    assert done.code == 0
    assert "cannot be written" in done.err
    assert done.out.count("\n") == 2


def test_ctrl_c_stops_an_answer_and_keeps_the_chat(
    talker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = Model.chat_chunks
    seen: list[str] = []

    def interrupted(self: Model, prompt: Any, options: Any, results: Any, **keywords: Any) -> Iterator[TextChunk]:
        for number, chunk in enumerate(original(self, prompt, options, results, **keywords)):
            if not seen and number == 2:
                seen.append(results[0].text)
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr(Model, "chat_chunks", interrupted)
    path = tmp_path / "chat.jsonl"
    done = regard("chat", talker, *GREEDY, stdin=f"Hello.\nBye.\n/save {path}\n", terminal=True)
    assert done.code == 0
    assert "(stopped)" in done.err
    saved = json.loads(path.read_text("utf-8"))["messages"]
    assert [message["role"] for message in saved] == ["user", "assistant", "user", "assistant"]
    assert saved[1]["content"] == seen[0]
    seen.clear()
    done = regard("chat", talker, *GREEDY, stdin="Hello.\n")
    assert done.code == 130


def test_old_messages_are_forgotten_with_a_notice(talker: Path) -> None:
    lines = [f"{number}" * 40 for number in range(4)]
    done = regard("chat", talker, *GREEDY, stdin="\n".join(lines))
    assert done.code == 0
    assert "the first 2 messages no longer fit into the model's context window" in done.err
    assert done.out.count("\n") >= 4


def test_a_message_that_is_too_long(talker: Path) -> None:
    done = regard("chat", talker, *GREEDY, stdin="x" * 300 + "\nHello.\n", terminal=True)
    assert done.code == 0
    assert "The last message fills" in done.err
    assert answers(talker, "Hello.")[0] in done.out
    done = regard("chat", talker, *GREEDY, stdin="x" * 300)
    assert done.code == 1
    assert "The last message fills" in done.err


@pytest.mark.parametrize(
    ("content", "code", "fact"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", 3, "makes more than"),
        ("{% if %}", 3, "is not a Jinja template (line 1"),
        ("{{ raise_exception('No.') }}", 1, "refuses this conversation: No"),
    ],
)
def test_bad_templates_are_one_message(talker: Path, tmp_path: Path, content: str, code: int, fact: str) -> None:
    for path in talker.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "chat_template.jinja").write_text(content)
    done = regard("chat", tmp_path, *GREEDY, stdin="Hello.\n")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"regard: {tmp_path / 'chat_template.jinja'}: ")
    assert fact in done.err
    assert done.err.count("\n") == 1


def test_translators_do_not_chat(translator: Path) -> None:
    done = regard("chat", translator, stdin="Hello.\n")
    assert done.code == 2
    assert "does not generate text; use a language model" in done.err
