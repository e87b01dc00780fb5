"""`regard translate`: translate lines of text."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import (
    open_output,
    print_text,
    progress_bar,
    prompt_if_terminal,
    report_skipped_lines,
    to_one_line,
)
from regard.cli.options import (
    DATA_PANEL,
    DECODING_PANEL,
    OUTPUT_PANEL,
    BeamOption,
    DeviceOption,
    EngineOption,
    EnsembleOption,
    InputOption,
    LengthPenaltyOption,
    ModelArgument,
    OutputOption,
    ParseOption,
    PrecisionOption,
    SkipInvalidOption,
    SplitSentencesOption,
    SuppressOption,
    VerboseOption,
    argument,
    check_choice,
    check_engine,
    check_text,
    examples,
    log_engine_choice,
    option,
)

if TYPE_CHECKING:
    from regard.cli.resumable import ResumableOutput
    from regard.data.lines import InvalidLines, Line
    from regard.data.syntax import Parse
    from regard.decoding.options import TranslationOptions
    from regard.decoding.results import Translation
    from regard.decoding.translator import Translator

EXAMPLES = examples(
    'regard translate runs/en-it "Where is the station?"',
    'echo "Where is the station?" | regard translate runs/en-it',
    "regard translate runs/en-it --input test.en --output test.it --beam 5",
    'regard translate models/nllb "Where is the station?" --source-language en --target-language it',
)
MAX_TRANSLATED_LINES = 2048  # most lines that are translated at once
SCORE_DIGITS = 4


def run(
    model: ModelArgument,
    text: Annotated[str | None, argument("Text to translate, instead of the lines of a file or stdin.", "TEXT")] = None,
    input: InputOption = "-",
    parses: ParseOption = None,
    output: OutputOption = None,
    ensemble: EnsembleOption = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    coverage_penalty: Annotated[
        float, option(DECODING_PANEL, help="Penalty for source words that receive little attention.")
    ] = 0.0,
    patience: Annotated[
        float | None,
        option(DECODING_PANEL, help="Stop when this many times the beam width of hypotheses have finished."),
    ] = None,
    search: Annotated[
        str,
        option(
            DECODING_PANEL,
            help="When beam search stops: exact, when no open hypothesis can win; fast, after as many finished ones as "
            "the beam has.",
            metavar="NAME",
        ),
    ] = "exact",
    n_best: Annotated[
        int, option(DECODING_PANEL, help="Translations per sentence, printed as number ||| text ||| score.")
    ] = 1,
    min_tokens: Annotated[int, option(DECODING_PANEL, help="Minimum number of target tokens per sentence.")] = 1,
    max_tokens: Annotated[
        int | None,
        option(DECODING_PANEL, help="Maximum number of target tokens; by default source length + 50, or the model's."),
    ] = None,
    prefix: Annotated[
        str, option(DECODING_PANEL, help="Text that every translation starts with.", metavar="TEXT")
    ] = "",
    suppress: SuppressOption = None,
    copy_unknown: Annotated[
        bool, option(DECODING_PANEL, "--copy-unknown", help="Replace unknown tokens by the aligned source words.")
    ] = False,
    copy_symbols: Annotated[
        bool, option(DECODING_PANEL, help="Copy sentences without letters, such as --- or timestamps.")
    ] = True,
    split_sentences: SplitSentencesOption = None,
    max_source_tokens: Annotated[
        int, option(DATA_PANEL, min=1, help="Sentences with more tokens are split at punctuation.")
    ] = 250,
    unwrap: Annotated[
        bool,
        option(
            DATA_PANEL,
            "--unwrap",
            help="Join the lines of a paragraph first: one output line per paragraph or blank line.",
        ),
    ] = False,
    text_format: Annotated[
        str,
        option(
            DATA_PANEL,
            "--format",
            help="html: the input is one document, whose inline tags are put back by word alignment; text: tags are "
            "translated like words; auto: text, but lines with pairs of tags are html.",
            metavar="NAME",
        ),
    ] = "auto",
    source_language: Annotated[
        str | None,
        option(DATA_PANEL, "--source-language", help="Language of the texts, for models of several.", metavar="CODE"),
    ] = None,
    target_language: Annotated[
        str | None,
        option(
            DATA_PANEL, "--target-language", help="Language to translate to, for models of several.", metavar="CODE"
        ),
    ] = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "int8",
    as_json: Annotated[
        bool, option(OUTPUT_PANEL, "--json", help="Print JSON Lines with tokens, scores, alignments and alternatives.")
    ] = False,
    skip_invalid: SkipInvalidOption = False,
    resume: Annotated[
        bool,
        option(OUTPUT_PANEL, "--resume", help="Keep results in OUTPUT.partial, and continue there if it exists."),
    ] = False,
    verbose: VerboseOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate a text, or the lines of stdin or a file: one output line per input line, in order, or HTML."""
    from regard.api import load
    from regard.decoding.languages import language_tokens
    from regard.decoding.options import OutputConstraints, TranslationOptions, search_options
    from regard.decoding.translator import check_parses
    from regard.errors import ConfigError
    from regard.registry import SEARCHES, TEXT_FORMATS

    log_engine_choice(verbose)
    check_engine(engine, precision)
    check_text("--prefix", prefix, empty=True)
    for word in suppress or []:
        check_text("--suppress", word)
    loaded = load(model, *(ensemble or []), device=device)
    options = TranslationOptions(
        search_options(
            loaded.config.decoding,
            beam,
            length_penalty,
            search=check_choice("--search", search, SEARCHES),  # type: ignore[arg-type]
            coverage_penalty=coverage_penalty,
            patience=patience,
            n_best=n_best,
            constraints=OutputConstraints(min_tokens, max_tokens),
        ),
        split_sentences,
        max_source_tokens,
        prefix,
        tuple(suppress or ()),
        token_scores=as_json,
        attention=as_json,
        copy_unknown=copy_unknown,
        copy_symbols=copy_symbols,
        unwrap=unwrap,
        format=check_choice("--format", text_format, TEXT_FORMATS),  # type: ignore[arg-type]
        source_language=source_language,
        target_language=target_language,
        details=as_json or n_best > 1,
    )
    if text is not None:
        check_text("TEXT", text, empty=True)
        if input != "-":
            raise ConfigError("TEXT and --input are both to be translated; pass one of them.")
        if os.path.isfile(text):
            hint = f"{text} is a file, whose name is translated here; for its lines, write --input {shlex.quote(text)}"
            print_text(f"regard: {hint}.", file=sys.stderr)
    if resume and (input == "-" or output is None):
        raise ConfigError("--resume: needs files to continue with; pass --input and --output.")
    if parses is not None and (unwrap or text_format == "html"):
        name = "--unwrap" if unwrap else "--format html"
        raise ConfigError(f"{name}: joins lines, but each line has a parse of its own; remove --parses or {name}.")
    if text_format == "html" and n_best > 1 and not as_json:
        raise ConfigError("--n-best: prints translations of sentences, not of HTML; add --json, or remove it.")
    if parses == input == "-":
        raise ConfigError("standard input (-) can be read only once; pass the lines or their parses as a file.")
    language_tokens(loaded.config, source_language, target_language)  # before anything is read
    translator = loaded.translator(options, engine=engine, precision=precision)  # type: ignore[arg-type]
    check_parses(loaded.config.model, has_parses=parses is not None)
    format_line = _as_json if as_json else _as_n_best if n_best > 1 else _as_html if text_format == "html" else _as_text
    partial = None
    if resume and output is not None:
        from regard.cli.resumable import ResumableOutput, job_key

        files = [Path(name) for name in (input, parses) if name is not None and Path(name).is_file()]
        weights = [file for folder in loaded.folders for file in sorted(folder.iterdir()) if file.is_file()]
        key = job_key(options, engine, precision, as_json, skip_invalid, files=[*files, *weights])
        partial = ResumableOutput(output, key)
    _translate_lines(
        translator,
        options,
        input if text is None else text.removesuffix("\n").split("\n"),
        output,
        format_line,
        skip_invalid=skip_invalid,
        parses=parses,
        partial=partial,
    )


def _translate_lines(
    translator: "Translator",
    options: "TranslationOptions",
    input: str | list[str],
    output: Path | None,
    format_line: "Callable[[Translation, int], str]",
    *,
    skip_invalid: bool,
    parses: str | None = None,
    partial: "ResumableOutput | None" = None,
) -> None:
    """Translate lines, or those of a file or of stdin, in batches of the lines that have arrived."""
    from regard.data.html_text import has_tags
    from regard.data.lines import InvalidLines, Line, prefetch, read_lines

    source = input if isinstance(input, str) else "the command line"
    prompt_if_terminal("Type a sentence and press Enter; Ctrl-D ends.", source)
    invalid = InvalidLines(skip_invalid)
    parts, untagged = 0, 0
    with (
        _open_lines(output, partial) as write,
        progress_bar(source, output, done=partial.lines if partial else 0) as advance,
    ):
        done = partial.lines if partial else 0
        if partial is not None and partial.lines:
            print(f"regard: continuing after {partial.lines:,} lines.", file=sys.stderr)
        if isinstance(input, str):
            every_line = read_lines(input, invalid)
        else:
            every_line = (Line(text, source, number) for number, text in enumerate(input, start=1))
        if options.format == "html":
            every_line = _document(every_line)
        elif options.unwrap:
            every_line = _unwrap(every_line)
        every_row = _with_parses(every_line, parses, invalid)
        for rows in prefetch(islice(every_row, partial.lines if partial else 0, None), MAX_TRANSLATED_LINES):
            lines = [line for line, _ in rows]
            trees = [parse for _, parse in rows] if parses is not None else None
            if format_line is _as_n_best and options.format == "auto":
                untagged += sum(has_tags(line.text or "") for line in lines)
            translations = translator.translate([line.text or "" for line in lines], options, trees)
            results = (
                format_line(translation, line.number) for translation, line in zip(translations, lines, strict=True)
            )
            write(results, len(lines))
            parts += sum(translation.parts for translation in translations)
            advance(lines[-1].number - done)
            done = lines[-1].number
    report_skipped_lines(invalid)
    if untagged:
        lines_with_tags = f"{untagged:,} line{'' if untagged == 1 else 's'}"
        hint = f"--n-best prints sentences without their tags, here of {lines_with_tags}; --json keeps the tags"
        print_text(f"regard: {hint}.", file=sys.stderr)
    if parts:
        print_text(f"regard: sentences that were too long were translated in {parts:,} parts.", file=sys.stderr)


@contextmanager
def _open_lines(
    output: Path | None, partial: "ResumableOutput | None"
) -> "Iterator[Callable[[Iterable[str], int], None]]":
    """Yield a function that writes the results of a number of input lines."""
    if partial is not None:
        with partial.open() as append:
            yield append
        return
    with open_output(output) as write:
        yield lambda results, lines: write(results)


def _document(lines: "Iterator[Line]") -> "Iterator[Line]":
    """Join all lines; the document has the number of its last line."""
    from regard.data.lines import Line

    every_line = list(lines)
    if every_line:
        yield Line("\n".join(line.text or "" for line in every_line), every_line[-1].file, len(every_line))


def _unwrap(lines: "Iterator[Line]") -> "Iterator[Line]":
    """Join the lines of paragraphs; a paragraph has the number of its last line."""
    from regard.data.lines import Line
    from regard.data.sentence_splitting import unwrap_lines

    number, source = 0, ""

    def texts() -> Iterator[str]:
        nonlocal source
        for line in lines:
            source = line.file
            yield line.text or ""

    for count, text in unwrap_lines(texts()):
        number += count
        yield Line(text, source, number)


def _with_parses(
    lines: "Iterator[Line]", parses: str | None, invalid: "InvalidLines"
) -> "Iterator[tuple[Line, Parse | None]]":
    """Pair lines with their parses, or with None."""
    if parses is None:
        return ((line, None) for line in lines)
    from regard.data.readers.aligned import zip_parses
    from regard.data.readers.conll import read_conllu

    return zip_parses(lines, lambda line: line, read_conllu([parses], invalid), parses, invalid)


def _as_text(translation: "Translation", number: int) -> str:
    return to_one_line(translation.text)


def _as_html(translation: "Translation", number: int) -> str:
    return translation.text


def _as_n_best(translation: "Translation", number: int) -> str:
    """Format alternatives as Moses does; of a line with several sentences, those of each sentence in turn."""
    rows = [
        f"{number} ||| {to_one_line(alternative.text)} ||| {alternative.score:.{SCORE_DIGITS}f}"
        for sentence in translation.sentences
        for alternative in sentence.alternatives
    ]
    return "\n".join(rows) if rows else f"{number} |||  ||| 0"


def _as_json(translation: "Translation", number: int) -> str:
    return json.dumps(translation.as_dict(), ensure_ascii=False)
