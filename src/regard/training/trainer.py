"""The training loop: update, log, validate, save checkpoints, until the last step or early stopping."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard.config import Config, PlateauScheduleConfig
from regard.data.batching import DataPosition
from regard.errors import InterruptedRun, ModelError, RunError
from regard.models.folder import read_tensors, trained_tensors
from regard.training.averaging import MovingAverage, mean
from regard.training.batches import Batch, prefetched
from regard.training.checkpoint import Checkpoint, MetricsInterval, TrainingState, optimizer_tensors, seed_step
from regard.training.display import Progress, ProgressDisplay
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.environment import configure_layers
from regard.training.load_balancing import LoadBalancing
from regard.training.losses import training_objective
from regard.training.optimizers import DivergedError, LossScaler, build_optimizer, total_targets, update
from regard.training.parallel import Parallelism
from regard.training.run import Callback
from regard.training.run_folder import RunFolder
from regard.training.schedules import batches_of_update, build_schedule, updates_of_batches
from regard.training.shutdown import StopRequest
from regard.training.task import ALL_WORK, BoundTask, ValidationResult, shared_work
from regard.training.time_budget import StepPlan

DIVERGENCE_FACTOR = 4.0  # a loss this many times the larger of ln(vocabulary) and the first loss has diverged
SECONDS_PER_DISPLAY = 1.0  # at most, between two updates of the progress display


class Trainer:
    """A run in progress. Between two steps, `state` and the tensors are all of its state."""

    def __init__(
        self,
        run: RunFolder,
        config: Config,
        task: BoundTask[Any],
        *,
        stop: StopRequest | None = None,
        peak_flops: float = math.inf,
        matmul_dtype: torch.dtype = torch.float32,
        process_group: ProcessGroup = SINGLE_PROCESS,
        parallel: Parallelism | None = None,
        evaluation: BoundTask[Any] | None = None,
        display: ProgressDisplay | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """`task` has the network that is trained; `evaluation` a whole one, if `parallel` divides the other."""
        self.run = run
        self.config = config
        self.task = evaluation or task
        self.network = self.task.network
        self.trained_network = task.network
        self.stop = stop or StopRequest()
        self.peak_flops = peak_flops  # floating-point operations per second at best, for the utilization
        self.matmul_dtype = matmul_dtype
        self.process_group = process_group
        self.display = display or ProgressDisplay()
        self.callbacks = callbacks
        self.parallel = parallel or Parallelism(process_group)
        self.parallel.divide(self.trained_network, matmul_dtype)
        training = config.training
        configure_layers(self.trained_network, training)
        objective = training_objective(task.objective(), training)
        self.passes = objective.passes
        self.max_weight = objective.max_weight
        self.settings_to_lower = ("training.schedule.learning_rate", *objective.settings_to_lower)
        self.balancing = LoadBalancing.of(self.trained_network, training.load_balancing)
        self.objective = self.parallel.wrap(objective)
        self.optimizer = build_optimizer(
            self.trained_network, training.optimizer, training.parameter_groups, training.layer_decay, matmul_dtype
        )
        self.scaler = LossScaler(process_group.device.type) if matmul_dtype == torch.float16 else None
        self.average = MovingAverage(self.trained_network, training.ema_decay) if training.ema_decay else None
        self.state = TrainingState()
        self.plan = self._plan()
        self.schedule = build_schedule(config.training.schedule, config.model.width, self.plan.planned)
        self.saver = self.parallel.saver(run.checkpoints, self._on_saved)
        self._started = self._saved_at = time.monotonic()
        self._shown_at = -math.inf  # the first step is shown at once
        self._batches: Iterator[tuple[DataPosition, Batch]] | None = None

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.state = checkpoint.state
        self.parallel.restore(checkpoint, self.trained_network, self.optimizer, self.average)
        if self.scaler is not None:
            self.scaler.restore(checkpoint.part("scaler"))

    @property
    def steps(self) -> int:
        """The last step; a run with a time budget may still move it."""
        return self.plan.last_step(self.state.pace)

    @property
    def elapsed(self) -> float:
        """Seconds of training, validations and checkpoints, of all processes that continued each other."""
        return time.monotonic() - self._started

    def train(self) -> str:
        """Train to the end; returns the status: `finished` or `early stopped`."""
        self._started = time.monotonic() - self.state.elapsed
        if self.state.pace is None or self.plan.seconds is None:
            self.state.pace = self.plan.start(self.state.step, self.state.elapsed)
        try:
            status = self._train()
        except Exception:
            with suppress(Exception):  # the first error is the one to report
                self.saver.finish()
            raise
        self.saver.finish()
        return status

    def _train(self) -> str:
        if self.state.step == 0:
            self._save(wait=True)  # every started run has a checkpoint, and a full disk is noticed at once
        while True:
            if self._validation_is_due():
                self._save()  # so that an interrupted validation can be repeated
                self._validate()
                self._save()
            if self.state.step >= self.steps:
                return "finished"
            if 0 < self.config.training.patience <= self.state.validations_since_best:
                return "early stopped"
            self.step()
            self._fit_to_time()
            self.stop.requested = self.process_group.any(self.stop.requested)
            if self.stop.requested:
                self._save(wait=True)
                self.check()
            if self._saving_is_due():
                self._save()

    def _plan(self) -> StepPlan:
        training, limit = self.config.training, self.config.training.steps
        if training.epochs is not None:
            ramp = training.gradient_accumulation, training.batch_ramp_steps
            limit = min(limit, updates_of_batches(training.epochs * self.task.batches_per_epoch, *ramp))
        if training.minutes is None:
            return StepPlan(limit, limit)
        return StepPlan(min(training.planned_steps or limit, limit), limit, 60 * training.minutes)

    def _fit_to_time(self) -> None:
        """At fixed points, move the last step to where the time will be over."""
        pace, step = self.state.pace, self.state.step
        if pace is not None and self.plan.is_due(pace, step):
            elapsed = float(self.process_group.exchange(str(self.elapsed))[0])  # one last step for all processes
            self.state.pace = self.plan.fitted(pace, step, elapsed)
            self._save()  # a resumed run must not measure again

    # one step

    def step(self) -> None:
        """Take one optimizer step."""
        training, state = self.config.training, self.state
        started = time.perf_counter()
        if self._batches is None:
            group, built = self.parallel.data, self.task.batches(state.position)
            self._batches = prefetched(built, training.prefetch, group.rank, group.world_size, group.device)
        step = state.step + 1
        count = batches_of_update(step, training.gradient_accumulation, training.batch_ramp_steps)
        group = self.parallel.data
        usable = (item for item in self._batches if total_targets(item[1], group))  # False: all its tokens are unknown
        batches_with_positions = list(islice(usable, count))
        position, batches = batches_with_positions[-1][0], [batch for _, batch in batches_with_positions]
        seed_step(training.seed, step, self.parallel.data.rank)  # processes that share layers draw the same numbers
        if not self.trained_network.training:  # after a validation; setting the mode of every module takes time
            self.objective.train()
        try:
            result = update(
                self.objective,
                self.optimizer,
                batches,
                self._learning_rate(step),
                max_grad_norm=training.max_grad_norm,
                max_loss=self._max_loss(),
                matmul_dtype=self.matmul_dtype,
                scaler=self.scaler,
                process_group=self.parallel.data,
                balancing=self.balancing,
            )
        except DivergedError as error:
            raise RunError(self._divergence_message(step, error, position, batches)) from None
        if self.average is not None:
            self.average.update(step)
        state.step, state.position = step, position
        state.targets += result.targets
        if state.first_loss is None:
            state.first_loss = result.loss / result.targets
        seconds = time.perf_counter() - started
        state.seconds += seconds
        state.interval.add(result, self._flops(batches), seconds)
        if step % training.log_every == 0 or step == self.steps:
            self._log()
        elif time.monotonic() - self._shown_at >= SECONDS_PER_DISPLAY:
            self._show(self._metrics())

    def _learning_rate(self, step: int) -> float:
        return self.schedule(self.plan.progress(self.state.pace, step)) * self.state.learning_rate_factor

    def _flops(self, batches: list[Batch]) -> float:
        return self.passes * sum(self.task.flops(batch) for batch in batches)

    def _max_loss(self) -> float:
        """The loss above which training has diverged."""
        if self.state.first_loss is None:
            return math.inf
        expected = max(self.state.first_loss, math.log(self.config.model.vocab_size))
        return DIVERGENCE_FACTOR * expected * max(1.0, self.max_weight)  # one batch may have rare classes only

    def _divergence_message(self, step: int, error: DivergedError, position: DataPosition, batches: list[Batch]) -> str:
        lower = " or ".join(self.settings_to_lower)
        return (
            f"step {step}: {error} ({self.task.describe(position, batches[-1])}); training was stopped and the last "
            f"good checkpoint kept: lower {lower}, increase training.schedule.warmup_steps or set "
            "training.max_grad_norm=1.0, and continue with --resume."
        )

    def _log(self) -> None:
        """Write a line of metrics.jsonl, and show the progress."""
        line = self._metrics()
        self.state.interval = MetricsInterval()
        self._show(line)
        if self.process_group.is_first:
            self.run.appended.append("metrics.jsonl", line)
        for callback in self.callbacks:
            callback.on_step(self.state.step, line)

    def _metrics(self) -> dict[str, float]:
        """Metrics of the steps since the last line of metrics.jsonl."""
        state, interval = self.state, self.state.interval
        utilization = round(interval.flops / interval.seconds / self.peak_flops, 4)
        line = {
            "step": state.step,
            "epoch": self._epoch(),
            "loss": interval.loss / interval.targets,
            "cross_entropy": interval.cross_entropy / interval.targets,
            "learning_rate": self._learning_rate(state.step),
            "grad_norm": interval.grad_norm,
            "tokens": state.targets,
            "tokens_per_second": round(interval.targets / interval.seconds, 1),
            "utilization": utilization,
            "seconds": round(state.seconds, 3),
        }
        if self.balancing is not None:
            line["load_balancing_loss"] = interval.balance / interval.targets
        if utilization > 1:  # the peak was measured while the machine was busy with something else
            del line["utilization"]
        return line

    def _show(self, line: Mapping[str, float]) -> None:
        state, self._shown_at = self.state, time.monotonic()
        self.display.progress(
            Progress(
                state.step,
                self.steps,
                line["epoch"],
                line["cross_entropy"],  # comparable with the validation loss
                line["learning_rate"],
                line["tokens_per_second"],
                line.get("utilization") or None,
                state.seconds / state.step * (self.steps - state.step),
                self.task.unit,
            )
        )

    def _epoch(self) -> float:
        position = self.state.position
        return round(position.epoch + position.batch / self.task.batches_per_epoch, 4)

    # validation

    def _validation_is_due(self) -> bool:
        state, every = self.state, self.config.validation.every
        done, before = self.plan.progress(state.pace, state.step), state.validated_progress
        is_time = state.step % every == 0 if state.pace is None else done // every > before // every
        return state.step > state.last_validation and (is_time or state.step >= self.steps)

    def _validate(self) -> None:
        """Measure the network: all processes together, of which the first decides whether it is the best so far."""
        state, better, group = self.state, False, self.process_group
        with self.evaluation():
            with shared_work(self.task, group if group.world_size > 1 else ALL_WORK):
                result = self.task.validate(self.check)
            scores = result.scores
            if group.is_first:
                better = state.best_scores is None or self.gain(scores, state.best_scores) > 0
                if better:
                    self.save_model("best", state.step, scores)
                if self.config.training.average_checkpoints:
                    self._save_weights_for_average()
                self._log_validation(result, better)
        better = group.exchange(json.dumps(better))[0] == json.dumps(True)
        state.last_validation, state.validated_progress = state.step, self.plan.progress(state.pace, state.step)
        state.validations_since_best = 0 if better else state.validations_since_best + 1
        state.plateau_validations = 0 if better else state.plateau_validations + 1
        if better:
            state.best_scores, state.best_step = scores, state.step
        schedule = self.config.training.schedule
        if isinstance(schedule, PlateauScheduleConfig) and state.plateau_validations > schedule.patience:
            lowest = schedule.min_learning_rate / schedule.learning_rate
            state.learning_rate_factor = max(state.learning_rate_factor * schedule.factor, lowest)
            state.plateau_validations = 0

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Let `network` have the weights that are validated, whole; every process must enter this."""
        averaged = self.average.tensors if self.average is not None else None
        with self.parallel.evaluation(self.network, self.trained_network, averaged):
            self.network.eval()
            yield

    def save_model(self, name: str, step: int, scores: dict[str, float]) -> None:
        """Write the current weights to a model folder of the run."""
        scores_text = ", ".join(f"{score} {value:.4g}" for score, value in scores.items())
        self.run.save_model(name, self.network, self.config, f"Step {step:,} of {self.steps:,}: {scores_text}.")

    def _log_validation(self, result: ValidationResult, better: bool) -> None:
        state = self.state
        self.display.validation(state.step, result.scores, better, result.samples)
        line = {
            "step": state.step,
            "epoch": self._epoch(),
            "seconds": round(state.seconds, 3),
            "valid": result.scores,
        }
        self.run.appended.append("metrics.jsonl", line)
        for sample in result.samples:
            texts = {"source": sample.source, "reference": sample.reference, "output": sample.output}
            if not sample.reference:
                texts = {"prompt": sample.source, "output": sample.output}
            self.run.appended.append("samples.jsonl", {"step": state.step, **texts})
        for callback in self.callbacks:
            callback.on_validation(state.step, result.scores, better)

    def gain(self, scores: dict[str, float], over: dict[str, float]) -> float:
        """The improvement of scores over others by `validation.metric`; where that is equal, by the loss."""
        metric, loss_decrease = self.config.validation.metric, over["loss"] - scores["loss"]
        return loss_decrease if metric == "loss" else scores[metric] - over[metric] or loss_decrease

    def _save_weights_for_average(self) -> None:
        steps = self.state.averaged_steps
        self.run.save_weights(self.state.step, trained_tensors(self.network))
        steps.append(self.state.step)
        while len(steps) > self.config.training.average_checkpoints:
            self.run.weights_path(steps.pop(0)).unlink(missing_ok=True)

    def average_of_last(self) -> dict[str, torch.Tensor] | None:
        """The mean of the weights of the last validations, if they were saved."""
        weights = []
        for step in self.state.averaged_steps:
            try:
                weights.append(read_tensors(self.run.weights_path(step)))
            except ModelError as error:
                self.display.note(f"{error} It is left out of the average.")
        return mean(weights) if len(weights) > 1 else None

    # checkpoints

    def _saving_is_due(self) -> bool:
        """By the clock of the first process, where all of them take part in saving."""
        due = time.monotonic() - self._saved_at >= 60 * self.config.training.checkpoint_minutes
        if not self.parallel.sharded:
            return due
        return self.process_group.any(due and self.process_group.is_first)

    def _save(self, *, wait: bool = False) -> None:
        """Save a checkpoint; a divided network is saved in the background unless `wait` is set."""
        if self.process_group.is_first:
            self.state.file_sizes, self.state.file_checksums = self.run.appended.flush()
        self.state.elapsed = self.elapsed
        parts = {
            "network": trained_tensors(self.trained_network),
            "optimizer": optimizer_tensors(self.optimizer, self.trained_network),
            "average": self.average.tensors if self.average is not None else {},
            "scaler": self.scaler.tensors() if self.scaler is not None else {},
        }
        self.saver.save(self.state, parts, wait=wait)
        self._saved_at = time.monotonic()

    def _on_saved(self, step: int, path: Path) -> None:
        for callback in self.callbacks:
            callback.on_checkpoint(step, path)

    def check(self) -> None:
        """Raise InterruptedRun if a stop was requested; the state is saved already."""
        if self.stop.requested:
            raise InterruptedRun(
                f"{self.run.folder}: stopped at step {self.state.step:,}, all saved; continue with --resume."
            )
