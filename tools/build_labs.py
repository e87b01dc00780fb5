"""Store the results of labs, and write what docs/labs.md and docs/explanation/choices.md say about them.

    python tools/build_labs.py                    # write the results into the pages
    python tools/build_labs.py --check            # exit with 1 if a page is not up to date
    python tools/build_labs.py --from runs/labs   # first store the labs that ran there with `regard lab NAME --full`

Results are stored in docs/labs/NAME (`results.json` and the figures that docs/labs.md shows) and in the report that
comes with the package. In the pages everything between `<!-- results: NAME -->` and `<!-- end -->` is generated from
them, and so is the table of claims; the text around it says what is measured, without numbers.
"""

import argparse
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.html import Markup
from regard.labs import REPORT, Lab, Verdict, all_labs, conclusion, separate_conclusion
from regard.labs.report import RESULTS, LabSection, load_section, write_report

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, CHOICES, STORED = DOCS / "labs.md", DOCS / "explanation" / "choices.md", DOCS / "labs"
TABLE, MEASURED = "table of claims", "choices"
WIDTH = 125
Results = Mapping[str, Mapping[str, Any]]  # content of results.json by lab


def stored_results() -> dict[str, dict[str, Any]]:
    """Return the stored results of every built-in lab."""
    return {lab.name: json.loads((STORED / lab.name / RESULTS).read_text("utf-8")) for lab in all_labs()}


# Page


def rendered_pages(results: Results) -> dict[Path, str]:
    """Return the pages with results, with their generated parts replaced."""
    labs = {TABLE: claims_table(results), **{name: result_text(stored) for name, stored in results.items()}}
    return {
        PAGE: render(PAGE.read_text("utf-8"), labs, PAGE.name),
        CHOICES: render(CHOICES.read_text("utf-8"), {MEASURED: measured_choices(results)}, CHOICES.name),
    }


def render(page: str, parts: Mapping[str, str], name: str) -> str:
    """Return a page with its generated parts replaced."""
    for part, text in parts.items():
        matches = list(re.finditer(rf"(?<=<!-- results: {re.escape(part)} -->\n).*?(?=<!-- end -->)", page, re.DOTALL))
        if len(matches) != 1:
            raise SystemExit(f"{name}: needs one part <!-- results: {part} --> … <!-- end -->; add it.")
        page = page[: matches[0].start()] + text + page[matches[0].end() :]
    return page


def measured_choices(results: Results) -> str:
    """Return what the labs measured about the choices, as a list."""
    numbers = {name: stored["numbers"] for name, stored in results.items()}
    diagonal, memory, order = numbers["diagonal"], numbers["memory"], numbers["order"]["output_change"]["no positions"]
    heads, lengths = list(diagonal["heads"].values()), memory["lengths"]
    perplexity = {
        name: fmean(score["perplexity"] for score in numbers["ablations"]["variants"][name])
        for name in ("base", "learned positions")
    }
    megabytes, kept = memory["training_megabytes"], memory["generation_kilobytes"]
    beyond = {name: fmean(row) for name, row in memory["accuracy_twice_the_length"].items()}
    chains = memory["sequential_operations"]
    items = [
        f"diagonal: the largest entry of a row is on the diagonal in {diagonal['encoder_inputs']:.0%} of the rows for "
        f"Q = K = X and in {fmean(heads):.0%} in trained heads ({min(heads):.0%} to {max(heads):.0%}; chance "
        f"{diagonal['chance']:.0%}).",
        f"memory of a training pass over {lengths[-1]:,} tokens: {megabytes['LSTM'][-1]:.0f} MB (LSTM), "
        f"{megabytes['Transformer'][-1]:.0f} MB (Transformer, fused kernel), "
        f"{megabytes['Transformer, materialized'][-1]:.0f} MB (Transformer, materialized weights).",
        f"memory kept for the next token after {lengths[0]:,} and {lengths[-1]:,} tokens: {kept['LSTM'][0]:.0f} and "
        f"{kept['LSTM'][-1]:.0f} KB (LSTM), {kept['Transformer'][0]:,.0f} and {kept['Transformer'][-1]:,.0f} KB "
        "(Transformer).",
        f"sequential operations over {lengths[-1]:,} tokens: {chains['LSTM'][-1]:,} (LSTM), "
        f"{chains['Transformer'][-1]:,} (Transformer).",
        f"accuracy on sequences twice as long as those in training: {beyond['LSTM']:.0%} (LSTM), "
        f"{beyond['Transformer']:.0%} (Transformer, sinusoidal positions).",
        f"order without positions: outputs change by at most {order['by_word']:.0e} of their norm word by word "
        f"(equivariant), and by up to {order['by_position']:.0%} position by position (not invariant).",
        f"positions: perplexity {perplexity['base']:.2f} with sinusoidal and {perplexity['learned positions']:.2f} "
        "with learned positions.",
    ]
    wrapped = (textwrap.fill(f"- {item}", WIDTH, subsequent_indent="  ", break_on_hyphens=False) for item in items)
    return "\n".join(wrapped) + "\n"


def claims_table(results: Results) -> str:
    """Return the table of all claims and whether they are supported."""
    rows = ["| lab | claim | supported |", "|---|---|---|"]
    for name, stored in results.items():
        answer = "yes" if stored["holds"] else "no"
        rows.append(f"| `{name}` | {stored['claim'].removesuffix('.')} | [{answer}](labs/{name}/results.json) |")
    return "\n".join(rows) + "\n"


def result_text(stored: Mapping[str, Any]) -> str:
    """Return the conclusion, the summary and the separate verdicts of a lab as Markdown."""
    text = f"**{conclusion(stored['holds'])}** {stored['summary']}"
    lines = textwrap.wrap(_escape(text), WIDTH, break_long_words=False, break_on_hyphens=False)
    verdicts = [separate_conclusion(Verdict(**verdict)) for verdict in stored.get("verdicts", [])]
    items = [f"- {_escape(verdict)}" for verdict in verdicts]
    return "\n".join([*lines, *(["", *items] if items else [])]) + "\n"


def _escape(text: str) -> str:
    """Return text whose characters Markdown would not show as they are, such as [0], escaped."""
    return re.sub(r"([\[\]_])", r"\\\1", text)


# Stored results


def store(folder: Path) -> list[str]:
    """Store the labs that ran in a folder with full effort, and return their names."""
    sections = {lab.name: load_section(lab, "full", folder) for lab in all_labs()}
    stored = [name for name, section in sections.items() if section is not None]
    for name in stored:
        (STORED / name).mkdir(exist_ok=True)
        for file in (RESULTS, *figures_shown(PAGE.read_text("utf-8"), name)):
            shutil.copyfile(folder / name / file, STORED / name / file)
    report = REPORT.read_text("utf-8")
    kept = [
        section or section_of_report(report, lab) for lab, section in zip(all_labs(), sections.values(), strict=True)
    ]
    write_report(kept, REPORT.parent)
    return stored


def figures_shown(page: str, name: str) -> Sequence[str]:
    """Return the file names of the figures of a lab that the page shows."""
    return re.findall(rf"\]\(labs/{re.escape(name)}/([\w-]+\.svg)\)", page)


def section_of_report(report: str, lab: Lab) -> LabSection:
    """Return the section of a lab in the report that is stored."""
    match = re.search(f'<section id="{lab.name}" data-effort="full">.*?</section>', report, re.DOTALL)
    if match is None:
        raise SystemExit(f"{REPORT}: has no section of {lab.name}; run regard lab {lab.name} --full and store it.")
    holds = json.loads((STORED / lab.name / RESULTS).read_text("utf-8"))["holds"]
    return LabSection(lab, bool(holds), Markup(match.group()))


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if the page is not up to date"
    )
    parser.add_argument("--from", dest="folder", type=Path, help="store the results of full runs in this folder first")
    options = parser.parse_args()
    if options.folder is not None:
        print(f"stored: {', '.join(store(options.folder)) or 'nothing'}")
    outdated = {
        page: text for page, text in rendered_pages(stored_results()).items() if page.read_text("utf-8") != text
    }
    for page, text in outdated.items():
        if options.check:
            print(f"{page}: not up to date with docs/labs/; run python tools/build_labs.py", file=sys.stderr)
        else:
            page.write_text(text, "utf-8")
    return 1 if options.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
