"""Executors run the shards of a job: worker processes on this machine, or actors of Ray.

An executor knows the folder of the job and the numbers of shards, and yields events. When a process dies, its shard is
processed again by another.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from regard.batch.job import Job
from regard.batch.job_folder import JobFolder, ShardRecord
from regard.batch.worker import ShardProcessor, error_class
from regard.errors import ConfigError, RegardError, RunError
from regard.machine import available_cores

MAX_ATTEMPTS = 3  # processes that may die while they process the same shard
WORKER_MODULE = "regard.batch.worker"
STOP_SECONDS = 10.0  # for a worker to remove its temporary files
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")  # read by the libraries of a worker


@dataclass(frozen=True)
class Event:
    """Something happened to a shard."""

    kind: str
    """`planned` (before all others), `started`, `rows` (more are done), `finished` or `lost` (its process died)."""
    shard: int
    rows: int = 0
    record: ShardRecord | None = None
    process: int | None = None
    """The id of the process that has the shard."""
    reason: str = ""


@dataclass(frozen=True)
class Resources:
    """How many workers, and what each may use; None: as many as fit on this machine."""

    workers: int | None = None
    threads: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it should be 1 or more.")

    def for_machine(self, shards: int, gpus: Callable[[], int]) -> "list[tuple[int, str]]":
        """Return threads and device of each local worker; together they have no more threads than there are cores."""
        cores = available_cores()
        on_gpu = self.device.startswith("cuda")
        count = self.workers or (gpus() if on_gpu else max(1, cores // (self.threads or 1)))
        count = max(1, min(count, shards))
        threads = self.threads or max(1, cores // count)
        spread = self.device == "cuda" and gpus() > 0
        return [(threads, f"cuda:{n % gpus()}" if spread else self.device) for n in range(count)]


def count_gpus() -> int:
    """Return the number of GPUs of this machine."""
    import torch

    return torch.cuda.device_count()


# --- processes of this machine ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Worker:
    """A worker process and the shard that it processes."""

    process: "subprocess.Popen[str]"
    threads: int
    device: str
    shard: int | None = None
    reader: threading.Thread = field(init=False)
    """Reads its messages."""

    def give(self, shard: int) -> None:
        """Send the number of a shard."""
        self.shard = shard
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died: the end of its output is reported
            self.process.stdin.write(f"{shard}\n")
            self.process.stdin.flush()


def run_local(folder: JobFolder, job: Job, shards: Sequence[int], resources: Resources) -> Iterator[Event]:
    """Process shards with worker processes, each of which has its own model and threads."""
    pending, attempts = deque(shards), Counter[int]()
    messages: Messages = SimpleQueue()
    workers: set[_Worker] = set()

    def start(threads: int, device: str) -> Event:
        worker = _start_worker(folder, threads, device, messages)
        workers.add(worker)
        return give(worker)

    def give(worker: _Worker) -> Event:
        shard = pending.popleft()
        attempts[shard] += 1
        worker.give(shard)
        return Event("started", shard, process=worker.process.pid)

    try:
        for threads, device in resources.for_machine(len(shards), count_gpus):
            yield start(threads, device)
        while workers:
            worker, message = messages.get()
            if message is None:
                workers.discard(worker)
                _close(worker)
                code = worker.process.wait()
                if worker.shard is None:
                    continue
                shard, reason = worker.shard, _exit_reason(code)
                yield Event("lost", shard, process=worker.process.pid, reason=reason)
                if attempts[shard] == MAX_ATTEMPTS:
                    raise _repeated_death(job, folder.location, shard, f" (the last one {reason})")
                pending.appendleft(shard)
                yield start(worker.threads, worker.device)
            elif "error" in message:
                raise error_class(message["error"])(message["message"])
            elif "rows" in message and worker.shard is not None:
                yield Event("rows", worker.shard, message["rows"], process=worker.process.pid)
            elif "record" in message and worker.shard is not None:
                shard, worker.shard = worker.shard, None
                yield Event("finished", shard, record=ShardRecord(**message["record"]), process=worker.process.pid)
                if pending:
                    yield give(worker)
                else:
                    _close(worker)
    finally:
        _stop(workers)


Messages = SimpleQueue[tuple[_Worker, dict[str, Any] | None]]


def _start_worker(folder: JobFolder, threads: int, device: str, messages: Messages) -> _Worker:
    arguments = [folder.location, f"--threads={threads}", f"--device={device}"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", WORKER_MODULE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))},
    )
    worker = _Worker(process, threads, device)
    worker.reader = threading.Thread(target=_forward, args=(worker, messages), daemon=True)
    worker.reader.start()
    return worker


def _forward(worker: _Worker, messages: Messages) -> None:
    """Put the messages of a worker into a queue, and None when it has ended."""
    assert worker.process.stdout is not None
    with worker.process.stdout as lines, suppress(ValueError):  # it was killed while it wrote
        for line in lines:
            messages.put((worker, json.loads(line)))
    messages.put((worker, None))


def _close(worker: _Worker) -> None:
    assert worker.process.stdin is not None
    with suppress(BrokenPipeError):
        worker.process.stdin.close()


def _stop(workers: set[_Worker]) -> None:
    """End workers: they remove their temporary files, or are killed."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        try:
            worker.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        _close(worker)
        worker.reader.join()


def _repeated_death(job: Job, out: str, shard: int, detail: str = "") -> RunError:
    return RunError(
        f"{out}: {MAX_ATTEMPTS} workers died while they processed {job.shards[shard].name}{detail}; "
        "if memory is short, use fewer --workers, then run the same command again."
    )


def _exit_reason(code: int) -> str:
    """Return how a process ended.

    >>> _exit_reason(-9), _exit_reason(1)
    ('was killed by SIGKILL', 'ended with exit code 1')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


# --- Ray --------------------------------------------------------------------------------------------------------------


def run_ray(folder: JobFolder, job: Job, shards: Sequence[int], resources: Resources) -> Iterator[Event]:
    """Process shards with actors of Ray Data, in a running cluster (`RAY_ADDRESS`) or on this machine.

    Ray starts an actor again when it dies, and passes its shard to it again, up to `MAX_ATTEMPTS` times.
    """
    ray = import_ray()
    started_here = not ray.is_initialized()
    if started_here:
        local = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        threads, on_gpu = resources.threads or 1, resources.device.startswith("cuda")
        available = int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1))
        workers = resources.workers or (available if on_gpu else available // threads)
        attempts = ray.remote(num_cpus=0)(_Attempts).remote()
        dataset = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        results = dataset.map_batches(
            _ShardActor,
            fn_constructor_args=(folder.location, threads, resources.device, attempts),
            compute=ray.data.ActorPoolStrategy(size=max(1, min(workers, len(shards)))),
            batch_size=1,
            batch_format="numpy",
            num_cpus=threads,
            num_gpus=1 if on_gpu else None,
        )
        for row in results.iter_rows():
            message = json.loads(row["message"])
            if "error" in message:
                raise error_class(message["error"])(message["message"])
            for _ in range(1, message["attempt"]):
                yield Event("lost", int(row["shard"]), reason="of Ray died")
            yield Event("finished", int(row["shard"]), record=ShardRecord(**message["record"]))
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:300]
        raise RunError(f"{folder.location}: Ray stopped the job ({reason}); run the same command again.") from None
    finally:
        if started_here:
            ray.shutdown()


def import_ray() -> Any:
    """Import Ray, without its telemetry."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a warning on machines without GPUs
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError(
            "--cluster ray: Ray is not installed; install it with: pip install 'regard[cluster]'."
        ) from None
    return ray


class _Attempts:
    """An actor that counts how often each shard was started: Ray retries without end."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, shard: int) -> int:
        """Count an attempt; return how many there were."""
        self._counts[shard] += 1
        return self._counts[shard]


class _ShardActor:
    """Processes the shards that Ray Data passes to it.

    Errors that the user can fix are returned as results, because Ray would retry exceptions.
    """

    def __init__(self, out: str, threads: int, device: str, attempts: Any) -> None:
        self._arguments = out, threads, device
        self._attempts = attempts
        self._processor: ShardProcessor | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        import ray

        message: dict[str, object]
        shard = int(batch["shard"][0])
        try:
            attempt = ray.get(self._attempts.add.remote(shard))
            out, threads, device = self._arguments
            if self._processor is None:
                self._processor = ShardProcessor(out, threads=threads, device=device)
            if attempt > MAX_ATTEMPTS:
                raise _repeated_death(self._processor.job, out, shard)
            record = self._processor.process(shard)
            message = {"record": record.model_dump(mode="json"), "attempt": attempt}
        except RegardError as error:
            message = {"error": type(error).__name__, "message": str(error)}
        return {"shard": list(batch["shard"]), "message": [json.dumps(message)]}


EXECUTORS: dict[str, Callable[[JobFolder, Job, Sequence[int], Resources], Iterator[Event]]] = {
    "local": run_local,
    "ray": run_ray,
}
