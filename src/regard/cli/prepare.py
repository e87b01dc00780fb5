"""`regard prepare`: tokenize data ahead of training."""

import sys
from pathlib import Path
from typing import Annotated, Any

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
    from regard.training.prepare_data import prepare_data
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
    for line in prepare_data(request, display_for(sys.stderr, quiet)).summary():
        print_text(line)
    print_text(f"Train with the same data and settings, and --set data.store={out}")
