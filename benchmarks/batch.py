"""A batch job in which a worker is killed: rows per second, and whether every row is in the output exactly once.

    python benchmarks/batch.py --rows 1_000_000 --model runs/demo
    python benchmarks/batch.py --rows 20_000 --cluster ray

The rows are English sentences of the phrasebook in JSON Lines, each with a number, by which the output is checked row
by row, independently of the manifest. A worker is killed with SIGKILL when a third of the rows are done. Without
`--model`, a small network with random parameters translates, with greedy search and at most four tokens.
"""

import argparse
import hashlib
import json
import os
import signal
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from common import print_markdown

from regard.batch import BatchSummary, Translate, run
from regard.batch.executors import Event
from regard.batch.runner import JobProgress
from regard.config import Config, EncoderDecoderConfig, TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.models import build, save
from regard.phrasebook import split

VOCAB_SIZE = 2000


class WorkerKiller:
    """Kills a worker when a fraction of the rows are done, and counts the workers that died."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self.killed: int | None = None
        self.lost = 0

    def __call__(self, event: Event, progress: JobProgress) -> None:
        """Watch an event; local ones have the process, those of Ray the record of a finished shard."""
        self.lost += event.kind == "lost"
        process = event.process or (int(event.record.process.rpartition(":")[2]) if event.record else None)
        due = progress.rows >= self._fraction * progress.total_rows
        if self.killed is None and due and process is not None and progress.shards < progress.total_shards:
            os.kill(process, signal.SIGKILL)
            self.killed = process


def write_rows(path: Path, count: int) -> None:
    """Write numbered sentences of the phrasebook."""
    sentences = [pair.source for pair in split("train")]
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(islice(cycle(sentences), count)):
            file.write(json.dumps({"number": number, "text": text}) + "\n")


def write_random_model(folder: Path) -> None:
    """Write a small translator with random parameters."""
    texts = (text for pair in islice(split("train"), 5000) for text in (pair.source, pair.target))
    tokenizer = train_tokenizer(texts, TokenizerConfig(), VOCAB_SIZE)
    model = EncoderDecoderConfig(vocab_size=len(tokenizer), width=64, layers=1, heads=4, feed_forward=128)
    save(folder, build(model), Config(model=model), extra_files={"tokenizer.json": tokenizer.to_json()})


def check_output(out: Path, count: int) -> dict[str, bool]:
    """Read the output and compare it with the numbers of the rows and with the checksums of the manifest."""
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    seen = bytearray(count)
    in_order, checksums, expected = True, True, 0
    for shard in manifest["shards"]:
        content = (out / "shards" / shard["name"]).read_bytes()
        checksums &= hashlib.sha256(content).hexdigest() == shard["sha256"]
        for line in content.splitlines():
            row = json.loads(line)
            in_order &= row["number"] == expected and isinstance(row["translation"], str)
            expected += 1
            seen[row["number"]] = min(seen[row["number"]] + 1, 2)
    return {
        "manifest complete": bool(manifest["complete"]) and manifest["rows"] == count,
        "checksums match": checksums,
        "no row missing": 0 not in seen,
        "no row twice": 2 not in seen,
        "rows in order": in_order,
    }


def measure(options: argparse.Namespace, folder: Path) -> tuple[BatchSummary, WorkerKiller, float, dict[str, bool]]:
    """Run the job in a folder and check its output."""
    write_rows(folder / "rows.jsonl", options.rows)
    if options.model is None:
        write_random_model(folder / "model")
        task = Translate(folder / "model", beam=1, max_tokens=4)
    else:
        task = Translate(options.model)
    task({"text": ["warm up"]})  # converts the model, before the clock starts
    killer, start = WorkerKiller(options.kill_at), time.perf_counter()
    summary = run(
        task,
        [folder / "rows.jsonl"],
        folder / "out",
        cluster=options.cluster,
        workers=options.workers,
        rows_per_shard=options.rows_per_shard,
        on_event=killer,
    )
    return summary, killer, time.perf_counter() - start, check_output(folder / "out", options.rows)


def main() -> None:
    """Run the job and print a table; exit with 1 if a check fails."""
    parser = argparse.ArgumentParser(description="Measure a batch job in which a worker is killed.")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--model", type=Path, help="model folder of a translator; random parameters by default")
    parser.add_argument("--cluster", default="local", choices=["local", "ray"])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--rows-per-shard", type=int, help="by default a twentieth of the rows, at most 50,000")
    parser.add_argument("--kill-at", type=float, default=1 / 3, help="fraction of the rows; above 1: never")
    parser.add_argument("--folder", type=Path, help="folder for the temporary files")
    options = parser.parse_args()
    options.rows_per_shard = options.rows_per_shard or max(1, min(50_000, options.rows // 20))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        summary, killer, seconds, checks = measure(options, Path(folder))
    rows = [
        ("job", "value"),
        ("rows", f"{summary.rows:,}"),
        ("shards", f"{summary.shards:,}"),
        ("workers killed", f"{int(killer.killed is not None)} (replaced: {killer.lost})"),
        ("seconds", f"{seconds:,.1f}"),
        ("rows per second", f"{summary.rows / seconds:,.0f}"),
        *((name, "yes" if holds else "NO") for name, holds in checks.items()),
    ]
    print_markdown(rows, f"regard batch translate, cluster {options.cluster}")
    if not all(checks.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
