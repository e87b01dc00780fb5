"""The command as a user runs it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from regard.cli import main; main()"]
ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "100", "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def regard(
    *arguments: str | Path, given: str | bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[Any]:
    """What a command prints, and its exit code; `given` is its standard input, as text or as bytes."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=not isinstance(given, bytes),
        input=given if given is not None else "",
        env=ENVIRONMENT | environment,
    )


def begun(*arguments: str | Path) -> "subprocess.Popen[str]":
    """A command whose input is written, and whose output is read, while it runs."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # even where the tests ignore it
    )
