"""The end of a run: the average of the last weights, the best network on the test data, the results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regard.errors import RunFolderError
from regard.models.contents import WEIGHTS
from regard.models.weights import read_tensors
from regard.training.averaging import swapped
from regard.training.loop import Loop


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
