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
from regard.models.contents import WEIGHTS
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


def run_training(order: TrainRequest, display: ProgressDisplay | None = None) -> RunFolder:
    """Train, or go on training, and write the run folder.

    Under `torchrun` every process calls this; the first of them reads, writes and speaks for all.
    """
    keep_freed_memory()
    run = RunFolder(order.out)
    with ExitStack() as until_done:
        processes = until_done.enter_context(joined_process_group())
        wish = until_done.enter_context(stop_on_signal())
        display = ResilientDisplay(display) if processes.first and display is not None else ProgressDisplay()
        until_done.callback(display.close)
        until_done.enter_context(rank_zero_errors())
        with processes.as_one():
            if processes.first:
                until_done.enter_context(run.held())
                if order.resume and run.exists:
                    resume_run(run, order, display)
                elif not order.sources:
                    raise ConfigError(f"{run.folder}: holds no run to go on with; check --out.")
                else:
                    start_run(run, order, display, wish)
        with _end_noted(run, processes), rank_zero_errors():
            _train(run, processes, display, wish)
        return run


def _train(run: RunFolder, processes: ProcessGroup, display: ProgressDisplay, wish: StopRequest) -> None:
    config = config_of(run)
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    kind, about = task_of(config), run.read_about()
    with processes.as_one():
        if processes.first:
            prepared = _prepare(run, kind, config, about["key"], display, wish)
            run.write("tokenizer.json", prepared.tokenizer.to_json().decode())
    with processes.as_one():
        if not processes.first:
            prepared = _prepare(run, kind, config, about["key"], display, wish)
    asked, config = config.model.vocab_size, _fitted(config, prepared)
    if config.model.vocab_size != asked:
        display.note(f"The tokenizer has {config.model.vocab_size:,} tokens; model.vocab_size = {asked} was the wish.")
    seed_step(config.training.seed, 0)
    network = build(config.model)
    if config.training.start_from is not None and not run.saved:
        display.note(copy_weights_from(network, config))
    if config.training.pretrained_embeddings is not None and not run.saved:
        display.note(initialize_embeddings(network, prepared.tokenizer, Path(config.training.pretrained_embeddings)))
    if config.training.freeze_encoder:
        freeze_encoder(network)
    task = kind.begin(config, prepared, network)
    ceiling = matmul_peak(config.training.precision, about.get("environment", {}), processes)
    loop = Trainer(
        run,
        config,
        task,
        wish=wish,
        ceiling=processes.world * ceiling.gflops * 1e9,
        products=ceiling.products,
        processes=processes,
        display=display,
    )
    if processes.first:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        run.update_about(
            status="training",
            failure=None,
            parameters=parameters,
            environment=environment(processes.world) | ceiling.facts(),
            data={name: part.counts() for name, part in prepared.splits.items()},
        )
        for name, part in prepared.splits.items():
            for sentence in part.omissions():
                display.note(f"{name}: {sentence}.")
        display.note(f"{config.model.family[0].upper()}{config.model.family[1:]}, {parameters:,} parameters.")
        if ceiling.asked == "bfloat16" and ceiling.products == torch.float32:
            display.note(
                "training.precision = 'bfloat16' is slower than float32 on this processor: training in float32."
            )
    with processes.as_one():
        checkpoint = _last_whole(run, display)
    if checkpoint is not None:
        loop.restore(checkpoint)
        display.note(f"Going on from step {checkpoint.state.step:,}.")
    if processes.first:
        run.clear()
        run.cut(loop.state.sizes)
    status = loop.train()
    if processes.first:
        _conclude(run, loop, status)
    processes.wait()


@contextmanager
def _end_noted(run: RunFolder, processes: ProcessGroup) -> Iterator[None]:
    """While it lasts, whatever ends the run before its time is noted in run.json."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if processes.first:
            with suppress(RegardError, OSError):  # what ended it, such as a full disk, is what the user must read
                run.update_about(**_end(error))
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
    run.update_about(status=status, finished=timestamp(), results=results.scores, signatures=results.signatures)
    write_report(run.folder)


def _prepare(
    run: RunFolder, kind: Task, config: Config, key: str, display: ProgressDisplay, wish: StopRequest
) -> PreparedData:
    return kind.prepare(
        prepared_folder(run, config, key),
        key,
        with_run_files(run, config, read=False),
        progress_callback(run, display, wish),
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
    state, best = loop.state, dict(loop.state.best or {})
    step = state.best_step
    with swapped_weights(loop.network, loop.average.tensors if loop.average is not None else None):
        loop.save_model("last", state.step, {})
    scores: dict[str, dict[str, float]] = {}
    averaged = loop.average_of_last()
    if averaged is not None:
        loop.display.note(f"Averaging the weights of the last {len(state.kept)} validations.")
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
            loop.save_model("best", state.best_step, dict(state.best or {}))
        loop.display.note(f"{folder}: was missing, and is written again.")
    return read_tensors(folder / WEIGHTS)


def _still_here(loop: Trainer, step: int) -> Mapping[str, Tensor] | None:
    """The weights that were validated at a step: those of the checkpoint, or those kept for averaging."""
    if step == loop.state.step:
        return loop.average.tensors if loop.average is not None else None  # the network's own
    if step in loop.state.kept:
        return read_tensors(loop.run.weights(step))
    raise RunFolderError(
        f"{loop.run.folder / 'best'}: is missing, and no checkpoint has the weights of step {step:,}, which were the "
        "best; put it back from a copy, or use last/ instead."
    )
