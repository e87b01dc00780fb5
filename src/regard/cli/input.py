"""Input of commands: corpora from file options, and lines of a file or of stdin."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.options import Files

if TYPE_CHECKING:
    from regard.api import Model
    from regard.config import CorpusConfig
    from regard.data.lines import InvalidLines, Line
    from regard.decoding.text_encoder import TextOrPair

MAX_LINES_AT_ONCE = 512  # most lines that are processed at once


def split_files(
    source: Files, target: Files, data: Files, prefix: str = "--", parses: Files = None
) -> dict[str, list[str]]:
    """Return the files of one split by the fields of `CorpusConfig`; aligned files need both sides."""
    from regard.errors import ConfigError

    if bool(source) != bool(target):
        missing = "target" if source else "source"
        raise ConfigError(f"{prefix}{missing} is missing: a translator needs both sides, line by line.")
    if parses and not source:
        raise ConfigError(f"{prefix}parses: needs {prefix}source, which is missing; add it.")
    options = (("source", source), ("target", target), ("parses", parses), ("files", data))
    return {name: files for name, files in options if files}


def corpus_from_options(
    source: Files, target: Files, data: Files, *, parses: Files = None, piped: bool = False
) -> "CorpusConfig":
    """Return the corpus of the file options; with `piped` and no files, stdin unless it is a terminal."""
    from regard.config import CorpusConfig
    from regard.data.lines import STANDARD_INPUT
    from regard.errors import ConfigError

    files = split_files(source, target, data, parses=parses)
    if not files and piped and not stdin_is_terminal():
        files = {"files": [STANDARD_INPUT]}
    if not files:
        raise ConfigError("no input; pass --data, or --source and --target.")
    corpus = CorpusConfig.model_validate(files)
    if corpus.file_names.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input (-) can be read only once; pass the other part as a file.")
    return corpus


def stdin_is_terminal() -> bool:
    """Return whether stdin is a terminal, or closed."""
    return sys.stdin is None or sys.stdin.isatty()


def prompt_if_terminal(message: str, input: str) -> None:
    """Print a message to stderr if the input is typed in a terminal."""
    if input == "-" and sys.stdin is not None and sys.stdin.isatty():
        print(message, file=sys.stderr)


def check_scorable(model: "Model", corpus: "CorpusConfig") -> bool:
    """Return whether the model is a translator; ConfigError if it is no language model either, or the files misfit."""
    from regard.decoding.translator import check_parses
    from regard.errors import ConfigError

    network = model.config.model
    if network.generates and corpus.source:
        raise ConfigError(f"{model.folder} is a language model; pass --data instead of --source and --target.")
    if not network.generates and not network.translates:
        hint = " (regard evaluate measures its predictions)" if network.task else ""
        raise ConfigError(
            f"{model.folder} is {with_article(network.family)}, which generates no text{hint}; "
            "pass a translator or a language model."
        )
    if network.translates:
        check_parses(network, has_parses=bool(corpus.parses))
    if corpus.parses and corpus.files:
        raise ConfigError(f"{corpus.files[0]}: has no parses; pass --source, --target and --parses instead of --data.")
    return network.translates


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> with_article("encoder-only Transformer"), with_article("language model")
    ('an encoder-only Transformer', 'a language model')
    """
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def process_lines(
    input: str,
    output: Path | None,
    description: str,
    process: "Callable[[list[Line]], Iterable[str]]",
    *,
    skip_invalid: bool,
) -> None:
    """Write the results of `process` for the lines of a file or of stdin, in batches and in order."""
    from regard.cli.output import open_output, progress_bar
    from regard.data.lines import InvalidLines, prefetch, read_lines

    prompt_if_terminal("Type a text and press Enter; Ctrl-D ends.", input)
    invalid = InvalidLines(skip_invalid)
    with open_output(output) as write, progress_bar(input, output, description) as advance:
        for lines in prefetch(read_lines(input, invalid), MAX_LINES_AT_ONCE):
            write(process(lines))
            advance(lines)
    report_skipped_lines(invalid)


def line_text(line: "Line") -> "TextOrPair":
    """Return the text of a line, or the pair of texts that a tab separates."""
    first, tab, second = (line.text or "").partition("\t")
    return (first, second) if tab else first


def report_skipped(invalid: "InvalidLines") -> None:
    """Print to stderr how many examples were skipped and why."""
    for reason, count in invalid.counts.items():
        print(f"{count:,} skipped: {reason} ({invalid.examples[reason].removesuffix('.')}).", file=sys.stderr)


def report_skipped_lines(invalid: "InvalidLines") -> None:
    """Print to stderr how many lines of a stream were skipped and why."""
    for reason, count in invalid.counts.items():
        print(f"regard: {count:,} lines skipped: {reason}. {invalid.examples[reason]}", file=sys.stderr)


def report_truncated(count: int, max_length: int | None) -> None:
    """Print to stderr how many texts were truncated."""
    if count:
        texts = "text was" if count == 1 else "texts were"
        print(f"regard: {count:,} {texts} longer than {max_length:,} tokens and truncated.", file=sys.stderr)
