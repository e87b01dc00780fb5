"""Layouts of several processes: equal losses, memory per process, and throughput against the ideal.

    python benchmarks/parallel.py --steps 5                  # losses and memory
    python benchmarks/parallel.py --steps 30 --throughput    # also tokens per second; needs an idle machine

Each layout trains the same network on the same batches in processes of one thread, started by torchrun. The state of a
process are its parts of weights, gradients and Adam's state, 16 bytes per parameter in all; its peak is the memory that
it had at most during the steps, above what it had before it built the network. The largest of all processes is printed.
The ideal throughput is that of one process times their number, or times the number of cores if there are fewer.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import print_markdown

from regard.config import AdamConfig, DdpConfig, DecoderOnlyConfig, EncoderDecoderConfig, FsdpConfig, TensorConfig
from regard.machine import available_cores
from regard.models import build
from regard.training.batches import TokenBatch
from regard.training.distributed import joined_process_group, local_part
from regard.training.losses import CausalLMObjective
from regard.training.optimizers import build_optimizer, update
from regard.training.parallel import Parallelism

LAYOUTS = {
    "ddp": DdpConfig(),
    "fsdp": FsdpConfig(),
    "tensor": TensorConfig(),
    "fsdp + tensor": FsdpConfig(tensor_size=2),
}
RUNS = [
    ("ddp", 1),
    ("ddp", 2),
    ("fsdp", 2),
    ("tensor", 2),
    ("ddp", 4),
    ("fsdp", 4),
    ("tensor", 4),
    ("fsdp + tensor", 4),
]
VOCABULARY, LENGTH = 8000, 64


def main() -> None:
    """Run all layouts and print a table for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=["encoder-decoder", "gpt"], default=["encoder-decoder", "gpt"])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--rows", type=int, default=8, help="sequences of 64 tokens in the batch of all processes")
    parser.add_argument("--throughput", action="store_true", help="print tokens per second")
    parser.add_argument("--worker", nargs=3, metavar=("NETWORK", "LAYOUT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        network, layout, file = options.worker
        work(network, layout, file, options)
        return
    for network in options.networks:
        results = {run: measure(network, *run, options) for run in RUNS}
        alone = results["ddp", 1]
        header = ["layout", "processes", "last loss", "largest difference", "state per process", "peak per process"]
        rows = [header + (["tokens/s", "of the ideal"] if options.throughput else [])]
        for (layout, processes), result in results.items():
            pairs = zip(result["losses"], alone["losses"], strict=True)
            difference = max(abs(loss - expected) for loss, expected in pairs)
            row = [layout if processes > 1 else "one process", str(processes), f"{result['losses'][-1]:.6f}"]
            row += [f"{difference:.1e}", *(f"{result[name] / 2**20:,.0f} MB" for name in ("state", "peak"))]
            if options.throughput:
                ideal = min(processes, available_cores()) * alone["tokens_per_second"]
                row += [f"{result['tokens_per_second']:,.0f}", f"{result['tokens_per_second'] / ideal:.0%}"]
            rows.append(row)
        print_markdown(rows, f"{network}, {alone['parameters']:,} parameters, {options.steps} steps")


def measure(network: str, layout: str, processes: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train in new processes, and return what the first of them measured."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        sizes = [f"--{name}={getattr(options, name)}" for name in ("width", "layers", "steps", "warmup", "rows")]
        command = [*launcher, __file__, *sizes, "--worker", network, layout, str(file)]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        result: dict[str, Any] = json.loads(file.read_text())
    return result


def work(network_name: str, layout: str, file: str, options: argparse.Namespace) -> None:
    """Train in this process, one of several."""
    torch.set_num_threads(1)
    with joined_process_group() as process_group:
        parallel: Parallelism = LAYOUTS[layout].build(process_group)
        before = memory("VmRSS")
        torch.manual_seed(1)
        width, layers = options.width, options.layers
        config_class = EncoderDecoderConfig if network_name == "encoder-decoder" else DecoderOnlyConfig
        config = config_class(vocab_size=VOCABULARY, width=width, layers=layers, feed_forward=4 * width, dropout=0.0)
        network = build(config)
        parameters = sum(parameter.numel() for parameter in network.parameters())
        parallel.divide(network)
        objective = parallel.wrap(CausalLMObjective(network, 0.1))
        optimizer = build_optimizer(network, AdamConfig())
        ctypes.CDLL(None).malloc_trim(0)  # return the memory of the whole network, and forget the peak so far
        Path("/proc/self/clear_refs").write_text("5")
        losses, tokens, started = [], 0, time.perf_counter()
        for number, batch in enumerate(
            batches(options.warmup + options.steps, options.rows, with_source=config.translates)
        ):
            if number == options.warmup:
                tokens, started = 0, time.perf_counter()
            result = update(objective, optimizer, [batch], 1e-4, process_group=parallel.data)
            losses.append(result.loss / result.targets)
            tokens += result.targets
        seconds = time.perf_counter() - started
        state = [tensor for parameter in network.parameters() for tensor in (parameter, parameter.grad)]
        state += [tensor for of_parameter in optimizer.state.values() for tensor in of_parameter.values()]
        own = {
            "state": sum(local_part(tensor.detach()).nbytes for tensor in state if tensor is not None),
            "peak": memory("VmHWM") - before,
        }
        every = [json.loads(message) for message in process_group.exchange(json.dumps(own))]
        if process_group.is_first:
            facts = {name: max(figures[name] for figures in every) for name in own} | {"losses": losses}
            facts |= {"parameters": parameters, "tokens_per_second": tokens / seconds}
            Path(file).write_text(json.dumps(facts))


def batches(count: int, rows: int, *, with_source: bool) -> Iterator[TokenBatch]:
    """Yield random batches, the same in all processes."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        ids, source = torch.randint(4, VOCABULARY, (2, rows, LENGTH + 1), generator=generator)
        yield TokenBatch(ids[:, :-1], ids[:, 1:], source=source[:, :LENGTH] if with_source else None)


def memory(name: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return 1024 * int(match[1])


if __name__ == "__main__":
    main()
