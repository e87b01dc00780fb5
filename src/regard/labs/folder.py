"""What a lab leaves behind: its figures, its numbers, and one page that needs nothing else."""

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.drawing.files import drawn, write
from regard.errors import DataError
from regard.labs.lab import Bench, Effort, Lab, Outcome
from regard.labs.page import Chapter, lab_page, section
from regard.training.report.markup import Markup

RESULTS, PAGE = "results.json", "lab.html"


@dataclass(frozen=True)
class Done:
    """A lab that has run: what came out, and its chapter of a book."""

    outcome: Outcome
    chapter: Chapter


def carry_out(lab: Lab, effort: Effort, out: Path, say: Callable[[str], None]) -> Done:
    """Run a lab and write its folder below `out`."""
    from regard.training.environment import environment

    folder = out / lab.name
    _made(folder)  # before the work, which a folder that cannot be made would lose
    begun = time.perf_counter()
    outcome = lab.experiment.run(Bench(effort, out / "models", say))
    seconds = time.perf_counter() - begun
    whole = environment(1)
    machine = {key: whole[key] for key in ("regard", "torch", "python", "processor", "cores", "threads")}
    pictures = {drawing.name: drawn(drawing.figure, "svg").decode() for drawing in outcome.drawings}
    chapter = Chapter(lab, outcome.holds, section(lab, outcome, pictures, effort, seconds, machine))
    for drawing in outcome.drawings:
        for ending in ("svg", "png"):
            write(drawing.figure, folder / f"{drawing.name}.{ending}")
    record = {
        "lab": lab.name,
        "claim": lab.claim,
        "source": lab.source,
        "effort": effort,
        "holds": outcome.holds,
        "said": outcome.said,
        "numbers": outcome.numbers,
        "seconds": round(seconds, 1),
        "environment": machine,
    }
    _write(folder / RESULTS, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    _write(folder / PAGE, lab_page(lab.title, [chapter]))
    return Done(outcome, chapter)


def chapter_of(lab: Lab, effort: Effort, out: Path) -> Chapter | None:
    """The chapter of a book that a lab has left below `out`, if it was run with this effort."""
    try:
        page = (out / lab.name / PAGE).read_text("utf-8")
        holds = json.loads((out / lab.name / RESULTS).read_text("utf-8"))["holds"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = re.search(f'<section id="{lab.name}" data-effort="{effort}">.*</section>', page, re.DOTALL)
    return None if found is None else Chapter(lab, bool(holds), Markup(found.group()))


def write_book(chapters: Sequence[Chapter], out: Path) -> Path:
    """All labs on one page, with a table of contents."""
    _made(out)
    path = out / "book.html"
    _write(path, lab_page("The labs", chapters))
    return path


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _write(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}")
    try:
        draft.write_text(content, "utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be written ({error.strerror}); choose another --out.")
