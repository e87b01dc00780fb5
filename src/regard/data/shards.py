"""Preparation in shards: examples are tokenized by several processes, and finished shards survive a kill.

One process reads the corpus in order and cuts it into shards. Each shard is tokenized as a whole, in this process, in
one of several worker processes, or by Ray on other machines; the result does not depend on where. Finished shards are
files with a checksum. A preparation that was killed reads the corpus again, but tokenizes only shards that are missing.
At the end the shards are concatenated to token stores, and removed. A corpus of one shard is never written to shards.
"""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from regard.data.store import id_type, open_writers
from regard.errors import DataError, RegardError
from regard.files import atomic_file, explain_write_errors, write_bytes

SHARD_EXAMPLES = 2**16  # about 20 MB of text
SHARD_CHARACTERS = 2**24
CHECK_INTERVAL = 2**13  # examples
SHARDS_FOLDER = "shards"
E = TypeVar("E")
Chunk = list[tuple[int, E]]  # examples with the number of their corpus


@dataclass(frozen=True)
class EncodedRows:
    """Rows of ids that a shard adds to a split."""

    columns: Sequence[tuple[NDArray[Any], NDArray[np.int64]]]  # of each column: ids, and lengths of rows
    counts: Mapping[str, int] = field(default_factory=dict)  # examples that were read, kept and left out, by reason
    texts: bytes = b""  # JSON Lines, if texts are kept
    corpora: Sequence[int] = ()  # rows of each corpus
    complete: bool = True  # False: the last row is continued by the next shard


Encoded = dict[str, EncodedRows]  # by split


class ShardEncoder(Protocol[E]):
    """Tokenizes the examples of a shard; it is sent to worker processes, so its state must be picklable."""

    def __call__(self, chunk: Chunk[E]) -> Encoded:
        """Return the rows of each split."""
        ...


@dataclass(frozen=True)
class SplitTarget:
    """Where the rows of a split are written."""

    folder: Path
    columns: int
    vocab_size: int
    texts: Path | None = None


@dataclass(frozen=True)
class ShardedBuild(Generic[E]):
    """Builds the stores of one or more splits from one reading of a corpus."""

    folder: Path  # where finished shards are kept
    key: str
    encoder: ShardEncoder[E]
    targets: Mapping[str, SplitTarget]
    size: Callable[[E], int]  # characters of an example
    workers: int = 1
    cluster: str = "local"
    shard_examples: int | None = None  # SHARD_EXAMPLES by default

    def run(
        self,
        examples: Iterable[tuple[int, E]],
        metadata: Callable[[str], Mapping[str, Any]],
        progress: Callable[[int], None],
    ) -> None:
        """Tokenize the examples, which are read once, and write the stores.

        Args:
            examples: the examples in order, each with the number of its corpus.
            metadata: returns what is saved with a split, once all examples were read.
            progress: called with the number of examples that are done.
        """
        done = 0
        chunks = self._chunks(examples, lambda: progress(done))
        first, second = next(chunks, []), next(chunks, None)
        if second is None:
            encoded = self.encoder(first)
            if first:
                progress(len(first))
            self._write([encoded], metadata)
            return
        chunks = chain([first, second], chunks)
        del first, second
        with explain_write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        number = -1
        with executor(self.encoder, self.workers, self.cluster) as (encode, parallel):
            for number, (size, encoded_shard) in enumerate(self._encoded(chunks, encode, parallel)):
                if encoded_shard is not None:
                    self._save(number, size, encoded_shard)
                done += size
                progress(done)
        self._write((self._load(n) for n in range(number + 1)), metadata)
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # shards of another split
            self.folder.parent.rmdir()

    def _chunks(self, examples: Iterable[tuple[int, E]], check: Callable[[], None]) -> Iterator[Chunk[E]]:
        """Yield the examples of each shard; `check` is called from time to time, and may raise to interrupt it."""
        limit = self.shard_examples or SHARD_EXAMPLES
        chunk: Chunk[E] = []
        characters = 0
        for item in examples:
            chunk.append(item)
            if len(chunk) % CHECK_INTERVAL == 0:
                check()
            characters += self.size(item[1])
            if len(chunk) >= limit or characters >= SHARD_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk

    def _encoded(
        self, chunks: Iterator[Chunk[E]], encode: "Submit[E]", parallel: int
    ) -> Iterator[tuple[int, Encoded | None]]:
        """Yield the size of each shard and its rows in order; None for a shard that was finished before."""
        window: deque[tuple[int, Future[Encoded] | None]] = deque()
        for number, chunk in enumerate(chunks):
            finished = self._is_finished(number, len(chunk))
            window.append((len(chunk), None if finished else encode(chunk)))
            del chunk
            while window and (len(window) > parallel + 1 or window[0][1] is None or window[0][1].done()):
                size, future = window.popleft()
                yield size, None if future is None else future.result()
        for size, future in window:
            yield size, None if future is None else future.result()

    # files of shards

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.safetensors"

    def _save(self, number: int, size: int, encoded: Encoded) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        splits: dict[str, dict[str, Any]] = {}
        for name, rows in encoded.items():
            for column, (ids, lengths) in enumerate(rows.columns):
                arrays |= {f"{name}.{column}.ids": ids, f"{name}.{column}.lengths": lengths}
            arrays[f"{name}.texts"] = np.frombuffer(rows.texts, np.uint8)
            splits[name] = {
                "counts": dict(rows.counts),
                "corpora": list(rows.corpora),
                "complete": rows.complete,
                "columns": len(rows.columns),
            }
        header = {"key": self.key, "examples": size, "splits": splits, "checksum": _checksum(arrays)}
        with explain_write_errors(self.folder):
            write_bytes(self._path(number), safetensors.numpy.save(arrays, {"shard": json.dumps(header)}))

    def _is_finished(self, number: int, size: int) -> bool:
        try:
            with safetensors.safe_open(self._path(number), "np") as file:
                header = json.loads(file.metadata()["shard"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
        except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError):
            return False
        expected = (self.key, size, _checksum(arrays))
        return (header.get("key"), header.get("examples"), header.get("checksum")) == expected

    def _load(self, number: int) -> Encoded:
        path = self._path(number)
        try:
            with safetensors.safe_open(path, "np") as file:
                header = json.loads(file.metadata()["shard"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); check the disk, and run the command again.") from None
        if header["checksum"] != _checksum(arrays):
            raise DataError(f"{path}: is damaged; check the disk, and run the command again.")
        return {
            name: EncodedRows(
                [(arrays[f"{name}.{n}.ids"], arrays[f"{name}.{n}.lengths"]) for n in range(split["columns"])],
                split["counts"],
                arrays[f"{name}.texts"].tobytes(),
                split["corpora"],
                split["complete"],
            )
            for name, split in header["splits"].items()
        }

    # stores

    def _write(self, shards: Iterable[Encoded], metadata: Callable[[str], Mapping[str, Any]]) -> None:
        """Concatenate shards to stores."""
        counts = {name: Counter[str](read=0) for name in self.targets}
        corpora = {name: Counter[int]() for name in self.targets}
        contents: dict[str, dict[str, Any]] = {name: {} for name in self.targets}
        with ExitStack() as stack:
            writers, texts = {}, {}
            for name, target in self.targets.items():
                store = open_writers(target.folder, target.columns, target.vocab_size, contents[name])
                writers[name] = stack.enter_context(store)
                if target.texts is not None:
                    with explain_write_errors(target.texts):
                        target.texts.parent.mkdir(parents=True, exist_ok=True)
                        texts[name] = stack.enter_context(atomic_file(target.texts))
            for encoded in shards:
                for name, rows in encoded.items():
                    for writer, (ids, lengths) in zip(writers[name], rows.columns, strict=True):
                        writer.add_arrays(ids, lengths, last=rows.complete)
                    counts[name].update(rows.counts)
                    corpora[name].update(dict(enumerate(rows.corpora)))
                    if name in texts:
                        texts[name].write(rows.texts)
            for name, content in contents.items():
                content.update({"counts": counts[name], **metadata(name)})
                if len(corpora[name]) > 1:
                    content["corpora"] = [corpora[name][n] for n in range(len(corpora[name]))]


def encoded_rows(
    rows: Sequence[Sequence[Sequence[int]]],
    columns: int,
    vocab_size: int,
    counts: Mapping[str, int],
    texts: bytes = b"",
    corpora: Sequence[int] = (),
) -> EncodedRows:
    """Return rows of ids, one per example and column, as arrays."""
    arrays = []
    for n in range(columns):
        lengths = np.fromiter((len(row[n]) for row in rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(row[n] for row in rows), id_type(vocab_size), int(lengths.sum()))
        arrays.append((ids, lengths))
    return EncodedRows(arrays, counts, texts, corpora)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> int:
    checksum = 0
    for name in sorted(arrays):
        checksum = zlib.crc32(arrays[name].tobytes(), checksum)
    return checksum


# --- where shards are tokenized ---------------------------------------------------------------------------------------

Submit = Callable[[Chunk[E]], "Future[Encoded]"]


@contextmanager
def executor(encoder: ShardEncoder[E], workers: int, cluster: str) -> "Iterator[tuple[Submit[E], int]]":
    """Yield a function that tokenizes a shard, and how many it can tokenize at once: here, in workers, or by Ray."""
    if cluster == "ray":
        from regard.data.ray_shards import ray_submit

        yield ray_submit(encoder)
    elif workers > 1:
        with _Workers(encoder, workers) as pool:
            yield pool.submit, workers
    else:

        def encode(chunk: Chunk[E]) -> Future[Encoded]:
            future: Future[Encoded] = Future()
            future.set_result(encoder(chunk))
            return future

        yield encode, 1


class _Workers(Generic[E]):
    """Worker processes, each with a thread that sends it shards.

    They are started as commands and not by multiprocessing, which would run the user's script again in each of them.
    As there, objects pass between the processes as pickles, through pipes that no other program writes to: no file is
    ever unpickled.
    """

    def __init__(self, encoder: ShardEncoder[E], count: int) -> None:
        self._encoder = pickle.dumps(encoder)
        self._threads = ThreadPoolExecutor(count, initializer=self._start)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: deque[subprocess.Popen[bytes]] = deque()
        self._prepared: list[subprocess.Popen[bytes]] = []  # that have the encoder

    def __enter__(self) -> "_Workers[E]":
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if exception[0] is not None:
            for process in list(self._processes):
                process.kill()
        self._threads.shutdown()  # a thread may just be starting its process
        for process in self._processes:
            if exception[0] is not None:
                process.kill()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # what a process that has ended did not read
                    if stream is not None:
                        stream.close()
            process.wait()

    def submit(self, chunk: Chunk[E]) -> "Future[Encoded]":
        return self._threads.submit(self._encode, chunk)

    def _start(self) -> None:
        paths = [path for path in sys.path if path]
        process = subprocess.Popen(
            [sys.executable, "-c", "from regard.data.shards import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false"},
        )
        self._processes.append(process)
        self._idle.append(process)

    def _encode(self, chunk: Chunk[E]) -> Encoded:
        process = self._idle.popleft()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process not in self._prepared:
                self._prepared.append(process)
                process.stdin.write(self._encoder)
            pickle.dump(chunk, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            result = pickle.load(process.stdout)
        except (OSError, EOFError):
            raise RegardError("a process that tokenizes has ended; free some memory, or set data.workers=1.") from None
        self._idle.append(process)
        if isinstance(result, BaseException):
            raise result
        return dict(result)


def work() -> None:
    """Tokenize shards that arrive on standard input, until it ends: the loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    requests, results = sys.stdin.buffer, sys.stdout.buffer
    try:
        encoder = pickle.load(requests)
    except (EOFError, pickle.UnpicklingError):
        return
    while True:
        try:
            chunk = pickle.load(requests)
        except (EOFError, pickle.UnpicklingError):  # or the process that started this one was killed as it wrote
            return
        try:
            result = encoder(chunk)
        except Exception as error:
            result = error
        try:
            pickle.dump(result, results, pickle.HIGHEST_PROTOCOL)
            results.flush()
        except BrokenPipeError:  # the process that started this one was killed
            os._exit(1)  # without an error when Python closes standard output
