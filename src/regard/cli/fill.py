"""`regard fill`: lines with holes in, what may stand in the holes out."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.input import report_skipped

if TYPE_CHECKING:
    from regard.data.lines import InvalidLines, Line
    from regard.decoding.fill_mask import FilledText, MaskFiller

TOGETHER = 256  # lines that are filled at once where there are so many


def run(
    model: Annotated[Path, typer.Argument(help="A model folder, or a run's folder: then its best.", metavar="MODEL")],
    input: Annotated[str, typer.Option("--input", "-i", help="A file of lines; `.gz` too.", metavar="FILE")] = "-",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Written whole or not at all.", metavar="FILE")
    ] = None,
    best: Annotated[int, typer.Option(min=1, help="Tokens shown for each hole, the most probable first.")] = 5,
    ensemble: Annotated[
        list[Path] | None, typer.Option(help="Another model that votes on every token; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Give an empty line for one that cannot be filled, rather than stop.")
    ] = False,
) -> None:
    """Fill the holes of lines such as "The man [MASK] a dinosaur.", one for one and in order.

    A line comes back filled; after tabs, the most probable tokens of each hole with their probabilities.
    """
    from regard.api import load
    from regard.cli.output import open_output
    from regard.data.lines import InvalidLines, read_lines
    from regard.data.prefetch import prefetch

    filler = load(model, *(ensemble or [])).filler()
    if input == "-" and sys.stdin is not None and sys.stdin.isatty():
        print("Type a sentence with [MASK] in it and Enter; Ctrl-D ends.", file=sys.stderr)
    faults = InvalidLines(skip_invalid)
    write = _as_json if as_json else _as_text
    with open_output(output) as put:
        for several in prefetch(read_lines(input, faults), TOGETHER):
            fit = [line.text for line in several if _fits(filler, line, faults) and line.text is not None]
            found = {filled.source: write(filled) for filled in filler.fill(fit, best)}
            put(found.get(line.text or "", "") for line in several)
    report_skipped(faults)


def _fits(filler: "MaskFiller", line: "Line", faults: "InvalidLines") -> bool:
    """Whether a line was read and can be filled; one that cannot is a fault."""
    why = filler.why_not(line.text) if line.text is not None else None
    if why is not None:
        faults.add("cannot be filled", f"{line.location}: {why}")
    return line.text is not None and why is None


def _as_text(filled: "FilledText") -> str:
    holes = [", ".join(f"{guess.text} {guess.probability:.3f}" for guess in ranked) for ranked in filled.holes]
    return "\t".join([filled.text.replace("\n", " "), *holes])


def _as_json(filled: "FilledText") -> str:
    holes = [
        [{"text": one.text, "token": one.token, "probability": round(one.probability, 4)} for one in ranked]
        for ranked in filled.holes
    ]
    return json.dumps({"source": filled.source, "text": filled.text, "holes": holes}, ensure_ascii=False)
