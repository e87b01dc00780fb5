"""The run folder: all files of a run, readable text where possible, each written atomically.

config.toml      all settings, with their origins
run.json         command, environment, data, automatic settings, status and results
metrics.jsonl    a line every few steps and at every validation; metrics.jsonl.damaged if it was damaged
samples.jsonl    outputs for a few validation examples at each validation
outputs.json     the best, worst and random outputs at the end
checkpoints/     the state of training
weights/         the weights of the last validations, for averaging
best/, last/     model folders
data/            tokenizer and tokens
report.html      the run on one page

Files in JSON Lines are appended to. A checkpoint records the size and the CRC-32 of each. On resume, what was appended
after the checkpoint is removed. If what was written before it has changed, the damaged file is kept under another name,
and its readable lines continue.
"""

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from regard.config import Config
from regard.data.chat_templates import read_chat_files
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import RunError, RunFolderError
from regard.files import check_regular_file, lock_file, read_regular_file, write_bytes, write_error_message, write_text
from regard.models import save
from regard.models.adapter_files import ADAPTER_WEIGHTS_FILE
from regard.models.folder import MAX_SHARD_BYTES, model_card, trained_tensors
from regard.models.folder_files import CARD_FILE, TOKENIZER_FILE, WEIGHTS_FILE, read_file
from regard.models.network import Network
from regard.training.checkpoint import CHECKPOINT_NAME, write_tensors

APPENDED_FILES = ("metrics.jsonl", "samples.jsonl")
CHUNK_BYTES = 2**20
MAX_INFO_BYTES = 64 * 2**20  # of run.json
MAX_DISCARDED_BYTES = 64 * 2**20  # of prepared data, which take about a minute


class AppendedFiles:
    """Appends to the files of a run folder, and restores them to the state of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._summed: dict[str, tuple[int, int]] = {}  # size and checksum of what this process has summed so far

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Append a line."""
        path = self._folder / name
        with write_errors(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def flush(self) -> tuple[dict[str, int], dict[str, int]]:
        """Flush the files to disk; return their sizes and checksums.

        Only bytes that are new since the last call are read: damage of older ones is noticed on resume.
        """
        for name in APPENDED_FILES:
            path = self._folder / name
            if path.exists():
                with write_errors(path), open(path, "rb+") as file:
                    os.fsync(file.fileno())
                    size, checksum = self._summed.get(name, (0, 0))
                    file.seek(size)
                    added, checksum = _checksum(file, None, checksum)
                    self._summed[name] = size + added, checksum
        return {name: size for name, (size, _) in self._summed.items()}, {
            name: checksum for name, (_, checksum) in self._summed.items()
        }

    def restore(self, sizes: Mapping[str, int], checksums: Mapping[str, int]) -> Iterator[str]:
        """Restore the state that `flush` returned for a checkpoint; yield a message about each damaged file."""
        for name in APPENDED_FILES:
            path, size = self._folder / name, sizes.get(name, 0)
            actual = self._read_checksum(path, size)
            if actual is not None and actual == (size, checksums.get(name, actual[1])):
                with write_errors(path):
                    os.truncate(path, size)
                self._summed[name] = actual
            elif actual is not None or size:
                yield self._repair(path, size)

    def changed(self, sizes: Mapping[str, int], checksums: Mapping[str, int]) -> list[str]:
        """Return the names of files that do not begin with the bytes that they had when `flush` returned these."""
        return [
            name
            for name, size in sizes.items()
            if name in APPENDED_FILES
            and self._read_checksum(self._folder / name, size) != (size, checksums.get(name, 0))
        ]

    def _read_checksum(self, path: Path, size: int) -> tuple[int, int] | None:
        """Return how many bytes a file has, up to `size`, and their checksum; None if it does not exist."""
        try:
            check_regular_file(path)
            with open(path, "rb") as file:
                return _checksum(file, size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(
                f"{path}: cannot be read ({error.strerror}); restore it from a copy, or remove it."
            ) from None

    def _repair(self, path: Path, size: int) -> str:
        """Keep a damaged file under another name, and continue with its readable lines."""
        if not path.exists():
            return f"{path}: is missing, and so are its lines before this step."
        kept = next(name for name in _kept_names(path) if not name.exists())
        with write_errors(path):
            content = path.read_bytes()[:size]
            lines = [line for line in content.split(b"\n") if line]
            readable = [line for line in lines if _is_record(line)]
            os.replace(path, kept)
            write_bytes(path, b"".join(line + b"\n" for line in readable))
        return (
            f"{path}: is damaged, its bytes have changed since the checkpoint; it is kept as {kept.name}, and "
            f"{len(readable):,} of its {len(lines):,} lines, which can be read, continue."
        )


def _kept_names(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.damaged")
    yield from (path.with_name(f"{path.name}.damaged-{number}") for number in range(2, 10_000))


def _checksum(file: BinaryIO, size: int | None, checksum: int = 0) -> tuple[int, int]:
    """Return the number of bytes up to `size`, or to the end, and their CRC-32, continued from `checksum`."""
    count = 0
    while content := file.read(CHUNK_BYTES if size is None else min(CHUNK_BYTES, size - count)):
        checksum, count = zlib.crc32(content, checksum), count + len(content)
    return count, checksum


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and isinstance(record.get("step"), int)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a message about the file."""
    try:
        yield
    except OSError as error:
        then = ", then continue with --resume"
        raise RunFolderError(write_error_message(path, error, remedy="make it writable", then=then)) from None


def _refuse_pipe(path: Path) -> None:
    """Raise RunFolderError for a pipe or a device: opening a pipe to write would wait for a reader."""
    if path.exists():
        try:
            check_regular_file(path)
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written ({error.strerror}); remove it.") from None


class RunFolder:
    """Writes and reads the files of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config_path = folder / "config.toml"
        self.info_path = folder / "run.json"
        self.checkpoints = folder / "checkpoints"
        self.data = folder / "data"
        self.appended = AppendedFiles(folder)
        self._created: list[Path] = []  # by `lock`, the innermost first

    @property
    def exists(self) -> bool:
        """Whether there is a run to resume; the settings of a run that never started can be replaced."""
        return (self.folder / APPENDED_FILES[0]).exists() or self.has_checkpoint

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return any(self.checkpoints.glob("step-*"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training in the same folder."""
        self._created = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _refuse_pipe(self.folder / ".lock")
            lock = open(self.folder / ".lock", "a")  # noqa: SIM115  # closed below, or by a kill
        except OSError as error:
            raise RunFolderError(
                f"{self.folder}: cannot be written ({error.strerror}); choose another --out."
            ) from None
        with lock:
            try:
                lock_file(lock)
            except OSError:
                raise RunError(f"{self.folder}: another process is training here; wait for it, or stop it.") from None
            yield

    @contextmanager
    def removed_if_start_fails(self) -> Iterator[None]:
        """Remove the folder if `lock` has created it and an error occurs before the run has started."""
        try:
            yield
        except BaseException:
            self._remove_created()
            raise

    def _remove_created(self) -> None:
        """Remove the folder and its parents, as far as `lock` has created them."""
        if self.folder in self._created:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # a parent that is in use by now
                for folder in self._created[1:]:
                    folder.rmdir()

    def discard_start(self) -> bool:
        """Remove the folder after an error, if `lock` has created it and preparation has not come far.

        Much prepared data stay: the next start of the same run continues with them.
        """
        if self.folder not in self._created or self.read_info().get("status") != "started":
            return False
        prepared = sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())
        if prepared > MAX_DISCARDED_BYTES:
            return False
        self._remove_created()
        return True

    def write(self, name: str, content: str) -> None:
        """Write a small text file atomically."""
        path = self.folder / name
        try:
            _refuse_pipe(path)
            write_text(path, content)
        except OSError as error:
            raise RunFolderError(write_error_message(path, error, remedy="make it writable")) from None

    def write_json(self, name: str, content: Any) -> None:
        """Write an indented JSON file."""
        self.write(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def read_info(self) -> dict[str, Any]:
        """The content of run.json."""
        remedy = "restore it from a copy, or start a new run with another --out."
        try:
            info = json.loads(read_regular_file(self.info_path, MAX_INFO_BYTES).decode("utf-8"))
        except OSError as error:
            raise RunFolderError(f"{self.info_path}: cannot be read ({error.strerror}); {remedy}") from None
        except (ValueError, RecursionError) as error:
            raise RunFolderError(f"{self.info_path}: is damaged ({error}); {remedy}") from None
        if not isinstance(info, dict) or not isinstance(info.get("key"), str):
            raise RunFolderError(f"{self.info_path}: was not written by regard; {remedy}")
        return info

    def update_info(self, **values: Any) -> None:
        """Set fields of run.json."""
        self.write_json(self.info_path.name, self.read_info() | values)

    def save_model(self, name: str, network: Network, config: Config, origin: str) -> None:
        """Write the model folder `best` or `last`; in an existing one, weights and card are replaced atomically.

        If the weights are in several files, the whole folder is replaced.
        """
        folder, tensors = self.folder / name, trained_tensors(network)
        in_several_files = sum(tensor.nbytes for tensor in tensors.values()) > MAX_SHARD_BYTES
        if not folder.exists() or in_several_files:
            extra_files = {TOKENIZER_FILE: read_file(self.folder / TOKENIZER_FILE, MAX_TOKENIZER_BYTES)}
            extra_files |= read_chat_files(self.folder)
            save(folder, network, config, origin=origin, extra_files=extra_files, replace=True)
            return
        weights = WEIGHTS_FILE if network.adapter is None else ADAPTER_WEIGHTS_FILE
        write_tensors(folder / weights, tensors)
        self.write(f"{name}/{CARD_FILE}", model_card(name, network, config, origin))

    def weights_path(self, step: int) -> Path:
        """The file with the weights of a step."""
        return self.folder / "weights" / f"step-{step:09d}.safetensors"

    def saved_weights(self) -> dict[int, Path]:
        """The files with weights by their step, the earliest first."""
        paths = sorted((self.folder / "weights").glob("step-*"))
        return {int(match[1]): path for path in paths if (match := CHECKPOINT_NAME.fullmatch(path.name))}

    def save_weights(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Save the weights of a step for averaging."""
        write_tensors(self.weights_path(step), tensors)

    def remove_partial_files(self) -> None:
        """Remove temporary files of processes that were killed while they wrote."""
        temporary = [path for path in self.folder.glob(".*") if path.name != ".lock"]
        for folder in (self.checkpoints, self.folder / "weights"):
            temporary += folder.glob(".step-*")
        for path in temporary:
            with write_errors(path):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
