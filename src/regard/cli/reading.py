"""What the commands that read texts share: lines in, as many at a time as have come, and what was wrong with them."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.data.lines import Line
    from regard.decoding.text_encoder import TextOrPair

TOGETHER = 512  # lines that are read at once, at most


def each_line(
    input: str, output: Path | None, what: str, answer: "Callable[[list[Line]], Iterable[str]]", *, skip_invalid: bool
) -> None:
    """Answer the lines of a file or of standard input, in their order."""
    from regard.cli.output import lines_to, progress_over
    from regard.data.lines import InvalidLines, read_lines
    from regard.data.prefetch import prefetch

    if input == "-" and sys.stdin is not None and sys.stdin.isatty():
        print("Type a text and Enter; Ctrl-D ends.", file=sys.stderr)
    faults = InvalidLines(skip_invalid)
    with lines_to(output) as put, progress_over(input, output, what) as went:
        for several in prefetch(read_lines(input, faults), TOGETHER):
            put(answer(several))
            went(several)
    for reason, count in faults.counts.items():
        print(f"regard: {count:,} lines skipped: {reason}. {faults.examples[reason]}", file=sys.stderr)


def text_of(line: "Line") -> "TextOrPair":
    """The text on a line, or the pair of texts: they are apart by a tab."""
    first, tab, second = (line.text or "").partition("\t")
    return (first, second) if tab else first


def say_cut(cut: int, longest: int | None) -> None:
    """Say once that texts were not read to their ends."""
    if cut:
        what = "text was" if cut == 1 else "texts were"
        print(f"regard: {cut:,} {what} longer than {longest:,} tokens, and read up to there.", file=sys.stderr)
