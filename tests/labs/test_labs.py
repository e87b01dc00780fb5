"""Folders and pages of labs, and labs of other packages."""

import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest

from lab_runs import assert_offline, ignore
from regard.errors import DataError
from regard.labs import LABS, Lab, LabContext, LabResult, all_labs
from regard.labs.report import load_section, run_lab, write_report

NAMES = [lab.name for lab in all_labs()]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labs")


def test_unwritable_folder_is_reported_before_the_experiment_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log: list[str] = []
    with pytest.raises(DataError, match=r"file/order: cannot be written \(Not a directory\); choose another --out"):
        run_lab(LABS["order"], "quick", tmp_path / "file", log.append)
    assert log == []


@pytest.mark.slow
def test_book_has_a_table_of_contents(out: Path) -> None:
    section = run_lab(LABS["worked-example"], "quick", out, ignore).section
    page = write_report([section, replace(section, holds=False)], out).read_text("utf-8")
    assert page.count('<a href="#worked-example">') == 2
    contents = page[: page.index("<section")]
    assert contents.count(section.lab.claim) == 2
    assert contents.count("The claim is supported.") == contents.count("The claim is not supported.") == 1
    assert_offline(page)


@pytest.mark.slow
def test_section_is_loaded_only_if_complete_and_of_the_same_effort(tmp_path: Path) -> None:
    lab = LABS["worked-example"]
    finished = run_lab(lab, "quick", tmp_path, ignore)
    assert load_section(lab, "quick", tmp_path) == finished.section
    assert load_section(lab, "full", tmp_path) is None
    assert load_section(LABS["order"], "quick", tmp_path) is None
    page = tmp_path / lab.name / "lab.html"
    page.write_text(page.read_text("utf-8")[:5000])
    assert load_section(lab, "quick", tmp_path) is None
    page.write_bytes(b"\xff")
    assert load_section(lab, "quick", tmp_path) is None
    run_lab(lab, "quick", tmp_path, ignore)
    (tmp_path / lab.name / "results.json").write_text("[]")
    assert load_section(lab, "quick", tmp_path) is None


def test_another_package_adds_a_lab_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("toy_lab")

    def run(context: LabContext) -> LabResult:
        context.log("counting")
        return LabResult(holds=True, summary="2 is even.", numbers={"count": context.by_effort(2, 4, 6)})

    vars(module).update(
        METHOD="Count to two.",
        LIMITATIONS="Small numbers.",
        run=run,
        LAB=Lab("toy", "Counting", "Two is even.", "a textbook", module="toy_lab"),
    )
    monkeypatch.setitem(sys.modules, "toy_lab", module)
    entry_points = EntryPoints([EntryPoint("toy", "toy_lab:LAB", "regard.labs")])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entry_points.select(group=group))
    monkeypatch.setattr(LABS, "_scanned", False)
    monkeypatch.setattr(LABS, "_paths", {})
    monkeypatch.setattr(LABS, "_objects", dict(LABS._objects))
    assert [lab.name for lab in all_labs()] == [*NAMES, "toy"]
    log: list[str] = []
    finished = run_lab(LABS["toy"], "quick", tmp_path, log.append)
    assert log == ["counting"]
    assert json.loads((tmp_path / "toy" / "results.json").read_text("utf-8"))["numbers"] == {"count": 2}
    assert "Count to two." in finished.section.html
