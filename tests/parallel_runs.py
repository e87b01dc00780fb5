"""Runs of several processes for tests, started by torchrun's launcher from one process that has imported everything.

`main` runs each job of a JSON file: the number of processes, how often they are restarted, and the calls that they make
one after the other in one process group:

    {"regard": ["train", …]}                run the command; exit code and output go to NAME.RANK.json
    {"copy": [folder, folder]}              copy a run folder
    {"slow": seconds, "regard": […]}        the same, where the first process takes long to prepare and to conclude
    {"kill": [[attempt, rank, step], …]}    the same, where a process kills itself
    {"full": true, "regard": […]}           the same, where the disk of the last process is full
    {"bfloat16": true, "regard": […]}       the same with matrix products in 16 bits, whatever the processor
    {"networks": {name: layout}, …}         train networks of `family` for two steps; differences go to NAME.RANK.json
"""

import contextlib
import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # imported before the processes are forked, as all that follows: it takes two seconds
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import small_runs
from commands import regard
from device_checks import objective_and_batch
from family import FAMILY, MIXTURES
from regard.config import AdamConfig, TrainingConfig, load_config
from regard.training import distributed, runner, sharded
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup, joined_process_group
from regard.training.environment import MatmulPeak, configure_layers
from regard.training.load_balancing import LoadBalancing
from regard.training.optimizers import build_optimizer, update
from regard.training.parallel import Parallelism
from regard.training.sharded_checkpoint import ShardedSaver, _CheckpointWriter


def start(folder: Path, jobs: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Run jobs in a folder; each is {"processes", "restarts", "calls"}."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    paths = [str(Path(small_runs.__file__).parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", "import parallel_runs; parallel_runs.main()", "jobs.json"],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
    )


def outputs(folder: Path, name: str, processes: int = 2) -> tuple[list[int], str, str]:
    """The exit codes of all processes, and all that they printed."""
    results = [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(processes)]
    codes, out, err = zip(*results, strict=True)
    return list(codes), "".join(out), "".join(err)


def run_calls(calls: dict[str, dict[str, Any]]) -> None:
    """Make all calls in this process, which is one of several."""
    # One group for all calls: torchrun's store is not made for joining twice. A call that fails ends no process.
    with mock.patch.object(ProcessGroup, "report_failure"), joined_process_group() as process_group:
        vars(runner)["joined_process_group"] = lambda device: contextlib.nullcontext(process_group)
        for name, call in calls.items():
            if "copy" in call and process_group.is_first:
                shutil.copytree(*call["copy"])
            process_group.barrier()
            if "networks" in call:
                differences = {
                    key: _difference(key, settings, process_group) for key, settings in call["networks"].items()
                }
                Path(f"{name}.{process_group.rank}.json").write_text(json.dumps(differences))
            if "regard" not in call:
                continue
            with contextlib.ExitStack() as stack:
                if "slow" in call and process_group.is_first:
                    for function in ("prepare_run", "conclude"):
                        stack.enter_context(mock.patch.object(runner, function, _slow(function, call["slow"])))
                if "full" in call and not process_group.is_first:
                    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    stack.enter_context(mock.patch.object(_CheckpointWriter, "write_data", side_effect=error))
                if "bfloat16" in call:
                    peak = MatmulPeak("bfloat16", torch.bfloat16, 1.0)
                    stack.enter_context(mock.patch.object(runner, "matmul_peak", return_value=peak))
                if "kill" in call:
                    vars(distributed)["ANSWER_SECONDS"] = 1.0  # the killed process is the only other one
                    _kill_at(call["kill"])
                done = regard(*call["regard"])
            Path(f"{name}.{process_group.rank}.json").write_text(json.dumps([done.code, done.out, done.err]))
            if "kill" in call:
                sys.stderr.write(done.err)
                sys.exit(done.code)


def _difference(name: str, settings: list[str], process_group: ProcessGroup) -> float:
    """The largest relative difference of losses and gradient norms between a layout and a single process."""
    torch._dynamo.reset()
    training = load_config(None, settings).training
    expected = _two_steps(name, Parallelism(SINGLE_PROCESS))
    with mock.patch.object(shutil, "which", return_value="/usr/bin/g++"):
        divided = _two_steps(name, training.parallel.build(process_group), training)
    return max(abs(value - exact) / exact for value, exact in zip(divided, expected, strict=True))


def _two_steps(name: str, parallel: Parallelism, training: TrainingConfig | None = None) -> list[float]:
    torch.manual_seed(0)
    objective, batch = objective_and_batch(FAMILY[name].model_copy(update={"dropout": 0.0}), meta=False)
    network = objective.network
    parallel.divide(network)
    if training is not None:
        configure_layers(network, training)
        for module in network.modules():
            if getattr(module, "compile_options", None) is not None:
                vars(module)["compile_options"] = {"backend": "eager", "fullgraph": name not in MIXTURES}
    wrapped, optimizer = parallel.wrap(objective), build_optimizer(network, AdamConfig())
    balancing = LoadBalancing.of(network, 0.5)
    results = [
        update(wrapped, optimizer, [batch], 1e-2, process_group=parallel.data, balancing=balancing) for _ in range(2)
    ]
    return [number for result in results for number in (result.loss / result.targets, result.grad_norm)]


def _slow(name: str, seconds: float) -> Any:
    function = getattr(runner, name)

    def delayed(*arguments: Any) -> Any:
        time.sleep(seconds)
        return function(*arguments)

    return delayed


def _kill_at(places: list[list[int]]) -> None:
    """Kill this process with SIGKILL right after it has begun to write the checkpoint of a step."""
    attempt, rank = (int(os.environ[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK"))
    save = ShardedSaver.save

    def save_and_die(saver: ShardedSaver, state: Any, parts: Any, *, wait: bool = False) -> None:
        save(saver, state, parts, wait=wait)
        if [attempt, rank, state.step] in places:
            os.kill(os.getpid(), signal.SIGKILL)

    vars(sharded)["ShardedSaver"] = type("KilledSaver", (ShardedSaver,), {"save": save_and_die})


def main() -> None:
    """Run the jobs of a file."""
    multiprocessing.set_forkserver_preload(["parallel_runs"])
    for number, job in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=job["processes"],
            run_id=f"job-{number}",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=job.get("restarts", 0),
            monitor_interval=0.05,
            start_method="forkserver",
        )
        elastic_launch(config, run_calls)(job["calls"])
