"""The book that comes with regard is that of a full run of the labs as they are, and the docs say what it says."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from regard.labs import BOOK, LABS
from regard.labs.lab import verdict

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "labs.md").read_text("utf-8")


@pytest.mark.parametrize("name", LABS)
def test_a_chapter_says_what_the_kept_numbers_say(name: str) -> None:
    kept = json.loads((DOCS / "labs" / name / "results.json").read_text("utf-8"))
    (chapter,) = re.findall(
        f'<section id="{name}" data-effort="full">.*?</section>', BOOK.read_text("utf-8"), flags=re.DOTALL
    )
    assert kept["effort"] == "full"
    assert kept["claim"] == LABS[name].claim
    assert f"{verdict(kept['holds'])}</strong> {kept['said']}" in unescape(chapter)
    assert (DOCS / "labs" / "book.html").samefile(BOOK)


@pytest.mark.parametrize("name", LABS)
def test_the_table_says_whether_the_claim_came_out(name: str) -> None:
    kept = json.loads((DOCS / "labs" / name / "results.json").read_text("utf-8"))
    (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, flags=re.MULTILINE)
    assert row.endswith(f"| [{'yes' if kept['holds'] else 'no'}](labs/{name}/results.json) |")
