"""Sweep of the peak learning rate of translators over data sizes and run lengths, next to the automatic one.

    python benchmarks/learning_rate.py --data pairs.tsv --valid dev.tsv --out sweep
    python benchmarks/learning_rate.py --data pairs.tsv --valid dev.tsv --out sweep --presets tiny --steps 100 1000

Each run takes the first pairs of the file and trains with `regard train translation` and its automatic settings, except
for the peak learning rate, the number of steps and the batch size. A run that exists in `--out` is not repeated, so an
interrupted sweep continues. The table has the lowest validation loss of each run; `automatic` is the run without a
learning rate of ours, and `ratio` its loss divided by the lowest of the sweep.
"""

import argparse
import json
import subprocess
import sys
from itertools import islice, product
from pathlib import Path

AUTOMATIC = "automatic"
VALIDATIONS, PATIENCE = 20, 4  # per run; a run that overfits ends early, its lowest validation loss is known


def train(options: argparse.Namespace, preset: str, pairs: int, steps: int, rate: str) -> float:
    """Train one network, unless it is in the folder already, and return its lowest validation loss."""
    folder = options.out / f"{preset}-{pairs}-{steps}-{rate}"
    data = options.out / f"train-{pairs}.tsv"
    if not data.exists():
        with options.data.open(encoding="utf-8") as lines:
            data.write_text("".join(islice(lines, pairs)), encoding="utf-8")
    info = folder / "run.json"
    if not info.exists() or json.loads(info.read_text("utf-8"))["finished"] is None:
        settings = [
            f"training.steps={steps}",
            f"training.batch_tokens={options.batch_tokens}",
            f"validation.every={max(20, steps // VALIDATIONS)}",
            "validation.sentences=0",
            "validation.samples=0",
            f"training.patience={PATIENCE}",
            f"training.precision={options.precision}",
            "training.average_checkpoints=0",
            f"data.store={options.out / 'prepared'}",
            *([] if rate == AUTOMATIC else [f"training.schedule.learning_rate={rate}"]),
        ]
        command = [sys.executable, "-m", "regard", "train", "translation", "--preset", preset, "--resume", "--quiet"]
        command += ["--data", str(data), "--valid", str(options.valid), "--out", str(folder)]
        command += [argument for setting in settings for argument in ("--set", setting)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{folder.name}: {done.stderr.strip()}", file=sys.stderr)
            return float("nan")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return min((line["valid"]["loss"] for line in lines if "valid" in line), default=float("nan"))


def main() -> None:
    """Run the sweep and print it as a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="TSV of sentence pairs")
    parser.add_argument("--valid", type=Path, required=True, help="TSV of sentence pairs for validation")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--presets", nargs="+", default=["tiny", "small"])
    parser.add_argument("--pairs", type=int, nargs="+", default=[400, 4000, 40_000])
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--rates", nargs="+", default=["0.00075", "0.0015", "0.003", "0.006"])
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--precision", default="auto", help="training.precision; bfloat16 where the processor has it")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rates = [*options.rates, AUTOMATIC]
    print(f"| preset | pairs | steps | {' | '.join(rates)} | ratio |\n|---|{'---:|' * (len(rates) + 3)}")
    for preset, steps, pairs in product(options.presets, options.steps, options.pairs):
        losses = [train(options, preset, pairs, steps, rate) for rate in rates]
        cells = " | ".join(f"{loss:.3f}" for loss in losses)
        print(f"| {preset} | {pairs:,} | {steps:,} | {cells} | {losses[-1] / min(losses):.3f} |", flush=True)


if __name__ == "__main__":
    main()
