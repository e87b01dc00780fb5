"""Predicted and measured training steps on this CPU: does the cost model of `regard plan` hold?

    python benchmarks/plan.py                # tiny, small and a GPT in one process; tiny also in two (gloo)
    python benchmarks/plan.py --save         # also store them in tests/training/measured_steps.json
    python benchmarks/plan.py --stored       # predict the stored steps, which a test does too

Each network is trained in fresh processes with one thread each, on random words in sentences as long as real ones. The
time is that of the processor (`time.process_time`), which other programs change little; memory is the growth of the
process since PyTorch was loaded. The rates of the cost model, such as that of a large matrix product, are measured in
the same process before and after the steps, and the better of both counts: on tensors that have nothing to do with the
networks. They are stored with the steps.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import SPIN_COUNT, print_markdown

from regard.config import ConfigSource, validate_sources
from regard.data.batching import DataPosition
from regard.machine import keep_freed_memory
from regard.training.device_specs import Device, measure_cpu
from regard.training.distributed import joined_process_group
from regard.training.layout_plan import LayoutPlan
from regard.training.planner import make_plan
from regard.training.run_folder import RunFolder
from regard.training.trainer import Trainer
from training import MODELS, make_task, write_corpus

RUNS = (("tiny", 1), ("small", 1), ("gpt", 1), ("tiny", 2))  # network and processes
MIB = 2**20
STORED = Path(__file__).resolve().parents[1] / "tests" / "training" / "measured_steps.json"


def measure(name: str, steps: int, warmup: int) -> dict[str, Any]:
    """Train a network in this process and others that torchrun started; return the costs and what predicts them."""
    torch.set_num_threads(1)
    keep_freed_memory()
    times = []
    with TemporaryDirectory() as folder, joined_process_group() as process_group:
        before = measure_cpu(threads=1)
        store = write_corpus(Path(folder) / "store", MODELS[name])
        _load_libraries()
        start_memory = _resident()
        task = make_task(name, store)
        trainer = Trainer(RunFolder(Path(folder) / "run"), task.config, task, process_group=process_group)
        for _ in range(warmup + steps):
            started = time.process_time()
            trainer.step()
            times.append(time.process_time() - started)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - start_memory
        device = _faster(before, measure_cpu(threads=1))
        batches: list[Any] = [batch.shard(0, 1) for _, batch in islice(task.batches(DataPosition()), warmup + steps)]
        processes = process_group.world_size
    rows = sum(len(batch.target) for batch in batches) / len(batches)
    return {
        "network": name,
        "settings": {
            "model": task.config.model.model_dump(mode="json"),
            "training": {"precision": "float32", "label_smoothing": task.config.training.label_smoothing},
        },
        "device": asdict(device),
        "processes": processes,
        "rows": round(rows, 1),
        "length": round(sum(batch.targets for batch in batches) / len(batches) / rows, 2),
        "largest_batch": max(batch.target.numel() for batch in batches),
        "seconds": round(median(times[warmup:]), 4),
        "memory": memory,
    }


def _faster(one: Device, other: Device) -> Device:
    """Combine two measurements of a device: other programs can only make it slower."""
    return replace(
        one,
        peaks={name: max(rate, other.peaks[name]) for name, rate in one.peaks.items()},
        rates={name: max(rate, other.rates[name]) for name, rate in one.rates.items()},
        bandwidth=max(one.bandwidth, other.bandwidth),
        link=max(one.link, other.link),
        seconds_per_call=min(one.seconds_per_call, other.seconds_per_call),
    )


def predict(run: dict[str, Any]) -> tuple[float, float]:
    """Return seconds and bytes of ddp, or of a single process, for a measured step; memory is of the largest batch."""
    config, device = validate_sources([ConfigSource("a measured step", run["settings"])]), Device(**run["device"])
    length = math.ceil(run["length"])

    def plan(tokens: float) -> LayoutPlan:
        training = config.training.model_copy(update={"batch_tokens": max(1, round(tokens / length)) * length})
        chosen = config.model_copy(update={"training": training})
        return make_plan(chosen, device, run["processes"], length).layouts[0]

    return plan(run["rows"] * run["length"]).seconds, plan(run["largest_batch"]).memory


def _load_libraries() -> None:
    """Let PyTorch load what any training step needs."""
    layer = torch.nn.Linear(64, 64)
    layer(torch.rand(64, 64)).softmax(-1).sum().backward()
    torch.optim.Adam(layer.parameters(), fused=True).step()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def run_in_processes(name: str, processes: int, steps: int, warmup: int) -> dict[str, Any]:
    """Run `measure` in new processes, and return the result of the first."""
    python = [sys.executable]
    if processes > 1:
        python += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    arguments = [__file__, "--one", name, "--steps", str(steps), "--warmup", str(warmup)]
    environment = os.environ | SPIN_COUNT | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*python, *arguments], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="store the measured steps for the tests")
    parser.add_argument("--stored", action="store_true", help="measure nothing; predict the steps that were stored")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        result = measure(options.one, options.steps, options.warmup)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(result))
        return
    if options.stored:
        runs = json.loads(STORED.read_text())
    else:
        runs = [run_in_processes(name, processes, options.steps, options.warmup) for name, processes in RUNS]
    if options.save:
        STORED.write_text(json.dumps(runs, indent=1) + "\n")
    header = ("network", "processes", "batch", "matmul GFLOP/s", "measured s", "predicted s", "ratio")
    rows = [(*header, "measured MiB", "predicted MiB", "ratio")]
    for run in runs:
        seconds, memory = predict(run)
        rows.append(
            (
                *(run["network"], str(run["processes"]), f"{run['rows']:.0f} × {run['length']:.0f}"),
                f"{run['device']['peaks']['float32'] / 1e9:.0f}",
                *(f"{run['seconds']:.3f}", f"{seconds:.3f}", f"{seconds / run['seconds']:.2f}"),
                *(f"{run['memory'] / MIB:.0f}", f"{memory / MIB:.0f}", f"{memory / run['memory']:.2f}"),
            )
        )
    print_markdown(rows)


if __name__ == "__main__":
    main()
