"""Predicted and measured training steps on this CPU: does the cost model of `regard plan` hold?

    python benchmarks/plan.py                # tiny, small and a GPT, one thread each
    python benchmarks/plan.py --markdown

Each network is trained in a fresh process on random words, as long as real sentences. The time is that of the processor
(`time.process_time`), which other programs change little; memory is the growth of the process since PyTorch was
imported. The rates of the cost model are measured in the same process, on tensors that have nothing to do with the
networks.
"""

import argparse
import json
import math
import resource
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import SPIN_COUNT, print_markdown, run_in_process
from training import MODELS, VARIANTS, RegardTrainer, make_task, write_corpus

from regard.data.batching import DataPosition
from regard.machine import keep_freed_memory
from regard.models.summary import summarize
from regard.training.device_specs import measure_cpu
from regard.training.planner import optimizer_bytes, optimizer_seconds
from regard.training.step_trace import trace_step

NETWORKS = ("tiny", "small", "gpt")
MIB = 2**20


def measure(name: str, steps: int, warmup: int) -> dict[str, Any]:
    """Train a network in this process, then predict the same step."""
    torch.set_num_threads(1)
    keep_freed_memory()
    with TemporaryDirectory() as folder:
        store = write_corpus(Path(folder) / "store", MODELS[name])
        _load_libraries()
        start_memory = _resident()
        task = make_task(name, store)
        trainer = RegardTrainer(task, Path(folder) / "run", VARIANTS["regard"])
        batches = [batch for _, batch in islice(task.batches(DataPosition()), warmup + steps)]
        times = []
        for batch in batches:
            started = time.process_time()
            trainer.step(batch)
            times.append(time.process_time() - started)
        memory = _peak_resident() - start_memory
        measured = batches[warmup:]
    rows = sum(len(batch.target) for batch in measured) / len(measured)
    length = sum(batch.targets for batch in measured) / len(measured) / rows
    device = measure_cpu(threads=1)
    trace = trace_step(task.config, round(rows), math.ceil(length), torch.float32, on_cpu=True)
    most = max(batch.target.numel() for batch in batches) / (round(rows) * math.ceil(length))
    parameters = summarize(task.network).parameters
    compute = sum(device.seconds(work, "float32") for work in (trace.forward, trace.backward))
    return {
        "rows": rows,
        "length": length,
        "measured": median(times[warmup:]),
        "predicted": compute + optimizer_seconds(task.config, parameters, device),
        "measured_memory": memory,
        "predicted_memory": 4 * parameters + optimizer_bytes(task.config, parameters) + 1.15 * most * trace.peak,
        "gflops": device.peaks["float32"] / 1e9,
        "kinds": {
            f"{phase} {kind}": device.seconds({kind: work}, "float32")
            for phase, items in (("forward", trace.forward), ("backward", trace.backward))
            for kind, work in items.items()
        },
    }


def _load_libraries() -> None:
    """Let PyTorch load what any training step needs."""
    layer = torch.nn.Linear(64, 64)
    layer(torch.rand(64, 64)).softmax(-1).sum().backward()
    torch.optim.Adam(layer.parameters(), fused=True).step()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--details", action="store_true", help="print the predicted time of each kind of operation")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.steps, options.warmup)))
        return
    rows = [("network", "batch", "measured s", "predicted s", "ratio", "measured MiB", "predicted MiB", "ratio")]
    for name in options.networks:
        arguments = [name, "--steps", str(options.steps), "--warmup", str(options.warmup)]
        result = run_in_process(__file__, arguments, environment={**SPIN_COUNT, "OMP_NUM_THREADS": "1"})
        rows.append(
            (
                name,
                f"{result['rows']:.0f} × {result['length']:.0f}",
                f"{result['measured']:.3f}",
                f"{result['predicted']:.3f}",
                f"{result['predicted'] / result['measured']:.2f}",
                f"{result['measured_memory'] / MIB:.0f}",
                f"{result['predicted_memory'] / MIB:.0f}",
                f"{result['predicted_memory'] / result['measured_memory']:.2f}",
            )
        )
        if options.details:
            print(json.dumps(result, indent=1), file=sys.stderr)
    print_markdown(rows)


if __name__ == "__main__":
    main()
