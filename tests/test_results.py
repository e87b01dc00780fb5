"""The table of results says what the runs it leads to say."""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
RUNS = sorted((DOCS / "results").iterdir())
PAGE = (DOCS / "results.md").read_text("utf-8")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_line_of_the_table_is_a_finished_run(run: Path) -> None:
    assert {file.name for file in run.iterdir()} == {"config.toml", "metrics.jsonl", "report.html", "run.json"}
    about = json.loads((run / "run.json").read_text("utf-8"))
    assert about["status"] == "finished"
    (line,) = re.findall(rf"^\| \[{run.name}\].*$", PAGE, flags=re.MULTILINE)
    _, score, _, parameters, _ = [cell.strip() for cell in line.strip("|").split("|")][1:]
    assert headline(about["results"]) in score
    assert parameters == f"{about['parameters'] / 1e6:.1f} M"


def headline(results: dict[str, dict[str, float]]) -> str:
    """The score of the test, or of the validation where there is none, as the table shows it."""
    scores = results.get("test") or results["best"]
    if "bleu" in scores:
        return f"{scores['bleu']:.1f}"
    return f"{scores['accuracy']:.1%}" if "accuracy" in scores else f"{scores['loss']:.2f}"


def test_every_run_of_the_table_is_kept() -> None:
    assert re.findall(r"^\| \[([a-z0-9-]+)\]", PAGE, flags=re.MULTILINE) == sorted(run.name for run in RUNS)
