"""Run `regard` in tests: in this process, which avoids importing torch again, or in a process of its own."""

import io
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from regard.cli import main

COMMAND = [sys.executable, "-c", "from regard.cli import main; main()"]
ENVIRONMENT = {
    "NO_COLOR": "1",
    "COLUMNS": "100",
    "PATH": "",
    "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "OMP_NUM_THREADS": "1",  # pytest already uses every core
}


@dataclass(frozen=True)
class CommandResult:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str


class TerminalInput(io.TextIOWrapper):
    """Standard input that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def regard(*arguments: str | Path, stdin: str | bytes = b"", terminal: bool = False) -> CommandResult:
    """Run the command with these arguments in this process."""
    code = 0
    stdin = stdin.encode() if isinstance(stdin, str) else stdin
    input = (TerminalInput if terminal else io.TextIOWrapper)(io.BytesIO(stdin), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv = ["regard", *map(str, arguments)]
    with mock.patch.multiple(sys, argv=argv, stdin=input, stdout=out, stderr=err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return CommandResult(code, _content(out), _content(err))


def _content(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def run_process(
    *arguments: str | Path, stdin: str | bytes | None = None, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[Any]:
    """Run the command in a process of its own; its output is text, or bytes if `stdin` is."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=not isinstance(stdin, bytes),
        input=stdin if stdin is not None else "",
        env=ENVIRONMENT | environment,
        cwd=cwd,
    )


def start_process(*arguments: str | Path) -> "subprocess.Popen[str]":
    """Start the command in a process whose input and output are pipes."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=default_signal_handlers,
    )


def default_signal_handlers() -> None:
    """Restore default handlers in a child process, in case the process that started the tests ignores signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
