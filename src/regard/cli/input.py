"""The data that a command is given: files by option, or standard input."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.api import Model
    from regard.config import CorpusConfig
    from regard.data.lines import InvalidLines
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.data.lines import Line
    from regard.decoding.text_encoder import TextOrPair
Files = list[str] | None


def files(*names: str, help: str) -> Any:  # typer's own word
    """An option that takes a file, and may be repeated."""
    return typer.Option(*names, help=help, metavar="FILE")


# What `regard evaluate` and `regard score` read, beside a model and their own `--data`.
Source = Annotated[Files, files("--source", help="Sentences, one a line; may be repeated.")]
Target = Annotated[Files, files("--target", help="Their translations, line by line.")]
Parses = Annotated[Files, files("--parses", help="Parses of the source in CoNLL-U, for syntax positions.")]


def split_files(
    source: Files, target: Files, data: Files, prefix: str = "--", parses: Files = None
) -> dict[str, list[str]]:
    """The files of one part of the data, by the names of `config.Corpus`; of aligned files both sides are needed."""
    from regard.errors import ConfigError

    if bool(source) != bool(target):
        missing = "target" if source else "source"
        raise ConfigError(f"{prefix}{missing} is missing: a translator needs both sides, line by line.")
    if parses and not source:
        raise ConfigError(f"{prefix}parses: is beside {prefix}source, which is missing; give that too.")
    named = (("source", source), ("target", target), ("parses", parses), ("files", data))
    return {name: given for name, given in named if given}


def corpus_from_options(
    source: Files, target: Files, data: Files, *, parses: Files = None, piped: bool = False
) -> "CorpusConfig":
    """What is to be read; with `piped`, standard input where no file is given, unless someone would have to type it."""
    from regard.config import CorpusConfig
    from regard.data.lines import STANDARD_INPUT
    from regard.errors import ConfigError

    given = split_files(source, target, data, parses=parses)
    if not given and piped and not stdin_is_terminal():
        given = {"files": [STANDARD_INPUT]}
    if not given:
        raise ConfigError("there is nothing to read; give --data, or --source and --target.")
    found = CorpusConfig.model_validate(given)
    if found.file_names.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input (-) can be read only once; give the other part as a file.")
    return found


def stdin_is_terminal() -> bool:
    """Whether standard input is a terminal, or nothing at all."""
    return sys.stdin is None or sys.stdin.isatty()


def check_scorable(model: "Model", given: "CorpusConfig") -> bool:
    """Whether the model translates, or continues text; a complaint if it does neither, or cannot use such files."""
    from regard.decoding.translator import check_parses
    from regard.errors import ConfigError

    network = model.config.model
    if network.generates and given.source:
        raise ConfigError(f"{model.folder} is a language model, which reads --data, and not --source and --target.")
    if not network.generates and not network.translates:
        other = " (regard evaluate measures what it predicts)" if network.task else ""
        raise ConfigError(
            f"{model.folder} is {with_article(network.family)}, which writes no text{other}; "
            "give a translator or a language model."
        )
    if network.translates:
        check_parses(network, given=bool(given.parses))
    if given.parses and given.files:
        raise ConfigError(
            f"{given.files[0]}: holds pairs without parses; give --source, --target and --parses instead."
        )
    return network.translates


def with_article(what: str) -> str:
    """Something with its article.

    >>> with_article("encoder-only Transformer"), with_article("language model")
    ('an encoder-only Transformer', 'a language model')
    """
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def report_skipped(faults: "InvalidLines") -> None:
    """Nothing is dropped silently: how much was skipped and why, on standard error."""
    for reason, count in faults.counts.items():
        print(f"{count:,} skipped: {reason} ({faults.examples[reason].removesuffix('.')}).", file=sys.stderr)


LINES_PER_BATCH = 512  # lines that are read at once, at most


def process_lines(
    input: str, output: Path | None, what: str, answer: "Callable[[list[Line]], Iterable[str]]", *, skip_invalid: bool
) -> None:
    """Answer the lines of a file or of standard input, in their order."""
    from regard.cli.output import open_output, progress_bar
    from regard.data.lines import InvalidLines, read_lines
    from regard.data.prefetch import prefetch

    if input == "-" and sys.stdin is not None and sys.stdin.isatty():
        print("Type a text and Enter; Ctrl-D ends.", file=sys.stderr)
    faults = InvalidLines(skip_invalid)
    with open_output(output) as put, progress_bar(input, output, what) as went:
        for several in prefetch(read_lines(input, faults), LINES_PER_BATCH):
            put(answer(several))
            went(several)
    for reason, count in faults.counts.items():
        print(f"regard: {count:,} lines skipped: {reason}. {faults.examples[reason]}", file=sys.stderr)


def line_text(line: "Line") -> "TextOrPair":
    """The text on a line, or the pair of texts: they are apart by a tab."""
    first, tab, second = (line.text or "").partition("\t")
    return (first, second) if tab else first


def report_truncated(cut: int, longest: int | None) -> None:
    """Say once that texts were not read to their ends."""
    if cut:
        what = "text was" if cut == 1 else "texts were"
        print(f"regard: {cut:,} {what} longer than {longest:,} tokens, and read up to there.", file=sys.stderr)
