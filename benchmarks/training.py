"""Training speed of regard and other implementations, with identical sizes, batches, dropout and loss.

    python benchmarks/training.py                                 # every model and every implementation
    python benchmarks/training.py --models tiny --rounds 3

The implementations take turns, round after round, each time in a fresh process, so that drift of the machine affects
all of them and each has its own allocator and peak memory; the table has medians over the rounds. The others run with
their defaults; with `+ allocator` they also get regard's allocator settings. Those with `bfloat16` use autocast. For
regard the whole training loop is timed, from the token store on; the batches of the others are prepared before the
clock starts. A share of a ceiling is the FLOPs of the model (matrix products of real tokens, forward and backward, the
same for all) per second, divided by those of a large matrix product in float32 or bfloat16 in the same run.
"""

import argparse
import json
import math
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

import numpy as np
import torch
from common import ALLOCATOR, SPIN_COUNT, clock, print_markdown, run_in_process, with_spread
from training_peers import BFLOAT16, CONTEXT_LENGTH, LEARNING_RATE, PEERS, label_smoothing, make_peer

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
CEILINGS = (torch.float32, torch.bfloat16)


@dataclass(frozen=True)
class TrainingVariant:
    """Variant of regard's training: the type of matrix products, and other settings of `[training]`."""

    matmul_dtype: torch.dtype = torch.float32
    settings: dict[str, Any] = field(default_factory=dict)
    optional: bool = False  # measured only if it is named


VARIANTS = {
    "regard": TrainingVariant(),
    f"regard{BFLOAT16}": TrainingVariant(torch.bfloat16),
    "regard, R-Drop": TrainingVariant(settings={"rdrop": 5.0}, optional=True),
    "regard, gradient checkpointing": TrainingVariant(settings={"gradient_checkpointing": True}, optional=True),
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
        training = task.config.training.model_copy(update=variant.settings)
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
    ceilings: list[float]  # FLOP/s of a large matrix product, for each of CEILINGS
    peak_memory: int  # bytes
    loss: float


def measure(model: str, name: str, steps: int, warmup: int) -> TrainingMeasurement:
    """Train one implementation in this process."""
    config = MODELS[model]
    if name.endswith(ALLOCATOR):
        keep_freed_memory()
    with TemporaryDirectory() as folder:
        task = make_task(model, write_corpus(Path(folder) / "store", config))
        planned: list[Any] = [batch for _, batch in islice(task.batches(DataPosition()), warmup + steps)]
        batches = [batch.shard(0, 1) for batch in planned]
        if name in VARIANTS:
            implementation: TrainingStep = RegardTrainer(task, Path(folder) / "run", VARIANTS[name])
        else:
            implementation = make_peer(name.removesuffix(ALLOCATOR), config)
        for batch in batches[:warmup]:
            implementation.step(batch)
        start = clock()
        losses = [implementation.step(batch) for batch in batches[warmup:]]
        seconds = clock() - start
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    flops = sum(task.flops(batch) for batch in planned[warmup:])
    targets = sum(batch.targets for batch in batches[warmup:])
    ceilings = [1e9 * matmul_gflops(torch.device("cpu"), dtype) for dtype in CEILINGS]
    return TrainingMeasurement(seconds, targets, flops, ceilings, peak_memory, losses[-1])


Results = dict[str, list[TrainingMeasurement]]  # the rounds of each implementation


def compare(model: str, names: list[str], rounds: int, steps: int, warmup: int) -> Results:
    """Measure the implementations in turns."""
    results: Results = {name: [] for name in names}
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
    return results


def highest_ceilings(results: Results) -> list[float]:
    """Return the highest FLOP/s of large matrix products in any process, for each of CEILINGS."""
    measured = [run.ceilings for runs in results.values() for run in runs]
    return [max(values) for values in zip(*measured, strict=True)]


def format_rows(results: Results) -> list[tuple[str, ...]]:
    """Return the header and the rows as text; regard is compared in the precision of each row."""
    ceilings = highest_ceilings(results)
    speeds = {name: median(run.targets / run.seconds for run in runs) for name, runs in results.items()}
    rows: list[tuple[str, ...]] = [
        ("", "tokens/s", "of float32 ceiling", "of bfloat16 ceiling", "regard is", "peak memory")
    ]
    for name, runs in results.items():
        reference = speeds.get(f"regard{BFLOAT16}" if BFLOAT16 in name else "regard", math.nan)
        flops = median(run.flops / run.seconds for run in runs)
        rows.append(
            (
                name,
                with_spread([run.targets / run.seconds for run in runs]),
                *(f"{flops / ceiling:.0%}" for ceiling in ceilings),
                f"{reference / speeds[name]:.2f}×",
                f"{max(run.peak_memory for run in runs) / 2**20:,.0f} MB",
            )
        )
    return rows


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
    options = parser.parse_args()
    for model in options.models:
        names = [
            *VARIANTS,
            *(
                peer + dtype + kept
                for kept in ("", ALLOCATOR)
                for dtype in ("", BFLOAT16)
                for peer in PEERS[MODELS[model].kind]
            ),
        ]
        optional = {name for name, variant in VARIANTS.items() if variant.optional}
        names = [name for name in names if (name in options.only if options.only else name not in optional)]
        results = compare(model, names, options.rounds, options.steps, options.warmup)
        products = ", ".join(
            f"{flops / 1e9:.0f} GFLOP/s in {str(dtype).removeprefix('torch.')}"
            for dtype, flops in zip(CEILINGS, highest_ceilings(results), strict=True)
        )
        print_markdown(format_rows(results), f"`{model}`; matrix products reach {products}:")


if __name__ == "__main__":
    main()
