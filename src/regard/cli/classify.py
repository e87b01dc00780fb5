"""`regard classify`: labels of texts, or tags of words."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.input_output import line_text, process_lines, report_truncated
from regard.cli.options import (
    OUTPUT_PANEL,
    DeviceOption,
    InputOption,
    ModelArgument,
    OutputOption,
    SkipInvalidOption,
    examples,
    option,
)

if TYPE_CHECKING:
    from regard.api import Model
    from regard.data.lines import Line

EXAMPLES = examples("regard classify runs/sst2 --input reviews.txt --probabilities", "regard classify runs/pos --json")
PRINTED_DIGITS = 4


def run(
    model: ModelArgument,
    input: InputOption = "-",
    output: OutputOption = None,
    probabilities: Annotated[
        bool,
        option(
            OUTPUT_PANEL, "--probabilities", "-p", help="Add the probability of every label, or of each predicted tag."
        ),
    ] = False,
    as_json: Annotated[
        bool, option(OUTPUT_PANEL, "--json", help="Print JSON Lines with texts, labels and probabilities.")
    ] = False,
    skip_invalid: SkipInvalidOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Print the label of each line of text, or of each pair of texts separated by a tab.

    A tagger takes one sentence per line and prints one word and tag per line, with an empty line after each sentence.
    """
    from regard.api import load
    from regard.config import EncoderConfig, TagHeadConfig

    loaded = load(model, device=device)
    network = loaded.config.model
    if isinstance(network, EncoderConfig) and isinstance(network.head, TagHeadConfig):
        tagger = _Tagger(loaded, probabilities, as_json)
        process_lines(input, output, "tagging", tagger.tag_lines, skip_invalid=skip_invalid)
        return
    loaded.classify_detailed([])  # raises an error before any input if the model cannot classify
    classifier = _Classifier(loaded, probabilities, as_json)
    process_lines(input, output, "classifying", classifier.label_lines, skip_invalid=skip_invalid)
    report_truncated(classifier.truncated, network.max_length)


class _Classifier:
    """Formats the labels of lines; counts truncated texts."""

    def __init__(self, model: "Model", probabilities: bool, as_json: bool) -> None:
        self.model = model
        self.probabilities = probabilities
        self.as_json = as_json
        self.truncated = 0

    def label_lines(self, lines: "list[Line]") -> Iterator[str]:
        """Yield an output line for each line; the output of an empty line is empty."""
        texts = [line_text(line) for line in lines if line.text and line.text.strip()]
        classifications = iter(self.model.classify_detailed(texts))
        for line in lines:
            if not line.text or not line.text.strip():
                yield json.dumps({"text": "", "label": None}) if self.as_json else ""
                continue
            classification, text = next(classifications), line_text(line)
            self.truncated += classification.truncated
            ordered = sorted(classification.probabilities.items(), key=lambda entry: -entry[1])
            if self.as_json:
                record = {"text": text} if isinstance(text, str) else {"text": text[0], "second": text[1]}
                rounded = {label: round(p, PRINTED_DIGITS) for label, p in ordered}
                yield _json({**record, "label": classification.label, "probabilities": rounded})
            else:
                columns = (f"{label}:{p:.{PRINTED_DIGITS}f}" for label, p in ordered) if self.probabilities else ()
                yield "\t".join([classification.label, *columns])


class _Tagger:
    """Formats the tags of the words of lines."""

    def __init__(self, model: "Model", probabilities: bool, as_json: bool) -> None:
        self.model = model
        self.probabilities = probabilities
        self.as_json = as_json

    def tag_lines(self, lines: "list[Line]") -> Iterable[str]:
        """Yield CoNLL columns of words and tags, with an empty line after each sentence."""
        from regard.config import TagHeadConfig
        from regard.decoding.encoder_inference import labels_of_head, tag_probabilities

        encoder = self.model.text_encoder
        labels = labels_of_head(encoder, TagHeadConfig, str(self.model.folder))
        sentences = [(line.text or "").split() for line in lines]
        for words, probabilities in zip(sentences, tag_probabilities(encoder, sentences), strict=True):
            tags = [labels[n] for n in probabilities.argmax(1)]
            best = [f"{p:.{PRINTED_DIGITS}f}" for p in probabilities.max(1, initial=0.0)]
            if self.as_json:
                yield _json({"words": words, "tags": tags, "probabilities": [float(p) for p in best]})
                continue
            columns = (words, tags, best) if self.probabilities else (words, tags)
            yield from ("\t".join(row) for row in zip(*columns, strict=True))
            yield ""


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)
