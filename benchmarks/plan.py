"""Predicted and measured training steps on this CPU: does the cost model of `regard plan` hold?

    python benchmarks/plan.py                # tiny, small and a GPT in one process; tiny also in two (gloo)

Each network is trained in fresh processes with one thread each, on random words in sentences as long as real ones. The
time is that of the processor (`time.process_time`), which other programs change little; memory is the growth of the
process since PyTorch was loaded. The rates of the cost model are measured in the same process, on tensors that have
nothing to do with the networks.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import SPIN_COUNT, print_markdown

from regard.config import Config
from regard.data.batching import DataPosition
from regard.machine import keep_freed_memory
from regard.training.device_specs import measure_cpu
from regard.training.distributed import joined_process_group
from regard.training.layout_plan import LayoutPlan
from regard.training.planner import make_plan
from regard.training.run_folder import RunFolder
from regard.training.trainer import Trainer
from training import MODELS, make_task, write_corpus

RUNS = (("tiny", 1), ("small", 1), ("gpt", 1), ("tiny", 2))  # network and processes
MIB = 2**20


def measure(name: str, steps: int, warmup: int) -> dict[str, Any]:
    """Train a network in this process and others that torchrun started, then predict the same step."""
    torch.set_num_threads(1)
    keep_freed_memory()
    times = []
    with TemporaryDirectory() as folder, joined_process_group() as process_group:
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
        batches: list[Any] = [batch.shard(0, 1) for _, batch in islice(task.batches(DataPosition()), warmup + steps)]
        processes = process_group.world_size
    rows = sum(len(batch.target) for batch in batches) / len(batches)
    length = sum(batch.targets for batch in batches) / len(batches) / rows
    most = max(batch.target.numel() for batch in batches)
    return {
        "rows": rows,
        "length": length,
        "measured": median(times[warmup:]),
        "predicted": predict(task.config, rows * length, length, processes).seconds,
        "measured_memory": memory,
        "predicted_memory": predict(task.config, most, length, processes).memory,
    }


def predict(config: Config, tokens: float, length: float, processes: int) -> LayoutPlan:
    """Return the plan of ddp, or of a single process, for a batch of this size."""
    longest = math.ceil(length)
    training = config.training.model_copy(update={"batch_tokens": round(tokens / longest) * longest})
    plan = make_plan(config.model_copy(update={"training": training}), measure_cpu(threads=1), processes, longest)
    return plan.layouts[0]


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
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        result = measure(options.one, options.steps, options.warmup)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(result))
        return
    header = ("network", "processes", "batch", "measured s", "predicted s", "ratio")
    rows = [(*header, "measured MiB", "predicted MiB", "ratio")]
    for name, processes in RUNS:
        result = run_in_processes(name, processes, options.steps, options.warmup)
        seconds, memory = ((result[f"measured{kind}"], result[f"predicted{kind}"]) for kind in ("", "_memory"))
        rows.append(
            (
                *(name, str(processes), f"{result['rows']:.0f} × {result['length']:.0f}"),
                *(f"{seconds[0]:.3f}", f"{seconds[1]:.3f}", f"{seconds[1] / seconds[0]:.2f}"),
                *(f"{memory[0] / MIB:.0f}", f"{memory[1] / MIB:.0f}", f"{memory[1] / memory[0]:.2f}"),
            )
        )
    print_markdown(rows)


if __name__ == "__main__":
    main()
