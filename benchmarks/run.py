"""Run the benchmarks and write their tables into docs/performance.md.

    python benchmarks/run.py                          # everything; takes hours
    python benchmarks/run.py --quick                  # fewer sizes and one round: about ten minutes on two quiet cores
    python benchmarks/run.py --only training long     # some of them
    python benchmarks/run.py --quick --cpu-time       # on a machine with other work

Each benchmark compares regard with other implementations in one run, and has a marked region of the page, which is
replaced when it is finished: the commands, the date, the machine, the versions, and the tables that the commands print.
The rest of the page stays as it is. An interrupted run keeps the finished tables; a benchmark that fails keeps its old
ones. Nothing is downloaded: the translator is that of `regard demo`, which is trained into `--model` if it is not
there, and networks whose speed does not depend on their weights have random ones.

With `--cpu-time`, benchmarks that run in one process measure its CPU time with one thread of PyTorch, which other
programs change little; start-up, serving and preparation, which take several processes, are left out.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from common import CPU_TIME

from regard.files import write_text
from regard.machine import available_cores, processor_name

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
MODEL = Path("runs/demo")
MODEL_ARGUMENT = "MODEL"  # stands for the translator in the arguments of a benchmark
PACKAGES = ("regard", "torch", "transformers", "ctranslate2")
INSTRUCTIONS = re.compile(r"avx2|avx512f|avx512_vnni|avx512_bf16|amx_bf16|amx_int8|asimd|sve2?|bf16|i8mm")


@dataclass(frozen=True)
class Benchmark:
    """A region of the page, and the commands whose output it has."""

    name: str
    full: Sequence[Sequence[str]]  # each a script of this folder and its arguments
    quick: Sequence[Sequence[str]]
    one_process: bool = True  # each measurement is, so that its CPU time can be measured

    def commands(self, *, quick: bool) -> Sequence[Sequence[str]]:
        """Return the commands of a quick or a full run."""
        return self.quick if quick else self.full


BENCHMARKS = (
    Benchmark(
        "training",
        [
            ["training.py", "--rounds", "3"],
            ["training.py", "--models", "gpt", "--rounds", "3", "--only", "regard", "regard, gradient checkpointing"],
            ["training.py", "--models", "tiny", "--rounds", "3", "--only", "regard", "regard, R-Drop"],
        ],
        [["training.py", "--models", "small", "gpt", "--rounds", "1", "--steps", "3", "--warmup", "1"]],
    ),
    Benchmark(
        "decoding",
        [["decoding.py", "--model", MODEL_ARGUMENT, "--rounds", "5", "--only", "(auto", "CTranslate2"]],
        [
            [
                *["decoding.py", "--model", MODEL_ARGUMENT, "--rounds", "1", "--sentences", "200"],
                *["--only", "(auto", "CTranslate2"],
            ]
        ],
    ),
    Benchmark(
        "torch-engine",
        [["decoding.py", "--model", MODEL_ARGUMENT, "--rounds", "3", "--only", "torch", "HF"]],
        [["decoding.py", "--model", MODEL_ARGUMENT, "--rounds", "1", "--sentences", "100", "--only", "torch", "HF"]],
    ),
    Benchmark(
        "long",
        [["long.py", "--rounds", "3"]],
        [["long.py", "--rounds", "1", "--lengths", "4096", "8192"]],
    ),
    Benchmark(
        "serving",
        [["serving.py", "--model", MODEL_ARGUMENT]],
        [
            [
                *["serving.py", "--model", MODEL_ARGUMENT, "--sentences", "200", "--requests", "1000"],
                *["--rounds", "1", "--clients", "1", "64"],
            ]
        ],
        one_process=False,
    ),
    Benchmark(
        "streams",
        [["streams.py", "--rounds", "3"]],
        [["streams.py", "--rounds", "1", "--requests", "24", "--clients", "1", "16"]],
        one_process=False,
    ),
    Benchmark(
        "start-up",
        [["startup.py", "--model", MODEL_ARGUMENT, "--rounds", "9"]],
        [["startup.py", "--model", MODEL_ARGUMENT, "--rounds", "3"]],
        one_process=False,
    ),
    Benchmark(
        "preparation",
        [["preparation.py", "--pairs", "1_000_000"]],
        [["preparation.py", "--pairs", "50_000"]],
        one_process=False,
    ),
)


# --- the page ---------------------------------------------------------------------------------------------------------


def region(name: str) -> re.Pattern[str]:
    """Return the pattern of a region: its first line, its content and its last line."""
    first, last = f"<!-- benchmark: {name} -->\n", f"<!-- end of benchmark: {name} -->"
    return re.compile(f"({re.escape(first)})(.*?)({re.escape(last)})", re.DOTALL)


def replace_region(page: Path, name: str, content: str) -> None:
    """Replace the content of a region, and leave the rest of the page as it is now."""
    text = page.read_text("utf-8")
    write_text(page, region(name).sub(lambda found: f"{found[1]}\n{content.strip()}\n\n{found[3]}", text, count=1))


def missing_regions(page: Path, names: Sequence[str]) -> list[str]:
    """Return the names that have no region on the page."""
    text = page.read_text("utf-8")
    return [name for name in names if region(name).search(text) is None]


def machine_line(*, cpu_time: bool) -> str:
    """Return the date, the machine, the versions and what was measured, as a sentence."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    found = sorted({flag for flag in flags if INSTRUCTIONS.fullmatch(flag)})
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0
    load = f", load {os.getloadavg()[0]:.1f} before the start" if hasattr(os, "getloadavg") else ""
    measured = "CPU time of all threads, with one thread for PyTorch" if cpu_time else "wall-clock time"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {processor_name()}, {available_cores()} cores ({', '.join(found)}), "
        f"{memory:.0f} GB{load}; Python {platform.python_version()}, {', '.join(map(_with_version, PACKAGES))}. "
        f"{measured[0].upper()}{measured[1:]}; medians over the rounds, with the lowest and the highest in brackets."
    )


def _with_version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


# --- running ----------------------------------------------------------------------------------------------------------


def run_script(command: Sequence[str], *, cpu_time: bool) -> str:
    """Run a script of this folder and return what it prints; its progress goes to stderr."""
    script, *arguments = command
    environment = {CPU_TIME: "1", "OMP_NUM_THREADS": "1"} if cpu_time else {}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout


def run_benchmark(benchmark: Benchmark, model: Path, *, quick: bool, cpu_time: bool) -> str:
    """Run the commands of a benchmark, and return the content of its region."""
    parts = [machine_line(cpu_time=cpu_time)]
    for command in benchmark.commands(quick=quick):
        filled = [str(model) if part == MODEL_ARGUMENT else part for part in command]
        shown = " ".join(f'"{part}"' if " " in part or "(" in part else part for part in filled)
        parts.append(f"```text\npython benchmarks/{shown}\n```")
        parts.append(run_script(filled, cpu_time=cpu_time).strip())
    return "\n\n".join(parts)


def ensure_model(folder: Path) -> None:
    """Train the translator of `regard demo`, unless it is there."""
    if not (folder / "best" / "model.safetensors").exists():
        subprocess.run([sys.executable, "-m", "regard", "demo", "--out", str(folder), "--quiet"], check=True)


def main(arguments: Sequence[str] | None = None, benchmarks: Sequence[Benchmark] = BENCHMARKS) -> int:
    """Run the benchmarks one after the other; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and one round")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[benchmark.name for benchmark in benchmarks])
    parser.add_argument("--cpu-time", action="store_true", help="measure the CPU time of one thread")
    parser.add_argument("--model", type=Path, default=MODEL, help="run folder of `regard demo`; trained if absent")
    parser.add_argument("--page", type=Path, default=PAGE, help="page with the marked regions")
    options = parser.parse_args(arguments)
    chosen = [benchmark for benchmark in benchmarks if not options.only or benchmark.name in options.only]
    if options.cpu_time:
        chosen = [benchmark for benchmark in chosen if benchmark.one_process]
    if missing := missing_regions(options.page, [benchmark.name for benchmark in chosen]):
        parser.error(f"{options.page} has no region for {', '.join(missing)}: add <!-- benchmark: {missing[0]} --> …")
    failed: list[str] = []
    try:
        if any(MODEL_ARGUMENT in command for one in chosen for command in one.commands(quick=options.quick)):
            ensure_model(options.model)
        for benchmark in chosen:
            print(f"=== {benchmark.name}", file=sys.stderr, flush=True)
            try:
                content = run_benchmark(benchmark, options.model, quick=options.quick, cpu_time=options.cpu_time)
            except subprocess.CalledProcessError as error:
                print(f"{benchmark.name} failed with exit code {error.returncode}", file=sys.stderr)
                failed.append(benchmark.name)
            else:
                replace_region(options.page, benchmark.name, content)
    except KeyboardInterrupt:
        print("interrupted; the tables of finished benchmarks are written", file=sys.stderr)
        return 130
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
