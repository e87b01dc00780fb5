"""`regard.train`, and how a training request is run: from settings to a finished run folder, new or resumed."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import torch

from regard.config import Config, ConfigSource, load_sources, validate_sources
from regard.config.tasks import sized_tasks
from regard.data.corpus_scan import ReportProgress, discard_scan
from regard.data.datasets import Datasets, dataset_splits
from regard.data.preparation import PreparedData
from regard.data.store import verified_stores
from regard.errors import ConfigError, DataError, InterruptedRun, ModelError, RegardError, RunFolderError
from regard.machine import keep_freed_memory
from regard.models import build
from regard.models.assembly import build_meta
from regard.models.network import Network
from regard.training.checkpoint import Checkpoint, checkpoints, seed_step
from regard.training.display import ProgressDisplay, ResilientDisplay, scores_line
from regard.training.distributed import ProcessGroup, joined_process_group, set_collective_timeout
from regard.training.environment import environment, matmul_peak, small_for_bfloat16
from regard.training.fine_tuning import BaseValidation, find_base_validation, mix_in
from regard.training.parallel import Parallelism
from regard.training.report import write_report
from regard.training.results import conclude
from regard.training.run import Callback, Run, tensorboard_callbacks
from regard.training.run_folder import RunFolder
from regard.training.schedules import batches_of_updates
from regard.training.setup import (
    TrainRequest,
    config_of,
    dataset_path,
    prepared_folder,
    progress_callback,
    resume_run,
    start_run,
    with_run_files,
)
from regard.training.shutdown import StopRequest, rank_zero_errors, stop_on_signal
from regard.training.start_from import copy_weights_from, initialize_embeddings
from regard.training.task import TASKS, Check, NetworkTask, get_task, task_of
from regard.training.trained_parts import select_parameters
from regard.training.trainer import Trainer


def train(
    task_or_config: Config | str | Path,
    *,
    data: str | Path | Sequence[str | Path] | Datasets | None = None,
    out: str | Path,
    minutes: float | None = None,
    size: str | None = None,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    display: ProgressDisplay | None = None,
) -> Run:
    """Train a network, and write everything to the folder `out`.

    `task_or_config` is the name of a task of `regard train`, whose settings are chosen for the data, or a config, the
    name of a preset, or a TOML file; `data` are files to train on, which override its `data.train`, or a dataset such
    as those of Hugging Face `datasets`, which is saved in the run folder. Training may take `minutes`; for the task
    `gpt` the network is one that learns much in this time, or has the `size`, such as `small` or `10M`. With `resume`,
    a run in `out` is continued. `device` is "auto", "cpu", "cuda", "cuda:N" or "mps". `callbacks` are called as it
    trains.

    run = regard.train("gpt", data="notes/", minutes=30, out="runs/notes")
    model = regard.load(run.best)
    """
    task = task_or_config if isinstance(task_or_config, str) and task_or_config in TASKS else None
    if task is not None:
        sources = [ConfigSource(f"regard train {task}", get_task(task).default_settings())]
    elif isinstance(task_or_config, Config):
        values = task_or_config.model_dump(mode="json", exclude_unset=True)
        sources = [ConfigSource("regard.train", values)]
    else:
        sources = load_sources(task_or_config)
    if size is not None and (task is None or resume):
        tasks = " or ".join(map(repr, sized_tasks()))
        raise ConfigError(f"size={size!r}: is for a new run of the task {tasks}; set model.width and model.layers.")
    datasets = dataset_splits(data) or {}
    splits = {name: [str(dataset_path(Path(out), name))] for name in datasets}
    if data is not None and not datasets:
        splits = {"train": [str(data)] if isinstance(data, str | Path) else [str(file) for file in data]}
    if splits:
        values = {name: {"files": files, "source": [], "target": [], "parses": []} for name, files in splits.items()}
        sources.append(ConfigSource("regard.train", {"data": values}))
    if minutes is not None:
        sources.append(ConfigSource("regard.train", {"training": {"minutes": minutes}}))
    request = TrainRequest(
        sources, Path(out), resume, task, command=["regard.train"], device=device, datasets=datasets, size=size
    )
    return (run_training if task is None else get_task(task).train)(request, display, callbacks)


def run_training(
    request: TrainRequest, display: ProgressDisplay | None = None, callbacks: Sequence[Callback] = ()
) -> Run:
    """Train, or resume training, and write the run folder.

    Under `torchrun` every process calls this; the first of them reads, writes and reports for all.
    """
    keep_freed_memory()
    run = RunFolder(request.out)
    with ExitStack() as stack:
        process_group = stack.enter_context(joined_process_group(request.device))
        stop = stack.enter_context(stop_on_signal())
        process_group = replace(process_group, stop=stop)
        display = ResilientDisplay(display) if process_group.is_first and display is not None else ProgressDisplay()
        stack.callback(display.close)
        errors = partial(rank_zero_errors, process_group.lost_process, process_group.report_failure)
        stack.enter_context(errors())
        with process_group.fail_together():
            if process_group.is_first:
                stack.enter_context(run.lock())
                with run.removed_if_start_fails():
                    if request.resume and run.exists:
                        resume_run(run, request, display)
                    elif not request.sources:
                        raise ConfigError(f"{run.folder}: holds no run to resume; check --out.")
                    else:
                        start_run(run, request, display, stop, process_group)
        with _recording_failure(run, process_group), errors():
            summary = _prepare_and_train(run, process_group, display, stop, callbacks)
        return Run(request.out, summary)


def _prepare_and_train(
    run: RunFolder,
    process_group: ProcessGroup,
    display: ProgressDisplay,
    stop: StopRequest,
    callbacks: Sequence[Callback],
) -> list[str]:
    """Prepare the data, build the network, train it and measure the result; returns the summary of the results."""
    config = config_of(run)
    set_collective_timeout(process_group, config.training.collective_timeout_minutes)
    parallel: Parallelism = config.training.parallel.build(process_group)
    parallel.check(config)
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    task, info = task_of(config), run.read_info()
    with process_group.fail_together():
        if process_group.is_first:
            prepared = prepare_run(run, task, config, info["key"], display, stop)
            run.write("tokenizer.json", prepared.tokenizer.to_json().decode())
    with process_group.fail_together():
        if not process_group.is_first:
            with verified_stores():  # the first process has read every byte of them
                prepared = prepare_run(run, task, config, info["key"], display, stop)
    vocab_size, config = config.model.vocab_size, _final_config(task, config, prepared)
    if config.model.vocab_size != vocab_size:
        tokens = f"{config.model.vocab_size:,} tokens"
        display.note(f"The tokenizer has {tokens}, not model.vocab_size = {vocab_size}.")
    with process_group.fail_together():  # the first process may take long for the scores of the base model
        report = progress_callback(run, display, stop)
        base = find_base_validation(task, config, report) if process_group.is_first else None
        network = _initialized_network(run, config, prepared, base, display, report)
    bound = task.bind(config, prepared, network)
    evaluation = task.bind(config, prepared, build_meta(config.model)) if parallel.sharded else None
    precision, small = config.training.precision, small_for_bfloat16(config)
    peak = matmul_peak(precision, info.get("environment", {}), process_group, small)
    trainer = Trainer(
        run,
        config,
        bound,
        stop=stop,
        peak_flops=process_group.world_size * peak.gflops * 1e9,
        matmul_dtype=peak.matmul_dtype,
        process_group=process_group,
        parallel=parallel,
        evaluation=evaluation,
        display=display,
        callbacks=[*tensorboard_callbacks(run.folder / "tensorboard"), *callbacks] if process_group.is_first else [],
    )
    if process_group.is_first:
        parameters = sum(parameter.numel() for parameter in trainer.network.parameters())
        run.update_info(
            status="training",
            failure=None,
            parameters=parameters,
            environment=environment(process_group.world_size, process_group.device) | peak.facts(),
            data={name: split.counts() for name, split in prepared.splits.items()},
        )
        for name, split in prepared.splits.items():
            for message in (*split.notes(prepared.tokenizer), *split.omissions()):
                display.note(f"{name}: {message}.")
        for warning in task.data_warnings(config, prepared):
            display.note(warning)
        if config.training.minutes is not None:
            display.note(
                f"training.minutes = {config.training.minutes:g}: {trainer.steps:,} steps are planned, and fitted to "
                "the time while training goes on."
            )
        elif config.training.epochs is not None:
            display.note(f"training.epochs = {config.training.epochs:g}: {trainer.steps:,} steps.")
        else:
            ramp = config.training.gradient_accumulation, config.training.batch_ramp_steps
            epochs = batches_of_updates(trainer.steps, *ramp) / trainer.task.batches_per_epoch
            display.note(f"training.steps = {trainer.steps:,}: {epochs:,.1f} epochs.")
        display.note(f"{config.model.family[0].upper()}{config.model.family[1:]}, {parameters:,} parameters.")
        if peak.note:
            display.note(peak.note)
    with process_group.fail_together():
        checkpoint = _latest_checkpoint(run, display, process_group)
    if checkpoint is not None:
        trainer.restore(checkpoint)
        is_complete = checkpoint.state.step >= trainer.steps
        more = " The run is complete; raise training.steps to train longer." if is_complete else ""
        display.note(f"Resuming from step {checkpoint.state.step:,}.{more}")
    if process_group.is_first:
        run.remove_partial_files()
        for problem in run.appended.restore(trainer.state.file_sizes, trainer.state.file_checksums):
            display.note(problem)
    status = trainer.train()
    with trainer.evaluation(), process_group.fail_together():  # the others wait for the first, however long it takes
        return conclude(run, trainer, status, base) if process_group.is_first else []


def _initialized_network(
    run: RunFolder,
    config: Config,
    prepared: PreparedData,
    base: BaseValidation | None,
    display: ProgressDisplay,
    report: ReportProgress,
) -> Network:
    """Build the network with random weights, or those of the model that training starts from."""
    seed_step(config.training.seed, 0)
    network = build(config.model)
    if config.training.start_from is not None and (config.training.lora.rank or not run.has_checkpoint):
        display.note(copy_weights_from(network, config))  # the checkpoints of an adapter do not have those of its base
        if base is not None and not run.has_checkpoint:
            display.note(f"Scoring {config.training.start_from} on the validation data of {base.run.folder}.")
            scores = base.scores(network, _counting(report))
            display.note(f"On the validation data of {base.run.folder}, before fine-tuning: {scores_line(scores)}.")
            run.update_info(base={"run": str(base.run.folder), "scores": scores})
    if config.training.pretrained_embeddings is not None and not run.has_checkpoint:
        display.note(initialize_embeddings(network, prepared.tokenizer, Path(config.training.pretrained_embeddings)))
    for note in select_parameters(network, config, run.read_info().get("base_sha256")):
        display.note(note)
    return network


def _counting(report: ReportProgress) -> Check:
    """A check that counts its calls, shows the count, and is interrupted when a stop was requested."""
    numbers = count(1)
    return lambda: report("batches of the base model's validation data", next(numbers))


@contextmanager
def _recording_failure(run: RunFolder, process_group: ProcessGroup) -> Iterator[None]:
    """Write an error or an interruption to run.json and to the report before it is raised.

    An error in data or settings that is found before training leaves no folder.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if process_group.is_first:
            with suppress(RegardError, OSError):  # the user must see the first error, such as a full disk
                if not (isinstance(error, (ConfigError, DataError, ModelError)) and run.discard_start()):
                    run.update_info(**_failure(error))
                    write_report(run.folder)
        raise


def _failure(error: BaseException) -> dict[str, str | None]:
    if isinstance(error, (InterruptedRun, KeyboardInterrupt)):
        return {"status": "interrupted", "failure": None}
    message = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
    return {"status": "failed", "failure": message}


def prepare_run(
    run: RunFolder, task: NetworkTask, config: Config, key: str, display: ProgressDisplay, stop: StopRequest
) -> PreparedData:
    """Prepare the data of a run, or load what is prepared."""
    folder, report = prepared_folder(run, config, key), progress_callback(run, display, stop)
    prepared = task.prepare(folder, key, with_run_files(run, config, read=False), report)
    discard_scan(folder)
    return mix_in(run, task, config, prepared, report) if config.data.mix.has_files else prepared


def _final_config(task: NetworkTask, config: Config, prepared: PreparedData) -> Config:
    """The config with what the prepared data decide: vocabulary size, labels, and what the task adds."""
    values = config.model_dump(mode="json")
    model = values["model"]
    if config.training.start_from is None:
        model["vocab_size"] = len(prepared.tokenizer)
    elif len(prepared.tokenizer) > config.model.vocab_size:
        raise ConfigError(
            f"{config.training.start_from}: its tokenizer has {len(prepared.tokenizer):,} tokens, but its network "
            f"has embeddings for {config.model.vocab_size:,}; start from a complete model."
        )
    if prepared.labels:
        model["head"] = {**model["head"], "labels": list(prepared.labels)}
    if model.get("target_vocab_size"):
        raise ConfigError(
            "model.target_vocab_size cannot be trained: one tokenizer is used for both sides; leave it out."
        )
    for table, settings in task.prepared_settings(config, prepared).items():
        values[table] |= settings
    return validate_sources([ConfigSource("the prepared data", values)])


def _latest_checkpoint(run: RunFolder, display: ProgressDisplay, process_group: ProcessGroup) -> Checkpoint | None:
    """The newest checkpoint that is not damaged."""
    damaged: list[str] = []
    for checkpoint in checkpoints(run.checkpoints, process_group):
        if isinstance(checkpoint, Checkpoint):
            for problem in damaged:
                display.note(f"{problem}; resuming from the checkpoint before it.")
            return checkpoint
        damaged.append(checkpoint)
    if damaged:
        raise RunFolderError(
            f"{damaged[0]}, and there is no intact checkpoint before it; start a new run with another --out."
        )
    return None
