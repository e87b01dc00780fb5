"""Preparation of a large corpus: time, memory, bytes, and the plan of an epoch.

    python benchmarks/preparation.py                                # 200,000 pairs
    python benchmarks/preparation.py --pairs 10_000_000 --folder /data/ten-million

Generates sentence pairs of random words with the frequencies of a language (Zipf), seeded; runs `regard prepare`, then
plans one epoch in a process of its own. Memory is the sum of the proportional set sizes (PSS) of all processes of the
preparation, at its highest, without the pages of files that the system keeps in its cache; on systems without
/proc/PID/smaps_rollup it is the highest resident size of a single process. With --kill the preparation is killed once
(SIGKILL) when half of its shards are finished, and resumed; shards that were finished must not be written again. A
corpus of fewer than 16 shards is cut into 16 smaller ones for that.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import print_markdown, run_in_process

from regard.data.shards import SHARD_EXAMPLES

VOCABULARY = 100_000
WORDS_PER_CHUNK = 100_000
KILL_SHARDS = 16  # at least, with --kill
COMMAND = "from regard.data import shards; shards.SHARD_EXAMPLES = {}; from regard.cli import main; main()"
MB = 2**20


def generate(path: Path, pairs: int) -> None:
    """Write a TSV file with this many pairs of 3 to 30 words on each side."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(random.choice(letters, random.integers(2, 10))) for _ in range(VOCABULARY)])
    frequencies = 1 / (np.arange(VOCABULARY) + 10)
    frequencies /= frequencies.sum()
    with path.open("w") as file:
        for start in range(0, pairs, WORDS_PER_CHUNK):
            count = min(WORDS_PER_CHUNK, pairs - start)
            lengths = random.integers(3, 31, count)
            sides = [words[random.choice(VOCABULARY, lengths.sum(), p=frequencies)] for _ in range(2)]
            ends = lengths.cumsum()
            for first, last in zip(ends - lengths, ends, strict=True):
                file.write(" ".join(sides[0][first:last]) + "\t" + " ".join(sides[1][first:last]) + "\n")


def memory_of_group(process: int) -> int:
    """Return the memory of a process and its descendants in bytes, shared pages divided among them."""
    total, pending = 0, [process]
    while pending:
        number = pending.pop()
        try:
            tasks = Path(f"/proc/{number}/task").iterdir()
            pending += [int(child) for task in tasks for child in (task / "children").read_text().split()]
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
            file_pages = int(fields.get("Pss_File", "0 kB").split()[0])
            total += 1024 * (int(fields["Pss"].split()[0]) - file_pages)
        except (OSError, KeyError, ValueError):  # it has ended
            continue
    return total


def prepare(corpus: Path, out: Path, pairs: int, workers: int | None, *, kill: bool) -> dict[str, float]:
    """Run `regard prepare`, and measure it."""
    shard = min(SHARD_EXAMPLES, pairs // KILL_SHARDS) if kill else SHARD_EXAMPLES
    command = [sys.executable, "-c", COMMAND.format(shard), "prepare", "translation"]
    command += ["--data", str(corpus), "--out", str(out), "--quiet"]
    command += ["--workers", str(workers)] if workers else []
    started, peak, killed = time.monotonic(), 0, 0.0
    finished: dict[Path, int] = {}  # when the shards that were there before the kill were written
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, memory_of_group(process.pid))
        written = [path for path in out.glob("*/shards/train/*.safetensors") if not path.name.startswith(".")]
        if kill and not killed and len(written) >= pairs // shard // 2:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed, finished = time.monotonic() - started, {path: path.stat().st_mtime_ns for path in written}
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        elif any(path.exists() and path.stat().st_mtime_ns != before for path, before in finished.items()):
            sys.exit("a shard that was finished before the kill was written again")
        time.sleep(0.2 if shard == SHARD_EXAMPLES else 0.05)
    if process.returncode:
        sys.exit(f"regard prepare failed with exit code {process.returncode}")
    if kill and not killed:
        sys.exit("the preparation ended before it could be killed; use more --pairs")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.monotonic() - started,
        "processor": used.ru_utime + used.ru_stime,
        "peak": peak or used.ru_maxrss * 1024,
        "killed": killed,
        "shards": len(finished),
    }


def plan(folder: Path) -> None:
    """Plan an epoch, and find a position at its end; print JSON."""
    from regard.data.batching import DataPosition, EpochSampler
    from regard.data.store import open_store

    store = open_store(folder / "train")
    assert store is not None
    before = _anonymous()
    sampler = EpochSampler(store.columns[:2], 4096, 1, 1)
    started, peak, batches = time.perf_counter(), 0, 0
    for position, _ in sampler.iterate():
        if position.epoch:
            break
        batches, peak = position.batch, max(peak, _anonymous() if position.batch % 5000 == 1 else 0)
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    ((_, found),) = islice(sampler.iterate(DataPosition(0, batches - 1)), 1)
    resumed = time.perf_counter() - started
    result = {
        "examples": len(store),
        "tokens": sum(len(column.ids) for column in store.columns),
        "shards": sampler.num_shards,
        "batches": batches,
        "seconds": seconds,
        "memory": peak - before,
        "resumed": resumed,
        "found": len(found),
    }
    print(json.dumps(result))


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    return 0


def main() -> None:
    """Generate, prepare, plan, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--kill", action="store_true", help="kill the preparation once, and resume it")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        plan(options.one)
        return
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        corpus, out = folder / "pairs.tsv", folder / "prepared"
        if not corpus.exists():
            generate(corpus, options.pairs)
        measured = prepare(corpus, out, options.pairs, options.workers, kill=options.kill)
        (prepared,) = [path for path in out.iterdir() if path.is_dir()]
        size = sum(path.stat().st_size for path in prepared.rglob("*") if path.is_file())
        planned = run_in_process(__file__, [str(prepared)])
        rows = [
            ("pairs", f"{options.pairs:,}"),
            ("corpus", f"{corpus.stat().st_size / MB:,.0f} MB"),
            ("cores", f"{len(os.sched_getaffinity(0))}"),
            ("preparation", f"{measured['seconds']:,.0f} s, {options.pairs / measured['seconds']:,.0f} pairs/s"),
            ("processor time of all its processes", f"{measured['processor']:,.0f} s"),
            ("peak memory of all its processes", f"{measured['peak'] / MB:,.0f} MB"),
            ("prepared data", f"{size / MB:,.0f} MB, {planned['tokens']:,} tokens"),
            ("epoch", f"{planned['batches']:,} batches in {planned['shards']} plan shards"),
            ("planning it", f"{planned['seconds']:.1f} s, {planned['memory'] / MB:,.0f} MB"),
            ("finding its last batch again", f"{planned['resumed']:.1f} s"),
        ]
        if measured["killed"]:
            kept = f"{measured['killed']:,.0f} s, with {measured['shards']:,} finished shards, which were kept"
            rows.append(("killed after", kept))
        print_markdown([("", "measured"), *rows])


if __name__ == "__main__":
    main()
