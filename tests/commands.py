"""The command in this very process, which spares each test the import of torch."""

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from regard.cli import main


@dataclass(frozen=True)
class Done:
    """What a command printed, and the code it ended with."""

    code: int
    out: str
    err: str


class Terminal(io.TextIOWrapper):
    """Standard input that someone types."""

    def isatty(self) -> bool:
        return True


def regard(*arguments: str | Path, stdin: str | bytes = b"", terminal: bool = False) -> Done:
    """Run the command with these arguments, and what it reads."""
    code = 0
    stdin = stdin.encode() if isinstance(stdin, str) else stdin
    read = (Terminal if terminal else io.TextIOWrapper)(io.BytesIO(stdin), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv = ["regard", *map(str, arguments)]
    with mock.patch.multiple(sys, argv=argv, stdin=read, stdout=out, stderr=err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, _content(out), _content(err))


def _content(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
