"""Speed and size of the token store: pairs per second, bytes per pair and peak memory, each size in its own process.

    python benchmarks/store.py 100_000 1_000_000 10_000_000

The pairs are generated on the fly, about fifteen words per side with Zipf-distributed frequencies, so that the corpus
needs no disk space. Peak memory includes the pages of the store that were read through the memory map.
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

from regard.config import SpecialTokensConfig, TokenizerConfig
from regard.data.batching import BatchSampler, make_pair_batch
from regard.data.prepare_pairs import LengthFilter, store_pairs
from regard.data.readers.base import Pair
from regard.data.store import open_store
from regard.data.tokenizer import train_tokenizer

WORDS = 20_000
VOCAB_SIZE = 8000
BATCH_TOKENS = 4096
BATCHES = 1000


def random_pairs(count: int, seed: int = 0) -> Iterator[Pair]:
    """Yield pairs of sentences of random words with Zipf-distributed frequencies."""
    generator = np.random.default_rng(seed)
    syllables = [consonant + vowel for consonant in "bcdfglmnprstv" for vowel in "aeiou"]
    sizes = generator.integers(1, 5, WORDS)
    words = np.array(["".join(generator.choice(syllables, size)) for size in sizes], dtype=object)
    frequencies = 1 / np.arange(2, WORDS + 2)
    cumulative = np.cumsum(frequencies / frequencies.sum())
    for _ in range(0, count, 1000):
        lengths = np.maximum(2, generator.normal(15, 5, 2000)).astype(int)
        drawn = words[np.minimum(np.searchsorted(cumulative, generator.random(lengths.sum())), WORDS - 1)]
        ends = lengths.cumsum()
        texts = [" ".join(drawn[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
        for source, target in islice(zip(texts[::2], texts[1::2], strict=True), count):
            yield Pair(source, target)


def peak_megabytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(count: int, folder: Path) -> dict[str, float]:
    """Write, open, plan and read a store of `count` pairs."""
    texts = (text for pair in random_pairs(20_000, seed=1) for text in (pair.source, pair.target))
    tokenizer = train_tokenizer(texts, TokenizerConfig(), VOCAB_SIZE)
    tokenizer_peak = peak_megabytes()
    start = time.perf_counter()
    store_pairs(folder / "pairs", random_pairs(count), tokenizer, LengthFilter(max_ratio=100), {})
    write_seconds, write_peak = time.perf_counter() - start, peak_megabytes()

    start = time.perf_counter()
    store = open_store(folder / "pairs")
    assert store is not None
    lengths = np.stack([column.lengths for column in store.columns]) + 1
    open_seconds = time.perf_counter() - start
    start = time.perf_counter()
    batches = BatchSampler(lengths, BATCH_TOKENS).iterate()
    next(batches)
    plan_seconds, plan_peak = time.perf_counter() - start, peak_megabytes()
    start, tokens = time.perf_counter(), 0
    for _, examples in islice(batches, BATCHES):
        batch = make_pair_batch(store, examples, SpecialTokensConfig())
        tokens += int(batch.source_mask.sum() + batch.target_mask.sum())
    batch_seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in (folder / "pairs").iterdir())
    return {
        "pairs": len(store),
        "pairs_per_second": len(store) / write_seconds,
        "tokens_per_pair": sum(len(column.ids) for column in store.columns) / len(store),
        "bytes_per_pair": size / len(store),
        "write_seconds": write_seconds,
        "open_seconds": open_seconds,
        "plan_seconds": plan_seconds,
        "batch_tokens_per_second": tokens / batch_seconds,
        "tokenizer_peak_mb": tokenizer_peak,
        "write_peak_mb": write_peak,
        "plan_peak_mb": plan_peak,
        "read_peak_mb": peak_megabytes(),
    }


def main() -> None:
    """Measure each size in its own process, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description="Measure the token store.")
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="folder for the temporary stores")
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
