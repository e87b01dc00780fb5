"""`regard prepare`: tokenize data ahead of training."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.input_output import column_settings, print_text, split_files
from regard.cli.options import (
    DATA_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    Files,
    LabelColumnOption,
    ParsesOption,
    QuietOption,
    SettingsOption,
    SkipInvalidOption,
    SourceColumnOption,
    SourceOption,
    TargetColumnOption,
    TargetOption,
    TextColumnOption,
    argument,
    check_choice,
    examples,
    file_option,
    option,
)
from regard.cli.train import config_sources

if TYPE_CHECKING:
    from regard.data.preparation import PreparedData
    from regard.training.display import ProgressDisplay
    from regard.training.setup import TrainRequest

EXAMPLES = examples(
    "regard prepare translation --data 'corpus/*.tsv.zst' --out prepared",
    "regard prepare my.toml --out prepared --workers 8",
    "regard prepare gpt --data s3://bucket/books/*.parquet --cluster ray",
)
CLUSTERS = ("local", "ray")


def run(
    task_or_file: Annotated[str, argument("A task such as translation or gpt, or a TOML file.", "TASK")],
    folder: Annotated[Path | None, argument("Folder of the data files that a TOML file names.", "FOLDER")] = None,
    source: SourceOption = None,
    target: TargetOption = None,
    parses: ParsesOption = None,
    data: Annotated[
        Files,
        file_option("--data", help="Training data: files, folders, patterns or URLs, in the formats of regard train."),
    ] = None,
    valid: Annotated[
        Files, file_option("--valid", help="Validation data, in the formats of --data; held out by default.")
    ] = None,
    test: Annotated[Files, file_option("--test", help="Data of the final test, in the formats of --data.")] = None,
    source_column: SourceColumnOption = None,
    target_column: TargetColumnOption = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    skip_invalid: SkipInvalidOption = False,
    workers: Annotated[
        int | None, option(DATA_PANEL, min=1, help="Processes that tokenize; the number of cores by default.")
    ] = None,
    cluster: Annotated[
        str, option(DATA_PANEL, help="Where to tokenize: local, or ray for all machines of a Ray cluster.")
    ] = "local",
    preset: Annotated[
        str | None,
        option(MODEL_PANEL, help="Preset with settings to start with; `regard model` lists them.", metavar="NAME"),
    ] = None,
    settings: SettingsOption = None,
    out: Annotated[Path, option(OUTPUT_PANEL, help="Folder of prepared data, for data.store.")] = Path("prepared"),
    quiet: QuietOption = False,
) -> None:
    """Tokenize data ahead of training.

    Training with the same data and settings, and data.store set to the folder, starts at once. An interrupted
    preparation continues where it stopped.
    """
    from regard.training.display import display_for
    from regard.training.setup import TrainRequest

    check_choice("--cluster", cluster, CLUSTERS)
    splits = {
        "train": split_files(source, target, data, "--", parses),
        "valid": split_files(None, None, valid, "--valid-", None),
        "test": split_files(None, None, test, "--test-", None),
    }
    values: dict[str, Any] = {name: files for name, files in splits.items() if files}
    if columns := column_settings(source_column, target_column, text_column, label_column):
        for name, files in splits.items():
            if files or not splits["train"]:
                values[name] = {**files, **columns}
    if skip_invalid:
        values["skip_invalid"] = True
    if workers is not None:
        values["workers"] = workers
    if cluster != "local":
        values["cluster"] = cluster
    task, sources = config_sources(task_or_file, folder, preset, {"data": values} if values else {}, settings or [])
    request = TrainRequest(sources, out, task=task, command=["regard", *sys.argv[1:]])
    prepared_in, prepared = prepare_data(request, display_for(sys.stderr, quiet))
    for line in _summary(prepared):
        print_text(line)
    print_text(f"folder: {prepared_in}")
    print_text(f"Train with the same data and settings, and --set data.store={out}")


def prepare_data(request: "TrainRequest", display: "ProgressDisplay") -> tuple[Path, "PreparedData"]:
    """Prepare the data of a training request exactly as training would; return their folder inside `request.out`.

    A run with the same data and settings and `data.store` set to `request.out` finds everything prepared.
    """
    from regard.config import ConfigSource
    from regard.errors import InterruptedRun
    from regard.training.run_folder import RunFolder
    from regard.training.runner import prepare_run
    from regard.training.setup import config_of, prepared_folder, start_run
    from regard.training.shutdown import stop_on_signal
    from regard.training.task import task_of

    store = ConfigSource("--out", {"data": {"store": str(request.out)}})
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        stack.callback(display.close)
        temporary = Path(stack.enter_context(TemporaryDirectory(prefix="regard-")))
        run = RunFolder(temporary / "run")
        stack.enter_context(run.lock())
        try:
            start_run(run, replace(request, out=run.folder, sources=[*request.sources, store]), display, stop)
            config = config_of(run)
            key = run.read_info()["key"]
            prepared = prepare_run(run, task_of(config), config, key, display, stop)
        except InterruptedRun:
            raise InterruptedRun(
                f"{request.out}: stopped; finished shards are kept: run the command again to continue."
            ) from None
        return prepared_folder(run, config, key), prepared


def _summary(prepared: "PreparedData") -> Iterator[str]:
    """Lines for the user: sizes, and messages about the data."""
    for name, split in prepared.splits.items():
        tokens = sum(len(column.ids) for column in split.store.columns[: split.text_columns])
        yield f"{name}: {len(split.store):,} examples, {tokens:,} tokens"
        yield from (f"{name}: {message}" for message in (*split.notes(prepared.tokenizer), *split.omissions()))
    yield f"tokenizer: {len(prepared.tokenizer):,} tokens"
