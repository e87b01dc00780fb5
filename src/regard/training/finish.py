"""The end of a run: the average of the last weights, the best network on the test data, the results."""

from dataclasses import dataclass, field
from typing import Any

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
    with swapped(loop.network, read_tensors(loop.run.folder / "best" / WEIGHTS)):
        measured = loop.task.test(loop.check)
        if measured is not None:
            scores["test"] = measured.scores
        else:
            measured = loop.task.validate(loop.check)
    return Results(scores, dict(measured.signatures), dict(measured.ranked))
