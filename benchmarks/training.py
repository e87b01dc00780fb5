"""Training speed of regard and other implementations, with identical sizes, batches, dropout and loss.

    python benchmarks/training.py                                 # every model and every implementation
    python benchmarks/training.py --models tiny --rounds 3 --markdown

The implementations take turns, round after round, each time in a fresh process, so that drift of the machine affects
all of them and each has its own allocator and peak memory; the table has medians over the rounds. The others run with
their defaults; with `+ kept memory` they also get regard's allocator settings. For regard the whole training loop is
timed, from the token store on; the batches of the others are prepared before the clock starts. Utilization is the
FLOPs of the model (matrix products of real tokens, forward and backward, the same for all) per second, divided by those
of a large float32 matrix product in the same run; with bfloat16 it may exceed 100%. The others use float32.
"""

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

import numpy as np
import torch
from common import SPIN_COUNT, print_markdown, run_in_process
from training_peers import CONTEXT_LENGTH, LEARNING_RATE, PEERS, label_smoothing

from regard.config import (
    Config,
    ConstantScheduleConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    TrainingConfig,
)
from regard.data.batching import DataPosition
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenStore, open_store, write_store
from regard.data.tokenizer import Tokenizer
from regard.machine import keep_freed_memory
from regard.models import build
from regard.tasks.language_modeling import BoundLanguageModeling
from regard.tasks.translation import BoundTranslation
from regard.training.batches import Batch
from regard.training.environment import matmul_gflops
from regard.training.run_folder import RunFolder
from regard.training.trainer import Trainer

FIRST_WORD = 4  # the first id that is not a special token
SENTENCES = 40_000
BATCH_TOKENS = 4096  # including padding
KEPT_MEMORY = " + kept memory"


@dataclass(frozen=True)
class TrainingVariant:
    """Variant of regard's training: the type of matrix products, and the weight of R-Drop."""

    matmul_dtype: torch.dtype = torch.float32
    rdrop: float = 0.0


VARIANTS = {
    "regard": TrainingVariant(),
    "regard, bfloat16": TrainingVariant(torch.bfloat16),
    "regard, R-Drop": TrainingVariant(rdrop=5.0),
}
MODELS: dict[str, EncoderDecoderConfig | DecoderOnlyConfig] = {
    "tiny": EncoderDecoderConfig(vocab_size=10_000, width=128, layers=4, heads=4, feed_forward=256),
    "small": EncoderDecoderConfig(vocab_size=8_000, width=256, layers=3, heads=4, feed_forward=1024),
    "base": EncoderDecoderConfig(vocab_size=37_000, width=512, layers=6, heads=8, feed_forward=2048),
    "gpt": DecoderOnlyConfig(
        vocab_size=8_000,
        width=384,
        layers=6,
        heads=6,
        feed_forward=1536,
        activation="gelu-tanh",
        norm_order="pre",
        attention_bias=True,
        attention_dropout=0.1,
        scale_embeddings=False,
        positions=LearnedPositionsConfig(max_length=CONTEXT_LENGTH),
    ),
}


# --- data and regard's trainer ----------------------------------------------------------------------------------------


def write_corpus(folder: Path, config: EncoderDecoderConfig | DecoderOnlyConfig) -> TokenStore:
    """Write random words: sentence pairs as long as those of Multi30k and Tatoeba, or one long text."""
    generator = np.random.default_rng(1)

    def words(count: int) -> list[int]:
        ids: list[int] = generator.integers(FIRST_WORD, config.vocab_size, count).tolist()
        return ids

    def sentence_pairs() -> Iterator[tuple[list[int], list[int]]]:
        for length in np.exp(generator.normal(math.log(13), 0.4, SENTENCES)).round().clip(2, 80):
            yield words(int(length)), words(int(np.clip(length * np.exp(generator.normal(0, 0.15)), 2, 90)))

    examples = sentence_pairs() if config.kind == "encoder-decoder" else iter([(words(1_000_000),)])
    write_store(folder, examples, 2 if config.kind == "encoder-decoder" else 1, config.vocab_size, {})
    store = open_store(folder)
    assert store is not None
    return store


class NoTokenizer:
    """Takes the place of a tokenizer, which is not needed for token ids."""


def make_task(model: str, store: TokenStore) -> BoundTranslation | BoundLanguageModeling:
    """Return the task that regard trains, whose batches all implementations share."""
    training = TrainingConfig(
        batch_tokens=BATCH_TOKENS,
        label_smoothing=label_smoothing(MODELS[model]),
        schedule=ConstantScheduleConfig(learning_rate=LEARNING_RATE),
        log_every=10**6,
    )
    config = Config(model=MODELS[model], training=training)
    prepared = PreparedData(cast(Tokenizer, NoTokenizer()), PreparedSplit(store), PreparedSplit(store), None)
    task = BoundTranslation if MODELS[model].kind == "encoder-decoder" else BoundLanguageModeling
    return task(config, prepared, build(MODELS[model]))


class TrainingStep(Protocol):
    """An implementation that can be trained."""

    def step(self, batch: Batch) -> float:
        """Train on a batch; return the loss per target."""
        ...


class RegardTrainer:
    """The training loop of regard, which reads its batches from the store while the clock runs."""

    def __init__(self, task: BoundTranslation | BoundLanguageModeling, folder: Path, variant: TrainingVariant) -> None:
        keep_freed_memory()
        training = task.config.training.model_copy(update={"rdrop": variant.rdrop})
        config = task.config.model_copy(update={"training": training})
        self.trainer = Trainer(RunFolder(folder), config, task, matmul_dtype=variant.matmul_dtype)

    def step(self, batch: Batch) -> float:
        """Run the next step, whose batch is the one that the others get."""
        interval = self.trainer.state.interval
        loss, targets = interval.loss, interval.targets
        self.trainer.step()
        interval = self.trainer.state.interval
        assert interval.targets - targets == batch.targets
        return (interval.loss - loss) / batch.targets


# --- measurement ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingMeasurement:
    """Measurement of one process."""

    seconds: float
    targets: int
    flops: float
    peak_flops: float  # FLOP/s of a large matrix product
    peak_memory: int  # bytes
    loss: float


def measure(model: str, name: str, steps: int, warmup: int) -> TrainingMeasurement:
    """Train one implementation in this process."""
    config = MODELS[model]
    if name.endswith(KEPT_MEMORY):
        keep_freed_memory()
    with TemporaryDirectory() as folder:
        task = make_task(model, write_corpus(Path(folder) / "store", config))
        planned: list[Any] = [batch for _, batch in islice(task.batches(DataPosition()), warmup + steps)]
        batches = [batch.shard(0, 1) for batch in planned]
        if name in VARIANTS:
            implementation: TrainingStep = RegardTrainer(task, Path(folder) / "run", VARIANTS[name])
        else:
            implementation = PEERS[config.kind][name.removesuffix(KEPT_MEMORY)](config)
        for batch in batches[:warmup]:
            implementation.step(batch)
        start = time.perf_counter()
        losses = [implementation.step(batch) for batch in batches[warmup:]]
        seconds = time.perf_counter() - start
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    flops = sum(task.flops(batch) for batch in planned[warmup:])
    targets = sum(batch.targets for batch in batches[warmup:])
    return TrainingMeasurement(
        seconds, targets, flops, 1e9 * matmul_gflops(torch.device("cpu"), torch.float32), peak_memory, losses[-1]
    )


@dataclass(frozen=True)
class TrainingRow:
    """Row of the table."""

    name: str
    tokens_per_second: float  # target tokens without padding
    utilization: float
    regard_speedup: float  # how many times as fast regard is
    peak_memory: int  # bytes


def compare(model: str, names: list[str], rounds: int, steps: int, warmup: int) -> tuple[list[TrainingRow], float]:
    """Measure the implementations in turns; return their rows and the highest matrix-product FLOP/s of any process."""
    results: dict[str, list[TrainingMeasurement]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names:
            environment = SPIN_COUNT if name in VARIANTS else {}
            output = run_in_process(__file__, [model, name, str(steps), str(warmup)], environment=environment)
            last = TrainingMeasurement(**output)
            results[name].append(last)
            print(
                f"{model}, round {turn + 1}, {name}: {last.targets / last.seconds:.0f} tokens/s, loss {last.loss:.2f}",
                file=sys.stderr,
            )
    peak = max(measured.peak_flops for runs in results.values() for measured in runs)
    speeds = {name: median(run.targets / run.seconds for run in runs) for name, runs in results.items()}
    rows = [
        TrainingRow(
            name,
            speeds[name],
            median(run.flops / run.seconds / peak for run in runs),
            speeds["regard"] / speeds[name] if "regard" in speeds else math.nan,
            max(run.peak_memory for run in runs),
        )
        for name, runs in results.items()
    ]
    return rows, peak


def format_rows(rows: list[TrainingRow]) -> list[tuple[str, ...]]:
    """Return the header and the rows as text."""
    header = ("", "tokens/s", "utilization", "regard is", "peak memory")
    return [
        header,
        *(
            (
                row.name,
                f"{row.tokens_per_second:,.0f}",
                f"{row.utilization:.0%}",
                f"{row.regard_speedup:.2f}×",
                f"{row.peak_memory / 2**20:,.0f} MB",
            )
            for row in rows
        ),
    ]


def print_text(rows: list[tuple[str, ...]]) -> None:
    """Print a table in columns of fixed width."""
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(rows[0]))]
    for cells in rows:
        aligned = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        print("  ".join(aligned).rstrip())
    sys.stdout.flush()


def main() -> None:
    """Compare the implementations and print a table per model."""
    if sys.argv[1:2] == ["--one"]:
        model, name, steps, warmup = sys.argv[2:]
        print(json.dumps(asdict(measure(model, name, int(steps), int(warmup)))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="implementations to measure, such as regard")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps per round, after the warmup")
    parser.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    options = parser.parse_args()
    for model in options.models:
        peers = list(PEERS[MODELS[model].kind])
        names = [*VARIANTS, *peers, *(peer + KEPT_MEMORY for peer in peers)]
        names = [name for name in names if not options.only or name in options.only]
        rows, peak = compare(model, names, options.rounds, options.steps, options.warmup)
        print(f"\n{model}: matrix products reach {peak / 1e9:.0f} GFLOP/s")
        if options.markdown:
            print_markdown(format_rows(rows))
        else:
            print_text(format_rows(rows))


if __name__ == "__main__":
    main()
