"""Shared by the benchmarks: run a measurement in a fresh process, the clock, spreads, and Markdown tables."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

SPIN_COUNT = {"GOMP_SPINCOUNT": "10000"}  # the setting of the `regard` command
CPU_TIME = "BENCHMARK_CPU_TIME"  # set by `run.py --cpu-time`: measure the CPU time of one thread
ALLOCATOR = " + allocator"  # the suffix of peers that get regard's allocator settings


def clock() -> float:
    """Return seconds: of the wall clock, or the CPU time of this process, which other programs change little."""
    return time.process_time() if os.environ.get(CPU_TIME) else time.perf_counter()


def run_in_process(
    script: str, arguments: Sequence[str], *, data: object = None, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run `script --one ARGUMENTS` in a new process, with `data` as JSON on stdin, and return the JSON it prints."""
    command = [sys.executable, script, "--one", *arguments]
    done = subprocess.run(
        command,
        input=json.dumps(data),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | (environment or {}),
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def with_spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Return the median of the rounds, and with several rounds the lowest and the highest.

    >>> with_spread([3103, 2990, 3150])
    '3,103 (2,990–3,150)'
    """
    middle = f"{median(values):{form}}"
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}}–{max(values):{form}})"


def print_markdown(rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a Markdown table; the first row is the header and all columns but the first are right-aligned."""
    header, *body = rows
    print(f"\n{title}\n" if title else "")
    for cells in (header, ("---", *["---:"] * (len(header) - 1)), *body):
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()
