"""`regard classify`: a label for each text, or a tag for each word."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.input import line_text, process_lines, report_truncated
from regard.cli.options import ModelFolder

if TYPE_CHECKING:
    from regard.api import Model
    from regard.data.lines import Line

DIGITS = 4


def run(
    model: ModelFolder,
    input: Annotated[str, typer.Option("--input", "-i", help="Texts, one a line; - is standard input.")] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here.", metavar="FILE")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="Add the probability of every label, or of each tag.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines, with texts and probabilities.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave lines empty that cannot be read, and count them.")
    ] = False,
) -> None:
    """Print the label of each line of text; of two texts on a line, apart by a tab, the label of the pair.

    A tagger reads a sentence a line, its words apart by spaces, and prints each word with its tag on a line, and an
    empty line after each sentence.
    """
    from regard.api import load
    from regard.config import EncoderConfig, TagHeadConfig

    loaded = load(model)
    network = loaded.config.model
    if isinstance(network, EncoderConfig) and isinstance(network.head, TagHeadConfig):
        tags = _Tags(loaded, probabilities, as_json)
        process_lines(input, output, "tagging", tags.answer, skip_invalid=skip_invalid)
        return
    loaded.classifications([])  # a model that cannot classify says so before anything is typed
    labels = _Labels(loaded, probabilities, as_json)
    process_lines(input, output, "classifying", labels.answer, skip_invalid=skip_invalid)
    report_truncated(labels.cut, network.max_length)


class _Labels:
    """Lines with labels."""

    def __init__(self, model: "Model", probabilities: bool, as_json: bool) -> None:
        self.model = model
        self.probabilities = probabilities
        self.as_json = as_json
        self.cut = 0

    def answer(self, lines: "list[Line]") -> Iterator[str]:
        """A line for each; an empty one has no label."""
        full = [line for line in lines if line.text and line.text.strip()]
        found = iter(self.model.classifications([line_text(line) for line in full]))
        for line in lines:
            if not line.text or not line.text.strip():
                yield json.dumps({"text": "", "label": None}) if self.as_json else ""
                continue
            one, text = next(found), line_text(line)
            self.cut += one.cut
            ordered = sorted(one.probabilities.items(), key=lambda entry: -entry[1])
            if self.as_json:
                texts = {"text": text} if isinstance(text, str) else {"text": text[0], "second": text[1]}
                rounded = {label: round(p, DIGITS) for label, p in ordered}
                yield _json({**texts, "label": one.label, "probabilities": rounded})
            else:
                each = (f"{label}:{p:.{DIGITS}f}" for label, p in ordered) if self.probabilities else ()
                yield "\t".join([one.label, *each])


class _Tags:
    """Lines of words with tags."""

    def __init__(self, model: "Model", probabilities: bool, as_json: bool) -> None:
        self.model = model
        self.probabilities = probabilities
        self.as_json = as_json

    def answer(self, lines: "list[Line]") -> Iterable[str]:
        """CoNLL's columns, a sentence for each line."""
        from regard.config import TagHeadConfig
        from regard.decoding.labeling import tag_probabilities
        from regard.decoding.text_encoder import labels_of_head

        reader = self.model.reader
        labels = labels_of_head(reader, TagHeadConfig, str(self.model.folder))
        sentences = [(line.text or "").split() for line in lines]
        for words, found in zip(sentences, tag_probabilities(reader, sentences), strict=True):
            tags, sure = [labels[n] for n in found.argmax(1)], [f"{p:.{DIGITS}f}" for p in found.max(1, initial=0.0)]
            if self.as_json:
                yield _json({"words": words, "tags": tags, "probabilities": [float(p) for p in sure]})
                continue
            columns = (words, tags, sure) if self.probabilities else (words, tags)
            yield from ("\t".join(row) for row in zip(*columns, strict=True))
            yield ""


def _json(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False)
