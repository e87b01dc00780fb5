"""`train`: from settings to a finished run, new or resumed."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import Config, ConfigSource, validate_sources
from regard.data.preparation import PreparedData
from regard.data.tokenizer import mask_token_id
from regard.errors import ConfigError, InterruptedRun, RegardError, RunFolderError
from regard.models import build
from regard.models.folder_files import WEIGHTS_FILE
from regard.models.weights import read_tensors
from regard.training.averaging import swapped_weights
from regard.training.checkpoint import Checkpoint, checkpoints
from regard.training.display import ProgressDisplay, ResilientDisplay
from regard.training.distributed import ProcessGroup, joined_process_group
from regard.training.environment import environment, keep_freed_memory, matmul_peak
from regard.training.initialization import copy_weights_from, freeze_encoder, initialize_embeddings
from regard.training.interrupts import StopRequest, stop_on_signal
from regard.training.kinds import task_of
from regard.training.language import context_of
from regard.training.rank_zero import rank_zero_errors
from regard.training.report import write_report
from regard.training.run_folder import RunFolder
from regard.training.setup import (
    TrainRequest,
    config_of,
    prepared_folder,
    progress_callback,
    resume_run,
    start_run,
    timestamp,
    with_run_files,
)
from regard.training.state import seed_step
from regard.training.task import Task
from regard.training.trainer import Trainer

__all__ = ["TrainRequest", "run_training", "train"]


def train(
    config: Config, out: str | Path, *, resume: bool = False, display: ProgressDisplay | None = None
) -> RunFolder:
    """Train with these settings; everything is in the folder `out` afterwards. `resume` goes on with a run there.

    config = regard.load_config("tiny", ["data.train.files=pairs.tsv", "training.steps=2000"])
    run = regard.train(config, "runs/mine")
    model = regard.load(run.folder / "best")
    """
    given = ConfigSource("regard.train", config.model_dump(mode="json", exclude_unset=True))
    return run_training(TrainRequest([given], Path(out), resume=resume, command=["regard.train"]), display)


def run_training(request: TrainRequest, display: ProgressDisplay | None = None) -> RunFolder:
    """Train, or go on training, and write the run folder.

    Under `torchrun` every process calls this; the first of them reads, writes and speaks for all.
    """
    keep_freed_memory()
    run = RunFolder(request.out)
    with ExitStack() as until_done:
        process_group = until_done.enter_context(joined_process_group())
        stop = until_done.enter_context(stop_on_signal())
        display = ResilientDisplay(display) if process_group.is_first and display is not None else ProgressDisplay()
        until_done.callback(display.close)
        until_done.enter_context(rank_zero_errors())
        with process_group.fail_together():
            if process_group.is_first:
                until_done.enter_context(run.lock())
                if request.resume and run.exists:
                    resume_run(run, request, display)
                elif not request.sources:
                    raise ConfigError(f"{run.folder}: holds no run to go on with; check --out.")
                else:
                    start_run(run, request, display, stop)
        with _end_noted(run, process_group), rank_zero_errors():
            _train(run, process_group, display, stop)
        return run


def _train(run: RunFolder, process_group: ProcessGroup, display: ProgressDisplay, stop: StopRequest) -> None:
    config = config_of(run)
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    task, about = task_of(config), run.read_info()
    with process_group.fail_together():
        if process_group.is_first:
            prepared = _prepare(run, task, config, about["key"], display, stop)
            run.write("tokenizer.json", prepared.tokenizer.to_json().decode())
    with process_group.fail_together():
        if not process_group.is_first:
            prepared = _prepare(run, task, config, about["key"], display, stop)
    asked, config = config.model.vocab_size, _fitted(config, prepared)
    if config.model.vocab_size != asked:
        display.note(f"The tokenizer has {config.model.vocab_size:,} tokens; model.vocab_size = {asked} was the stop.")
    seed_step(config.training.seed, 0)
    network = build(config.model)
    if config.training.start_from is not None and not run.has_checkpoint:
        display.note(copy_weights_from(network, config))
    if config.training.pretrained_embeddings is not None and not run.has_checkpoint:
        display.note(initialize_embeddings(network, prepared.tokenizer, Path(config.training.pretrained_embeddings)))
    if config.training.freeze_encoder:
        freeze_encoder(network)
    bound = task.bind(config, prepared, network)
    ceiling = matmul_peak(config.training.precision, about.get("environment", {}), process_group)
    loop = Trainer(
        run,
        config,
        bound,
        stop=stop,
        peak_flops=process_group.world_size * ceiling.gflops * 1e9,
        matmul_dtype=ceiling.matmul_dtype,
        process_group=process_group,
        display=display,
    )
    if process_group.is_first:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        run.update_info(
            status="training",
            failure=None,
            parameters=parameters,
            environment=environment(process_group.world_size) | ceiling.facts(),
            data={name: part.counts() for name, part in prepared.splits.items()},
        )
        for name, part in prepared.splits.items():
            for sentence in part.omissions():
                display.note(f"{name}: {sentence}.")
        display.note(f"{config.model.family[0].upper()}{config.model.family[1:]}, {parameters:,} parameters.")
        if ceiling.asked == "bfloat16" and ceiling.matmul_dtype == torch.float32:
            display.note(
                "training.precision = 'bfloat16' is slower than float32 on this processor: training in float32."
            )
    with process_group.fail_together():
        checkpoint = _last_whole(run, display)
    if checkpoint is not None:
        loop.restore(checkpoint)
        display.note(f"Going on from step {checkpoint.state.step:,}.")
    if process_group.is_first:
        run.remove_partial_files()
        run.truncate(loop.state.file_sizes)
    status = loop.train()
    if process_group.is_first:
        _conclude(run, loop, status)
    process_group.barrier()


@contextmanager
def _end_noted(run: RunFolder, process_group: ProcessGroup) -> Iterator[None]:
    """While it lasts, whatever ends the run before its time is noted in run.json."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if process_group.is_first:
            with suppress(RegardError, OSError):  # what ended it, such as a full disk, is what the user must read
                run.update_info(**_end(error))
                write_report(run.folder)
        raise


def _end(error: BaseException) -> dict[str, str | None]:
    if isinstance(error, (InterruptedRun, KeyboardInterrupt)):
        return {"status": "interrupted", "failure": None}
    said = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
    return {"status": "failed", "failure": said}


def _conclude(run: RunFolder, loop: Trainer, status: str) -> None:
    results = finish(loop)
    if results.outputs:
        run.write_json("outputs.json", results.outputs)
    run.update_info(status=status, finished=timestamp(), results=results.scores, signatures=results.signatures)
    write_report(run.folder)


def _prepare(
    run: RunFolder, task: Task, config: Config, key: str, display: ProgressDisplay, stop: StopRequest
) -> PreparedData:
    return task.prepare(
        prepared_folder(run, config, key),
        key,
        with_run_files(run, config, read=False),
        progress_callback(run, display, stop),
    )


def _fitted(config: Config, prepared: PreparedData) -> Config:
    """The settings with what the data decide: the vocabulary, which is the tokenizer's, the labels, and the context."""
    model = config.model.model_dump(mode="json")
    if config.training.start_from is None:
        model["vocab_size"] = len(prepared.tokenizer)
    elif len(prepared.tokenizer) > config.model.vocab_size:
        raise ConfigError(
            f"{config.training.start_from}: its tokenizer has {len(prepared.tokenizer):,} tokens, but its network "
            f"knows {config.model.vocab_size:,}; start from a whole model."
        )
    if prepared.labels:
        model["head"] = {**model["head"], "labels": list(prepared.labels)}
    if model.get("target_vocab_size"):
        raise ConfigError("model.target_vocab_size cannot be trained: one tokenizer serves both sides; leave it out.")
    tokens = config.tokens.model_dump(mode="json")
    if config.model.task == "masked" and config.tokens.mask is None:
        tokens["mask"] = mask_token_id(prepared.tokenizer)
    data = config.data.model_dump(mode="json")
    if config.model.task == "language":
        data["context_length"] = context_of(config)  # which may follow from others
    values = config.model_dump(mode="json") | {"model": model, "tokens": tokens, "data": data}
    return validate_sources([ConfigSource("the tokenizer", values)])


def _last_whole(run: RunFolder, display: ProgressDisplay) -> Checkpoint | None:
    damaged: list[str] = []
    for found in checkpoints(run.checkpoints):
        if isinstance(found, Checkpoint):
            for sentence in damaged:
                display.note(f"{sentence}; going on from the one before it.")
            return found
        damaged.append(found)
    if damaged:
        raise RunFolderError(f"{damaged[0]}, and there is no good one before it; start a new run with another --out.")
    return None


@dataclass(frozen=True)
class Results:
    """Scores of the best network on the validation data, of the average there, and of the best on the test data."""

    scores: dict[str, dict[str, float]]
    signatures: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)


def finish(loop: Trainer) -> Results:
    """Write `last/`, see whether the average is better than `best/`, and measure what is best.

    It can be repeated: a run that is killed here does all of it again.
    """
    loop.network.eval()
    state, best = loop.state, dict(loop.state.best_scores or {})
    step = state.best_step
    with swapped_weights(loop.network, loop.average.tensors if loop.average is not None else None):
        loop.save_model("last", state.step, {})
    scores: dict[str, dict[str, float]] = {}
    averaged = loop.average_of_last()
    if averaged is not None:
        loop.display.note(f"Averaging the weights of the last {len(state.averaged_steps)} validations.")
        with swapped_weights(loop.network, averaged):
            found = loop.task.validate(loop.check).scores
            scores["average"] = found
            if loop.gain(found, best) > 0:
                best, step = found, state.step
                loop.save_model("best", step, found)
    scores["best"] = {"step": step, **best}
    with swapped_weights(loop.network, _best(loop)):
        measured = loop.task.test(loop.check)
        if measured is not None:
            scores["test"] = measured.scores
        else:
            measured = loop.task.validate(loop.check)
    outputs = dict(measured.ranked) | ({"confusion": dict(measured.confusion)} if measured.confusion else {})
    return Results(scores, dict(measured.signatures), outputs)


def _best(loop: Trainer) -> dict[str, Tensor]:
    """The weights in `best/`; where someone has removed it, it is written again, if its weights are still here."""
    state, folder = loop.state, loop.run.folder / "best"
    if not folder.exists():
        with swapped_weights(loop.network, _still_here(loop, state.best_step)):
            loop.save_model("best", state.best_step, dict(state.best_scores or {}))
        loop.display.note(f"{folder}: was missing, and is written again.")
    return read_tensors(folder / WEIGHTS_FILE)


def _still_here(loop: Trainer, step: int) -> Mapping[str, Tensor] | None:
    """The weights that were validated at a step: those of the checkpoint, or those kept for averaging."""
    if step == loop.state.step:
        return loop.average.tensors if loop.average is not None else None  # the network's own
    if step in loop.state.averaged_steps:
        return read_tensors(loop.run.weights_path(step))
    raise RunFolderError(
        f"{loop.run.folder / 'best'}: is missing, and no checkpoint has the weights of step {step:,}, which were the "
        "best; put it back from a copy, or use last/ instead."
    )
