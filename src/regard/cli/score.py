"""`regard score`: how probable a model finds given translations or texts."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.data import Files, corpus, files, is_translator, say_skipped, typed

if TYPE_CHECKING:
    from regard.config import Corpus
    from regard.evaluation.likelihood import Scored
    from regard.model import Model
    from regard.text.faults import Faults

# Whatever would break a line or a column, as Python writes it.
ESCAPES = {n: f"\\x{n:02x}" for n in (*range(32), 127)} | str.maketrans(
    {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
)


def run(
    model: Annotated[str, typer.Argument(help="A model folder, or a run's folder: then its best.", metavar="MODEL")],
    source: Annotated[Files, files("--source", help="Sentences, one a line; may be repeated.")] = None,
    target: Annotated[Files, files("--target", help="Their translations, line by line.")] = None,
    parses: Annotated[Files, files("--parses", help="Parses of the source in CoNLL-U, for syntax positions.")] = None,
    data: Annotated[
        Files,
        files("--data", help="Pairs as TSV or JSON Lines; for a language model, a text a line. - is standard input."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Add the tokens, each as token:score, after tabs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines, with texts and tokens.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out and count lines that cannot be used, rather than stop.")
    ] = False,
) -> None:
    """Print the log-probability of each translation, or of each line of text: natural logarithms, ends included.

    Without files, standard input is read: pairs as TSV, or for a language model text. It may be endless.
    """
    from regard.model import load
    from regard.text.faults import Faults

    given = corpus(source, target, data, parses=parses, piped=True)
    faults = Faults(skip_bad)
    for several in _scored(load(model), given, faults):
        lines = [_json(*one) if as_json else _line(one[1], tokens) for one in several]
        print("\n".join(lines), flush=True)
    say_skipped(faults)


def _scored(model: "Model", given: "Corpus", faults: "Faults") -> "Iterator[Iterable[tuple[dict[str, str], Scored]]]":
    """The texts with their scores, as many at a time as are scored together."""
    from regard.evaluation.scoring import TOGETHER, readable, score_pairs, score_texts
    from regard.text.corpus import texts
    from regard.text.lines import STANDARD_INPUT
    from regard.text.scan import pairs_of
    from regard.text.store import chunks

    size = 1 if STANDARD_INPUT in given.names and typed() else TOGETHER  # who types waits for an answer
    if is_translator(model, given):
        for pairs in chunks(readable(model, pairs_of(given, faults), ", ".join(given.names), faults), size):
            named = [{"source": pair.source, "target": pair.target} for pair in pairs]
            yield zip(named, score_pairs(model, pairs), strict=True)
    else:
        for several in chunks(texts(given.files, faults), size):
            yield zip([{"text": text} for text in several], score_texts(model, several), strict=True)


def _line(scored: "Scored", tokens: bool) -> str:
    each = zip(scored.tokens, scored.scores, strict=True) if tokens else ()
    return "\t".join([f"{scored.total:.4f}", *(f"{token.translate(ESCAPES)}:{score:.4f}" for token, score in each)])


def _json(texts: dict[str, str], scored: "Scored") -> str:
    about: dict[str, Any] = {
        **texts,
        "tokens": scored.tokens,
        "scores": [round(score, 6) for score in scored.scores],
        "total": round(scored.total, 6),
        "mean": round(scored.mean, 6),
    }
    return json.dumps(about, ensure_ascii=False)
