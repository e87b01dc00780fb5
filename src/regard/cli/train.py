"""`regard train`: train a model on files and evaluate it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer.core import TyperArgument

from regard.cli.help import Command
from regard.cli.input_output import column_settings, print_text, split_files
from regard.cli.options import (
    DATA_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    TRAINING_PANEL,
    DeviceOption,
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
    examples,
    file_option,
    option,
)
from regard.errors import ConfigError
from regard.registry import TASK_REGISTRY, ExampleType

if TYPE_CHECKING:
    from regard.config import ConfigSource
    from regard.training.run import Run
    from regard.training.task import Task

EXAMPLES = examples(
    "regard train translation --source train.en --target train.it --out runs/en-it",
    "regard train gpt --data book.txt --minutes 30",
    "regard train recipes/multi30k/en-de.toml path/to/multi30k",
    "regard train --resume --out runs/en-it",
)
SUGGESTED_TYPES: tuple[ExampleType, ...] = ("pairs", "labeled", "tagged", "documents")  # the most likely first
CELLS = ("rnn", "lstm", "gru")  # networks that people name instead of a task


def _task_help() -> str:
    return f"{', '.join(TASK_REGISTRY.names())}, or a TOML file."


class TrainCommand(Command):
    """`regard train`; its help is written after plugins are imported, and lists their tasks."""

    allow_extra_args = True  # so that data files among them get a message of their own

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        rest = super().parse_args(ctx, args)
        if ctx.args:
            files = [str(ctx.params["folder"]), *ctx.args]
            if error := _looks_like_data([ctx.params["task_or_file"], *files]):
                raise error
            raise _misplaced_files(files)
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:  # of click, or of the copy of it in newer typer
        """Write the help."""
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.name == "task_or_file":
                parameter.help = _task_help()
        super().format_help(ctx, formatter)


def run(
    task_or_file: Annotated[str | None, argument(_task_help(), "TASK")] = None,
    folder: Annotated[Path | None, argument("Folder of the data files that a TOML file names.", "FOLDER")] = None,
    source: SourceOption = None,
    target: TargetOption = None,
    parses: ParsesOption = None,
    data: Annotated[
        Files,
        file_option(
            "--data",
            help="Training data: files or folders of pairs (TSV, CSV, JSON Lines), text, labeled texts, tagged words.",
        ),
    ] = None,
    valid_source: Annotated[Files, file_option("--valid-source", help="Source sentences for validation.")] = None,
    valid_target: Annotated[Files, file_option("--valid-target", help="Translations for validation.")] = None,
    valid_parses: Annotated[
        Files, file_option("--valid-parses", help="Dependency parses of --valid-source in CoNLL-U.")
    ] = None,
    valid: Annotated[
        Files, file_option("--valid", help="Validation data, in the formats of --data; held out by default.")
    ] = None,
    test_source: Annotated[Files, file_option("--test-source", help="Source sentences of the final test.")] = None,
    test_target: Annotated[Files, file_option("--test-target", help="Translations of the final test.")] = None,
    test_parses: Annotated[
        Files, file_option("--test-parses", help="Dependency parses of --test-source in CoNLL-U.")
    ] = None,
    test: Annotated[Files, file_option("--test", help="Data of the final test, in the formats of --data.")] = None,
    source_column: SourceColumnOption = None,
    target_column: TargetColumnOption = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    skip_invalid: SkipInvalidOption = False,
    preset: Annotated[
        str | None,
        option(MODEL_PANEL, help="Preset with settings to start with; `regard model` lists them.", metavar="NAME"),
    ] = None,
    settings: SettingsOption = None,
    start_from: Annotated[
        str | None,
        option(
            MODEL_PANEL,
            "--from",
            help="Model to fine-tune: its network, weights and tokenizer are used.",
            metavar="MODEL",
        ),
    ] = None,
    mix: Annotated[
        Files,
        file_option("--mix", help="Old data to mix in when fine-tuning, in the formats of --data; reduces forgetting."),
    ] = None,
    mix_fraction: Annotated[
        float | None,
        option(DATA_PANEL, help="Fraction of the training data that is drawn from --mix; 0.2 by default."),
    ] = None,
    minutes: Annotated[
        float | None,
        option(
            TRAINING_PANEL,
            help="Minutes that training may take; for gpt, the size of the network follows from them too.",
            metavar="N",
        ),
    ] = None,
    size: Annotated[
        str | None,
        option(
            TRAINING_PANEL,
            help="Size of a gpt: tiny, small, medium, large, xlarge, or its number of parameters, such as 10M.",
            metavar="SIZE",
        ),
    ] = None,
    resume: Annotated[
        bool, option(TRAINING_PANEL, "--resume", help="Resume the run in --out, if there is one.")
    ] = False,
    out: Annotated[Path | None, option(OUTPUT_PANEL, help="Run folder; runs/TASK by default.")] = None,
    quiet: QuietOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Train a model on your data.

    Settings that you do not pass are chosen for the size of the data; each choice is printed with its reason.
    """
    from regard.config.tasks import sized_tasks
    from regard.training.display import display_for
    from regard.training.runner import run_training
    from regard.training.setup import TrainRequest
    from regard.training.shutdown import is_rank_zero, rank_zero_errors
    from regard.training.task import get_task

    with rank_zero_errors():
        splits = {
            "train": split_files(source, target, data, "--", parses, task_or_file),
            "valid": split_files(valid_source, valid_target, valid, "--valid-", valid_parses, task_or_file),
            "test": split_files(test_source, test_target, test, "--test-", test_parses, task_or_file),
        }
        data_settings: dict[str, Any] = {name: files for name, files in splits.items() if files}
        if columns := column_settings(source_column, target_column, text_column, label_column):
            for name, files in splits.items():
                if files or not splits["train"]:  # without --data: all splits of the TOML file
                    data_settings[name] = {**files, **columns}
        if mix:
            data_settings["mix"] = split_files(None, None, mix, "--mix-", None)
        if mix_fraction is not None:
            data_settings["mix_fraction"] = mix_fraction
        if skip_invalid:
            data_settings["skip_invalid"] = True
        requested, cell = task_or_file, None
        if task_or_file is not None and not _is_file(task_or_file):
            task_or_file = TASK_REGISTRY.resolve(task_or_file)
            if task_or_file.lower() in CELLS and task_or_file not in TASK_REGISTRY:
                cell = task_or_file.lower()
                task_or_file = _task_of_cell(cell, has_pairs=bool(source or target))
            if task_or_file != requested and not quiet and is_rank_zero():
                print_text(f"{requested}: this is the task {task_or_file}", file=sys.stderr)
        task = get_task(task_or_file) if task_or_file is not None and task_or_file in TASK_REGISTRY else None
        if task is not None:
            options = {
                "--valid": splits["valid"],
                "--test": splits["test"],
                "--from": start_from,
                "--mix": mix,
                "--preset": preset,
                "--resume": resume,
                "--minutes": minutes,
                "--size": size,
            }
            _check_options(task, [name for name, value in options.items() if value])
        if size is not None and (task is None or resume):
            tasks = f"regard train {' or '.join(sized_tasks())}"
            raise ConfigError(f"--size {size}: is for a new run of {tasks}; set model.width and model.layers.")
        training = {"start_from": start_from, "minutes": minutes}
        options_as_settings: dict[str, Any] = {"data": data_settings} if data_settings else {}
        if training := {name: value for name, value in training.items() if value is not None}:
            options_as_settings["training"] = training
        if cell is not None:
            options_as_settings["model"] = {"kind": "recurrent-encoder-decoder", "cell": cell}
        sources = _sources(task_or_file, task, folder, preset, options_as_settings, settings or [], resume)
        request = TrainRequest(
            sources,
            _run_folder(task_or_file, out),
            resume=resume,
            task=None if task is None else task.name,
            command=["regard", *sys.argv[1:]],
            device=device,
            size=size,
        )
        finished = (run_training if task is None else task.train)(request, display_for(sys.stderr, quiet))
    if is_rank_zero():
        print_results(finished)


def _misplaced_files(files: Sequence[object]) -> ConfigError:
    names = " ".join(map(str, files))
    return ConfigError(f"{names}: files and folders with data are passed with an option; write --data {names}.")


def _is_file(name: str) -> bool:
    return name.endswith(".toml") or Path(name).is_file()


def _looks_like_data(names: Sequence[str], command: str = "train", data: Sequence[str] = ()) -> ConfigError | None:
    """Return the error for data, a run or a model in the place of the task; None if the first name is none of these.

    A file without a known suffix is data if it is not valid TOML. `data` are the files of --data.
    """
    import tomllib

    from regard.data.readers import READERS
    from regard.data.remote import is_url

    first = names[0]
    path = Path(first)
    if TASK_REGISTRY.resolve(first) in TASK_REGISTRY or path.suffix == ".toml":
        return None
    if path.is_dir() and any((path / name).is_file() for name in ("run.json", "model.safetensors")):
        run = f"`regard train --resume --out {quote(first)}` resumes a run, " if (path / "run.json").is_file() else ""
        return ConfigError(
            f"{first}: is a model, not a task; {run}`regard train TASK --data FILE --from {quote(first)}` fine-tunes a "
            "model."
        )
    if not (path.is_dir() or is_url(first) or any(READERS[name].matches(first) for name in READERS)):
        if not path.is_file():
            return None
        try:
            tomllib.loads(path.read_text("utf-8-sig"))
            return None
        except OSError:
            return None  # reading it as settings has a message of its own
        except (ValueError, RecursionError):
            pass
    files = [*data, *names]
    return ConfigError(
        f"{' '.join(files)}: looks like data, not like a task or a TOML file; "
        f"pass the task too: {', or '.join(_commands_for(files, command))}."
    )


def _commands_for(files: Sequence[str], command: str = "train") -> list[str]:
    """Return the commands that train on these files, the most likely one first, each with what the files hold then."""
    from regard.config.tasks import suggested_tasks, task_info
    from regard.data.readers import EXAMPLE_NOUNS, READERS, files_in

    listed = [entry for name in files for entry in (files_in(name) if Path(name).is_dir() else [name])]
    readers = {READERS[name] for name in READERS for file in listed if READERS[name].matches(file)}
    suffixes = {Path(name).suffix for name in files}
    if not readers and len(files) == len(suffixes) == 2:  # a.en a.it
        source, target = map(quote, files)
        tasks = (task for task, _ in suggested_tasks(["pairs"]) if task_info(task).reads_aligned_files)
        return [f"`regard {command} {task} --source {source} --target {target}`" for task in tasks]
    known = suggested_tasks([name for name in SUGGESTED_TYPES if any(reader.yields(name) for reader in readers)])
    return [
        f"`regard {command} {task} --data {' '.join(map(quote, files))}` ({EXAMPLE_NOUNS[examples]})"
        for task, examples in known or suggested_tasks(["documents", "pairs"])
    ]


def _task_of_cell(cell: str, *, has_pairs: bool) -> str:
    """Return the task of a recurrent network; ConfigError if the data options do not decide it."""
    from regard.config import RecurrentEncoderDecoderConfig, RecurrentLanguageModelConfig

    gpt, translation = RecurrentLanguageModelConfig.default_task, RecurrentEncoderDecoderConfig.default_task
    if has_pairs:
        return translation
    network = f"--set model.cell={cell} --set model.kind=recurrent"
    raise ConfigError(
        f"{cell!r} is a network, not a task: for a language model run "
        f"`regard train {gpt} {network}-language-model --data TEXT`, for a translator "
        f"`regard train {translation} {network}-encoder-decoder --data PAIRS`."
    )


def _check_options(task: "Task", options: list[str]) -> None:
    """Raise ConfigError for an option that does not apply to the task."""
    for name in options:
        if name in task.unsupported_options:
            raise ConfigError(f"{name} does not apply to {task.name}, which is trained on --data; remove it.")


def _sources(
    task_or_file: str | None,
    task: "Task | None",
    folder: Path | None,
    preset: str | None,
    options: dict[str, Any],
    settings: list[str],
    resume: bool,
    command: str = "train",
) -> "list[ConfigSource]":
    """Return the sources of the settings, later ones winning: task, preset or file, options, --set."""
    from regard.config import ConfigSource, load_sources

    sources: list[ConfigSource] = []
    files = options.get("data", {}).get("train", {}).get("files", [])
    names = ", ".join(TASK_REGISTRY.names())
    if folder is not None and (task_or_file is None or task is not None):
        raise _misplaced_files([folder])
    if task is not None:
        sources = [ConfigSource(f"regard train {task.name}", task.default_settings()), *load_sources(preset)]
        options = {**options, "data": _add_builtin_splits(task, options.get("data", {}))}
    elif task_or_file is not None:
        error = _looks_like_data([task_or_file, *([] if folder is None else [str(folder)])], command, files)
        if error is not None:
            raise error
        if preset is not None:
            raise ConfigError(f"--preset {preset}: is for tasks ({names}); in a file, write preset = {preset!r}.")
        sources = _file_sources(task_or_file, folder)
    elif not resume:
        hint = f": {', or '.join(_commands_for(files))}" if files else ""
        raise ConfigError(f"the task is missing; pass {names}, or a TOML file{hint}.")
    sources += [ConfigSource("the command", options)] if any(options.values()) else []
    return sources + load_sources(None, settings)


def config_sources(
    task_or_file: str, folder: Path | None, preset: str | None, options: dict[str, Any], settings: list[str]
) -> "tuple[str | None, list[ConfigSource]]":
    """Return the name of the task, None for a TOML file, and the sources of the settings of `regard prepare`."""
    from regard.training.task import get_task

    if not _is_file(task_or_file):
        task_or_file = TASK_REGISTRY.resolve(task_or_file)
    task = get_task(task_or_file) if task_or_file in TASK_REGISTRY else None
    sources = _sources(task_or_file, task, folder, preset, options, settings, resume=False, command="prepare")
    return None if task is None else task.name, sources


def _run_folder(task_or_file: str | None, out: Path | None) -> Path:
    """Return the run folder: --out, or runs/ with the name of the task or file."""
    if out is not None:
        return out
    if task_or_file is None:
        raise ConfigError("--resume: pass the run folder with --out.")
    return Path("runs") / Path(task_or_file).stem


def _add_builtin_splits(task: "Task", data: dict[str, Any]) -> dict[str, Any]:
    """Add the validation and test data of a built-in corpus."""
    from regard.training.task import NetworkTask

    files = data.get("train", {}).get("files", [])
    if isinstance(task, NetworkTask) and len(files) == 1:
        for name, file in task.builtin_splits.get(files[0], {}).items():
            data.setdefault(name, {"files": [file]})
    return data


def _file_sources(file: str, folder: Path | None) -> "list[ConfigSource]":
    """Return the settings of a TOML file, with data paths resolved against the folder."""
    from regard.config import did_you_mean, load_sources, preset_names, resolve_paths

    if not _is_file(file):
        known = [*TASK_REGISTRY.names(), *TASK_REGISTRY.aliases, *CELLS]
        hint = " (it is a preset: pass it with --preset)" if file in preset_names() else did_you_mean(file, known)
        raise ConfigError(f"{file!r} is not a task{hint}; pass {', '.join(TASK_REGISTRY.names())}, or a TOML file.")
    sources = load_sources(Path(file))
    return sources if folder is None else [resolve_paths(folder, source) for source in sources]


def print_results(run: "Run") -> None:
    """Print the scores of a run, and where its model and report are."""
    for line in run.summary:
        print_text(line)
