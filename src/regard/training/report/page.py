"""The report as an HTML page: its sections in order, with style and script inline."""

from regard.html import Markup, document, package_file, tag
from regard.training.report import details, headline, outputs, training_curves
from regard.training.report.run_log import RunLog


def page(run: RunLog) -> str:
    """The report as HTML."""
    sections = [
        headline.scores(run),
        training_curves.curves(run),
        outputs.confusion(run),
        outputs.outputs(run),
        outputs.changes(run),
        details.data(run),
        details.automatic_settings(run),
        details.settings(run),
        details.environment(run),
        details.command(run),
    ]
    main = tag("main", headline.header(run), *sections)
    script = tag("script", package_file(__package__, "hover.js"))
    return document(f"{run.name}: training report", Markup(""), main, script)
