"""`regard evaluate`: measure a model on test data."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import (
    column_settings,
    corpus_from_options,
    open_output,
    print_table,
    print_text,
    report_skipped,
    to_one_line,
    with_article,
)
from regard.cli.options import (
    DATA_PANEL,
    DECODING_PANEL,
    OUTPUT_PANEL,
    DeviceOption,
    Files,
    LabelColumnOption,
    ModelArgument,
    ParsesOption,
    QuietOption,
    SkipInvalidOption,
    SourceColumnOption,
    SourceOption,
    SplitSentencesOption,
    TargetColumnOption,
    TargetOption,
    TextColumnOption,
    examples,
    file_option,
    option,
)
from regard.errors import ConfigError, require_packages

if TYPE_CHECKING:
    from regard.api import Model
    from regard.evaluation.metrics import ConfusionMatrix
    from regard.training.task import EvaluationOptions, EvaluationScores, NetworkTask

EXAMPLES = examples(
    "regard evaluate runs/en-it --source test.en --target test.it --beam 5",
    "regard evaluate runs/gpt --data test.txt --json",
    "regard evaluate runs/gpt --tasks capitals.jsonl arc.yaml",
)
MAX_CONFUSION_LABELS = 12  # with more labels, the confusion matrix is not printed


def run(
    model: ModelArgument,
    source: SourceOption = None,
    target: TargetOption = None,
    parses: ParsesOption = None,
    data: Annotated[
        Files,
        file_option(
            "--data",
            help="Files or folders of pairs (TSV, CSV, JSON Lines), text, labeled texts or tagged words; builtin:NAME.",
        ),
    ] = None,
    tasks: Annotated[
        Files,
        file_option(
            "--tasks",
            help="Multiple-choice tasks for a language model: JSON Lines, or YAML files of the lm-evaluation-harness.",
        ),
    ] = None,
    tag_column: Annotated[
        int | None,
        option(DATA_PANEL, min=1, help="Column of the tag, counted from 1, for a tagger; the last by default."),
    ] = None,
    context_length: Annotated[
        int | None,
        option(
            DATA_PANEL,
            min=1,
            help="Context length of a language model; by default that of its training, else 256.",
        ),
    ] = None,
    source_column: SourceColumnOption = None,
    target_column: TargetColumnOption = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    skip_invalid: SkipInvalidOption = False,
    beam: Annotated[
        int | None,
        option(DECODING_PANEL, help="Beam width of a translator; 1 is greedy. By default the model's, usually 4."),
    ] = None,
    length_penalty: Annotated[
        float | None,
        option(DECODING_PANEL, help="Length penalty of a translator; by default the model's, usually 0.6."),
    ] = None,
    split_sentences: SplitSentencesOption = None,
    engine: Annotated[
        str | None,
        option(DECODING_PANEL, help="Decoding engine: auto (default), torch or ctranslate2.", metavar="NAME"),
    ] = None,
    precision: Annotated[
        str | None,
        option(DECODING_PANEL, help="Weights of the ctranslate2 engine: int8 (default) or float32.", metavar="NAME"),
    ] = None,
    bleu_tokenizer: Annotated[
        str | None,
        option(DECODING_PANEL, help="Tokenizer of BLEU: 13a (default), intl, char, zh or none.", metavar="NAME"),
    ] = None,
    references: Annotated[
        str | None,
        option(
            DECODING_PANEL,
            help="separate (default), or grouped: pairs with the same source are several references.",
            metavar="MODE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(OUTPUT_PANEL, help="File for the translations, written atomically. Writes .gz.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print JSON instead of tables.")] = False,
    quiet: QuietOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Evaluate a model on data: a translator by BLEU, chrF, TER and loss, a language model by loss and bits per byte.

    Classifiers and taggers get accuracy, macro-F1 and a confusion matrix; masked and bidirectional language models
    the perplexity of their predictions. --tasks asks a language model multiple-choice questions.
    """
    from regard.api import load
    from regard.data.lines import InvalidLines
    from regard.training.display import display_for
    from regard.training.task import EvaluationOptions, task_of

    require_packages("torch", "sacrebleu")  # known before the data is translated
    columns = column_settings(source_column, target_column, text_column, label_column)
    if tasks:
        if source or target or data or parses:
            raise ConfigError("--tasks: have their own data; evaluate the other data with a second command.")
        _evaluate_tasks(load(model, device=device), tasks, as_json=as_json, quiet=quiet)
        return
    corpus = corpus_from_options(source, target, data, parses=parses, columns=columns)
    loaded, invalid = load(model, device=device), InvalidLines(skip_invalid)
    if not loaded.config.task:
        family = with_article(loaded.config.model.family)
        raise ConfigError(f"{loaded.folder} is {family} without a head, which predicts nothing; pass another model.")
    task = task_of(loaded.config)
    options = EvaluationOptions(
        beam,
        length_penalty,
        engine,
        precision,
        None,
        bleu_tokenizer,
        references,
        context_length,
        tag_column,
        split_sentences,
    )
    _check_options(options, task, loaded, output)
    with closing(display_for(sys.stderr, quiet)) as display, _output_file(output) as write:
        evaluation = task.evaluate(loaded, corpus, replace(options, output=write), invalid, display.count)
    report_skipped(invalid)
    settings, result = evaluation.settings, evaluation.result
    if as_json:
        info = {"model": str(loaded.folder), "data": list(corpus.file_names), **settings, **result.as_dict()}
        print_text(json.dumps(info, indent=2, ensure_ascii=False))
        return
    print_text(f"{loaded.folder} on {', '.join(corpus.file_names)}")
    if settings:
        print_text(", ".join(f"{key.replace('_', ' ')} {value}" for key, value in settings.items()))
    _print_scores(result)


def _evaluate_tasks(model: "Model", files: Sequence[str], *, as_json: bool, quiet: bool) -> None:
    """Print the accuracies of a language model on multiple-choice tasks."""
    from regard.evaluation.harness_task import read_task
    from regard.evaluation.multiple_choice import evaluate_choices
    from regard.tables import new_table
    from regard.training.display import display_for

    if not model.config.model.generates:
        raise ConfigError(f"--tasks: are for language models, and {model.folder} is none; remove the option.")
    tasks = [read_task(file) for file in files]  # all files are checked before the first question
    with closing(display_for(sys.stderr, quiet)) as display:
        results = [(name, evaluate_choices(model, questions, display.count)) for name, questions in tasks]
    if as_json:
        info = {"model": str(model.folder), "tasks": [{"task": name, **result.as_dict()} for name, result in results]}
        print_text(json.dumps(info, indent=2, ensure_ascii=False))
        return
    print_text(f"{model.folder}: acc, the answer has the highest probability; acc_norm, per character")
    table = new_table("task", "questions", "acc", "± error", "acc_norm", "± error")
    for name, result in results:
        table.add_row(name, f"{result.questions:,}", *(f"{value:.4f}" for value in result.scores.values()))
    print_table(table)


def _check_options(options: "EvaluationOptions", task: "NetworkTask", model: "Model", output: Path | None) -> None:
    """Raise ConfigError for an option that does not apply to the model."""
    from regard.training.task import TASKS, NetworkTask

    for name in [*options.set_by_user(), *(["output"] if output is not None else [])]:
        if name not in task.evaluation_options:
            tasks = [other for _, other in TASKS.items() if issubclass(other, NetworkTask)]
            *others, last = sorted({f"{other.noun}s" for other in tasks if name in other.evaluation_options})
            users = f"{', '.join(others)} and {last}" if others else last
            raise ConfigError(
                f"--{name.replace('_', '-')}: is for {users}, but {model.folder} is "
                f"{with_article(task.noun)}; remove it."
            )


@contextmanager
def _output_file(path: Path | None) -> Iterator[Callable[[str], None] | None]:
    """Yield a function that writes each translation to a line of a file; None without a file."""
    if path is None:
        yield None
        return
    with open_output(path) as write:
        yield lambda text: write([to_one_line(text)])  # one line each, so that they stay aligned


def _print_scores(result: "EvaluationScores") -> None:
    """Print tables of the scores: all, and the confusion matrix or the scores by sentence length."""
    from regard.evaluation.metrics import LabelScores
    from regard.evaluation.translation import TranslationEvaluation
    from regard.tables import new_table
    from regard.training.display import score_name, score_text, scores_line

    record = result.as_dict()
    counts = {key: record[key] for key in ("sentences", "tokens", "unknown", "bytes", "truncated") if key in record}
    table = new_table("score", "")
    table.columns[1].justify = "right"
    for key, value in {**record["scores"], **counts}.items():
        table.add_row(score_name(key), score_text(key, value))
    print_table(table)
    if isinstance(result, LabelScores):
        baseline = scores_line(result.confusion.majority_scores())
        print_text(f"Majority baseline, {result.confusion.majority_label} for every example: {baseline}")
        _print_confusion(result.confusion)
    if isinstance(result, TranslationEvaluation):
        for key, signature in result.signatures.items():
            print_text(f"{score_name(key)} signature: {signature}")
        lengths = new_table("source words", "sentences", "BLEU", "chrF")
        for bucket in result.lengths:
            scores = [score_text(key, value) for key, value in (("bleu", bucket.bleu), ("chrf", bucket.chrf))]
            lengths.add_row(bucket.words, f"{bucket.sentences:,}", *scores)
        print_table(lengths)


def _print_confusion(matrix: "ConfusionMatrix") -> None:
    """Print the confusion matrix, with a row per true label; of many labels only their F1."""
    from regard.tables import new_table

    columns = [str(label) for label in matrix.labels] if len(matrix.labels) <= MAX_CONFUSION_LABELS else []
    table = new_table("true ↓  predicted →", *columns, "F1")
    for label, row in zip(matrix.labels, matrix.counts.tolist(), strict=True):
        f1 = matrix.f1[label]
        table.add_row(label, *(f"{count:,}" for count in row if columns), "–" if f1 is None else f"{f1:.1%}")
    print_table(table)
