"""Runs that are fitted to a time: the last step moves with the speed of the machine, and the schedule moves with it.

A run has a plan of so many steps. Its schedule is laid out for them, and each step that is taken advances the plan by
one at first. At fixed points, the time that is left decides how many steps are left, and from then on each of them
advances the plan by what is left of it divided by their number. So the learning rate is continuous, and warmup and
decay are complete, whether the machine turns out slower or faster. Validations are due by the plan too.
"""

import math
from dataclasses import dataclass

FIRST_FIT = 8  # steps, and again at each power of two from there on: the plan may be far from what is possible
FITS = 16  # at equal distances in the plan


@dataclass(frozen=True)
class Pace:
    """How fast a run advances its plan since the last point at which it was fitted."""

    step: int
    """Step of that point."""
    progress: float
    """Planned steps that were done there."""
    last_step: int
    """Step at which all planned steps will be done."""
    elapsed: float
    """Seconds until that point."""

    def at(self, step: int, planned: int) -> float:
        """Planned steps that are done after a step.

        >>> Pace(step=100, progress=50.0, last_step=200, elapsed=60.0).at(150, planned=100)
        75.0
        """
        rest = max(1, self.last_step - self.step)
        return self.progress + (step - self.step) * (planned - self.progress) / rest


@dataclass(frozen=True)
class StepPlan:
    """The steps of a run, and the time that they may take."""

    planned: int
    """Steps that the schedule is laid out for."""
    limit: int
    """The last step, however much time is left."""
    seconds: float | None = None
    """The time that the run may take; without it, it takes the planned steps."""

    def start(self, step: int, elapsed: float) -> Pace | None:
        """The pace before anything is measured; a resumed run starts after the step that it has done."""
        if self.seconds is None:
            return None
        done = min(step, self.planned - 1)
        return Pace(step, float(done), step + self.planned - done, elapsed)

    def last_step(self, pace: Pace | None) -> int:
        """The last step, as far as it is known."""
        return self.planned if pace is None else min(pace.last_step, self.limit)

    def progress(self, pace: Pace | None, step: int) -> float:
        """Planned steps that are done after a step."""
        return step if pace is None else pace.at(step, self.planned)

    def is_due(self, pace: Pace, step: int) -> bool:
        """Whether a step is a point at which the run is fitted to the time."""
        if step >= self.last_step(pace):
            return False
        before, after = (math.floor(FITS * done / self.planned) for done in (pace.progress, self.progress(pace, step)))
        return after > before or (step >= FIRST_FIT and step & (step - 1) == 0)

    def fitted(self, pace: Pace, step: int, elapsed: float) -> Pace:
        """The pace after a step, from the time that the steps since the last point took."""
        assert self.seconds is not None
        seconds_per_step = max(1e-9, (elapsed - pace.elapsed) / (step - pace.step))
        steps = max(1, round((self.seconds - elapsed) / seconds_per_step))
        return Pace(step, self.progress(pace, step), max(step + 1, min(step + steps, self.limit)), elapsed)
