"""Run a lab, and check its result and its folder."""

import json
import re
from pathlib import Path

from regard.labs import LABS, LabResult
from regard.labs.report import run_lab

TRANSLATION_LABS = ["beams", "heads", "alignment", "diagonal", "sharing", "ablations"]  # they train translation models
REFUTED = {"memory"}  # the claim of its textbook is false; its single verdicts say where


def ignore(message: str) -> None:
    pass


def assert_offline(page: str) -> None:
    """A page loads nothing; XML namespaces look like addresses but are not loaded."""
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"|(rdf:resource|rdf:about)="[^"]*"', "", page)
    assert not re.search(r'(src|href)="(?!#)', without_namespaces)
    assert "url(http" not in without_namespaces
    assert "<script" not in page


def assert_lab_is_complete(name: str, out: Path) -> LabResult:
    """The numbers of a lab support its claim, and its folder has results, figures and a page; return its result."""
    result = run_lab(LABS[name], "quick", out, ignore).result
    assert result.holds is (name not in REFUTED), result.summary
    folder = out / name
    stored = json.loads((folder / "results.json").read_text("utf-8"))
    assert stored["holds"] is result.holds
    assert stored["numbers"]
    assert result.figures
    for figure in result.figures:
        assert (folder / f"{figure.name}.svg").read_text("utf-8").startswith("<?xml")
        assert (folder / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
        assert figure.alt_text
    page = (folder / "lab.html").read_text("utf-8")
    for part in (LABS[name].title, "Method", "Result", "Limitations"):
        assert part in page
    assert page.count("<svg") == len(result.figures)
    assert_offline(page)
    return result
