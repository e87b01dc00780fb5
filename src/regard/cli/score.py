"""`regard score`: log-probabilities of translations or texts under a model."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.input_output import check_scorable, column_settings, corpus_from_options, print_text, report_skipped
from regard.cli.options import (
    OUTPUT_PANEL,
    DeviceOption,
    Files,
    ModelArgument,
    ParsesOption,
    SkipInvalidOption,
    SourceColumnOption,
    SourceOption,
    TargetColumnOption,
    TargetOption,
    TextColumnOption,
    examples,
    file_option,
    option,
)

if TYPE_CHECKING:
    from regard.api import Model
    from regard.config import CorpusConfig
    from regard.data.lines import InvalidLines
    from regard.decoding.results import TextScore

EXAMPLES = examples(
    "regard score runs/en-it --source test.en --target test.it", "regard score runs/gpt --tokens < texts.txt"
)
# Escapes of characters that would break a line or a column, as Python writes them.
ESCAPES = {n: f"\\x{n:02x}" for n in (*range(32), 127)} | str.maketrans(
    {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
)


def run(
    model: ModelArgument,
    source: SourceOption = None,
    target: TargetOption = None,
    parses: ParsesOption = None,
    data: Annotated[
        Files,
        file_option("--data", help="Pairs as TSV or JSON Lines; for a language model one text per line; - is stdin."),
    ] = None,
    tokens: Annotated[
        bool, option(OUTPUT_PANEL, "--tokens", help="Add a column token:score for every token, separated by tabs.")
    ] = False,
    as_json: Annotated[
        bool, option(OUTPUT_PANEL, "--json", help="Print JSON Lines with texts, tokens and scores.")
    ] = False,
    source_column: SourceColumnOption = None,
    target_column: TargetColumnOption = None,
    text_column: TextColumnOption = None,
    skip_invalid: SkipInvalidOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Print the log-probability (natural logarithm, end token included) of each translation or line of text.

    Without files, stdin is read: pairs as TSV, or text for a language model.
    """
    from regard.api import load
    from regard.data.lines import InvalidLines

    columns = column_settings(source_column, target_column, text_column)
    corpus = corpus_from_options(source, target, data, parses=parses, columns=columns, piped=True)
    invalid = InvalidLines(skip_invalid)
    for batch in _scored_batches(load(model, device=device), corpus, invalid):
        rows = [_json(texts, score) if as_json else _columns(score, tokens) for texts, score in batch]
        print_text("\n".join(rows), flush=True)
    report_skipped(invalid)


def _scored_batches(
    model: "Model", corpus: "CorpusConfig", invalid: "InvalidLines"
) -> "Iterator[Iterable[tuple[dict[str, str], TextScore]]]":
    """Yield batches of texts with their scores."""
    from regard.data.lines import prefetch
    from regard.data.readers import read_pairs, read_texts
    from regard.data.store import chunked
    from regard.evaluation.likelihood import SCORING_BATCH, scorable_pairs, score_pairs, score_texts

    # A stream is scored line by line as it arrives. Files are scored in fixed batches, so that repeated runs agree to
    # the last digit.
    batched = prefetch if any(map(_is_stream, corpus.file_names)) else chunked
    if check_scorable(model, corpus):
        pairs = scorable_pairs(model, read_pairs(corpus, invalid), ", ".join(corpus.file_names), invalid)
        for batch in batched(pairs, SCORING_BATCH):
            texts = [{"source": pair.source, "target": pair.target} for pair in batch]
            yield zip(texts, score_pairs(model, batch), strict=True)
    else:
        for lines in batched(read_texts(corpus.files, invalid, corpus.columns), SCORING_BATCH):
            yield zip([{"text": text} for text in lines], score_texts(model, lines), strict=True)


def _is_stream(name: str) -> bool:
    """Return whether a file is read as it arrives: stdin, a named pipe or a terminal."""
    from regard.data.lines import STANDARD_INPUT

    return name == STANDARD_INPUT or Path(name).is_fifo() or Path(name).is_char_device()


def _columns(score: "TextScore", tokens: bool) -> str:
    token_scores = zip(score.tokens, score.log_probabilities, strict=True) if tokens else ()
    columns = (f"{token.translate(ESCAPES)}:{log_probability:.4f}" for token, log_probability in token_scores)
    return "\t".join([f"{score.total:.4f}", *columns])


def _json(texts: dict[str, str], score: "TextScore") -> str:
    record: dict[str, Any] = {
        **texts,
        "tokens": score.tokens,
        "scores": [round(log_probability, 6) for log_probability in score.log_probabilities],
        "total": round(score.total, 6),
        "mean": round(score.mean, 6),
    }
    return json.dumps(record, ensure_ascii=False)
