"""Translating a page of HTML: its text, piece by piece; tags, scripts and code stay as they are."""

import re
from html import escape, unescape

_TAG = re.compile(
    r"(<!--.*?-->|<(script|style|pre|code|textarea)\b.*?</\2\s*>|<[/!?a-zA-Z][^<>]*>)", re.DOTALL | re.IGNORECASE
)


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
        for match in _TAG.finditer(html):
            self._add(html[end : match.start()])
            self._pieces.append((match[0], False))
            end = match.end()
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


def _around(old: str, new: str) -> str:
    """A text in place of another, with the spaces that were around that one."""
    before = old[: len(old) - len(old.lstrip())]
    after = old[len(old.rstrip()) :]
    return f"{before}{escape(new, quote=False)}{after}"
