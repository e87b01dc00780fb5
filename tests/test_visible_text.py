"""Control characters of data and models are visible wherever text is shown."""

import io
import json

import pytest
from rich.text import Text

from regard.cli.input_output import print_text
from regard.html import escape_text, visible
from regard.tables import new_console, new_table
from regard.training.display import printable

ATTACK = "a\x1b]0;title\x07\x9b31m\u202ebc\u2066d"
SAFE = "a␛]0;title␇\\u009b31m\\u202ebc\\u2066d"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_visible() -> None:
    assert visible(ATTACK) == SAFE
    assert visible("tab\tline\n") == "tab\tline\n"
    assert visible("\ud800") == "\\ud800"
    for text in ("plain", "שלום \u200f", "مرحبا", "é中\u0301", "👩\u200d💻"):
        assert visible(text) == text


def test_pages_show_bidirectional_controls() -> None:
    assert escape_text("<\u202e>") == "&lt;\\u202e&gt;"
    assert printable(ATTACK) == SAFE


def test_terminals_and_stderr_get_visible_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    print_text(ATTACK, file=terminal)
    assert terminal.getvalue() == f"{SAFE}\n"
    print_text(json.dumps({"text": ATTACK}, ensure_ascii=False), file=(terminal := Terminal()))
    assert json.loads(terminal.getvalue()) == {"text": ATTACK}
    print_text(ATTACK)  # a pipe or a file gets the text as it is
    assert capsys.readouterr().out == f"{ATTACK}\n"
    import sys

    print_text(ATTACK, file=sys.stderr)
    assert capsys.readouterr().err == f"{SAFE}\n"


def test_tables_have_visible_text() -> None:
    table = new_table("word")
    table.add_row(Text(ATTACK))
    console = new_console(stream := io.StringIO())
    console.print(table)
    console.print(Text(ATTACK))
    assert not {"\x1b", "\x9b", "\u202e", "\u2066"} & set(stream.getvalue())
    assert stream.getvalue().count("\\u202e") == 2
