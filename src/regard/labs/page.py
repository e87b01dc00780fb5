"""A lab as HTML: the claim, what was done, the figure, what came out, what it does not show; many labs as a book."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from regard.labs.lab import Effort, Lab, Outcome
from regard.training.report.markup import Markup, joined, table, tag
from regard.training.report.page import document

WORDS = {"quick": "a quick run", "usual": "a usual run", "full": "a full run"}


def section(lab: Lab, outcome: Outcome, pictures: Mapping[str, str], effort: Effort, seconds: float) -> Markup:
    """A lab's part of a page; `pictures` are SVG by the names of the drawings."""
    figures = [
        tag(
            "figure",
            Markup(_inline(pictures[drawing.name], drawing.shows)),
            tag("figcaption", drawing.title),
        )
        for drawing in outcome.drawings
    ]
    tables = [
        joined(tag("h3", one.title), table(list(one.head), [list(row) for row in one.rows])) for one in outcome.tables
    ]
    return tag(
        "section",
        tag("h2", lab.title),
        tag("p", lab.claim, class_="claim"),
        tag("p", f"Claimed by: {lab.source}.", class_="source"),
        tag("h3", "What was done"),
        *_paragraphs(lab.experiment.DONE),
        *figures,
        tag("h3", "What came out"),
        tag("p", tag("strong", outcome.verdict, class_="holds" if outcome.holds else "fails"), " ", outcome.said),
        *tables,
        tag("pre", outcome.board) if outcome.board else "",
        tag("h3", "What it does not show"),
        *_paragraphs(lab.experiment.LIMITS),
        tag("p", f"{WORDS[effort].capitalize()}, {seconds:,.0f} seconds on this machine. ", class_="source"),
        id=lab.name,
        data_effort=effort,
    )


def lab_page(title: str, sections: Sequence[tuple[Lab, Markup]]) -> str:
    """A page of one lab or of many; many have a table of contents."""
    contents = tag("nav", tag("ol", *(tag("li", tag("a", lab.title, href=f"#{lab.name}")) for lab, _ in sections)))
    opening = [tag("header", tag("h1", title)), contents] if len(sections) > 1 else []
    style = Markup((resources.files(__package__) / "lab.css").read_text("utf-8"))
    return document(f"{title} · regard", style, tag("main", *opening, *(content for _, content in sections)))


def _paragraphs(text: str) -> list[Markup]:
    return [tag("p", " ".join(part.split())) for part in text.strip().split("\n\n")]


def _inline(svg: str, shows: str) -> str:
    """A picture inside the page: without its prologue, named for those who cannot see it, its ids its own."""
    picture = svg[svg.index("<svg") :]
    name = tag("title", shows)
    return re.sub(r"<svg\b", '<svg role="img"', picture, count=1).replace("<metadata>", f"{name}<metadata>", 1)
