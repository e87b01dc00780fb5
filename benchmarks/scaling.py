"""Sweep behind `regard train gpt --minutes`: networks, batches and learning rates at equal CPU time.

    python benchmarks/scaling.py --data input.txt --out scaling --tflops 6 --cells 128x4 192x6 128x4:b1024:r0.004

A cell is WIDTHxLAYERS, then `:b` and tokens per batch, `:r` and the peak learning rate, and `:d` and the dropout; what
is left out has the value of `--batch-tokens`, `--rate` (for width 128, and lower for wider networks) and `--dropout`.
Everything else is what `regard train gpt` chooses for the text. All cells have the same number of floating-point
operations, `--tflops` (10^12), so that what else the machine does changes nothing.

The table has bits per byte of the validation text: of the last step, and the lowest of any step with the passes over
the data until then. Every finished cell is a line of `cells.jsonl` in `--out` and is not repeated, so an interrupted
sweep continues.
"""

import argparse
import json
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from common import print_markdown
from quality import LOG_STEPS, StepTimes

from regard.config import ConfigSource, load_sources, validate_sources
from regard.models.assembly import build_meta
from regard.models.summary import summarize
from regard.training.runner import run_training
from regard.training.setup import TrainRequest
from regard.training.task import get_task

HEAD_WIDTH, CONTEXT_LENGTH = 32, 256
CELL = re.compile(r"(\d+)x(\d+)((?::[brd][\d.e-]+)*)")


@dataclass(frozen=True)
class Cell:
    """A network and its training."""

    width: int
    layers: int
    batch_tokens: int
    rate: float
    dropout: float

    @classmethod
    def parse(cls, text: str, options: argparse.Namespace) -> "Cell":
        """Parse `128x4:b1024:r0.004`."""
        match = CELL.fullmatch(text)
        if match is None:
            raise SystemExit(f"{text}: should be WIDTHxLAYERS, and :b, :r or :d with a number, as in 128x4:b1024")
        width, layers = int(match[1]), int(match[2])
        parts = {part[0]: float(part[1:]) for part in match[3].split(":")[1:]}
        return cls(
            width,
            layers,
            int(parts.get("b", options.batch_tokens)),
            parts.get("r", options.rate * math.sqrt(128 / width)),
            parts.get("d", options.dropout),
        )

    def settings(self, steps: int) -> list[str]:
        """For `--set`."""
        return [
            f"model.width={self.width}",
            f"model.layers={self.layers}",
            f"model.heads={max(1, self.width // HEAD_WIDTH)}",
            f"model.feed_forward={4 * self.width}",
            f"model.dropout={self.dropout}",
            f"training.batch_tokens={self.batch_tokens}",
            f"training.schedule.learning_rate={self.rate}",
            f"training.schedule.warmup_steps={max(1, round(steps / 10))}",
        ]


class Sweep:
    """Trains cells, and remembers those that are finished."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.path: Path = options.out / "cells.jsonl"
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        self.results: dict[str, dict[str, float]] = {line.pop("cell"): line for line in map(json.loads, lines)}

    def result(self, cell: Cell) -> dict[str, float]:
        """Train a cell, unless it is known already."""
        options = self.options
        name = (
            f"{options.data.stem} {cell.width}x{cell.layers}:b{cell.batch_tokens}:r{cell.rate:.3g}:d{cell.dropout:g} "
            f"{options.tflops:g}"
        )
        if name not in self.results:
            steps = round(1e12 * options.tflops / cell.batch_tokens / self._flops_per_token(cell))
            result = self._train(cell, max(1, steps))
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"cell": name, **result}) + "\n")
            self.results[name] = result
            print(f"{name}: {json.dumps(result)}", flush=True)
        return self.results[name]

    def _flops_per_token(self, cell: Cell) -> int:
        sources = load_sources(None, [*cell.settings(1), 'model.kind="decoder-only"', *self._vocabulary])
        return summarize(build_meta(validate_sources(sources).model), CONTEXT_LENGTH).training_flops

    @property
    def _vocabulary(self) -> list[str]:
        return [f"model.vocab_size={self.options.vocab_size}"]

    def _train(self, cell: Cell, steps: int) -> dict[str, float]:
        folder = self.options.out / "run"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
        sets = [
            *cell.settings(steps),
            f"training.steps={steps}",
            f"training.log_every={LOG_STEPS}",
            "training.threads=1",
            "training.checkpoint_minutes=60",
            "training.patience=0",
            "training.average_checkpoints=0",
            f"validation.every={max(1, math.ceil(steps / self.options.validations))}",
            "validation.samples=0",
            f"data.store={self.options.out / 'prepared'}",
            *self._vocabulary,
            *self.options.set,
        ]
        sources = [
            ConfigSource("regard train gpt", get_task("gpt").default_settings()),
            *load_sources(None, sets),
            ConfigSource("the data", {"data": {"train": {"files": [str(self.options.data)]}}}),
        ]
        times = StepTimes()
        run_training(TrainRequest(sources, folder, task="gpt"), callbacks=[times])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
        scores = [(line["valid"]["bits_per_byte"], line["epoch"]) for line in lines if "valid" in line]
        info = json.loads((folder / "run.json").read_text("utf-8"))
        lowest, passes_at_lowest = min(scores)
        return {
            "parameters": info["parameters"],
            "flops_per_token": self._flops_per_token(cell),
            "steps": steps,
            "step_seconds": min(times.seconds[1:] or times.seconds),
            "passes": scores[-1][1],
            "bits_per_byte": scores[-1][0],
            "lowest": lowest,
            "passes_at_lowest": passes_at_lowest,
        }


def main() -> None:
    """Train all cells and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="a text file")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--cells", nargs="+", required=True, help="such as 128x4:b1024")
    parser.add_argument("--tflops", type=float, default=6.0, help="floating-point operations per cell, in 10^12")
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate of a network of width 128")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--validations", type=int, default=4, help="per run")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, of all cells")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(options)
    rows = [["cell", "parameters", "steps", "ms per step", "passes", "bits per byte", "lowest", "passes"]]
    for text in options.cells:
        result = sweep.result(Cell.parse(text, options))
        rows.append(
            [
                text,
                f"{result['parameters'] / 1e6:.2f} M",
                f"{result['steps']:,}",
                f"{1e3 * result['step_seconds']:.0f}",
                f"{result['passes']:.1f}",
                *(f"{result[name]:.3f}" for name in ("bits_per_byte", "lowest")),
                f"{result['passes_at_lowest']:.1f}",
            ]
        )
    print_markdown(rows, f"{options.data.name}, {options.tflops:g}·10^12 operations")


if __name__ == "__main__":
    main()
