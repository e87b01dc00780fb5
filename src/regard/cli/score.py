"""`regard score`: how probable a model finds given translations or texts."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.input import Files, Parses, Source, Target, check_scorable, corpus_from_options, files, report_skipped
from regard.cli.options import ModelFolder

if TYPE_CHECKING:
    from regard.api import Model
    from regard.config import CorpusConfig
    from regard.data.lines import InvalidLines
    from regard.decoding.results import TextScore

# Whatever would break a line or a column, as Python writes it.
ESCAPES = {n: f"\\x{n:02x}" for n in (*range(32), 127)} | str.maketrans(
    {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
)


def run(
    model: ModelFolder,
    source: Source = None,
    target: Target = None,
    parses: Parses = None,
    data: Annotated[
        Files,
        files("--data", help="Pairs as TSV or JSON Lines; for a language model, a text a line. - is standard input."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Add the tokens, each as token:score, after tabs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines, with texts and tokens.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out and count lines that cannot be used, rather than stop.")
    ] = False,
) -> None:
    """Print the log-probability of each translation, or of each line of text: natural logarithms, ends included.

    Without files, standard input is read: pairs as TSV, or for a language model text. It may be endless.
    """
    from regard.api import load
    from regard.data.lines import InvalidLines

    given = corpus_from_options(source, target, data, parses=parses, piped=True)
    faults = InvalidLines(skip_invalid)
    for several in _scored(load(model), given, faults):
        lines = [_json(*one) if as_json else _line(one[1], tokens) for one in several]
        print("\n".join(lines), flush=True)
    report_skipped(faults)


def _scored(
    model: "Model", given: "CorpusConfig", faults: "InvalidLines"
) -> "Iterator[Iterable[tuple[dict[str, str], TextScore]]]":
    """The texts with their scores, as many at a time as are scored together."""
    from regard.data.prefetch import prefetch
    from regard.data.readers import read_pairs, read_texts
    from regard.data.store import chunked
    from regard.evaluation.scoring import SCORING_BATCH, scorable_pairs, score_pairs, score_texts

    # Someone may wait for the score of a line before the next is written. Of files, the same lines are always scored
    # together, so that the last digit of a score, too, is the same each time.
    parted = prefetch if any(map(_arrives, given.file_names)) else chunked
    if check_scorable(model, given):
        for pairs in parted(
            scorable_pairs(model, read_pairs(given, faults), ", ".join(given.file_names), faults), SCORING_BATCH
        ):
            named = [{"source": pair.source, "target": pair.target} for pair in pairs]
            yield zip(named, score_pairs(model, pairs), strict=True)
    else:
        for several in parted(read_texts(given.files, faults), SCORING_BATCH):
            yield zip([{"text": text} for text in several], score_texts(model, several), strict=True)


def _arrives(name: str) -> bool:
    """Whether what is read comes little by little: through a pipe, or from a terminal."""
    from regard.data.lines import STANDARD_INPUT

    return name == STANDARD_INPUT or Path(name).is_fifo() or Path(name).is_char_device()


def _line(scored: "TextScore", tokens: bool) -> str:
    each = zip(scored.tokens, scored.log_probabilities, strict=True) if tokens else ()
    return "\t".join([f"{scored.total:.4f}", *(f"{token.translate(ESCAPES)}:{score:.4f}" for token, score in each)])


def _json(texts: dict[str, str], scored: "TextScore") -> str:
    about: dict[str, Any] = {
        **texts,
        "tokens": scored.tokens,
        "scores": [round(score, 6) for score in scored.log_probabilities],
        "total": round(scored.total, 6),
        "mean": round(scored.mean, 6),
    }
    return json.dumps(about, ensure_ascii=False)
