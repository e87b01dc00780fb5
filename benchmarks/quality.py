"""Quality per minute: the same model trained with other optimizers, parts and schedules, on the same data.

    python benchmarks/quality.py --data input.txt --out quality
    python benchmarks/quality.py --data train.tsv --valid valid.tsv --preset tiny --cpu-seconds 600 --out quality \
        --set tokenizer.kind=bpe --variants adamw muon muon+qk-norm

A variant is an optimizer (`adamw`, `muon`) and parts that are added to it with `+`. The peak learning rate of each
optimizer is chosen by its validation loss with the first seed, among `--rates`; then every variant is trained with
that rate and all seeds. With `--cpu-seconds`, the steps of each variant are those that take about that CPU time, by a
short run before; else all have `--steps`.

The table has the validation loss of the last step, its mean ± standard deviation over the seeds, the difference to the
first variant with the same seeds, and CPU time: of a step, its median in the fastest run, because other programs can
only make it longer, and of all steps. CPU time, with one thread, hardly depends on what else the machine does.

Every finished run is a line of `cells.jsonl` in `--out` and is not repeated, so an interrupted sweep continues.
"""

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import print_markdown

import regard
from regard.config import ConfigSource, load_sources
from regard.training.runner import run_training
from regard.training.setup import TrainRequest

OPTIMIZERS = {
    "adamw": ["training.optimizer={kind='adamw', beta2=0.99, weight_decay=0.01}"],
    "muon": ["training.optimizer={kind='muon', beta2=0.99, weight_decay=0.01}"],
}
PARTS = {
    "qk-norm": ["model.qk_norm=true"],
    "relu2": ["model.activation=relu2"],
    "zero-output": ["model.zero_output=true"],
    "soft-cap": ["model.logit_soft_cap=15.0"],
    "rotary": ["model.positions.kind=rotary"],
    "rms": ["model.norm=rms"],
    "wsd": ["training.schedule.kind=wsd", "training.schedule.decay_fraction=0.4"],
}
VARIANTS = ["adamw", *(f"adamw+{part}" for part in PARTS), "muon", *(f"muon+{part}" for part in PARTS)]
CALIBRATION_STEPS = 20
LOG_STEPS = 5  # between two measurements of CPU time


class StepTimes(regard.Callback):
    """CPU seconds per step, for each interval between two lines of metrics."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = time.process_time()

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Measure the steps since the last call."""
        now = time.process_time()
        self.seconds.append((now - self._last) / LOG_STEPS)
        self._last = now


def settings_of(variant: str) -> list[str]:
    """The settings of a variant, such as `muon+qk-norm`."""
    optimizer, *parts = variant.split("+")
    return [*OPTIMIZERS[optimizer], *(setting for part in parts for setting in PARTS[part])]


class Sweep:
    """Trains cells, and remembers those that are finished."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.path: Path = options.out / "cells.jsonl"
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        self.cells: dict[str, dict[str, float]] = {line.pop("cell"): line for line in map(json.loads, lines)}

    def cell(self, variant: str, rate: float, steps: int, seed: int) -> dict[str, float]:
        """Train one network, unless it is known already; returns its validation loss and CPU times."""
        name = f"{variant}-{rate:g}-{steps}-{seed}"
        if name not in self.cells:
            result = self._train(name, variant, rate, steps, seed)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"cell": name, **result}) + "\n")
            self.cells[name] = result
            print(f"{name}: {result['loss']:.4f}, {1e3 * result['step_seconds']:.1f} ms per step", flush=True)
        return self.cells[name]

    def _train(self, name: str, variant: str, rate: float, steps: int, seed: int) -> dict[str, float]:
        options, folder = self.options, self.options.out / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
        warmup = max(1, round(options.warmup_fraction * steps))
        schedule = [f"training.schedule.learning_rate={rate}", f"training.schedule.warmup_steps={warmup}"]
        own = settings_of(variant)
        kind = [] if any("schedule.kind" in setting for setting in own) else ["training.schedule.kind=cosine"]
        sets = [
            f"training.steps={steps}",
            f"training.seed={seed}",
            f"training.batch_tokens={options.batch_tokens}",
            f"training.log_every={LOG_STEPS}",
            "training.threads=1",
            "training.label_smoothing=0.0",
            "training.checkpoint_minutes=60",
            f"validation.every={steps}",
            "validation.sentences=0",
            "validation.samples=0",
            f"data.store={options.out / 'prepared'}",
            *options.set,
            *kind,
            *own,
            *schedule,
        ]
        data: dict[str, object] = {"train": {"files": [str(options.data)]}}
        if options.valid is not None:
            data["valid"] = {"files": [str(options.valid)]}
        sources: list[ConfigSource] = [*load_sources(options.preset, sets), ConfigSource("the data", {"data": data})]
        times = StepTimes()
        run_training(TrainRequest(sources, folder), callbacks=[times])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
        loss = [line["valid"]["loss"] for line in lines if "valid" in line][-1]
        shutil.rmtree(folder)
        return {"loss": loss, "step_seconds": statistics.median(times.seconds[1:] or times.seconds)}

    def steps(self, variant: str, rate: float) -> int:
        """The number of steps of a variant."""
        if self.options.cpu_seconds is None:
            return int(self.options.steps)
        seconds = self.cell(variant, rate, CALIBRATION_STEPS, self.options.seeds[0])["step_seconds"]
        return max(1, round(float(self.options.cpu_seconds) / seconds))

    def best_rate(self, optimizer: str) -> float:
        """The learning rate with the lowest validation loss of the first seed."""
        rates: list[float] = self.options.rates
        seed: int = self.options.seeds[0]
        if len(rates) == 1:
            return rates[0]
        losses = {rate: self.cell(optimizer, rate, self.steps(optimizer, rate), seed)["loss"] for rate in rates}
        return min(losses, key=lambda rate: (losses[rate] != losses[rate], losses[rate]))  # NaN last


def table(sweep: Sweep, variants: Sequence[str], seeds: Sequence[int]) -> list[list[str]]:
    """Rows of the results; cells that are missing are trained."""
    rows = [["variant", "learning rate", "steps", "validation loss", "difference", "ms per step", "CPU s"]]
    baseline: list[float] = []
    rates: dict[str, float] = {}
    for variant in variants:
        optimizer = variant.partition("+")[0]
        if optimizer not in rates:
            rates[optimizer] = sweep.best_rate(optimizer)
        rate, steps = rates[optimizer], sweep.steps(variant, rates[optimizer])
        cells = [sweep.cell(variant, rate, steps, seed) for seed in seeds]
        losses, seconds = [cell["loss"] for cell in cells], min(cell["step_seconds"] for cell in cells)
        baseline = baseline or losses
        difference = statistics.mean(a - b for a, b in zip(losses, baseline, strict=True))
        spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
        loss = f"{statistics.mean(losses):.3f}{spread}"
        cpu = f"{seconds * steps:,.0f}"
        rows.append([variant, f"{rate:g}", f"{steps:,}", loss, f"{difference:+.3f}", f"{1e3 * seconds:.1f}", cpu])
    return rows


def main() -> None:
    """Train all cells and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="text, or TSV of sentence pairs")
    parser.add_argument("--valid", type=Path, help="validation data; by default some of the data is held out")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--preset", default="gpt-char", help="preset or TOML file")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, help="such as muon+qk-norm+wsd")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-3, 3e-3, 1e-2], help="peak learning rates")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--cpu-seconds", type=float, help="CPU time per run, instead of --steps")
    parser.add_argument("--warmup-fraction", type=float, default=0.1, help="fraction of the steps with warmup")
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--set", nargs="*", default=[], help="further settings, of all variants")
    options = parser.parse_args()
    for variant in options.variants:
        if unknown := [part for part in variant.split("+") if part not in {**OPTIMIZERS, **PARTS}]:
            parser.error(f"{variant}: {unknown[0]} is none of {', '.join([*OPTIMIZERS, *PARTS])}")
    options.out.mkdir(parents=True, exist_ok=True)
    print_markdown(table(Sweep(options), options.variants, options.seeds))


if __name__ == "__main__":
    main()
