"""`regard evaluate`: measure a model on test data."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from regard.cli.input import check_scorable, corpus_from_options, report_skipped, with_article
from regard.cli.options import (
    DATA,
    DECODING,
    OUTPUT,
    Files,
    ModelFolder,
    Parses,
    Quiet,
    SkipInvalid,
    Source,
    Target,
    examples,
    file_option,
    option,
)
from regard.cli.output import new_table, open_output, print_table, to_one_line
from regard.errors import ConfigError, DataError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.config import CorpusConfig
    from regard.data.examples import Pair
    from regard.data.lines import InvalidLines
    from regard.decoding.engines.engine import EngineName, Precision
    from regard.decoding.options import TranslationOptions
    from regard.evaluation.label_metrics import ConfusionMatrix, LabelScores
    from regard.evaluation.scoring import Likelihood
    from regard.evaluation.translation import EvaluationSentence, TranslationEvaluation
    from regard.training.display import ProgressDisplay
    from regard.training.measuring import TextScores

EXAMPLES = examples(
    "regard evaluate runs/en-it --source test.en --target test.it --beam 5",
    "regard evaluate runs/gpt --data test.txt --json",
)
MAX_CONFUSION_LABELS = 12  # with more labels, the confusion matrix is not printed


@dataclass(frozen=True)
class Options:
    """What the user said about translating; None where nothing was said."""

    beam: int | None
    length_penalty: float | None
    engine: str | None
    precision: str | None
    output: Path | None
    bleu_tokenizer: str | None
    references: str | None


def run(
    model: ModelFolder,
    source: Source = None,
    target: Target = None,
    parses: Parses = None,
    data: Annotated[
        Files,
        file_option(
            "--data", help="Pairs (TSV, JSON Lines), text, labeled texts or tagged words; builtin:NAME. Repeatable."
        ),
    ] = None,
    tag_column: Annotated[
        int | None, option(DATA, min=1, help="Column of the tag, counted from 1, for a tagger; the last by default.")
    ] = None,
    context_length: Annotated[
        int | None,
        option(DATA, min=1, help="Context length of a language model; its number of positions, else 256, by default."),
    ] = None,
    skip_invalid: SkipInvalid = False,
    beam: Annotated[int | None, option(DECODING, help="Beam width of a translator; 4 by default, 1 is greedy.")] = None,
    length_penalty: Annotated[
        float | None, option(DECODING, help="Exponent of the length penalty of a translator; 0.6 by default.")
    ] = None,
    engine: Annotated[
        str | None, option(DECODING, help="Decoding engine: auto (default), torch or ctranslate2.", metavar="NAME")
    ] = None,
    precision: Annotated[
        str | None,
        option(DECODING, help="Weights of the ctranslate2 engine: int8 (default) or float32.", metavar="NAME"),
    ] = None,
    bleu_tokenizer: Annotated[
        str | None,
        option(DECODING, help="Tokenizer of BLEU: 13a (default), intl, char, zh or none.", metavar="NAME"),
    ] = None,
    references: Annotated[
        str | None,
        option(
            DECODING,
            help="separate (default), or grouped: pairs with the same source are several references.",
            metavar="MODE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(OUTPUT, help="File for the translations, written atomically. Writes .gz.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, option(OUTPUT, "--json", help="Print JSON instead of tables.")] = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a model on data: a translator by BLEU, chrF, TER and loss, a language model by loss and bits per byte.

    Classifiers and taggers get accuracy, macro-F1 and a confusion matrix; masked and bidirectional language models
    the perplexity of their predictions.
    """
    from regard.api import load
    from regard.config import LABEL_TASKS
    from regard.data.lines import InvalidLines
    from regard.training.display import display_for
    from regard.training.measuring import MEASURED

    given = corpus_from_options(source, target, data, parses=parses)
    loaded, faults = load(model), InvalidLines(skip_invalid)
    options = Options(beam, length_penalty, engine, precision, output, bleu_tokenizer, references)
    found: TranslationEvaluation | Likelihood | LabelScores | TextScores
    if loaded.config.model.task != "tagging":
        kind = "translator" if loaded.config.model.translates else "language model"
        named = loaded.config.model.family if loaded.config.model.task in MEASURED else kind
        named = "classifier" if loaded.config.model.task == "classification" else named
        _refuse({"tag_column": tag_column}, loaded, named, "taggers")
    with closing(display_for(sys.stderr, quiet)) as display:
        if loaded.config.model.task in LABEL_TASKS.values():
            _refuse(
                {**asdict(options), "context_length": context_length}, loaded, "classifier or tagger", "translators"
            )
            how, found = _labels(loaded, given, tag_column, faults, display)
        elif loaded.config.model.task in MEASURED:
            _refuse(asdict(options), loaded, loaded.config.model.family, "translators")
            how, found = _predictions(loaded, given, context_length, faults, display)
        elif check_scorable(loaded, given):
            _refuse({"context_length": context_length}, loaded, "translator", "language models")
            how, found = _translations(loaded, given, options, faults, display)
        else:
            _refuse(asdict(options), loaded, "language model", "translators")
            how, found = _text(loaded, given, context_length, faults, display)
    report_skipped(faults)
    if as_json:
        about = {"model": str(loaded.folder), "data": list(given.file_names), **how, **found.as_dict()}
        print(json.dumps(about, indent=2, ensure_ascii=False))
        return
    print(f"{loaded.folder} on {', '.join(given.file_names)}")
    if how:
        print(", ".join(f"{key.replace('_', ' ')} {value}" for key, value in how.items()))
    _show(found)


def _refuse(said: Mapping[str, Any], model: "Model", kind: str, others: str) -> None:
    """Complain about an option that means nothing for such a model: it would be ignored."""
    option = next((name for name, value in said.items() if value is not None), None)
    if option is not None:
        what = f"--{option.replace('_', '-')}: is for {others}"
        raise ConfigError(f"{what}, but {model.folder} is {with_article(kind)}; drop it.")


def _translations(
    model: "Model", given: "CorpusConfig", options: Options, faults: "InvalidLines", display: "ProgressDisplay"
) -> "tuple[dict[str, Any], TranslationEvaluation]":
    """How the pairs were translated, and how well."""
    from regard.data.readers import read_pairs
    from regard.evaluation.scoring import scorable_pairs
    from regard.evaluation.translation import evaluate_translations, reference_likelihood, translate_pairs

    wish, precision, tokenize = _wish(options), _precision(options.precision), _tokenize(options.bleu_tokenizer)
    engine = cast("EngineName", options.engine or "auto")  # who chooses complains of another
    translator = model.translator(wish, engine=engine, precision=precision)
    name = ", ".join(given.file_names)
    pairs = list(scorable_pairs(model, read_pairs(given, faults), name, faults))
    if not pairs:
        raise DataError(f"{name}: has no pairs to evaluate a model on; give some.")
    asked = _asked(pairs, options.references)
    with _kept(options.output) as keep:
        translated = translate_pairs(translator, wish, [one.pair for one in asked], display.counting)
        outputs = [keep(text) for text in translated]
    how = {"beam": wish.search.beam, "length_penalty": wish.search.length_penalty, "engine": translator.engine.name}
    if translator.engine.name == "ctranslate2":
        how["precision"] = precision
    return how, evaluate_translations(asked, outputs, reference_likelihood(model, pairs, display.counting), tokenize)


def _text(
    model: "Model", given: "CorpusConfig", context: int | None, faults: "InvalidLines", display: "ProgressDisplay"
) -> "tuple[dict[str, Any], Likelihood]":
    """How the text was read, and how probable it is."""
    from regard.data.readers import read_documents
    from regard.evaluation.scoring import evaluate_language_model
    from regard.training.language import CONTEXT

    context = _context(model, context) or model.config.model.max_length or CONTEXT
    texts = read_documents(given.files, faults)
    return {"context_length": context}, evaluate_language_model(
        model, texts, ", ".join(given.file_names), context, display.counting
    )


def _predictions(
    model: "Model", given: "CorpusConfig", context: int | None, faults: "InvalidLines", display: "ProgressDisplay"
) -> "tuple[dict[str, Any], TextScores]":
    """How the text was read, and how well its tokens are predicted."""
    from regard.training.kinds import task_of
    from regard.training.language import context_of
    from regard.training.measuring import measure_text

    if given.source:
        raise ConfigError(f"{model.folder} predicts tokens of a text, and reads --data, not --source and --target.")
    data = model.config.data.model_copy(update={"context_length": _context(model, context), "train": given})
    config = model.config.model_copy(update={"data": data})
    task_of(config).check(config)

    def progress(count: int) -> None:
        display.counting("reading", count, None)

    found = measure_text(model.network, config, model.tokenizer, given.files, faults, progress)
    return {"context_length": context_of(config)}, found


def _context(model: "Model", said: int | None) -> int | None:
    """How many tokens are read at once, as the user says; a complaint if that is more than the network can."""
    learned = model.config.model.max_length
    if learned is not None and said is not None and said > learned:
        raise ConfigError(f"--context-length {said}: this network has {learned:,} positions; lower it.")
    return said


def _labels(
    model: "Model", given: "CorpusConfig", column: int | None, faults: "InvalidLines", display: "ProgressDisplay"
) -> "tuple[dict[str, Any], LabelScores]":
    """How the labels of texts, or the tags of words, agree with those that are right."""
    from regard.data.readers import read_labeled, read_tagged
    from regard.evaluation.labeling import evaluate_classifier, evaluate_tagger

    if given.source:
        raise ConfigError(f"{model.folder} predicts labels, and reads --data, not --source and --target.")
    name = ", ".join(given.file_names)
    if model.config.model.task == "tagging":
        sentences = read_tagged(given.files, faults, column)
        return {}, evaluate_tagger(model.reader, sentences, name, faults, display.counting)
    return {}, evaluate_classifier(model.reader, read_labeled(given.files, faults), name, faults, display.counting)


def _wish(options: Options) -> "TranslationOptions":
    """A pair may be several sentences, and is translated as it was learned: not taken apart."""
    from regard.decoding.options import SearchOptions, TranslationOptions

    search = SearchOptions()
    if options.beam is not None:
        search = replace(search, beam=options.beam)
    if options.length_penalty is not None:
        search = replace(search, length_penalty=options.length_penalty)
    return TranslationOptions(search, split_sentences=False)


def _precision(said: str | None) -> "Precision":
    match said:
        case None | "int8":
            return "int8"
        case "float32":
            return "float32"
    raise ConfigError(f"there is no precision {said!r}; the precisions are int8 and float32.")


def _tokenize(said: str | None) -> str:
    from regard.config import BLEU_TOKENIZERS

    if said is not None and said not in BLEU_TOKENIZERS:
        raise ConfigError(f"--bleu-tokenizer {said}: should be one of {', '.join(BLEU_TOKENIZERS)}.")
    return said or BLEU_TOKENIZERS[0]


def _asked(pairs: "Sequence[Pair]", said: str | None) -> "list[EvaluationSentence]":
    from regard.evaluation.translation import merge_references, separate_references

    match said:
        case None | "separate":
            return separate_references(pairs)
        case "grouped":
            return merge_references(pairs)
    raise ConfigError(f"--references {said}: should be separate or grouped.")


@contextmanager
def _kept(path: Path | None) -> Iterator[Callable[[str], str]]:
    """What writes each translation down on a line, if there is a file for it, and hands it on."""
    if path is None:
        yield lambda text: text
        return
    with open_output(path) as put:

        def keep(text: str) -> str:
            put([to_one_line(text)])  # so that they stay aligned
            return text

        yield keep


def _show(found: "TranslationEvaluation | Likelihood | LabelScores | TextScores") -> None:
    """The scores, what they mean, and where there is more than one kind of sentence, those by length."""
    from regard.evaluation.label_metrics import LabelScores
    from regard.evaluation.translation import TranslationEvaluation
    from regard.training.formatting import score_name, score_text

    about = found.as_dict()
    counts = {key: about[key] for key in ("sentences", "tokens", "bytes", "truncated") if key in about}
    table = new_table("score", "")
    for key, value in {**about["scores"], **counts}.items():
        table.add_row(score_name(key), score_text(key, value))
    print_table(table)
    if isinstance(found, LabelScores):
        _show_confusion(found.confusion)
    if isinstance(found, TranslationEvaluation):
        for key, signature in found.signatures.items():
            print(f"{score_name(key)} signature: {signature}")
        lengths = new_table("words of the source", "sentences", "BLEU", "chrF")
        for bucket in found.lengths:
            scores = [score_text(key, value) for key, value in (("bleu", bucket.bleu), ("chrf", bucket.chrf))]
            lengths.add_row(bucket.words, f"{bucket.sentences:,}", *scores)
        print_table(lengths)


def _show_confusion(found: "ConfusionMatrix") -> None:
    """How often each label was given, a row for each that is right; of many labels only their F1."""
    columns = [str(label) for label in found.labels] if len(found.labels) <= MAX_CONFUSION_LABELS else []
    table = new_table("right ↓  given →", *columns, "F1")
    for label, row in zip(found.labels, found.counts.tolist(), strict=True):
        f1 = found.f1[label]
        table.add_row(label, *(f"{count:,}" for count in row if columns), "–" if f1 is None else f"{f1:.1%}")
    print_table(table)
