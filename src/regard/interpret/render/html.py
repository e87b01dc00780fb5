"""A trace as one page that needs no network: its style, its few lines of script and its numbers are inside."""

import json
from html import escape
from importlib import resources

from regard.html import Markup, document, tag
from regard.interpret.render import sections
from regard.interpret.trace import Trace


def page(trace: Trace) -> str:
    """The whole page as HTML."""
    content = [section for section in sections.all_sections(trace) if section]
    data = json.dumps(sections.attention_data(trace), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    numbers = tag("script", Markup(data), type="application/json", id="attention-data")
    script = tag("script", _own("page.js"))
    return document(f"{trace.text}: a trace", _own("page.css"), tag("main", *content), numbers, script)


def notebook(trace: Trace) -> str:
    """The page in a frame, for notebooks: what is in it stays in it."""
    frame = "width:100%;height:760px;border:0;border-radius:8px"
    return f'<iframe srcdoc="{escape(page(trace))}" style="{frame}" title="a trace"></iframe>'


def _own(name: str) -> Markup:
    return Markup((resources.files(__package__) / name).read_text("utf-8"))
