"""Run labs and write their results: figures (SVG, PNG), `results.json`, a self-contained page; and a report of all."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.files import write_text
from regard.html import Markup, document, join, table, tag
from regard.labs import Effort, Lab, LabContext, LabResult, conclusion, separate_conclusion
from regard.plotting import figure_bytes, save_figure

RESULTS, LAB_PAGE, REPORT_PAGE = "results.json", "lab.html", "book.html"
ENVIRONMENT = ("regard", "torch", "python", "processor", "cores", "threads")  # what results.json records of it


@dataclass(frozen=True)
class LabSection:
    """The HTML section of a lab, and whether its claim is supported."""

    lab: Lab
    holds: bool
    html: Markup


@dataclass(frozen=True)
class FinishedLab:
    """A lab that has run: its result and its section of the report."""

    result: LabResult
    section: LabSection


def run_lab(lab: Lab, effort: Effort, out: Path, log: Callable[[str], None]) -> FinishedLab:
    """Run a lab and write its results to a folder of its name in `out`."""
    from regard.training.environment import environment

    folder = out / lab.name
    _make_folder(folder)  # fail before the experiment runs, not after
    start = time.perf_counter()
    result = lab.experiment.run(LabContext(effort, out / "models", log))
    seconds = time.perf_counter() - start
    full_environment = environment(1)
    machine = {key: full_environment[key] for key in ENVIRONMENT}
    svgs = {figure.name: figure_bytes(figure.figure, "svg").decode() for figure in result.figures}
    section = LabSection(lab, result.holds, lab_section(lab, result, svgs, effort, seconds, machine))
    for figure in result.figures:
        for suffix in ("svg", "png"):
            save_figure(figure.figure, folder / f"{figure.name}.{suffix}")
    _write_text(folder / RESULTS, results_json(lab, result, effort, seconds, machine))
    _write_text(folder / LAB_PAGE, lab_page(lab.title, [section]))
    return FinishedLab(result, section)


def results_json(lab: Lab, result: LabResult, effort: Effort, seconds: float, machine: Mapping[str, Any]) -> str:
    """Return the content of `results.json`."""
    record = {
        "lab": lab.name,
        "claim": lab.claim,
        "source": lab.source,
        "effort": effort,
        "holds": result.holds,
        "summary": result.summary,
        "verdicts": [asdict(verdict) for verdict in result.verdicts],
        "numbers": result.numbers,
        "seconds": round(seconds, 1),
        "environment": dict(machine),
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def load_section(lab: Lab, effort: Effort, out: Path) -> LabSection | None:
    """Return the section of a lab that was run earlier with the same effort, or None."""
    try:
        page = (out / lab.name / LAB_PAGE).read_text("utf-8")
        holds = json.loads((out / lab.name / RESULTS).read_text("utf-8"))["holds"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    match = re.search(f'<section id="{lab.name}" data-effort="{effort}">.*</section>', page, re.DOTALL)
    return None if match is None else LabSection(lab, bool(holds), Markup(match.group()))


def write_report(sections: Sequence[LabSection], out: Path) -> Path:
    """Write all sections to one page with a table of contents; return its path."""
    _make_folder(out)
    path = out / REPORT_PAGE
    _write_text(path, lab_page("Labs", sections))
    return path


# --- HTML -------------------------------------------------------------------------------------------------------------


def lab_page(title: str, sections: Sequence[LabSection]) -> str:
    """Return a page of one or more labs; more than one get a table of contents."""
    contents = tag("nav", tag("ol", *(_contents_entry(section) for section in sections)))
    header = [tag("header", tag("h1", title)), contents] if len(sections) > 1 else []
    style = Markup((resources.files(__package__) / "lab.css").read_text("utf-8"))
    return document(f"{title} · regard", style, tag("main", *header, *(section.html for section in sections)))


def lab_section(
    lab: Lab, result: LabResult, svgs: Mapping[str, str], effort: Effort, seconds: float, machine: Mapping[str, Any]
) -> Markup:
    """Return the HTML section of a lab; `svgs` has the SVG of each figure by its name."""
    figures = [
        tag("figure", Markup(_inline_svg(svgs[figure.name], figure.alt_text)), tag("figcaption", figure.caption))
        for figure in result.figures
    ]
    tables = [
        join(tag("h3", lab_table.title), table(list(lab_table.header), [list(row) for row in lab_table.rows]))
        for lab_table in result.tables
    ]
    return tag(
        "section",
        tag("h2", lab.title),
        tag("p", lab.claim, class_="claim"),
        tag("p", f"Source: {lab.source}.", class_="source"),
        tag("h3", "Method"),
        *_paragraphs(lab.experiment.METHOD),
        *figures,
        tag("h3", "Result"),
        tag("p", _conclusion_markup(result.holds), " ", result.summary),
        tag("ul", *(tag("li", separate_conclusion(verdict)) for verdict in result.verdicts)) if result.verdicts else "",
        *tables,
        tag("pre", result.text) if result.text else "",
        tag("h3", "Limitations"),
        *_paragraphs(lab.experiment.LIMITATIONS),
        tag(
            "p",
            f"Effort: {effort}; regard {machine['regard']}, torch {machine['torch']}; {seconds:,.0f} seconds on "
            f"{machine['processor']}, threads: {machine['threads']}.",
            class_="source",
        ),
        id=lab.name,
        data_effort=effort,
    )


def _contents_entry(section: LabSection) -> Markup:
    lab = section.lab
    return tag(
        "li", tag("a", lab.title, href=f"#{lab.name}"), tag("p", lab.claim, " ", _conclusion_markup(section.holds))
    )


def _conclusion_markup(holds: bool) -> Markup:
    return tag("strong", conclusion(holds), class_="holds" if holds else "fails")


def _paragraphs(text: str) -> list[Markup]:
    return [tag("p", " ".join(part.split())) for part in text.strip().split("\n\n")]


def _inline_svg(svg: str, alt_text: str) -> str:
    """Return an SVG for inclusion in HTML: without its XML prologue, with a title for screen readers."""
    element = svg[svg.index("<svg") :]
    title = tag("title", alt_text)
    return re.sub(r"<svg\b", '<svg role="img"', element, count=1).replace("<metadata>", f"{title}<metadata>", 1)


# --- files ------------------------------------------------------------------------------------------------------------


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from None


def _write_text(path: Path, content: str) -> None:
    try:
        write_text(path, content)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be written ({error.strerror}); choose another --out.")
