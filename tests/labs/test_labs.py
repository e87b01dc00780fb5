"""Every lab runs, its numbers support its claim, and what it leaves behind is complete and needs no network."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.labs import LABS
from regard.labs.report import load_chapter, run_lab, write_book


def assert_offline(page: str) -> None:
    """No page loads anything; names of XML namespaces look like addresses, and are none."""
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"|(rdf:resource|rdf:about)="[^"]*"', "", page)
    assert not re.search(r'(src|href)="(?!#)', without_names)
    assert "url(http" not in without_names
    assert "<script" not in page


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labs")


def test_a_folder_that_cannot_be_made_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    with pytest.raises(DataError, match=r"file/order: cannot be written \(Not a directory\); choose another --out"):
        run_lab(LABS["order"], "quick", tmp_path / "file", log=said.append)
    assert said == []


@pytest.mark.parametrize("name", LABS)
def test_the_numbers_support_the_claim(name: str, out: Path) -> None:
    done = run_lab(LABS[name], "quick", out, log=lambda sentence: None)
    assert done.result.holds, done.result.summary
    folder = out / name
    results = json.loads((folder / "results.json").read_text("utf-8"))
    assert results["holds"] is True
    assert results["numbers"]
    assert done.result.figures
    for drawing in done.result.figures:
        assert (folder / f"{drawing.name}.svg").read_text("utf-8").startswith("<?xml")
        assert (folder / f"{drawing.name}.png").read_bytes().startswith(b"\x89PNG")
        assert drawing.alt_text
    page = (folder / "lab.html").read_text("utf-8")
    for part in (LABS[name].title, "Method", "Result", "Limitations"):
        assert part in page
    assert page.count("<svg") == len(done.result.figures)
    assert_offline(page)


def test_the_book_has_a_table_of_contents(out: Path) -> None:
    done = run_lab(LABS["worked-example"], "quick", out, lambda sentence: None)
    page = write_book([done.chapter, replace(done.chapter, holds=False)], out).read_text("utf-8")
    assert page.count('<a href="#worked-example">') == 2
    contents = page[: page.index("<section")]
    assert contents.count(done.chapter.lab.claim) == 2
    assert contents.count("The claim is supported.") == contents.count("The claim is not supported.") == 1
    assert_offline(page)


def test_what_a_lab_has_left_is_taken_for_the_book_if_it_is_whole_and_of_the_same_effort(tmp_path: Path) -> None:
    lab = LABS["worked-example"]
    done = run_lab(lab, "quick", tmp_path, lambda sentence: None)
    assert load_chapter(lab, "quick", tmp_path) == done.chapter
    assert load_chapter(lab, "full", tmp_path) is None
    assert load_chapter(LABS["order"], "quick", tmp_path) is None
    page = tmp_path / lab.name / "lab.html"
    page.write_text(page.read_text("utf-8")[:5000])
    assert load_chapter(lab, "quick", tmp_path) is None
    page.write_bytes(b"\xff")
    assert load_chapter(lab, "quick", tmp_path) is None
    run_lab(lab, "quick", tmp_path, lambda sentence: None)
    (tmp_path / lab.name / "results.json").write_text("[]")
    assert load_chapter(lab, "quick", tmp_path) is None
