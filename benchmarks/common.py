"""Shared by the benchmarks: run a measurement in a fresh process, and print Markdown tables."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

SPIN_COUNT = {"GOMP_SPINCOUNT": "10000"}  # the setting of the `regard` command


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


def print_markdown(rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a Markdown table; the first row is the header and all columns but the first are right-aligned."""
    header, *body = rows
    print(f"\n{title}\n" if title else "")
    for cells in (header, ("---", *["---:"] * (len(header) - 1)), *body):
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()
