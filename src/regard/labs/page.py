"""A lab as HTML: the claim, what was done, the figure, what came out, what it does not show; many labs as a book."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from regard.labs.lab import Effort, Lab, Outcome, verdict
from regard.training.report.markup import Markup, joined, table, tag
from regard.training.report.page import document


@dataclass(frozen=True)
class Chapter:
    """A lab's part of a page, and whether its claim came out."""

    lab: Lab
    holds: bool
    section: Markup


WORDS = {"quick": "a quick run", "usual": "a usual run", "full": "a full run"}


def section(
    lab: Lab, outcome: Outcome, pictures: Mapping[str, str], effort: Effort, seconds: float, machine: Mapping[str, Any]
) -> Markup:
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
        tag("p", _verdict(outcome.holds), " ", outcome.said),
        *tables,
        tag("pre", outcome.board) if outcome.board else "",
        tag("h3", "What it does not show"),
        *_paragraphs(lab.experiment.LIMITS),
        tag(
            "p",
            f"{WORDS[effort].capitalize()} of regard {machine['regard']} with torch {machine['torch']}: {seconds:,.0f} "
            f"seconds on {machine['processor']}, threads: {machine['threads']}.",
            class_="source",
        ),
        id=lab.name,
        data_effort=effort,
    )


def lab_page(title: str, chapters: Sequence[Chapter]) -> str:
    """A page of one lab or of many; many have a table of contents."""
    contents = tag("nav", tag("ol", *(_entry(chapter) for chapter in chapters)))
    opening = [tag("header", tag("h1", title)), contents] if len(chapters) > 1 else []
    style = Markup((resources.files(__package__) / "lab.css").read_text("utf-8"))
    return document(f"{title} · regard", style, tag("main", *opening, *(chapter.section for chapter in chapters)))


def _entry(chapter: Chapter) -> Markup:
    """A line of the table of contents: what it is called, what is claimed, and whether that came out."""
    lab = chapter.lab
    return tag("li", tag("a", lab.title, href=f"#{lab.name}"), tag("p", lab.claim, " ", _verdict(chapter.holds)))


def _verdict(holds: bool) -> Markup:
    return tag("strong", verdict(holds), class_="holds" if holds else "fails")


def _paragraphs(text: str) -> list[Markup]:
    return [tag("p", " ".join(part.split())) for part in text.strip().split("\n\n")]


def _inline(svg: str, shows: str) -> str:
    """A picture inside the page: without its prologue, and named for those who cannot see it."""
    picture = svg[svg.index("<svg") :]
    name = tag("title", shows)
    return re.sub(r"<svg\b", '<svg role="img"', picture, count=1).replace("<metadata>", f"{name}<metadata>", 1)
