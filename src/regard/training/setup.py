"""Set up a run: resolve the settings of a new run and write them down, or check what a resumed run may change."""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from regard.config import Config, ConfigSource, CorpusConfig, DataConfig, to_toml, validate_sources
from regard.config.errors import setting_origin
from regard.config.sources import flatten
from regard.config.tasks import task_info
from regard.data.chat import load_chat_template
from regard.data.chat_templates import read_chat_files
from regard.data.corpus_scan import ReportProgress, corpus_scan
from regard.data.data_key import data_key
from regard.data.datasets import save_dataset
from regard.data.lines import STANDARD_INPUT
from regard.data.preparation import has_tokenizer, spool_stdin
from regard.data.remote import file_exists, is_url
from regard.data.tokenizer import load_tokenizer, special_token_ids
from regard.errors import ConfigError, DataError, InterruptedRun, RunError, RunFolderError
from regard.files import read_regular_file
from regard.models.folder_files import TOKENIZER_FILE, resolve_model_folder
from regard.training.automatic_settings import SOURCE_NAME, TYPICAL_STATS, AutomaticSetting, as_source, user_settings
from regard.training.display import ProgressDisplay
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.run_folder import RunFolder
from regard.training.shutdown import StopRequest
from regard.training.speed import sized_settings
from regard.training.start_from import check_same_network, check_word_vectors, start_from_source, start_tokenizer
from regard.training.task import NetworkTask, check_task, task_in_sources, task_of
from regard.training.trained_parts import base_checksum, check_trained_parts

STDIN_COPY = "standard-input"
MIX_HELD_OUT = 0.1  # at least: more than automatic settings hold out, so that no validation data of the base is drawn
CHANGEABLE_SETTINGS = (  # when a run is resumed
    "data.description",
    "data.workers",
    "data.cluster",
    "training.steps",
    "training.epochs",
    "training.minutes",
    "training.gradient_accumulation",
    "training.batch_ramp_steps",
    "training.label_smoothing",
    "training.rdrop",
    "training.balance_classes",
    "training.class_weights",
    "training.optimizer",
    "training.schedule",
    "training.layer_decay",
    "training.max_grad_norm",
    "training.precision",
    "training.compile",
    "training.gradient_checkpointing",
    "training.prefetch",
    "training.average_checkpoints",
    "training.patience",
    "training.checkpoint_minutes",
    "training.log_every",
    "training.lora.dropout",
    "training.threads",
    "training.parallel",
    "training.collective_timeout_minutes",
    "validation",
    "testing",
    "decoding",
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "tokenizer.dropout",
)
# of runs that did not save these settings: version 0.2 and before
FORMER_TOKENIZER = {"split_punctuation": False, "byte_fallback": False}
FIXED_SETTINGS = ("training.optimizer.kind",)  # among them: the state of one optimizer means nothing to another


@dataclass(frozen=True)
class TrainRequest:
    """What to train, and where to write it."""

    sources: Sequence[ConfigSource]
    """Settings; later sources override earlier ones."""
    out: Path
    """The run folder."""
    resume: bool = False
    """Resume the run in the folder, if there is one."""
    task: str | None = None
    """The name in `regard train NAME`. Its default settings are the first source, and settings that the user left open
    are chosen from the data."""
    command: Sequence[str] = ()
    """The command line, for run.json."""
    device: str = "auto"
    """The device, by name: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`."""
    size: str | None = None
    """The size of the network, by name or by its number of parameters, such as `10M`; for tasks with a rule for it."""
    datasets: Mapping[str, Iterable[Mapping[str, object]]] = field(default_factory=dict)
    """Datasets of a Python program by split, which are saved in the run folder: see `dataset_path`."""

    @property
    def automatic(self) -> bool:
        """Whether settings that the user left open are chosen from the data."""
        return self.task is not None


def start_run(
    run: RunFolder,
    request: TrainRequest,
    display: ProgressDisplay,
    stop: StopRequest,
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Resolve the settings of a new run and write config.toml and run.json."""
    if run.exists:
        raise RunError(f"{run.folder}: already holds a run; add --resume to continue it, or choose another --out.")
    run.remove_partial_files()
    (run.folder / STDIN_COPY).unlink(missing_ok=True)  # of an attempt that failed before training
    for name, dataset in request.datasets.items():
        save_dataset(dataset, dataset_path(run.folder, name))
    sources = list(request.sources)
    start = start_from_source(sources, by_command=request.automatic)
    if start is not None:  # overrides the defaults of the task, and is overridden by the user
        sources = [*sources[:1], start, *sources[1:]] if request.automatic else [start, *sources]
    config = _provisional_config(sources) if request.automatic else validate_sources(sources)
    if config.training.start_from is not None:
        check_same_network(config, sources)
        run.write(TOKENIZER_FILE, start_tokenizer(config.training.start_from))
        for name, content in read_chat_files(resolve_model_folder(config.training.start_from)).items():
            run.write(name, content.decode())
        if config.task and task_info(config.task).uses_chat_template:  # the model keeps what it learns to write
            tokenizer = load_tokenizer(run.folder / TOKENIZER_FILE)
            for name, content in load_chat_template(run.folder, tokenizer, config.tokens).files.items():
                run.write(name, content.decode())
    elif config.tokenizer.file is not None:
        sources = [*sources[:1], _tokenizer_source(Path(config.tokenizer.file)), *sources[1:]]
        config = _provisional_config(sources) if request.automatic else validate_sources(sources)
    task = task_of(config)
    if request.task is not None:
        check_task(config, request.task)
    task.check(config)
    if not config.data.train.has_files:
        raise ConfigError(f"there is no training data; pass {task.data_options}.")
    data, report = with_run_files(run, config, read=True).data, progress_callback(run, display, stop)
    with corpus_scan() as scan:  # files are hashed while they are read, and texts for the tokenizer kept
        _check_evaluation_data(task, data, display, report)
        _check_mix(task, config, report)
        stats = None
        if request.automatic or not _has_prepared_data(config):
            with scan.sampling(keep_texts=config.tokenizer.file is None and config.training.start_from is None):
                stats = task.corpus_stats(data.train, data.skip_invalid, report)
    chosen: list[AutomaticSetting] = []
    if request.automatic:
        assert stats is not None
        if stats.characters == 0:
            raise DataError(f"{', '.join(config.data.train.file_names)}: has no text to train on; provide more text.")
        if data.mix.has_files:  # an epoch is longer
            stats = replace(stats, characters=round(stats.characters / (1 - data.mix_fraction)))
        user = user_settings(sources)
        if request.size is not None or user.minutes is not None:
            user = sized_settings(task, sources, stats, request.size, display, process_group)
        chosen = task.automatic_settings(stats, user)
        sources = [sources[0], as_source(chosen), *sources[1:]]
        config = validate_sources(sources)
        chosen = _used_settings(chosen, config, sources)
        for setting in chosen:
            display.note(f"{setting.key} = {setting.value}: {setting.reason}.")
    check_word_vectors(config)
    check_trained_parts(config)
    key = data_key(with_run_files(run, config, read=True), scan.digests)
    folder = prepared_folder(run, config, key)
    if not has_tokenizer(folder, key):
        scan.save(folder, key)
    run.write(run.config_path.name, to_toml(config, sources))
    info = {
        "name": run.folder.resolve().name,
        "command": list(request.command),
        "started": timestamp(),
        "finished": None,
        "status": "started",
        "task": task.title,
        "key": key,
        "mix_key": mix_key(run, config, key, scan.digests),
        "base_sha256": base_checksum(config),
        "automatic_settings": [
            {"setting": setting.key, "value": str(setting.value), "reason": setting.reason} for setting in chosen
        ],
    }
    run.write_json(run.info_path.name, info)


def _provisional_config(sources: Sequence[ConfigSource]) -> Config:
    """The config before the data are read: valid for some amount of data, or the error for the smallest amount."""
    task = task_in_sources(sources)
    if task is None:
        return validate_sources(sources)
    errors: list[ConfigError] = []
    for stats in TYPICAL_STATS:
        settings = as_source(task.automatic_settings(stats, user_settings(sources)))
        try:
            return validate_sources([sources[0], settings, *sources[1:]])
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _used_settings(
    chosen: Sequence[AutomaticSetting], config: Config, sources: Sequence[ConfigSource]
) -> list[AutomaticSetting]:
    """The automatic settings in effect: not overridden, and not of a variant that the user replaced."""
    keys = {".".join(path) for path, _ in flatten(config.model_dump(mode="json"))}
    return [
        setting
        for setting in chosen
        if setting.key in keys and setting_origin([setting.key.split(".")], sources) == SOURCE_NAME
    ]


def _has_prepared_data(config: Config) -> bool:
    """Whether files are hashed before they are scanned: a shared folder may have their prepared data already."""
    folder = Path(config.data.store) if config.data.store else None
    return folder is not None and folder.is_dir() and any(folder.iterdir())


def _check_evaluation_data(
    task: NetworkTask, data: DataConfig, display: ProgressDisplay, report: ReportProgress
) -> None:
    """Read validation and test data before training: an invalid line in them would end the run much later."""
    train_files = {_real_path(name) for name in data.train.file_names}
    for split, what in ((data.valid, "validation"), (data.test, "test")):
        for name in split.file_names:
            if _real_path(name) in train_files:
                display.note(f"{name}: is both training and {what} data; scores on it say little about new text.")
        if split.has_files and task.corpus_stats(split, data.skip_invalid, report).characters == 0:
            raise DataError(f"{', '.join(split.file_names)}: has no text to use as {what} data; provide more text.")


def _check_mix(task: NetworkTask, config: Config, report: ReportProgress) -> None:
    """Check the old data that are mixed in, before training."""
    mix = config.data.mix
    if not mix.has_files:
        return
    if config.training.start_from is None:
        raise ConfigError("data.mix: is for fine-tuning; pass --from MODEL, or add the files to the training data.")
    if STANDARD_INPUT in mix.file_names:
        raise ConfigError("data.mix: cannot be read from standard input; pass a file.")
    task.check(config.model_copy(update={"data": config.data.model_copy(update={"train": mix})}))
    if task.corpus_stats(mix, config.data.skip_invalid, report).characters == 0:
        raise DataError(f"{', '.join(mix.file_names)}: has no text to mix in; provide more text.")


def resume_run(run: RunFolder, request: TrainRequest, display: ProgressDisplay) -> None:
    """Check the settings of a run that is resumed: its own, with the changes of the user."""
    if not run.has_checkpoint:  # a run saves a checkpoint before its first step
        raise RunFolderError(
            f"{run.checkpoints}: has no checkpoint, though this run has trained; "
            "restore the checkpoints, or start a new run with another --out."
        )
    before = config_of(run)
    own = run_source(run)
    sources = [ConfigSource(own.name, own.values), *request.sources]  # without lines, which change when it is rewritten
    after = validate_sources(sources)
    for note in changed_settings(before, after, sources):
        display.note(note)
    config = with_run_files(run, after, read=False)
    missing = [name for name in config.data.file_names if not _exists(name)]
    info = run.read_info()
    missing += [name for name in config.data.mix.file_names if not _exists(name)]
    if not missing and (data_key(config), mix_key(run, config, info["key"])) != (info["key"], info.get("mix_key", "")):
        raise RunError(
            f"{run.folder}: its data files have changed since it was started; restore them, or start a new run."
        )
    if after != before:
        run.write(run.config_path.name, to_toml(after, sources))


def changed_settings(before: Config, after: Config, sources: Sequence[ConfigSource]) -> list[str]:
    """A message for each setting that a resumed run changes; an error for one that it may not change.

    The weights so far and the position in the data must keep their meaning. Everything else may change.
    """
    old, new = (dict(flatten(config.model_dump(mode="json"))) for config in (before, after))
    messages = []
    for path in sorted({*old, *new}):
        if old.get(path) == new.get(path):
            continue
        key = ".".join(path)
        change = f"from {old.get(path)!r} to {new.get(path)!r}"
        changeable = any(key == setting or key.startswith(f"{setting}.") for setting in CHANGEABLE_SETTINGS)
        if not changeable or key in FIXED_SETTINGS:
            origin = setting_origin([path], sources)
            raise ConfigError(
                f"{f'{origin}: ' if origin else ''}{key} cannot be changed {change} when a run is resumed; "
                "leave it as it was, or start a new run with another --out."
            )
        messages.append(f"{key} changes {change} from this step on.")
    return messages


def config_of(run: RunFolder) -> Config:
    """The config of a run."""
    remedy = "restore it from a copy, or start a new run with another --out."
    try:
        return validate_sources([run_source(run)])
    except OSError as error:
        raise RunFolderError(f"{run.config_path}: cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{run.config_path}: is damaged ({error}); {remedy}") from None
    except ConfigError as error:
        raise RunFolderError(str(error)) from None


def run_source(run: RunFolder) -> ConfigSource:
    """The settings that a run saved; those that its version did not have yet get the values that it worked with."""
    text = read_regular_file(run.config_path).decode("utf-8")
    values = tomllib.loads(text)
    if missing := [name for name in ("model", "data", "training") if name not in values]:
        raise ValueError(f"it has no table [{missing[0]}]")
    if isinstance(tokenizer := values.get("tokenizer"), dict):
        values["tokenizer"] = FORMER_TOKENIZER | tokenizer
    return ConfigSource(str(run.config_path), values, text)


def prepared_folder(run: RunFolder, config: Config, key: str) -> Path:
    """The folder with the tokenizer and the token stores of a run."""
    return Path(config.data.store) / key[:16] if config.data.store else run.data


def with_run_files(run: RunFolder, config: Config, *, read: bool) -> Config:
    """The config with files of the run folder: the copy of standard input, and the tokenizer of the start model."""
    updates: dict[str, Any] = {"data": spool_stdin(config.data, run.folder / STDIN_COPY, read=read)}
    if config.training.start_from is not None:
        updates["tokenizer"] = config.tokenizer.model_copy(update={"file": str(run.folder / TOKENIZER_FILE)})
    return config.model_copy(update=updates)


def mix_key(run: RunFolder, config: Config, key: str, digests: Mapping[str, str] = MappingProxyType({})) -> str:
    """The key of the old data of a run, which also depends on the key of its other data; empty without old data."""
    if not config.data.mix.has_files:
        return ""
    return f"{data_key(with_run_files(run, mix_config(config, ()), read=False), digests)}-{key}"


def mix_config(config: Config, labels: tuple[str, ...]) -> Config:
    """The config that prepares the old data: as training data, with the labels of the new data."""
    held_out = max(config.data.validation_fraction, MIX_HELD_OUT)
    none = CorpusConfig()
    splits = {"train": config.data.mix, "valid": none, "test": none, "mix": none, "validation_fraction": held_out}
    model = config.model
    if labels:
        head = model.head.model_copy(update={"labels": labels})  # type: ignore[union-attr]  # only encoders have labels
        model = model.model_copy(update={"head": head})
    return config.model_copy(update={"model": model, "data": config.data.model_copy(update=splits)})


def progress_callback(run: RunFolder, display: ProgressDisplay, stop: StopRequest) -> ReportProgress:
    """A function that shows the progress of long work, and interrupts it when a stop was requested."""

    def report(what: str, count: int) -> None:
        if stop.requested:
            remedy = "continue with --resume." if run.exists else "run the command again to continue."
            raise InterruptedRun(f"{run.folder}: stopped while {what}; {remedy}")
        display.count(what, count, None)

    return report


def dataset_path(folder: Path, split: str) -> Path:
    """The file of a run folder with a dataset that a Python program passed."""
    return folder / f"dataset-{split}.jsonl"


def timestamp() -> str:
    """The current time in ISO format, as run.json has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _tokenizer_source(path: Path) -> ConfigSource:
    """Settings that follow from a tokenizer file."""
    tokenizer = load_tokenizer(path)
    return ConfigSource(
        str(path), {"model": {"vocab_size": len(tokenizer)}, "tokens": special_token_ids(tokenizer, path)}
    )


def _real_path(name: str) -> str:
    return name if name.startswith("builtin:") or is_url(name) else os.path.realpath(name)


def _exists(name: str) -> bool:
    return name.startswith("builtin:") or file_exists(name)
