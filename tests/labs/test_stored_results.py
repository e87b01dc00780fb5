"""The report of labs, the stored numbers and the documentation agree with each other and with the current labs."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from regard.labs import LABS, REPORT, conclusion

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "labs.md").read_text("utf-8")


@pytest.mark.parametrize("name", LABS)
def test_section_of_the_report_agrees_with_the_stored_results(name: str) -> None:
    stored = json.loads((DOCS / "labs" / name / "results.json").read_text("utf-8"))
    (section,) = re.findall(
        f'<section id="{name}" data-effort="full">.*?</section>', REPORT.read_text("utf-8"), flags=re.DOTALL
    )
    assert stored["effort"] == "full"
    assert stored["claim"] == LABS[name].claim
    assert stored["source"] == LABS[name].source
    assert f"{conclusion(stored['holds'])}</strong> {stored['summary']}" in unescape(section)
    assert (DOCS / "labs" / "book.html").samefile(REPORT)


@pytest.mark.parametrize("name", LABS)
def test_table_of_the_documentation_has_the_conclusion(name: str) -> None:
    stored = json.loads((DOCS / "labs" / name / "results.json").read_text("utf-8"))
    (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, flags=re.MULTILINE)
    assert row.endswith(f"| [{'yes' if stored['holds'] else 'no'}](labs/{name}/results.json) |")


def test_pages_are_generated_from_the_stored_results() -> None:
    command = [sys.executable, str(DOCS.parent / "tools" / "build_labs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
