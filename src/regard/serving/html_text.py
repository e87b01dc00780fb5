"""Translating a page of HTML: its text, piece by piece; tags, scripts and code stay as they are."""

import re
from collections.abc import Iterator
from html import escape, unescape

_COMMENT = "<!--"
_CLOSING = {  # what is kept with all that is in it, and how it ends
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("script", "style", "pre", "code", "textarea")
}
_KEPT = re.compile(rf"<({'|'.join(_CLOSING)})(?=[\s/>])", re.IGNORECASE)
_TAG = re.compile(r"""<[/!?a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*')*+>|<[/!?a-zA-Z][^<>]*>""")  # a > may stand in quotes


class Page:
    """The pieces of a page: what is text in it can be read, and replaced.

    >>> page = Page("<p>Good <b>day</b> &amp; night</p>")
    >>> page.texts
    ['Good', 'day', '& night']
    >>> page.filled(["Buon", "giorno", "& <notte>"])
    '<p>Buon <b>giorno</b> &amp; &lt;notte&gt;</p>'
    """

    def __init__(self, html: str) -> None:
        self._pieces = list[tuple[str, bool]]()  # and whether they are text
        end = 0
        for start, after in _markup(html):
            self._add(html[end:start])
            self._pieces.append((html[start:after], False))
            end = after
        self._add(html[end:])

    @property
    def texts(self) -> list[str]:
        """What is to be translated, without the spaces around it."""
        return [unescape(piece).strip() for piece, is_text in self._pieces if is_text]

    def filled(self, texts: list[str]) -> str:
        """The page with these texts; whatever they say, they stay text."""
        rest = iter(texts)
        return "".join(_around(piece, next(rest)) if is_text else piece for piece, is_text in self._pieces)

    def _add(self, piece: str) -> None:
        if piece:
            self._pieces.append((piece, bool(unescape(piece).strip())))


def _markup(html: str) -> Iterator[tuple[int, int]]:
    """From where to where something stays as it is.

    What is opened and never closed goes on to the end, as in browsers; so nothing is looked at more than a few times,
    however a page may be made.
    """
    place = html.find("<")
    while place >= 0:
        after = _end_of_markup(html, place)
        if after is not None:
            yield place, after
        place = html.find("<", place + 1 if after is None else after)


def _end_of_markup(html: str, start: int) -> int | None:
    """Where the markup that begins here ends; None if there is none."""
    if html.startswith(_COMMENT, start):
        end = html.find("-->", start + len(_COMMENT))
        return end + len("-->") if end >= 0 else len(html)
    kept = _KEPT.match(html, start)
    if kept is not None:
        closing = _CLOSING[kept[1].lower()].search(html, start)
        return closing.end() if closing is not None else len(html)
    tag = _TAG.match(html, start)
    return tag.end() if tag is not None else None


def _around(old: str, new: str) -> str:
    """A text in place of another, with the spaces that were around that one."""
    before = old[: len(old) - len(old.lstrip())]
    after = old[len(old.rstrip()) :]
    return f"{before}{escape(new, quote=False)}{after}"
