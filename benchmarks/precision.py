"""CPU time of a training step in float32 and bfloat16 by width and batch: where `training.precision = "auto"` begins.

    python benchmarks/precision.py --data pairs.tsv

Each network, a translator with four layers, is trained for few and for more steps in processes of their own with one
thread, and the difference of their CPU times divided by that of the steps, so that starting does not count.
"""

import argparse
import os
import resource
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

TOKENS = 40_960  # per measurement
PRECISIONS = ("float32", "bfloat16")


def cpu_seconds(
    options: argparse.Namespace, folder: Path, width: int, tokens: int, precision: str, steps: int
) -> float:
    """Train for some steps and return the CPU time of the process."""
    settings = {
        "training.steps": steps,
        "training.batch_tokens": tokens,
        "training.precision": precision,
        "validation.every": 10**6,
        "validation.samples": 0,
        "validation.sentences": 0,
        "model.width": width,
        "model.heads": 4,
        "model.feed_forward": 4 * width,
        "data.store": folder / "store",
    }
    command = [sys.executable, "-m", "regard", "train", "translation", "--preset", "tiny", "--quiet"]
    command += ["--data", str(options.data), "--out", str(folder / f"{width}-{tokens}-{precision}-{steps}")]
    command += [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure all widths and batches, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="TSV of sentence pairs")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 512, 1024, 2048])
    options = parser.parse_args()
    print("| width | tokens per batch | float32, ms | bfloat16, ms | speed-up |\n|---:|---:|---:|---:|---:|")
    with TemporaryDirectory() as folder:
        for width, tokens in product(options.widths, options.tokens):
            few, many = (round(share * TOKENS / tokens) for share in (0.5, 2))
            step = [
                (
                    cpu_seconds(options, Path(folder), width, tokens, precision, many)
                    - cpu_seconds(options, Path(folder), width, tokens, precision, few)
                )
                / (many - few)
                for precision in PRECISIONS
            ]
            times = " | ".join(f"{1000 * seconds:.0f}" for seconds in step)
            print(f"| {width} | {tokens:,} | {times} | {step[0] / step[1]:.2f}× |", flush=True)


if __name__ == "__main__":
    main()
