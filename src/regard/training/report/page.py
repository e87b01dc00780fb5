"""The page around the sections: one file that needs no network, with its style and its few lines of script inside."""

from importlib import resources

from regard.training.report import details, headline, outputs, training_curves
from regard.training.report.markup import Markup, tag
from regard.training.report.run_log import Run

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"  # the page can load nothing


def page(run: Run) -> str:
    """The whole report as HTML."""
    sections = [
        headline.scores(run),
        training_curves.curves(run),
        outputs.confusion(run),
        outputs.outputs(run),
        outputs.changes(run),
        details.data(run),
        details.choices(run),
        details.settings(run),
        details.environment(run),
        details.command(run),
    ]
    main = tag("main", headline.header(run), *sections)
    return document(f"{run.name}: training report", Markup(""), main, tag("script", _own("hover.js")))


def document(title: str, style: Markup, *body: Markup) -> str:
    """A page that loads nothing, light or dark as its reader likes it, in the style that all of regard's share."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", shared_style(), style),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", *body), lang="en") + "\n"


def shared_style() -> Markup:
    """The style sheet, which other pages of regard's share."""
    return _own("style.css")


def _own(name: str) -> Markup:
    return Markup((resources.files(__package__) / name).read_text("utf-8"))
