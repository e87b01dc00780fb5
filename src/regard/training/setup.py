"""Settling what a run is: the settings of a new one, written down before it begins; those of one that goes on."""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.config import Config, ConfigSource, DataConfig, to_toml, validate_sources
from regard.config.errors import setting_origin
from regard.config.sources import flatten
from regard.data.fingerprint import data_key
from regard.data.preparation import spool_stdin
from regard.data.stats import ReportProgress
from regard.data.tokenizer import load_tokenizer, special_token_ids
from regard.errors import ConfigError, DataError, InterruptedRun, RunError, RunFolderError
from regard.models.folder_files import TOKENIZER_FILE
from regard.training.automatic_settings import SOURCE_NAME, TYPICAL_STATS, AutomaticSetting, as_source, user_settings
from regard.training.display import ProgressDisplay
from regard.training.initialization import check_same_network, check_word_vectors, start_from_source, start_tokenizer
from regard.training.interrupts import StopRequest
from regard.training.kinds import check_command, task_in_sources, task_of
from regard.training.run_folder import RunFolder
from regard.training.task import Task

STDIN_COPY = "standard-input"


@dataclass(frozen=True)
class TrainRequest:
    """What the user asked for."""

    sources: Sequence[ConfigSource]  # settings, the later ones to win; what is picked comes after the first
    out: Path
    resume: bool = False
    task: str | None = None  # `regard train WHAT`, which the first source stands for, and lets the data choose the rest
    command: Sequence[str] = ()

    @property
    def automatic(self) -> bool:
        """Whether the data choose what the user did not."""
        return self.task is not None


def start_run(run: RunFolder, request: TrainRequest, display: ProgressDisplay, stop: StopRequest) -> None:
    """Settle the settings of a new run, and write them down."""
    if run.exists:
        raise RunError(f"{run.folder}: holds a run already; add --resume to go on with it, or choose another --out.")
    run.remove_partial_files()
    (run.folder / STDIN_COPY).unlink(missing_ok=True)  # what came through standard input of an attempt that never began
    sources = list(request.sources)
    first = start_from_source(sources, by_command=request.automatic)
    if first is not None:  # above what a command stands for, below all that the user says
        sources = [*sources[:1], first, *sources[1:]] if request.automatic else [first, *sources]
    config = _whatever_the_data(sources) if request.automatic else validate_sources(sources)
    if config.training.start_from is not None:
        check_same_network(config, sources)
        run.write(TOKENIZER_FILE, start_tokenizer(config.training.start_from))
    elif config.tokenizer.file is not None:
        sources = [*sources[:1], _from_tokenizer(Path(config.tokenizer.file)), *sources[1:]]
        config = _whatever_the_data(sources) if request.automatic else validate_sources(sources)
    task = task_of(config)
    if request.task is not None:
        check_command(config, request.task)
    task.check(config)
    if not config.data.train.has_files:
        aligned = "--source and --target, or " if config.model.translates else ""
        raise ConfigError(f"there is nothing to learn from; give {aligned}--data.")
    data, report = with_run_files(run, config, read=True).data, progress_callback(run, display, stop)
    _look_at_what_measures(task, data, display, report)
    picks: list[AutomaticSetting] = []
    if request.automatic:
        scan = task.corpus_stats(data.train, data.skip_invalid, report)
        if scan.characters == 0:
            raise DataError(f"{', '.join(config.data.train.file_names)}: has nothing to learn from; give more text.")
        picks = task.automatic_settings(scan, user_settings(sources))
        sources = [sources[0], as_source(picks), *sources[1:]]
        config = validate_sources(sources)
        picks = _not_overruled(picks, config, sources)
        for pick in picks:
            display.note(f"{pick.setting} = {pick.value}: {pick.why}.")
    check_word_vectors(config)
    key = data_key(with_run_files(run, config, read=True))
    run.write(run.config_path.name, to_toml(config, sources))
    about = {
        "name": run.folder.resolve().name,
        "command": list(request.command),
        "started": timestamp(),
        "finished": None,
        "status": "begun",
        "task": task.name,
        "key": key,
        "choices": [{"setting": pick.setting, "value": str(pick.value), "why": pick.why} for pick in picks],
    }
    run.write_json(run.info_path.name, about)


def _whatever_the_data(sources: Sequence[ConfigSource]) -> Config:
    """The settings before picks, which need the data read, are known: right for some amount of it, or a complaint."""
    task = task_in_sources(sources)
    if task is None:
        return validate_sources(sources)
    complaints: list[ConfigError] = []
    for amount in TYPICAL_STATS:
        try:
            return validate_sources(
                [sources[0], as_source(task.automatic_settings(amount, user_settings(sources))), *sources[1:]]
            )
        except ConfigError as error:
            complaints.append(error)
    raise complaints[0]


def _not_overruled(
    picks: Sequence[AutomaticSetting], config: Config, sources: Sequence[ConfigSource]
) -> list[AutomaticSetting]:
    """The picks that have become settings: the user said nothing else, nor chose a variant that has no such setting."""
    settled = {".".join(path) for path, _ in flatten(config.model_dump(mode="json"))}
    return [
        pick
        for pick in picks
        if pick.setting in settled and setting_origin([pick.setting.split(".")], sources) == SOURCE_NAME
    ]


def _look_at_what_measures(task: Task, data: DataConfig, display: ProgressDisplay, report: ReportProgress) -> None:
    """Read validation and test data before anything long begins: a bad line in them would end the run much later."""
    learned_from = {_place(name) for name in data.train.file_names}
    for part, what in ((data.valid, "validation"), (data.test, "test")):
        for name in part.file_names:
            if _place(name) in learned_from:
                display.note(
                    f"{name}: is training and {what} data at once; scores on it say little about text that is new."
                )
        if part.has_files and task.corpus_stats(part, data.skip_invalid, report).characters == 0:
            raise DataError(f"{', '.join(part.file_names)}: has nothing to use as {what} data; give more text.")


def resume_run(run: RunFolder, request: TrainRequest, display: ProgressDisplay) -> None:
    """Settle the settings of a run that resumes: its own, and what the user changes."""
    if not run.has_checkpoint:  # a run saves before its first step, so there was a checkpoint
        raise RunFolderError(
            f"{run.checkpoints}: has no checkpoint, though this run has trained; "
            "put them back, or start a new run with another --out."
        )
    before = config_of(run)
    own = ConfigSource(str(run.config_path), tomllib.loads(run.config_path.read_text("utf-8")))
    sources = [own, *request.sources]
    after = validate_sources(sources)
    for note in changed_settings(before, after, sources):
        display.note(note)
    data = with_run_files(run, after, read=False)
    gone = [name for name in data.data.file_names if not _is_there(name)]
    if not gone and data_key(data) != run.read_info()["key"]:
        raise RunError(
            f"{run.folder}: its data files are not what they were when it began; put them back, or start a new run."
        )
    if after != before:
        run.write(run.config_path.name, to_toml(after, sources))


def config_of(run: RunFolder) -> Config:
    """The settings of a run."""
    remedy = "put it back from a copy, or start a new run with another --out."
    try:
        text = run.config_path.read_text("utf-8")
        return validate_sources([ConfigSource(str(run.config_path), tomllib.loads(text), text)])
    except OSError as error:
        raise RunFolderError(f"{run.config_path}: cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{run.config_path}: is damaged ({error}); {remedy}") from None
    except ConfigError as error:
        raise RunFolderError(str(error)) from None


def prepared_folder(run: RunFolder, config: Config, key: str) -> Path:
    """Where tokenizer and tokens of a run are."""
    return Path(config.data.store) / key[:16] if config.data.store else run.data


def with_run_files(run: RunFolder, config: Config, *, read: bool) -> Config:
    """The settings with what a run keeps of its own: what came through standard input, the tokenizer it starts with."""
    kept: dict[str, Any] = {"data": spool_stdin(config.data, run.folder / STDIN_COPY, read=read)}
    if config.training.start_from is not None:
        kept["tokenizer"] = config.tokenizer.model_copy(update={"file": str(run.folder / TOKENIZER_FILE)})
    return config.model_copy(update=kept)


def progress_callback(run: RunFolder, display: ProgressDisplay, stop: StopRequest) -> ReportProgress:
    """What tells the display how far long work is, and stops it on a stop."""

    def report(what: str, count: int) -> None:
        if stop.requested:
            raise InterruptedRun(f"{run.folder}: stopped while {what}; go on with --resume.")
        display.counting(what, count, None)

    return report


def timestamp() -> str:
    """The time, as run.json writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _from_tokenizer(path: Path) -> ConfigSource:
    """What a tokenizer that is given settles."""
    tokenizer = load_tokenizer(path)
    return ConfigSource(
        str(path), {"model": {"vocab_size": len(tokenizer)}, "tokens": special_token_ids(tokenizer, path)}
    )


def _place(name: str) -> str:
    """The file behind a name, however it is written."""
    return name if name.startswith("builtin:") else os.path.realpath(name)


def _is_there(name: str) -> bool:
    return name.startswith("builtin:") or Path(name).exists()


CHANGEABLE_SETTINGS = (
    "training.steps",
    "training.epochs",
    "training.gradient_accumulation",
    "training.label_smoothing",
    "training.rdrop",
    "training.optimizer.beta1",
    "training.optimizer.beta2",
    "training.optimizer.epsilon",
    "training.optimizer.weight_decay",
    "training.schedule",
    "training.max_grad_norm",
    "training.precision",
    "training.average_checkpoints",
    "training.patience",
    "training.checkpoint_minutes",
    "training.log_every",
    "training.threads",
    "validation",
    "testing",
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "tokenizer.dropout",
)


def changed_settings(before: Config, after: Config, sources: Sequence[ConfigSource]) -> list[str]:
    """The settings that differ, as sentences; the first that may not differ is an error.

    What a run has learned so far, and its place in the data, must keep their meaning. Everything else may change.
    """
    old, new = (dict(flatten(config.model_dump(mode="json"))) for config in (before, after))
    notes = []
    for path in sorted({*old, *new}):
        if old.get(path) == new.get(path):
            continue
        name, was, now = ".".join(path), old.get(path), new.get(path)
        if not any(name == setting or name.startswith(f"{setting}.") for setting in CHANGEABLE_SETTINGS):
            found = setting_origin([path], sources)
            where = f"{found}: " if found else ""
            raise ConfigError(
                f"{where}{name} cannot be changed from {was!r} to {now!r} in a run that is under way; "
                "leave it as it was, or start a new run with another --out."
            )
        notes.append(f"{name} is changed from {was!r} to {now!r} from here on.")
    return notes
