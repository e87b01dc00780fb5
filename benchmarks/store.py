"""How the token store grows: pairs a second, bytes a pair and peak memory, at several sizes, each in its own process.

    python benchmarks/store.py 100_000 1_000_000 10_000_000

The pairs are drawn as they are needed, about fifteen words a side with the frequencies of words in a language, so that
the corpus takes no place of its own. Peak memory counts the pages of the store that were read through the memory map.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from regard.config import SpecialTokensConfig
from regard.config.data import TokenizerConfig
from regard.data.batching import BatchSampler
from regard.data.examples import Pair
from regard.data.pair_batches import make_pair_batch
from regard.data.prepare_pairs import LengthFilter, store_pairs
from regard.data.store import open_store
from regard.data.tokenizer import train_tokenizer

WORDS = 20_000
TOKENS = 4096  # in a batch
BATCHES = 1000


def pairs(count: int, seed: int = 0) -> Iterator[Pair]:
    """Sentences of random words; a few frequent, most rare (Zipf)."""
    random = np.random.default_rng(seed)
    syllables = [c + v for c in "bcdfglmnprstv" for v in "aeiou"]
    sizes = random.integers(1, 5, WORDS)
    words = np.array(["".join(random.choice(syllables, size)) for size in sizes], dtype=object)
    chances = 1 / np.arange(2, WORDS + 2)
    edges = np.cumsum(chances / chances.sum())
    for _ in range(0, count, 1000):
        lengths = np.maximum(2, random.normal(15, 5, 2000)).astype(int)
        drawn = words[np.minimum(np.searchsorted(edges, random.random(lengths.sum())), WORDS - 1)]
        ends = lengths.cumsum()
        texts = [" ".join(drawn[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
        for source, target in islice(zip(texts[::2], texts[1::2], strict=True), count):
            yield Pair(source, target)


def peak() -> float:
    """Megabytes this process has taken at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(count: int, folder: Path) -> dict[str, float]:
    """Write, open, plan and read a store of so many pairs."""
    texts = (text for pair in pairs(20_000, seed=1) for text in (pair.source, pair.target))
    tokenizer = train_tokenizer(texts, TokenizerConfig(), vocabulary=8000)
    learned = peak()
    clock = time.perf_counter()
    store_pairs(folder / "pairs", pairs(count), tokenizer, LengthFilter(max_ratio=100), {})
    written, writing = time.perf_counter() - clock, peak()

    clock = time.perf_counter()
    store = open_store(folder / "pairs")
    assert store is not None
    lengths = np.stack([column.lengths for column in store.columns]) + 1
    opened = time.perf_counter() - clock
    clock = time.perf_counter()
    batches = BatchSampler(lengths, TOKENS).iterate()
    next(batches)
    planned, planning = time.perf_counter() - clock, peak()
    clock, tokens = time.perf_counter(), 0
    for _, examples in islice(batches, BATCHES):
        batch = make_pair_batch(store, examples, SpecialTokensConfig())
        tokens += int(batch.source_mask.sum() + batch.target_mask.sum())
    drawn = time.perf_counter() - clock
    size = sum(path.stat().st_size for path in (folder / "pairs").iterdir())
    return {
        "pairs": len(store),
        "pairs_per_second": len(store) / written,
        "tokens_per_pair": sum(len(column.ids) for column in store.columns) / len(store),
        "bytes_per_pair": size / len(store),
        "write_seconds": written,
        "open_seconds": opened,
        "plan_seconds": planned,
        "batch_tokens_per_second": tokens / drawn,
        "peak_mb_learning": learned,
        "peak_mb_writing": writing,
        "peak_mb_planning": planning,
        "peak_mb_reading": peak(),
    }


def main() -> None:
    """Measure each size in a process of its own, and print one line of JSON for each."""
    parser = argparse.ArgumentParser(description="Measure the token store.")
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="where the stores are written for a while")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for size in options.sizes:
        if not options.here:
            command = [sys.executable, __file__, str(size), "--here"]
            subprocess.run(command + (["--folder", str(options.folder)] if options.folder else []), check=True)
            continue
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            print(json.dumps({name: round(value, 3) for name, value in measure(size, folder).items()}), flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
