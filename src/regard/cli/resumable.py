"""Output that a stopped command can continue: results so far and the number of lines that they are for.

`OUTPUT.partial/` has the file `output` and, after every batch, `state.json`; the output replaces `OUTPUT` when all
lines are done. What was written after the last `state.json` is dropped. A compressed output has one gzip member per
batch.
"""

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from regard.errors import ConfigError, RunError
from regard.files import IS_WINDOWS, explain_write_errors, lock_file, write_text

OUTPUT_NAME = "output"
STATE_NAME = "state.json"
LOCK_NAME = "lock"


def job_key(*parts: object, files: Iterable[Path]) -> str:
    """Return a hash of the options of a job, and of the sizes and times of the files it reads."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps([[str(part) for part in parts], stats]).encode()).hexdigest()


class ResumableOutput:
    """An output file with the number of input lines that it has the results of."""

    def __init__(self, output: Path, key: str) -> None:
        self._output = output
        self._folder = output.with_name(f"{output.name}.partial")
        self._key = key
        self.lines = 0
        """Input lines that are done."""

    @contextmanager
    def open(self) -> Iterator[Callable[[Iterable[str], int], None]]:
        """Yield a function that appends the results of a number of input lines; the file appears at the end."""
        with ExitStack() as stack:
            with explain_write_errors(self._output):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock(stack.enter_context(open(self._folder / LOCK_NAME, "a")))
                size = self._restore()
                file = stack.enter_context(open(self._folder / OUTPUT_NAME, "ab"))
                file.truncate(size)

            def append(results: Iterable[str], lines: int) -> None:
                content = "".join(f"{result}\n" for result in results).encode()
                with explain_write_errors(self._output):
                    file.write(gzip.compress(content) if self._output.name.endswith(".gz") else content)
                    file.flush()
                    os.fsync(file.fileno())
                    self.lines += lines
                    self._save(file.tell())

            yield append
            with explain_write_errors(self._output):
                file.close()
                os.replace(self._folder / OUTPUT_NAME, self._output)
                if IS_WINDOWS:
                    stack.close()  # Windows removes the file of the lock only when it is closed
                shutil.rmtree(self._folder)

    def _lock(self, file: TextIO) -> None:
        """Keep other processes from writing the same output."""
        try:
            lock_file(file)
        except OSError:
            raise RunError(f"{self._folder}: another process writes here; wait for it, or stop it.") from None

    def _restore(self) -> int:
        """Read how many lines are done; return the size of their results in bytes."""
        path = self._folder / STATE_NAME
        if not path.exists():
            return 0
        try:
            state = json.loads(path.read_text("utf-8"))
            key, lines, size = str(state["key"]), int(state["lines"]), int(state["bytes"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}: is damaged; remove {self._folder} to start over.") from None
        if key != self._key:
            raise ConfigError(
                f"{self._folder}: was written with another model, input or other options; "
                "use the same ones, or remove it to start over."
            )
        self.lines = lines
        return size

    def _save(self, size: int) -> None:
        state = {"key": self._key, "lines": self.lines, "bytes": size}
        write_text(self._folder / STATE_NAME, json.dumps(state) + "\n")
