"""Runs that are fitted to a time: they end near it on slow and fast machines, with a complete schedule, and resume."""

import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import small_runs
from regard.errors import ConfigError, InterruptedRun
from regard.training.checkpoint import newest_state
from regard.training.runner import train
from regard.training.schedules import cosine, warmup_stable_decay
from regard.training.shutdown import StopRequest
from regard.training.time_budget import Pace, StepPlan
from regard.training.trainer import Trainer
from small_runs import lines, numbers, run, write_pairs

TIME = (
    "training.minutes=1",
    "training.planned_steps=100",
    "training.steps=400",
    "training.schedule.kind=cosine",
    "validation.every=25",
)


def walk(plan: StepPlan, seconds_of_step: Callable[[int], float]) -> tuple[list[float], float]:
    """The progress after each step of a run, and the time that it took."""
    pace, elapsed, progress, step = plan.start(0, 0.0), 0.0, [0.0], 0
    assert pace is not None
    while step < plan.last_step(pace):
        step += 1
        elapsed += seconds_of_step(step)
        progress.append(plan.progress(pace, step))
        if plan.is_due(pace, step):
            pace = plan.fitted(pace, step, elapsed)
            assert plan.progress(pace, step) == pytest.approx(progress[-1])  # the schedule does not jump
    return progress, elapsed


@pytest.mark.parametrize("factor", [0.02, 0.3, 1.0, 3.0, 50.0])
def test_a_run_ends_near_its_time_however_fast_the_machine_is(factor: float) -> None:
    draw = random.Random(1)
    plan = StepPlan(planned=1000, limit=10**6, seconds=600.0)
    progress, elapsed = walk(plan, lambda step: factor * 0.6 * draw.uniform(0.7, 1.3))
    assert elapsed == pytest.approx(600, rel=0.02 if factor < 50 else 0.2)  # 20 steps in all, of which 8 come first
    assert progress[-1] == pytest.approx(1000)
    assert all(before < after for before, after in itertools.pairwise(progress))


@pytest.mark.parametrize("turn", [0.3, 0.8])
@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_a_machine_that_becomes_slower_or_faster_halfway_moves_the_end(turn: float, factor: float) -> None:
    seconds = 600.0
    clock = [0.0]

    def of_step(step: int) -> float:
        clock[0] += 0.6 * (factor if clock[0] > turn * seconds else 1.0)
        return 0.6 * (factor if clock[0] > turn * seconds else 1.0)

    progress, elapsed = walk(StepPlan(1000, 10**6, seconds), of_step)
    assert elapsed == pytest.approx(seconds, rel=0.35 if (turn, factor) == (0.8, 4.0) else 0.1)
    assert progress[-1] == pytest.approx(1000)


def test_the_limit_of_steps_holds_on_a_fast_machine() -> None:
    progress, elapsed = walk(StepPlan(planned=100, limit=250, seconds=600.0), lambda step: 0.1)
    assert len(progress) - 1 == 250
    assert progress[-1] == pytest.approx(100)
    assert elapsed < 30


def test_without_a_time_the_plan_is_what_is_done() -> None:
    plan = StepPlan(planned=100, limit=100)
    assert plan.start(0, 0.0) is None
    assert (plan.last_step(None), plan.progress(None, 7)) == (100, 7)


def test_a_pace_that_was_never_fitted_is_exact() -> None:
    pace = StepPlan(planned=12_345, limit=10**6, seconds=60.0).start(0, 0.0)
    assert pace is not None
    for schedule in (cosine(1e-3, 100, 12_345), warmup_stable_decay(1e-3, 100, 12_345, 3000)):
        assert all(schedule(pace.at(step, 12_345)) == schedule(step) for step in range(1, 12_346, 97))


def test_a_run_that_gets_a_time_when_it_is_resumed_continues_its_schedule() -> None:
    plan = StepPlan(planned=100, limit=1000, seconds=600.0)
    assert plan.start(40, 30.0) == Pace(step=40, progress=40.0, last_step=100, elapsed=30.0)
    late = plan.start(150, 30.0)
    assert late is not None
    assert (plan.last_step(late), plan.progress(late, 151)) == (151, 100)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv", 60)


def set_speed(monkeypatch: pytest.MonkeyPatch, seconds_per_step: float) -> None:
    monkeypatch.setattr(Trainer, "elapsed", property(lambda trainer: seconds_per_step * trainer.state.step))


@pytest.mark.parametrize(("seconds_per_step", "steps"), [(1.0, 60), (4.0, 15)])
def test_training_ends_with_its_time_and_a_decayed_learning_rate(
    seconds_per_step: float, steps: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_speed(monkeypatch, seconds_per_step)
    logged = lines(run(tmp_path / "run", data, *TIME))
    rates = [line["learning_rate"] for line in logged if "learning_rate" in line]
    assert len(rates) == steps  # of which the plan has 100
    assert rates[-1] < 1e-6
    assert max(rates) == pytest.approx(0.005, rel=0.05)
    validated = [line["step"] for line in logged if "valid" in line]
    assert (len(validated), validated[-1]) == (4, steps)  # due by the plan


def test_a_stopped_run_with_a_time_equals_an_uninterrupted_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_speed(monkeypatch, 2.0)
    whole = run(tmp_path / "whole", data, *TIME)
    step = Trainer.step

    def step_and_stop(trainer: Trainer) -> None:
        step(trainer)
        trainer.stop = StopRequest()
        trainer.stop.requested = trainer.state.step == 20

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step_and_stop)
        with pytest.raises(InterruptedRun):
            run(tmp_path / "stopped", data, *TIME)
    state = newest_state(tmp_path / "stopped" / "checkpoints")
    assert state is not None
    assert state.pace is not None
    assert (state.step, state.elapsed, state.pace.last_step) == (20, 40.0, 30)
    run(tmp_path / "stopped", data, *TIME, resume=True)
    assert numbers(tmp_path / "stopped") == numbers(whole)


def test_a_resumed_run_keeps_the_last_step_that_was_measured(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last fit nothing is measured: the speed of the second machine does not matter."""
    set_speed(monkeypatch, 2.0)
    out = run(tmp_path / "run", data, *TIME)
    steps = lines(out)[-1]["step"]
    small_runs.run(out, data, *TIME, resume=True)
    assert lines(out)[-1]["step"] == steps


def test_a_python_program_names_a_task_and_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_speed(monkeypatch, 0.5)
    text = tmp_path / "text.txt"
    text.write_text("the cat sees the dog\n" * 200, "utf-8")
    monkeypatch.setattr("regard.training.speed.seconds_per_token", lambda *_: 0.5 / 512)
    finished = train("gpt", data=text, minutes=0.1, out=tmp_path / "run")
    info = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    chosen = {setting["setting"]: setting["value"] for setting in info["automatic_settings"]}
    assert int(chosen["training.planned_steps"]) == pytest.approx(0.1 * 60 * 0.95 / 0.5, rel=0.1)
    assert math.isclose(finished.metrics[-1]["step"], 12, abs_tol=2)  # type: ignore[arg-type]
    assert "minutes = 0.1" in (tmp_path / "run" / "config.toml").read_text("utf-8")


def test_a_size_needs_a_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^size='10M': is for a new run of the task 'gpt'"):
        train("tiny", data="x.tsv", size="10M", out=tmp_path / "run")
