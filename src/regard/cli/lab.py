"""`regard lab`: claims of the paper, each an experiment."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import ConfigError
from regard.labs import LABS, all_labs

if TYPE_CHECKING:
    from regard.labs.lab import Effort
    from regard.labs.report import FinishedLab

ALL = "all"


def run(
    name: Annotated[
        str | None, typer.Argument(help="The lab to run, or all; without it, the labs are listed.", metavar="[NAME]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In seconds, for a first impression.")] = False,
    full: Annotated[bool, typer.Option("--full", help="As long as a better picture takes.")] = False,
    out: Annotated[Path, typer.Option(help="Where each lab gets a folder.")] = Path("runs/labs"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Of all, run only those that are not there yet with this effort.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing until the end.")] = False,
) -> None:
    """Put a claim of the paper to the test, on networks of our own; with figure, numbers and a page."""
    if name is None:
        width = max(len(lab.name) for lab in all_labs())
        for lab in all_labs():
            print(f"{lab.name.ljust(width)}  {lab.claim}")
        return
    if name != ALL and name not in LABS:
        from regard.config.errors import did_you_mean

        known = [*(lab.name for lab in all_labs()), ALL]
        raise ConfigError(f"there is no lab {name!r}{did_you_mean(name, known)}; the labs are {', '.join(known)}.")
    if quick and full:
        raise ConfigError("--quick and --full contradict each other; give one of them, or neither.")
    if resume and name != ALL:
        raise ConfigError(f"--resume is for regard lab {ALL}, which goes on with its book; leave it out.")
    from regard.labs.report import load_chapter, run_lab, write_book

    def say(sentence: str) -> None:
        if not quiet:
            print(sentence, file=sys.stderr, flush=True)

    effort: Effort = "quick" if quick else "full" if full else "default"
    chapters = []
    for lab in all_labs() if name == ALL else [LABS[name]]:
        chapter = load_chapter(lab, effort, out) if resume else None
        if chapter is not None:
            say(f"{lab.name}: is there already, in {out / lab.name}")
        else:
            say(f"{lab.name}: {lab.claim}")
            finished = run_lab(lab, effort, out, say)
            _show(finished, out)
            chapter = finished.chapter
        chapters.append(chapter)
    if name == ALL:
        print(f"The book: {write_book(chapters, out)}")


def _show(finished: "FinishedLab", out: Path) -> None:
    from regard.cli.output import new_table, print_table
    from regard.labs.lab import verdict
    from regard.labs.report import LAB_PAGE

    result = finished.result
    if result.text:
        print(result.text, end="\n\n")
    for table in result.tables:
        print(table.title)
        shown = new_table(*table.header)
        for row in table.rows:
            shown.add_row(*row)
        print_table(shown)
    print(f"{verdict(result.holds)} {result.summary}")
    print(f"Page: {out / finished.chapter.lab.name / LAB_PAGE}\n")
