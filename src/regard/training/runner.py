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
from regard.training.averaging import swapped
from regard.training.checkpoint import Checkpoint, checkpoints
from regard.training.display import Display, LastingDisplay
from regard.training.distributed import Processes, joined
from regard.training.environment import ceiling_of, environment, keep_freed_memory
from regard.training.initialization import fill_from, freeze, start_from_word_vectors
from regard.training.interrupts import Wish, wish_to_stop
from regard.training.kinds import kind_of
from regard.training.language import context_of
from regard.training.rank_zero import one_voice
from regard.training.report import write_report
from regard.training.run_folder import Run
from regard.training.setup import Order, at_hand, begin, config_of, go_on, now, prepared_folder, reporting
from regard.training.state import seed_step
from regard.training.task import Kind
from regard.training.trainer import Loop

__all__ = ["Order", "carry_out", "train"]


def train(config: Config, out: str | Path, *, resume: bool = False, display: Display | None = None) -> Run:
    """Train with these settings; everything is in the folder `out` afterwards. `resume` goes on with a run there.

    config = regard.load_config("tiny", ["data.train.files=pairs.tsv", "training.steps=2000"])
    run = regard.train(config, "runs/mine")
    model = regard.load(run.folder / "best")
    """
    given = ConfigSource("regard.train", config.model_dump(mode="json", exclude_unset=True))
    return carry_out(Order([given], Path(out), resume=resume, command=["regard.train"]), display)


def carry_out(order: Order, display: Display | None = None) -> Run:
    """Train, or go on training, and write the run folder.

    Under `torchrun` every process calls this; the first of them reads, writes and speaks for all.
    """
    keep_freed_memory()
    run = Run(order.out)
    with ExitStack() as until_done:
        processes = until_done.enter_context(joined())
        wish = until_done.enter_context(wish_to_stop())
        display = LastingDisplay(display) if processes.first and display is not None else Display()
        until_done.callback(display.close)
        until_done.enter_context(one_voice())
        with processes.as_one():
            if processes.first:
                until_done.enter_context(run.held())
                if order.resume and run.exists:
                    go_on(run, order, display)
                elif not order.sources:
                    raise ConfigError(f"{run.folder}: holds no run to go on with; check --out.")
                else:
                    begin(run, order, display, wish)
        with _end_noted(run, processes), one_voice():
            _train(run, processes, display, wish)
        return run


def _train(run: Run, processes: Processes, display: Display, wish: Wish) -> None:
    config = config_of(run)
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    kind, about = kind_of(config), run.read_about()
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
        display.note(fill_from(network, config))
    if config.training.pretrained_embeddings is not None and not run.saved:
        display.note(start_from_word_vectors(network, prepared.tokenizer, Path(config.training.pretrained_embeddings)))
    if config.training.freeze_encoder:
        freeze(network)
    task = kind.begin(config, prepared, network)
    ceiling = ceiling_of(config.training.precision, about.get("environment", {}), processes)
    loop = Loop(
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
            data={name: part.counts() for name, part in prepared.parts.items()},
        )
        for name, part in prepared.parts.items():
            for sentence in part.left_out():
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
def _end_noted(run: Run, processes: Processes) -> Iterator[None]:
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


def _conclude(run: Run, loop: Loop, status: str) -> None:
    results = finish(loop)
    if results.outputs:
        run.write_json("outputs.json", results.outputs)
    run.update_about(status=status, finished=now(), results=results.scores, signatures=results.signatures)
    write_report(run.folder)


def _prepare(run: Run, kind: Kind, config: Config, key: str, display: Display, wish: Wish) -> PreparedData:
    return kind.prepare(
        prepared_folder(run, config, key), key, at_hand(run, config, read=False), reporting(run, display, wish)
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


def _last_whole(run: Run, display: Display) -> Checkpoint | None:
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


def finish(loop: Loop) -> Results:
    """Write `last/`, see whether the average is better than `best/`, and measure what is best.

    It can be repeated: a run that is killed here does all of it again.
    """
    loop.network.eval()
    state, best = loop.state, dict(loop.state.best or {})
    step = state.best_step
    with swapped(loop.network, loop.average.tensors if loop.average is not None else None):
        loop.save_model("last", state.step, {})
    scores: dict[str, dict[str, float]] = {}
    averaged = loop.average_of_last()
    if averaged is not None:
        loop.display.note(f"Averaging the weights of the last {len(state.kept)} validations.")
        with swapped(loop.network, averaged):
            found = loop.task.validate(loop.check).scores
            scores["average"] = found
            if loop.gain(found, best) > 0:
                best, step = found, state.step
                loop.save_model("best", step, found)
    scores["best"] = {"step": step, **best}
    with swapped(loop.network, _best(loop)):
        measured = loop.task.test(loop.check)
        if measured is not None:
            scores["test"] = measured.scores
        else:
            measured = loop.task.validate(loop.check)
    outputs = dict(measured.ranked) | ({"confusion": dict(measured.confusion)} if measured.confusion else {})
    return Results(scores, dict(measured.signatures), outputs)


def _best(loop: Loop) -> dict[str, Tensor]:
    """The weights in `best/`; where someone has removed it, it is written again, if its weights are still here."""
    state, folder = loop.state, loop.run.folder / "best"
    if not folder.exists():
        with swapped(loop.network, _still_here(loop, state.best_step)):
            loop.save_model("best", state.best_step, dict(state.best or {}))
        loop.display.note(f"{folder}: was missing, and is written again.")
    return read_tensors(folder / WEIGHTS)


def _still_here(loop: Loop, step: int) -> Mapping[str, Tensor] | None:
    """The weights that were validated at a step: those of the checkpoint, or those kept for averaging."""
    if step == loop.state.step:
        return loop.average.tensors if loop.average is not None else None  # the network's own
    if step in loop.state.kept:
        return read_tensors(loop.run.weights(step))
    raise RunFolderError(
        f"{loop.run.folder / 'best'}: is missing, and no checkpoint has the weights of step {step:,}, which were the "
        "best; put it back from a copy, or use last/ instead."
    )
