"""`regard translate`: lines in, lines out."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Engine, Precision, Verbose, check_choice, check_text, log_engine_choice
from regard.cli.output import to_one_line

if TYPE_CHECKING:
    from regard.data.lines import InvalidLines, Line
    from regard.data.syntax import Parse
    from regard.decoding.options import TranslationOptions
    from regard.decoding.results import Translation

TOGETHER = 2048  # lines that are translated at once where there are so many
DIGITS = 4


def run(
    model: Annotated[Path, typer.Argument(help="A model folder, or a run folder for its best model.")],
    input: Annotated[str, typer.Option("--input", "-i", help="A file of lines; `.gz` too.", metavar="FILE")] = "-",
    parses: Annotated[
        str | None,
        typer.Option(help="Parses of the lines in CoNLL-U; a model with syntax positions needs them.", metavar="FILE"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Written whole or not at all; `.gz` too.", metavar="FILE")
    ] = None,
    ensemble: Annotated[
        list[Path] | None, typer.Option(help="Another model that votes on every token; may be repeated.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses followed at a time; 1 is greedy.")] = 4,
    length_penalty: Annotated[float, typer.Option(help="How far longer sentences are favoured.")] = 0.6,
    coverage_penalty: Annotated[float, typer.Option(help="What leaving source words unattended costs.")] = 0.0,
    patience: Annotated[float | None, typer.Option(help="Stop after so many times the beam have ended.")] = None,
    nbest: Annotated[int, typer.Option(help="Translations of each sentence, as `number ||| text ||| score`.")] = 1,
    min_length: Annotated[int, typer.Option(help="Tokens of a sentence at least.")] = 1,
    max_length: Annotated[int | None, typer.Option(help="Tokens at most; 50 more than the source without it.")] = None,
    prefix: Annotated[str, typer.Option(help="How the translation of every line begins.")] = "",
    suppress: Annotated[list[str] | None, typer.Option(help="A word not to be written; may be repeated.")] = None,
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Put the source's word where the vocabulary has none.")
    ] = False,
    split: Annotated[bool, typer.Option(help="Translate the sentences of a line one by one.")] = True,
    longest: Annotated[int, typer.Option(min=1, help="Tokens past which a sentence is split at punctuation.")] = 250,
    engine: Engine = "auto",
    precision: Precision = "int8",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: tokens, scores, alignments, alternatives.")
    ] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Give an empty line for one that is not UTF-8.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Translate lines: standard input to standard output, or file to file, one for one and in order."""
    from regard.api import load
    from regard.decoding.options import OutputConstraints, SearchOptions, TranslationOptions
    from regard.decoding.translator import check_parses
    from regard.errors import ConfigError

    log_engine_choice(verbose)
    check_choice("--engine", engine, ("auto", "torch", "ctranslate2"))
    check_choice("--precision", precision, ("int8", "float32"))
    for option, text in (("--prefix", prefix), *(("--suppress", word) for word in suppress or [])):
        check_text(option, text)
    wish = TranslationOptions(
        SearchOptions(
            beam, length_penalty, coverage_penalty, patience, nbest, OutputConstraints(min_length, max_length)
        ),
        split,
        longest,
        prefix,
        tuple(suppress or ()),
        scored=as_json,
        watched=as_json,
        copy_unknown=copy_unknown,
    )
    if parses == input == "-":
        raise ConfigError("standard input (-) can be read only once; give the lines or their parses as a file.")
    loaded = load(model, *(ensemble or []))
    ready = loaded.translator(wish, engine=engine, precision=precision)  # type: ignore[arg-type]
    check_parses(loaded.config.model, given=parses is not None)
    write = _as_json if as_json else _n_best if nbest > 1 else _as_text
    translate_lines(ready, wish, input, output, write, skip_invalid=skip_invalid, parses=parses)


def translate_lines(
    ready: Any,
    wish: "TranslationOptions",
    input: str,
    output: Path | None,
    write: Any,
    *,
    skip_invalid: bool,
    parses: str | None = None,
) -> None:
    """Translate the lines of a file or of standard input, as many at a time as have come."""
    from regard.cli.output import open_output, progress_bar
    from regard.data.lines import InvalidLines, read_lines
    from regard.data.prefetch import prefetch

    if input == "-" and sys.stdin is not None and sys.stdin.isatty():
        print("Type a sentence and Enter; Ctrl-D ends.", file=sys.stderr)
    faults = InvalidLines(skip_invalid)
    parts = 0
    with open_output(output) as put, progress_bar(input, output) as went:
        for rows in prefetch(_with_parses(read_lines(input, faults), parses, faults), TOGETHER):
            several = [line for line, _ in rows]
            trees = [parse for _, parse in rows] if parses is not None else None
            found: list[Translation] = ready.translate([line.text or "" for line in several], wish, trees)
            put(write(translation, line.number) for translation, line in zip(found, several, strict=True))
            parts += sum(translation.pieces for translation in found)
            went(several)
    for reason, count in faults.counts.items():
        print(f"regard: {count:,} lines skipped: {reason}. {faults.examples[reason]}", file=sys.stderr)
    if parts:
        print(f"regard: sentences that were too long were translated in {parts:,} parts.", file=sys.stderr)


def _with_parses(
    lines: "Iterator[Line]", parses: str | None, faults: "InvalidLines"
) -> "Iterator[tuple[Line, Parse | None]]":
    """Lines, each with its parse where there are any."""
    if parses is None:
        return ((line, None) for line in lines)
    from regard.data.readers.conllu import read_conllu
    from regard.data.readers.parses import zip_parses

    return zip_parses(lines, lambda line: line, read_conllu([parses], faults), parses, faults)


def _as_text(translation: "Translation", number: int) -> str:
    return to_one_line(translation.text)


def _n_best(translation: "Translation", number: int) -> str:
    """As Moses writes it; of a line with several sentences, the alternatives of each in turn."""
    rows = [
        f"{number} ||| {to_one_line(one.text)} ||| {one.score:.{DIGITS}f}"
        for sentence in translation.sentences
        for one in sentence.alternatives
    ]
    return "\n".join(rows) if rows else f"{number} |||  ||| 0"


def _as_json(translation: "Translation", number: int) -> str:
    from regard.decoding.results import described

    return json.dumps(described(translation), ensure_ascii=False)
