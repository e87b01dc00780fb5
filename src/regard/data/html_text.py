"""HTML as texts to translate, each with its inline tags; everything else stays as it is.

Block elements, scripts, `<pre>` and the like separate texts. Inline elements such as `<b>` and `<a>` do not: they are
*marks* of the text, with the characters that they cover. Elements without text of their own, such as `<img>` or
`<code>`, whose content is not translated, are marks at a position. A `<br>` separates texts unless a lowercase letter
follows, as sentences do.

Lines of plain text may have tags too: `has_tags` recognizes them, and `TaggedLine` keeps everything else as text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape

BLOCK_NAMES = """address article aside audio base blockquote body button canvas caption center col colgroup dd details
    dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
    html legend li link main menu meta nav noframes noscript object ol optgroup option p param search section select
    source summary table tbody td template tfoot th thead title tr track ul video"""
BLOCKS = frozenset(BLOCK_NAMES.split())
KEPT_BLOCKS = ("script", "style", "pre", "textarea")  # kept with their content
KEPT_INLINE = ("code", "iframe", "math", "svg")  # likewise, inside a text
VOID = frozenset({"area", "br", "embed", "img", "input", "wbr"})
MAX_DEPTH = 40  # tags that are nested deeper are marks at a position
_COMMENT = "<!--"
_COMMENT_END = re.compile("-->$")
_CLOSING_TAGS = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in (*KEPT_BLOCKS, *KEPT_INLINE)}
_KEPT_ELEMENT = re.compile(rf"<({'|'.join(_CLOSING_TAGS)})(?=[\s/>])", re.IGNORECASE)
_TAG = re.compile(r"""<[/!?a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*')*+>|<[/!?a-zA-Z][^<>]*>""")  # > may occur in quotes
_ENTITY = re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]*|#[0-9]+|#[xX][0-9a-fA-F]+);")
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_AFTER_KEPT = ".,;:!?…)]"  # no space is left before them when an element between is taken out


@dataclass
class Mark:
    """An inline element and the characters of the text that it covers, or markup at a position of the text."""

    opening: str
    """Its opening tag, or the whole markup at a position."""
    closing: str = ""
    start: int = 0
    end: int = 0
    children: "list[Mark]" = field(default_factory=list)
    space_before: bool = False
    """Whether there is a space before markup at a position, and after it."""
    space_after: bool = False

    @property
    def markup(self) -> str:
        """All tags, without text."""
        return f"{self.opening}{''.join(child.markup for child in self.children)}{self.closing}"


@dataclass
class MarkedText:
    """A text without tags, entities and surplus spaces, with its marks."""

    text: str
    marks: list[Mark]
    before: str = ""
    """The spaces around it in the HTML."""
    after: str = ""

    @property
    def needs_alignment(self) -> bool:
        """Whether a mark begins, ends or is inside the text, so that its place in a translation is to be found."""
        return any(_is_inside(mark, len(self.text)) for mark in self.marks)


def _is_inside(mark: Mark, length: int) -> bool:
    if mark.start == mark.end:
        return 0 < mark.start < length
    return mark.start > 0 or mark.end < length or any(_is_inside(child, length) for child in mark.children)


class HtmlText:
    """HTML split into texts and markup; the texts can be read and replaced.

    >>> html = HtmlText("<p>Good <b>day</b> &amp; night</p><p>One</p>")
    >>> [text.text for text in html.texts]
    ['Good day & night', 'One']
    >>> html.replace(["Buon <b>giorno</b>", "Uno"])
    '<p>Buon <b>giorno</b></p><p>Uno</p>'
    """

    def __init__(self, html: str) -> None:
        self._pieces = list[str | MarkedText]()
        run = list[_Token]()
        for token in _tokens(html):
            if token.kind == "separator":
                self._add_run(run)
                self._pieces.append(token.raw)
                run = []
            else:
                run.append(token)
        self._add_run(run)

    @property
    def texts(self) -> list[MarkedText]:
        """The texts."""
        return [piece for piece in self._pieces if isinstance(piece, MarkedText)]

    def replace(self, texts: Sequence[str]) -> str:
        """Return the HTML with other texts, which are HTML themselves."""
        remaining = iter(texts)
        return "".join(
            piece if isinstance(piece, str) else f"{piece.before}{next(remaining)}{piece.after}"
            for piece in self._pieces
        )

    def _add_run(self, run: "list[_Token]") -> None:
        """Add texts and inline tags that no block separates; cut them at line breaks where a sentence can begin."""
        follows_lower = False
        cuts = []
        for n in range(len(run) - 1, -1, -1):
            token = run[n]
            if token.kind == "text" and token.text.strip():
                follows_lower = token.text.strip()[0].islower()
            elif token.name == "br" and not follows_lower:
                cuts.append(n)
        start = 0
        for cut in [*reversed(cuts), len(run)]:
            part = run[start:cut]
            if any(token.text.strip() for token in part):
                self._pieces.append(_marked_text(part))
            else:
                self._pieces += [token.raw for token in part]
            self._pieces += [token.raw for token in run[cut : cut + 1]]
            start = cut + 1


class TaggedLine(HtmlText):
    """A line of plain text with tags. Without entities such as `&amp;`, every &, < and > outside tags is text.

    >>> line = TaggedLine("R&D: 1 < 2, <b>good</b> <w>")
    >>> [text.text for text in line.texts]
    ['R&D: 1 < 2, good <w>']
    >>> line.replace(["R&amp;S: 1 &lt; 2, <b>buono</b> &lt;w&gt;"])
    'R&S: 1 < 2, <b>buono</b> <w>'
    """

    def __init__(self, line: str) -> None:
        tokens = list(_tokens(line))
        self._is_html = any(token.kind == "text" and _ENTITY.search(token.raw) for token in tokens)
        if not self._is_html:
            closed = {token.name for token in tokens if token.raw.startswith("</")}
            tags = [token.kind in ("position", "separator") or token.name in closed for token in tokens]
            line = "".join(
                token.raw if is_tag else escape(token.raw, quote=False)
                for token, is_tag in zip(tokens, tags, strict=True)
            )
        super().__init__(line)

    def replace(self, texts: Sequence[str]) -> str:
        """Return the line with other texts, which are HTML."""
        html = super().replace(texts)
        if self._is_html:
            return html
        return "".join(unescape(token.raw) if token.kind == "text" else token.raw for token in _tokens(html))


def has_tags(text: str) -> bool:
    """Return whether a text has tags in pairs of any name, or tags that need none, as HTML and its relatives have.

    >>> [has_tags(text) for text in ("I <b>love</b> you", "one<br>two", "a < b and c > d", "a <b and c> d", "<name>")]
    [True, True, False, False, False]
    """
    if "<" not in text or ">" not in text:
        return False
    opened, tagged = set[str](), False
    for token in _tokens(text):
        if token.raw.startswith("</"):
            tagged = tagged or token.name in opened
        elif token.name in _CLOSING_TAGS or token.raw.startswith(_COMMENT):
            closing = _CLOSING_TAGS.get(token.name, _COMMENT_END)
            if not closing.search(token.raw):  # the rest of the text is inside
                return False
            tagged = True
        elif token.kind != "text":
            tagged = tagged or token.kind == "position" or token.name == "hr"
            opened.add(token.name)
    return tagged


@dataclass(frozen=True)
class _Token:
    kind: str  # text, open, close, position, separator
    raw: str
    name: str = ""
    text: str = ""


def _marked_text(tokens: list[_Token]) -> MarkedText:
    """Return the text of tokens, with the elements that are opened and closed among them; other tags are positions.

    Each run of white space becomes one space, which is written before the next word: marks are at the end of words.
    """
    pairs = _pairs(tokens)
    text, space, after = "", "", ""  # after: the white space since the last word, or since markup with space before it
    before: str | None = None
    roots, path = list[Mark](), list[Mark]()
    since_word, since_text = list[Mark](), list[Mark]()  # positions
    for n, token in enumerate(tokens):
        siblings = path[-1].children if path else roots
        if token.kind == "text":
            for mark in since_text:
                mark.space_after = token.text[0].isspace()
            since_text = []
            words = token.text.split()
            if not words:
                space += token.text
                after += token.text
                continue
            space += token.text[: len(token.text) - len(token.text.lstrip())]
            if not text:
                before = space if before is None else before
            elif space and not (words[0][0] in _AFTER_KEPT and any(mark.space_before for mark in since_word)):
                text += " "
            text += " ".join(words)
            space = after = token.text[len(token.text.rstrip()) :]
            since_word = []
        elif n in pairs and token.kind == "open":
            siblings.append(Mark(token.raw, tokens[pairs[n]].raw, len(text), space_before=bool(space)))
            path.append(siblings[-1])
        elif n in pairs:
            mark = path.pop()
            mark.end = len(text)
            if mark.start < mark.end:
                continue
            since_word.append(mark)
            since_text.append(mark)
            before, after = _space_around(mark, before, space, after)
        else:
            mark = Mark(token.raw, "", len(text), len(text), [], bool(after if text else space))
            siblings.append(mark)
            since_word.append(mark)
            since_text.append(mark)
            before, after = _space_around(mark, before, space, after)
            space += " " if token.name == "br" else ""
    return MarkedText(text, roots, before or "", after)


def _space_around(mark: Mark, before: str | None, space: str, after: str) -> tuple[str | None, str]:
    """Return the space before and after a text with markup at a position, which has its own spaces."""
    return (space if before is None and not mark.start else before), ("" if mark.space_before else after)


def _pairs(tokens: list[_Token]) -> dict[int, int]:
    """Return the tags that belong together, in both directions, by their indices."""
    pairs, path, names = dict[int, int](), list[int](), Counter[str]()
    for n, token in enumerate(tokens):
        if token.kind == "open":
            path.append(n)
            names[token.name] += 1
        elif token.kind == "close" and names[token.name]:
            while True:
                opening = path.pop()
                names[tokens[opening].name] -= 1
                if tokens[opening].name == token.name:
                    break
            if len(path) < MAX_DEPTH:
                pairs[opening], pairs[n] = n, opening
    return pairs


def _tokens(html: str) -> Iterator[_Token]:
    """Yield text and markup. Each position is visited only a few times, so that no input takes quadratic time."""
    end = 0
    start = html.find("<")
    while start >= 0:
        token = _markup(html, start)
        if token is not None:
            yield from _text_token(html[end:start])
            yield token
            end = start + len(token.raw)
        start = html.find("<", start + 1 if token is None else end)
    yield from _text_token(html[end:])


def _text_token(raw: str) -> Iterator[_Token]:
    if raw:
        yield _Token("text", raw, text=unescape(raw))


def _markup(html: str, start: int) -> _Token | None:
    """Return the markup that starts here; None if it is text. An element that is never closed extends to the end."""
    if html.startswith(_COMMENT, start):
        end = html.find("-->", start + len(_COMMENT))
        return _Token("position", html[start : end + len("-->") if end >= 0 else len(html)])
    element = _KEPT_ELEMENT.match(html, start)
    if element is not None:
        name = element[1].lower()
        closing = _CLOSING_TAGS[name].search(html, start)
        raw = html[start : closing.end() if closing is not None else len(html)]
        return _Token("position" if name in KEPT_INLINE else "separator", raw, name)
    tag = _TAG.match(html, start)
    if tag is None:
        return None
    match = _NAME.match(tag[0])
    if match is None:  # <!DOCTYPE …> or <?xml …?>
        return _Token("separator", tag[0])
    name = match[1].lower()
    if name in BLOCKS:
        return _Token("separator", tag[0], name)
    if name in VOID or tag[0].endswith("/>"):
        return _Token("position", tag[0], name)
    return _Token("close" if tag[0].startswith("</") else "open", tag[0], name)
