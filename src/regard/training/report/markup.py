"""HTML that is escaped unless it was made here: whatever comes from a user's data stays text."""

from html import escape

_VOID = {"meta"}
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}  # shown as ␀, ␛, …: HTML forbids them
_CONTROLS |= dict.fromkeys([*range(0x7F, 0xA0), 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)], 0xFFFD)


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(content: str) -> Markup:
    """Plain text as HTML.

    >>> text("1 < 2")
    '1 &lt; 2'
    """
    return content if isinstance(content, Markup) else Markup(escape(content.translate(_CONTROLS)))


def tag(name: str, /, *content: str, **attributes: str | bool | None) -> Markup:
    """An element. Strings in it become text; `class_="x"` becomes `class`, `aria_label` becomes `aria-label`.

    >>> tag("p", "a & b ", tag("b", "c"), class_="note", title=None)
    '<p class="note">a &amp; b <b>c</b></p>'
    """
    opening = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            attribute = key.rstrip("_").replace("_", "-")
            opening += f" {attribute}" if value is True else f' {attribute}="{text(value)}"'
    if name in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{joined(*content)}</{name}>")


def joined(*content: str) -> Markup:
    """Pieces one after another."""
    return Markup("".join(text(piece) for piece in content))


def foreign(name: str, content: str, /, longest: int = 1000, **attributes: str | bool | None) -> Markup:
    """An element for text in any language: its first letter decides the direction, and what is too long is cut."""
    return tag(name, shortened(content, longest), dir="auto", **attributes)


def shortened(content: str, longest: int) -> str:
    """Text, or its beginning when it is too long to read."""
    return content if isinstance(content, Markup) or len(content) <= longest else content[: longest - 1] + "…"


def table(head: list[str], rows: list[list[str]], **attributes: str | bool | None) -> Markup:
    """A table whose first column names each row; it scrolls by itself where the page is too narrow."""
    header = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return tag("div", tag("table", header, tag("tbody", *body), **attributes), class_="wide")
