import re

import pytest

from regard.html import Markup, base_style, document, escape_text, join, package_file, shorten, table, tag, user_text


def test_text_is_escaped_and_markup_is_not() -> None:
    assert escape_text("<b>\"a\" & 'b'</b>") == "&lt;b&gt;&quot;a&quot; &amp; &#x27;b&#x27;&lt;/b&gt;"
    markup = Markup("<b>a</b>")
    assert escape_text(markup) is markup
    assert join("a<", markup) == "a&lt;<b>a</b>"


@pytest.mark.parametrize("code", [0, 7, 0x1B, 0x7F, 0x85, 0xD800, 0xFFFE])
def test_control_characters_are_replaced(code: int) -> None:
    escaped = escape_text(chr(code))
    assert escaped == (chr(0x2400 + code) if code < 32 else f"\\u{code:04x}")
    assert tag("p", title=chr(code)) == f'<p title="{escaped}"></p>'


def test_tabs_and_newlines_are_kept() -> None:
    assert escape_text("a\tb\nc") == "a\tb\nc"


def test_attributes_are_escaped_and_omitted_when_none_or_false() -> None:
    element = tag("td", class_='a"b', aria_label="<x>", hidden=False, title=None, open=True)
    assert element == '<td class="a&quot;b" aria-label="&lt;x&gt;" open></td>'


def test_void_elements_have_no_closing_tag() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_elements_nest_without_double_escaping() -> None:
    assert tag("p", tag("b", "1 < 2"), " & ") == "<p><b>1 &lt; 2</b> &amp; </p>"


def test_user_text_is_truncated_and_has_automatic_direction() -> None:
    assert user_text("p", "abcdef", max_length=4) == '<p dir="auto">abc…</p>'
    assert user_text("p", "abcd", max_length=4) == '<p dir="auto">abcd</p>'
    assert shorten(Markup("<b>abcdef</b>"), 4) == "<b>abcdef</b>"


def test_a_table_has_column_and_row_headers() -> None:
    content = table(["", "x"], [["a", "<1>"]], class_="numbers")
    assert content == (
        '<div class="wide"><table class="numbers"><thead><tr><th scope="col"></th><th scope="col">x</th></tr></thead>'
        '<tbody><tr><th scope="row">a</th><td>&lt;1&gt;</td></tr></tbody></table></div>'
    )


def test_a_document_loads_nothing_and_contains_the_base_style() -> None:
    page = document("a < b", Markup("p { color: red; }"), tag("main", "text"))
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>a &lt; b</title>" in page
    assert "default-src &#x27;none&#x27;" in page
    assert base_style() in page
    assert "p { color: red; }" in page
    assert re.findall(r"<link|<img| src=|@import|url\(", page) == []


def test_package_files_are_markup() -> None:
    assert package_file("regard", "html.css") == base_style()
    assert isinstance(base_style(), Markup)
