"""The command in this very process, which spares each test the import of torch."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


def regard(*arguments: str | Path, stdin: bytes = b"", terminal: bool = False) -> Done:
    """Run the command with these arguments, and what it reads."""
    code = 0
    with _streams(stdin, terminal) as (out, err), mock.patch.object(sys, "argv", ["regard", *map(str, arguments)]):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def _streams(stdin: bytes, terminal: bool) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    out, err = io.BytesIO(), io.BytesIO()
    texts = io.TextIOWrapper(out, encoding="utf-8"), io.TextIOWrapper(err, encoding="utf-8")
    read = (Terminal if terminal else io.TextIOWrapper)(io.BytesIO(stdin), encoding="utf-8")
    with mock.patch.multiple(sys, stdin=read, stdout=texts[0], stderr=texts[1]):
        yield out, err
        for text in texts:
            text.flush()
