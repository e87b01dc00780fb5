"""Text nodes of HTML, for translation; tags, comments, scripts and code stay as they are."""

import re
from collections.abc import Iterator
from html import escape, unescape

_COMMENT = "<!--"
_CLOSING_TAGS = {  # of elements that are kept with their content
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("script", "style", "pre", "code", "textarea")
}
_KEPT_ELEMENT = re.compile(rf"<({'|'.join(_CLOSING_TAGS)})(?=[\s/>])", re.IGNORECASE)
_TAG = re.compile(r"""<[/!?a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*')*+>|<[/!?a-zA-Z][^<>]*>""")  # > may occur in quotes


class HtmlText:
    """HTML split into text and markup; the texts can be read and replaced.

    >>> html = HtmlText("<p>Good <b>day</b> &amp; night</p>")
    >>> html.texts
    ['Good', 'day', '& night']
    >>> html.replace(["Buon", "giorno", "& <notte>"])
    '<p>Buon <b>giorno</b> &amp; &lt;notte&gt;</p>'
    """

    def __init__(self, html: str) -> None:
        self._pieces = list[tuple[str, bool]]()  # and whether they are text
        end = 0
        for start, after in _markup_spans(html):
            self._add_text(html[end:start])
            self._pieces.append((html[start:after], False))
            end = after
        self._add_text(html[end:])

    @property
    def texts(self) -> list[str]:
        """The texts, unescaped and without surrounding spaces."""
        return [unescape(piece).strip() for piece, is_text in self._pieces if is_text]

    def replace(self, texts: list[str]) -> str:
        """Return the HTML with other texts, which are escaped."""
        remaining = iter(texts)
        return "".join(_replace(piece, next(remaining)) if is_text else piece for piece, is_text in self._pieces)

    def _add_text(self, piece: str) -> None:
        if piece:
            self._pieces.append((piece, bool(unescape(piece).strip())))


def _markup_spans(html: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of everything that is not text.

    An element that is never closed extends to the end, as in browsers. Each position is visited only a few times, so
    that no input takes quadratic time.
    """
    start = html.find("<")
    while start >= 0:
        end = _markup_end(html, start)
        if end is not None:
            yield start, end
        start = html.find("<", start + 1 if end is None else end)


def _markup_end(html: str, start: int) -> int | None:
    """Return the end of the markup that starts here; None if it is text."""
    if html.startswith(_COMMENT, start):
        end = html.find("-->", start + len(_COMMENT))
        return end + len("-->") if end >= 0 else len(html)
    element = _KEPT_ELEMENT.match(html, start)
    if element is not None:
        closing = _CLOSING_TAGS[element[1].lower()].search(html, start)
        return closing.end() if closing is not None else len(html)
    tag = _TAG.match(html, start)
    return tag.end() if tag is not None else None


def _replace(old: str, new: str) -> str:
    """Return a new text with the spaces around the old one."""
    before = old[: len(old) - len(old.lstrip())]
    after = old[len(old.rstrip()) :]
    return f"{before}{escape(new, quote=False)}{after}"
