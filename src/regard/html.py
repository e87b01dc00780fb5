"""Escape text of data and models where it is shown, and build HTML whose text is escaped by default.

Terminals and browsers must not interpret control characters: escape sequences of a terminal can move the cursor, change
the title or fake output; bidirectional controls reorder what follows them. Every place that shows such text (terminal,
HTML pages, logs) passes it through `visible`. The page of the server does the same in `web/dom.js`.

Every generated page (training report, trace, labs, API reference) is made with the other functions. A plain `str` is
text and gets escaped; a `Markup` is HTML and is inserted as it is.
"""

from html import escape

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"  # pages load nothing

_VOID_ELEMENTS = {"meta"}

# Explicit embeddings, overrides and isolates. The marks U+200E, U+200F and U+061C stay: they affect no other text.
BIDI_CONTROLS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
KEPT_CONTROLS = "\t\n"

_VISIBLE: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in KEPT_CONTROLS}
_ESCAPED = (*range(0x7F, 0xA0), *BIDI_CONTROLS, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_VISIBLE |= {code: f"\\u{code:04x}" for code in _ESCAPED}


def visible(text: str) -> str:
    """Return a text with its control characters made visible; tabs and line feeds stay.

    C0 controls become their symbols, all others, bidirectional controls and lone surrogates become escapes, as in JSON.

    >>> visible("\\x1b[31mred"), visible("a\\u202eb")
    ('␛[31mred', 'a\\\\u202eb')
    """
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)


class Markup(str):
    """A string that is HTML already and is not escaped again."""

    __slots__ = ()


def escape_text(content: str) -> Markup:
    """Escape plain text, and make its control characters visible; `Markup` is returned unchanged.

    >>> escape_text("1 < 2")
    '1 &lt; 2'
    """
    return content if isinstance(content, Markup) else Markup(escape(visible(content)))


def tag(name: str, /, *content: str, **attributes: str | bool | None) -> Markup:
    """Return an element. Attribute names: `class_="x"` becomes `class`, `aria_label` becomes `aria-label`.

    Attributes that are None or False are left out; True gives an attribute without a value.

    >>> tag("p", "a & b ", tag("b", "c"), class_="note", title=None)
    '<p class="note">a &amp; b <b>c</b></p>'
    """
    opening = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            attribute = key.rstrip("_").replace("_", "-")
            opening += f" {attribute}" if value is True else f' {attribute}="{escape_text(value)}"'
    if name in _VOID_ELEMENTS:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(*content)}</{name}>")


def join(*content: str) -> Markup:
    """Concatenate markup and text, escaping the text."""
    return Markup("".join(escape_text(part) for part in content))


def user_text(name: str, content: str, /, max_length: int = 1000, **attributes: str | bool | None) -> Markup:
    """Return an element for text in any language: direction set by its first letter, truncated to `max_length`."""
    return tag(name, shorten(content, max_length), dir="auto", **attributes)


def shorten(content: str, max_length: int) -> str:
    """Truncate text to `max_length` characters, the last one being an ellipsis; `Markup` is never truncated."""
    return content if isinstance(content, Markup) or len(content) <= max_length else content[: max_length - 1] + "…"


def table(head: list[str], rows: list[list[str]], **attributes: str | bool | None) -> Markup:
    """Return a table whose first column holds row headers, inside a `div` that scrolls on narrow screens."""
    header = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return tag("div", tag("table", header, tag("tbody", *body), **attributes), class_="wide")


def document(title: str, style: Markup, *body: Markup) -> str:
    """Return a self-contained page with light and dark colors: the base style, `style`, and the body."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", base_style(), style),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", *body), lang="en") + "\n"


def base_style() -> Markup:
    """Return the CSS that all generated pages share (`html.css`)."""
    return package_file("regard", "html.css")


def package_file(package: str, name: str) -> Markup:
    """Return a stylesheet or script that is part of a package."""
    from importlib import resources

    return Markup((resources.files(package) / name).read_text("utf-8"))
