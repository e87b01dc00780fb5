"""`report.html`: a run on one page, without external files."""

from pathlib import Path

from regard.errors import ModelError
from regard.files import write_bytes
from regard.html import Markup, document, package_file, tag
from regard.training.report import curves, outputs, sections
from regard.training.report.run_log import RunLog, read_run_log


def write_report(run: Path) -> Path:
    """Write `report.html` from the files of a run folder, atomically, and return its path.

    Sections whose files are missing are left out; only `metrics.jsonl` is required.

        write_report(Path("runs/en-it"))  # runs/en-it/report.html
    """
    content = page(read_run_log(run)).encode("utf-8")
    report = run / "report.html"
    try:
        write_bytes(report, content)
    except OSError as error:
        raise ModelError(f"{report}: cannot be written ({error.strerror}).") from None
    return report


def page(run: RunLog) -> str:
    """The report as HTML: its sections in order, with style and script inline."""
    content = [
        sections.scores(run),
        curves.curves(run),
        outputs.confusion(run),
        outputs.outputs(run),
        outputs.changes(run),
        sections.data(run),
        sections.automatic_settings(run),
        sections.settings(run),
        sections.environment(run),
        sections.command(run),
    ]
    main = tag("main", sections.header(run), *content)
    script = tag("script", package_file(__package__, "hover.js"))
    return document(f"{run.name}: training report", Markup(""), main, script)
