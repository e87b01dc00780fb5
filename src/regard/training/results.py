"""What a run ends with: the models `best` and `last`, their scores, outputs for the report, and the summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.errors import RunFolderError
from regard.models.folder import read_saved_weights, read_tensors
from regard.training.averaging import swapped_weights
from regard.training.fine_tuning import BaseValidation
from regard.training.report import write_report
from regard.training.run import results_summary
from regard.training.run_folder import RunFolder
from regard.training.setup import timestamp
from regard.training.task import task_of
from regard.training.trainer import Trainer


@dataclass(frozen=True)
class RunResults:
    """Scores of `best` and `average` on the validation data and of `test`, and outputs for the report."""

    scores: dict[str, dict[str, float]]
    signatures: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    searches: dict[str, str] = field(default_factory=dict)  # how the outputs behind scores were decoded


def conclude(run: RunFolder, trainer: Trainer, status: str, base: BaseValidation | None = None) -> list[str]:
    """Measure the result, write it to the run folder, and return its summary."""
    results = finish(trainer)
    _write_model_files(trainer, {"best": _best_weights(trainer), "last": read_saved_weights(run.folder / "last")})
    if base is not None and (before := run.read_info().get("base")):
        with swapped_weights(trainer.network, _best_weights(trainer)):
            results.scores["base_before"] = before["scores"]
            results.scores["base_after"] = base.scores(trainer.network, trainer.check)
    if results.outputs:
        run.write_json("outputs.json", results.outputs)
    run.update_info(
        status=status,
        finished=timestamp(),
        results=results.scores,
        signatures=results.signatures,
        searches=results.searches,
    )
    write_report(run.folder)
    return results_summary(run.folder, results.scores, results.signatures, results.searches)


def _write_model_files(trainer: Trainer, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Add the task's files to the model folders of the run. They depend on the weights, which may be the same."""
    files: dict[str, str] = {}
    before: Mapping[str, Tensor] = {}
    for folder, tensors in weights.items():
        if not _are_equal(tensors, before):
            with swapped_weights(trainer.network, tensors):
                files = task_of(trainer.config).model_files(trainer.task, trainer.check)
        for name, content in files.items():
            trainer.run.write(f"{folder}/{name}", content)
        before = tensors


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def finish(trainer: Trainer) -> RunResults:
    """Write `last/`, replace `best/` by the average of the last checkpoints if that is better, and measure the best.

    The network has the weights of the last step (`Trainer.evaluation`). It is repeatable: a run that is killed here
    does all of it again.
    """
    state, best = trainer.state, dict(trainer.state.best_scores or {})
    step = state.best_step
    trainer.save_model("last", state.step, {})
    scores: dict[str, dict[str, float]] = {}
    average = trainer.average_of_last()
    if average is not None:
        trainer.display.note(f"Averaging the weights of the last {len(state.averaged_steps)} validations.")
        with swapped_weights(trainer.network, average):
            scores["average"] = average_scores = trainer.task.validate(trainer.check).scores
            if trainer.gain(average_scores, best) > 0:
                best, step = average_scores, state.step
                trainer.save_model("best", step, average_scores)
    scores["best"] = {"step": step, **best}
    searches = dict.fromkeys(scores, getattr(trainer.task, "validation_search", ""))
    with swapped_weights(trainer.network, _best_weights(trainer)):
        tested = trainer.task.test(trainer.check)
        result = tested or trainer.task.validate(trainer.check)
    if tested is not None:
        scores["test"], searches["test"] = tested.scores, tested.search
    scores |= {"majority": dict(result.majority)} if result.majority else {}
    outputs = dict(result.outputs) | ({"confusion": dict(result.confusion)} if result.confusion else {})
    return RunResults(scores, dict(result.signatures), outputs, searches)


def _best_weights(trainer: Trainer) -> dict[str, Tensor]:
    """The weights in `best/`, which is written again if it is missing and its weights still exist."""
    state, folder = trainer.state, trainer.run.folder / "best"
    if not folder.exists():
        with swapped_weights(trainer.network, _validated_weights(trainer, state.best_step)):
            trainer.save_model("best", state.best_step, dict(state.best_scores or {}))
        trainer.display.note(f"{folder}: was missing, and was written again.")
    return read_saved_weights(folder)


def _validated_weights(trainer: Trainer, step: int) -> Mapping[str, Tensor] | None:
    """The weights that were validated at a step: the current ones (None), or those saved for averaging."""
    if step == trainer.state.step:
        return None
    if step in trainer.state.averaged_steps:
        return read_tensors(trainer.run.weights_path(step))
    raise RunFolderError(
        f"{trainer.run.folder / 'best'}: is missing, and no checkpoint has the weights of step {step:,}, which were "
        "the best; restore it from a copy, or use last/ instead."
    )
