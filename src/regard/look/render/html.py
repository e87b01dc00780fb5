"""A trace as one page that needs no network: its style, its few lines of script and its numbers are inside."""

import json
from html import escape
from importlib import resources

from regard.look.render import sections
from regard.look.trace import Trace
from regard.training.report.markup import Markup, joined, tag
from regard.training.report.page import POLICY

STYLE = "regard.training.report"  # whose style this page shares


def page(trace: Trace) -> str:
    """The whole page as HTML."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"{trace.text}: a trace"),
        tag("style", _own("style.css", STYLE), _own("page.css", __package__ or "")),
    )
    content = [section for section in sections.all_sections(trace) if section]
    data = json.dumps(sections.attention_data(trace), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    numbers = tag("script", Markup(data), type="application/json", id="attention-data")
    script = tag("script", _own("page.js", __package__ or ""))
    return (
        "<!doctype html>\n" + tag("html", head, tag("body", tag("main", *content), numbers, script), lang="en") + "\n"
    )


def notebook(trace: Trace) -> str:
    """The page in a frame, for notebooks: what is in it stays in it."""
    frame = "width:100%;height:760px;border:0;border-radius:8px"
    return f'<iframe srcdoc="{escape(page(trace))}" style="{frame}" title="a trace"></iframe>'


def _own(name: str, package: str) -> Markup:
    return joined(Markup((resources.files(package) / name).read_text("utf-8")))
