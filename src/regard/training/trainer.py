"""The loop: update, log, validate, save, until there is nothing more to do."""

import math
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from regard.config import Config, PlateauScheduleConfig
from regard.data.batching import DataPosition
from regard.errors import InterruptedRun, ModelError, RunError
from regard.models.weights import named_tensors, read_tensors
from regard.training.averaging import MovingAverage, mean, swapped_weights
from regard.training.callbacks import scalars
from regard.training.checkpoint import (
    Checkpoint,
    optimizer_tensors,
    restore_network,
    restore_optimizer,
    write_checkpoint,
)
from regard.training.display import Progress, ProgressDisplay
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.interrupts import StopRequest
from regard.training.objectives import Batch, RDrop
from regard.training.run_folder import RunFolder
from regard.training.schedules import build_schedule
from regard.training.state import MetricsInterval, TrainingState, seed_step
from regard.training.task import BoundTask, ValidationResult
from regard.training.update import DivergedError, build_optimizer, update

DIVERGENCE_FACTOR = 4.0  # times the loss of knowing nothing, ln(vocabulary), or the first: no healthy run comes near it


class Trainer:
    """A run in progress. Between two steps, its state and tensors are all there is to it."""

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
        display: ProgressDisplay | None = None,
    ) -> None:
        self.run = run
        self.config = config
        self.task = task
        self.stop = stop or StopRequest()
        self.peak_flops = peak_flops  # floating-point operations a second that this machine can do at best
        self.matmul_dtype = matmul_dtype  # the type in which matrices are multiplied
        self.process_group = process_group
        self.display = display or ProgressDisplay()
        self.network = task.network.to(process_group.device)
        objective, agreement = task.objective(), config.training.rdrop
        self.objective = process_group.wrap(RDrop(objective, agreement) if agreement else objective)
        self.optimizer = build_optimizer(self.network, config.training.optimizer)
        self.average = MovingAverage(self.network, config.training.ema_decay) if config.training.ema_decay else None
        self.state = TrainingState()
        self.steps = self._last_step()
        self.schedule = build_schedule(config.training.schedule, config.model.width, self.steps)
        self._saved = time.monotonic()
        self._scalars = scalars(run.folder / "tensorboard") if process_group.is_first else None
        self._batches: Iterator[tuple[DataPosition, Batch]] | None = None

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.state = checkpoint.state
        restore_network(self.network, checkpoint.part("network"))
        restore_optimizer(self.optimizer, self.network, checkpoint.part("optimizer"))
        if self.average is not None:
            self.average.restore(checkpoint.part("average"))

    def train(self) -> str:
        """Train to the end; returns how it came: `finished` or `early stopped`."""
        if self.state.step == 0:
            self._save()  # so that a run that has trained always has a checkpoint, and a full disk shows at once
        while True:
            if self._validation_is_due():
                self._save()  # so that a validation that is interrupted costs nothing but itself
                self._validate()
                self._save()
            if self.state.step >= self.steps:
                return "finished"
            if 0 < self.config.training.patience <= self.state.validations_since_best:
                return "early stopped"
            self.step()
            self.stop.requested = self.process_group.any(self.stop.requested)  # whichever of them was asked
            if self.stop.requested:
                self._save()
                self.check()
            if self._saving_is_due():
                self._save()

    def _last_step(self) -> int:
        training = self.config.training
        if training.epochs is None:
            return training.steps
        return min(
            training.steps, math.ceil(training.epochs * self.task.batches_per_epoch / training.gradient_accumulation)
        )

    # one step

    def step(self) -> None:
        """Take one step."""
        training, state = self.config.training, self.state
        begun = time.perf_counter()
        if self._batches is None:
            self._batches = self.task.batches(state.position)
        taken = list(islice(self._batches, training.gradient_accumulation))
        place, batches = taken[-1][0], [batch for _, batch in taken]
        step = state.step + 1
        seed_step(training.seed, step, self.process_group.rank)
        self.objective.train()
        try:
            seen = update(
                self.objective,
                self.optimizer,
                batches,
                self.schedule(step) * state.learning_rate_factor,
                max_grad_norm=training.max_grad_norm,
                max_loss=self._bound(),
                matmul_dtype=self.matmul_dtype,
                process_group=self.process_group,
            )
        except DivergedError as error:
            raise RunError(self._diverged(step, error, place, batches)) from None
        if self.average is not None:
            self.average.update(step)
        state.step, state.position = step, place
        state.targets += seen.targets
        if state.first_loss is None:
            state.first_loss = seen.loss / seen.targets
        seconds = time.perf_counter() - begun
        state.seconds += seconds
        state.interval.add(seen, self._flops(batches), seconds)
        if step % training.log_every == 0 or step == self.steps:
            self._log()

    def _flops(self, batches: list[Batch]) -> float:
        readings = 2 if self.config.training.rdrop else 1
        return readings * sum(self.task.flops(batch) for batch in batches)

    def _bound(self) -> float:
        """The loss that is past all bounds."""
        if self.state.first_loss is None:
            return math.inf
        return DIVERGENCE_FACTOR * max(self.state.first_loss, math.log(self.config.model.vocab_size))

    def _diverged(self, step: int, error: DivergedError, place: DataPosition, batches: list[Batch]) -> str:
        peak = "training.schedule.learning_rate"
        lower = f"{peak} or training.rdrop" if self.config.training.rdrop else peak
        return (
            f"step {step}: {error} ({self.task.describe(place, batches[-1])}); training was stopped and the last good "
            f"checkpoint kept: lower {lower}, lengthen training.schedule.warmup_steps or set "
            "training.max_grad_norm=1.0, and go on with --resume."
        )

    def _log(self) -> None:
        state, seen = self.state, self.state.interval
        line = {
            "step": state.step,
            "epoch": round(state.position.epoch + state.position.batch / self.task.batches_per_epoch, 4),
            "loss": seen.loss / seen.targets,
            "cross_entropy": seen.cross_entropy / seen.targets,
            "learning_rate": self.schedule(state.step) * state.learning_rate_factor,
            "grad_norm": seen.grad_norm,
            "tokens": state.targets,
            "tokens_per_second": round(seen.targets / seen.seconds, 1),
            "utilization": round(seen.flops / seen.seconds / self.peak_flops, 4),
            "seconds": round(state.seconds, 3),
        }
        state.interval = MetricsInterval()
        self.display.progress(
            Progress(
                state.step,
                self.steps,
                line["epoch"],
                line["cross_entropy"],  # which can be compared with the validation loss
                line["learning_rate"],
                line["tokens_per_second"],
                line["utilization"] or None,
                state.seconds / state.step * (self.steps - state.step),
                self.task.unit,
            )
        )
        self._record(line)

    def _record(self, line: dict[str, float]) -> None:
        if self._scalars is not None:
            self.run.append("metrics.jsonl", line)
            self._scalars(int(line["step"]), {name: value for name, value in line.items() if name != "step"})

    # validation

    def _validation_is_due(self) -> bool:
        step, every = self.state.step, self.config.validation.every
        return step > self.state.last_validation and (step % every == 0 or step == self.steps)

    def _validate(self) -> None:
        state, better, scores = self.state, False, {}
        if self.process_group.is_first:
            self.network.eval()
            with swapped_weights(self.network, self.average.tensors if self.average is not None else None):
                measured = self.task.validate(self.check)
                scores = measured.scores
                better = state.best_scores is None or self.gain(scores, state.best_scores) > 0
                if better:
                    self.save_model("best", state.step, scores)
                if self.config.training.average_checkpoints:
                    self._keep_weights()
            self._report(measured, better)
        better = self.process_group.any(better)
        state.last_validation = state.step
        state.validations_since_best = 0 if better else state.validations_since_best + 1
        state.plateau_validations = 0 if better else state.plateau_validations + 1
        if better:
            state.best_scores, state.best_step = scores, state.step
        schedule = self.config.training.schedule
        if isinstance(schedule, PlateauScheduleConfig) and state.plateau_validations > schedule.patience:
            state.learning_rate_factor = max(
                state.learning_rate_factor * schedule.factor, schedule.min_learning_rate / schedule.learning_rate
            )
            state.plateau_validations = 0

    def save_model(self, name: str, step: int, scores: dict[str, float]) -> None:
        """Write the network as it is now into a model folder of the run."""
        figures = ", ".join(f"{score} {value:.4g}" for score, value in scores.items())
        self.run.save_model(name, self.network, self.config, f"Step {step:,} of {self.steps:,}: {figures}.")

    def _report(self, measured: ValidationResult, better: bool) -> None:
        state = self.state
        self.display.validated(state.step, measured.scores, better, measured.samples)
        epoch = round(state.position.epoch + state.position.batch / self.task.batches_per_epoch, 4)
        line = {"step": state.step, "epoch": epoch, "seconds": round(state.seconds, 3), "valid": measured.scores}
        self.run.append("metrics.jsonl", line)
        if self._scalars is not None:
            self._scalars(state.step, {f"valid/{name}": value for name, value in measured.scores.items()})
        for sample in measured.samples:
            texts = {"source": sample.source, "reference": sample.reference, "output": sample.output}
            if not sample.reference:
                texts = {"prompt": sample.source, "output": sample.output}
            self.run.append("samples.jsonl", {"step": state.step, **texts})

    def gain(self, scores: dict[str, float], over: dict[str, float]) -> float:
        """How much better scores are than others, by the metric that decides; where that is equal, by the loss."""
        metric, less_loss = self.config.validation.metric, over["loss"] - scores["loss"]
        return less_loss if metric == "loss" else scores[metric] - over[metric] or less_loss

    def _keep_weights(self) -> None:
        kept = self.state.averaged_steps
        self.run.save_weights(self.state.step, named_tensors(self.network))
        kept.append(self.state.step)
        while len(kept) > self.config.training.average_checkpoints:
            self.run.weights_path(kept.pop(0)).unlink(missing_ok=True)

    # the end

    def average_of_last(self) -> dict[str, torch.Tensor] | None:
        """The mean of the weights of the last validations, if they were to be kept."""
        several = []
        for step in self.state.averaged_steps:
            try:
                several.append(read_tensors(self.run.weights_path(step)))
            except ModelError as error:
                self.display.note(f"{error} It is left out of the average.")
        return mean(several) if len(several) > 1 else None

    # saving

    def _saving_is_due(self) -> bool:
        return time.monotonic() - self._saved >= 60 * self.config.training.checkpoint_minutes

    def _save(self) -> None:
        if self.process_group.is_first:
            self.state.file_sizes = self.run.file_sizes()
            parts = {
                "network": named_tensors(self.network),
                "optimizer": optimizer_tensors(self.optimizer, self.network),
                "average": self.average.tensors if self.average is not None else {},
            }
            write_checkpoint(self.run.checkpoints, self.state, parts)
        self._saved = time.monotonic()

    def check(self) -> None:
        """Stop if someone wishes it; the state is saved already."""
        if self.stop.requested:
            raise InterruptedRun(
                f"{self.run.folder}: stopped at step {self.state.step:,}, all saved; go on with --resume."
            )
