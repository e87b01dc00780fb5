"""`regard lab`: experiments that test claims of the paper."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import print_table, print_text
from regard.cli.options import OUTPUT_PANEL, TRAINING_PANEL, QuietOption, argument, examples, option
from regard.errors import ConfigError
from regard.labs import LABS, all_labs

if TYPE_CHECKING:
    from regard.labs import Effort
    from regard.labs.report import FinishedLab

EXAMPLES = examples(
    "regard lab",
    "regard lab scaling --quick",
    "regard lab vanishing-gradients  # usual names lead to the right lab",
    "regard lab all --resume",
)
ALL = "all"


def run(
    name: Annotated[str | None, argument("Lab to run, or all; lists the labs if omitted.", "NAME")] = None,
    quick: Annotated[bool, option(TRAINING_PANEL, "--quick", help="Run in seconds, with rough results.")] = False,
    full: Annotated[bool, option(TRAINING_PANEL, "--full", help="Train longer, for more precise results.")] = False,
    out: Annotated[Path, option(OUTPUT_PANEL, help="Folder in which each lab writes a folder.")] = Path("runs/labs"),
    resume: Annotated[
        bool, option(TRAINING_PANEL, "--resume", help="With all: skip labs that have finished with this effort.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Test a claim of the paper by an experiment on small networks; writes a figure, numbers and a page."""
    if name is None:
        width = max(len(lab.name) for lab in all_labs())
        for lab in all_labs():
            print_text(f"{lab.name.ljust(width)}  {lab.claim}")
        return
    requested, name = name, name if name == ALL else LABS.resolve(name)
    if name != ALL and name not in LABS:
        from regard.config import did_you_mean

        known = [*(lab.name for lab in all_labs()), ALL]
        hint = did_you_mean(name, [*known, *LABS.aliases])
        raise ConfigError(f"there is no lab {name!r}{hint}; the labs are {', '.join(known)}.")
    if quick and full:
        raise ConfigError("--quick and --full exclude each other; pass one of them, or neither.")
    if resume and name != ALL:
        raise ConfigError(f"--resume is for regard lab {ALL}, which skips finished labs; remove it.")
    from regard.labs.report import load_section, run_lab, write_report

    def report(message: str) -> None:
        if not quiet:
            print_text(message, file=sys.stderr, flush=True)

    if name != requested:
        report(f"{requested}: this is the lab {name}")
    effort: Effort = "quick" if quick else "full" if full else "default"
    sections = []
    for lab in all_labs() if name == ALL else [LABS[name]]:
        section = load_section(lab, effort, out) if resume else None
        if section is not None:
            report(f"{lab.name}: finished already, in {out / lab.name}")
        else:
            report(f"{lab.name}: {lab.claim}")
            finished = run_lab(lab, effort, out, report)
            _print_result(finished, out)
            section = finished.section
        sections.append(section)
    if name == ALL:
        print_text(f"Report: {write_report(sections, out)}")


def _print_result(finished: "FinishedLab", out: Path) -> None:
    from regard.labs import conclusion, separate_conclusion
    from regard.labs.report import LAB_PAGE
    from regard.tables import new_table

    result = finished.result
    if result.text:
        print_text(result.text, end="\n\n")
    for lab_table in result.tables:
        print_text(lab_table.title)
        table = new_table(*lab_table.header)
        for row in lab_table.rows:
            table.add_row(*row)
        print_table(table)
    print_text(f"{conclusion(result.holds)} {result.summary}")
    for verdict in result.verdicts:
        print_text(separate_conclusion(verdict))
    print_text(f"Page: {out / finished.section.lab.name / LAB_PAGE}\n")
