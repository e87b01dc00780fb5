"""How fast regard trains, beside what people use today: identical sizes, batches, dropout and loss.

    python benchmarks/training.py                                 # every model and every contender
    python benchmarks/training.py --models tiny --rounds 3 --markdown

Contenders take turns, round after round, each time in a fresh process, so that drift of the machine hits all alike and
each has its own allocator and peak memory; medians over the rounds are shown. Peers run as their users run them; with
`+ kept memory` they also get our allocator settings. Ours is the real training loop, from the token store on; the
peers' batches are made before the clock starts. The share is the model's own work (matrix products for real
tokens, forward and backward, the same for all) ÷ time ÷ what a large float32 matrix product reaches in the same run,
which is why bfloat16 may have more than all of it. Peers are given float32, as their users give it them on a CPU.

B rows · S source length · T target length · C width · V vocabulary
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import (
    Config,
    ConstantScheduleConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    SpecialTokensConfig,
    TrainingConfig,
)
from regard.data.batching import DataPosition
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenStore, open_store, write_store
from regard.data.tokenizer import Tokenizer
from regard.models import build
from regard.training.environment import keep_freed_memory
from regard.training.language import LanguageModelling
from regard.training.objectives import Batch
from regard.training.run_folder import RunFolder
from regard.training.trainer import Trainer
from regard.training.translation import Translation

SPECIAL = SpecialTokensConfig()
PAD, FIRST_WORD = SPECIAL.pad, 4
SENTENCES = 40_000
TOKENS, BLOCK = 4096, 256  # in a batch, pads included; in a row of the language model's
RATE = 1e-4
KEPT = " + kept memory"


@dataclass(frozen=True)
class Way:
    """How regard trains: the type of its matrix products, and how much two readings of a batch should agree."""

    matmul_dtype: torch.dtype = torch.float32
    agreement: float = 0.0


OURS = {"regard": Way(), "regard, bfloat16": Way(torch.bfloat16), "regard, agreement": Way(agreement=5.0)}

MODELS: dict[str, EncoderDecoderConfig | DecoderOnlyConfig] = {
    "tiny": EncoderDecoderConfig(vocabulary=10_000, width=128, layers=4, heads=4, feed_forward=256),
    "small": EncoderDecoderConfig(vocabulary=8_000, width=256, layers=3, heads=4, feed_forward=1024),
    "base": EncoderDecoderConfig(vocabulary=37_000, width=512, layers=6, heads=8, feed_forward=2048),
    "gpt": DecoderOnlyConfig(
        vocabulary=8_000,
        width=384,
        layers=6,
        heads=6,
        feed_forward=1536,
        activation="gelu-tanh",
        norm_order="pre",
        attention_bias=True,
        attention_dropout=0.1,
        scale_embeddings=False,
        positions=LearnedPositionsConfig(length=BLOCK),
    ),
}


@dataclass(frozen=True)
class Result:
    """One contender's row of the table."""

    name: str
    tokens_per_second: float  # real target tokens
    share: float  # of the ceiling
    ratio: float  # how many times faster ours is
    peak_memory: int  # bytes


def corpus(folder: Path, config: EncoderDecoderConfig | DecoderOnlyConfig) -> TokenStore:
    """Random words: sentence pairs about as long as those of Multi30k and Tatoeba, or one long text."""
    random = np.random.default_rng(1)

    def words(count: int) -> list[int]:
        return random.integers(FIRST_WORD, config.vocabulary, count).tolist()

    def sentence_pairs() -> Iterator[tuple[list[int], list[int]]]:
        for length in np.exp(random.normal(math.log(13), 0.4, SENTENCES)).round().clip(2, 80):
            yield words(int(length)), words(int(np.clip(length * np.exp(random.normal(0, 0.15)), 2, 90)))

    examples = sentence_pairs() if config.kind == "encoder-decoder" else iter([(words(1_000_000),)])
    write_store(folder, examples, 2 if config.kind == "encoder-decoder" else 1, config.vocabulary, {})
    store = open_store(folder)
    assert store is not None
    return store


class Unused:
    """In place of a tokenizer: nothing here is text."""


def task_of(model: str, store: TokenStore) -> Translation | LanguageModelling:
    """The task that regard trains, whose batches all contenders share."""
    training = TrainingConfig(
        batch_tokens=TOKENS,
        label_smoothing=label_smoothing(MODELS[model]),
        schedule=ConstantScheduleConfig(peak=RATE),
        log_every=10**6,
    )
    config = Config(model=MODELS[model], training=training)
    prepared = PreparedData(cast(Tokenizer, Unused()), PreparedSplit(store), PreparedSplit(store), None)
    kind = Translation if MODELS[model].kind == "encoder-decoder" else LanguageModelling
    return kind(config, prepared, build(MODELS[model]))


class Contender(Protocol):
    """Anything that can be trained."""

    def step(self, batch: Batch) -> float:
        """Train on a batch; returns the loss per target."""
        ...


# ── ours ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Ours:
    """regard's training loop: it takes its own batches from the store, and takes them on the clock."""

    def __init__(self, task: Translation | LanguageModelling, folder: Path, way: Way) -> None:
        keep_freed_memory()
        training = task.config.training.model_copy(update={"rdrop": way.agreement})
        config = task.config.model_copy(update={"training": training})
        self.loop = Trainer(RunFolder(folder), config, task, matmul_dtype=way.matmul_dtype)

    def step(self, batch: Batch) -> float:
        """The next step; its batch is the one that the others are given."""
        before = self.loop.state.interval.loss, self.loop.state.interval.targets
        self.loop.step()
        seen = self.loop.state.interval
        assert seen.targets - before[1] == batch.targets
        return (seen.loss - before[0]) / batch.targets


# ── peers ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Peer:
    """A network that gives logits everywhere, and the usual step around it."""

    def __init__(self, network: nn.Module, smoothing: float) -> None:
        self.network = network.train()
        self.smoothing = smoothing
        self.optimiser = torch.optim.Adam(network.parameters(), lr=RATE)

    def logits(self, batch: Batch) -> Tensor:
        """(B, T, V)."""
        raise NotImplementedError

    def step(self, batch: Batch) -> float:
        """As in the tutorials."""
        logits = self.logits(batch)
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.predicted.flatten(), ignore_index=PAD, label_smoothing=self.smoothing
        )
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())


class TorchModel(nn.Module):
    """torch.nn.Transformer with what it leaves to its users: embeddings, positions, projection, masks."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.transformer = nn.Transformer(
            config.width,
            config.heads,
            config.layers,
            config.layers,
            config.feed_forward,
            dropout=config.dropout,
            batch_first=True,
        )
        self.projection = nn.Linear(config.width, config.vocabulary, bias=False)
        self.projection.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        place, i = torch.arange(512)[:, None], torch.arange(0, config.width, 2)
        angle = place * torch.exp(-math.log(10_000) * i / config.width)
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], 2).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """ids (B, T) -> (B, T, C)."""
        embedded: Tensor = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        dropped: Tensor = self.dropout(embedded + self.positions[: ids.size(1)])  # type: ignore[index]
        return dropped

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        length = target.size(1)
        pads, target_pads = source == PAD, target == PAD
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=pads,
            tgt_key_padding_mask=target_pads,
            memory_key_padding_mask=pads,
        )
        logits: Tensor = self.projection(states)
        return logits


class TorchTransformer(Peer):
    """torch.nn.Transformer."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(TorchModel(config), label_smoothing(config))

    def logits(self, batch: Batch) -> Tensor:
        """(B, T, V)."""
        logits: Tensor = self.network(batch.source, batch.target)
        return logits


class Marian(Peer):
    """Hugging Face's MarianMTModel."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        from transformers import MarianConfig, MarianMTModel

        settings = MarianConfig(
            vocab_size=config.vocabulary,
            d_model=config.width,
            encoder_layers=config.layers,
            decoder_layers=config.layers,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.feed_forward,
            decoder_ffn_dim=config.feed_forward,
            activation_function="relu",
            dropout=config.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=PAD,
            eos_token_id=SPECIAL.end,
            decoder_start_token_id=SPECIAL.start,
            use_cache=False,
        )
        super().__init__(MarianMTModel(settings), label_smoothing(config))

    def logits(self, batch: Batch) -> Tensor:
        """(B, T, V)."""
        assert batch.source is not None
        logits: Tensor = self.network(
            input_ids=batch.source,
            attention_mask=(batch.source != PAD).long(),
            decoder_input_ids=batch.target,
            decoder_attention_mask=(batch.target != PAD).long(),
        ).logits
        return logits


class GPT2(Peer):
    """Hugging Face's GPT2LMHeadModel."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        settings = GPT2Config(
            vocab_size=config.vocabulary,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.feed_forward,
            n_positions=BLOCK,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.attention_dropout,
            bos_token_id=SPECIAL.start,
            eos_token_id=SPECIAL.end,
            use_cache=False,
        )
        super().__init__(GPT2LMHeadModel(settings), 0.0)

    def logits(self, batch: Batch) -> Tensor:
        """(B, T, V)."""
        logits: Tensor = self.network(input_ids=batch.target).logits
        return logits


def label_smoothing(config: EncoderDecoderConfig | DecoderOnlyConfig) -> float:
    """The paper's for translation, none for a language model."""
    return 0.1 if isinstance(config, EncoderDecoderConfig) else 0.0


PEERS: dict[str, dict[str, Callable[[Any], Contender]]] = {
    "encoder-decoder": {"torch.nn.Transformer": TorchTransformer, "HF Marian": Marian},
    "decoder-only": {"HF GPT-2": GPT2},
}


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Measured:
    """What one process found."""

    seconds: float
    targets: int
    flops: float
    peak_flops: float  # FLOP/s
    peak_memory: int
    loss: float


def measure(model: str, name: str, steps: int, warmup: int) -> Measured:
    """Train one contender in this process."""
    config = MODELS[model]
    if name.endswith(KEPT):
        keep_freed_memory()
    with TemporaryDirectory() as folder:
        task = task_of(model, corpus(Path(folder) / "store", config))
        batches = [batch for _, batch in islice(task.batches(DataPosition()), warmup + steps)]
        if name in OURS:
            contender: Contender = Ours(task, Path(folder) / "run", OURS[name])
        else:
            contender = PEERS[config.kind][name.removesuffix(KEPT)](config)
        for batch in batches[:warmup]:
            contender.step(batch)
        began = time.perf_counter()
        losses = [contender.step(batch) for batch in batches[warmup:]]
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    flops = sum(task.flops(batch) for batch in batches[warmup:])
    return Measured(seconds, sum(batch.targets for batch in batches[warmup:]), flops, ceiling(), peak, losses[-1])


def ceiling(size: int = 2048, times: int = 8) -> float:
    """FLOP/s of a large float32 matrix product: the best of several."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    fastest = math.inf
    for _ in range(times):
        began = time.perf_counter()
        a @ b
        fastest = min(fastest, time.perf_counter() - began)
    return 2 * size**3 / fastest


def compare(model: str, names: list[str], rounds: int, steps: int, warmup: int) -> tuple[list[Result], float]:
    """Let the contenders take turns; returns their rows and the highest ceiling that any process saw."""
    found: dict[str, list[Measured]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names:
            command = [sys.executable, __file__, "--one", model, name, str(steps), str(warmup)]
            environment = os.environ | ({"GOMP_SPINCOUNT": "10000"} if name in OURS else {})  # as the command
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
            found[name].append(Measured(**json.loads(output.splitlines()[-1])))
            last = found[name][-1]
            print(
                f"{model}, round {turn + 1}, {name}: {last.targets / last.seconds:.0f} tokens/s, loss {last.loss:.2f}",
                file=sys.stderr,
            )
    highest = max(one.ceiling for those in found.values() for one in those)
    speed = {name: median(one.targets / one.seconds for one in those) for name, those in found.items()}
    results = [
        Result(
            name,
            speed[name],
            median(one.flops / one.seconds / highest for one in those),
            speed["regard"] / speed[name] if "regard" in speed else math.nan,
            max(one.peak_memory for one in those),
        )
        for name, those in found.items()
    ]
    return results, highest


def table(results: list[Result], markdown: bool) -> Iterator[str]:
    """The rows as text."""
    head = ("", "tokens/s", "of ceiling", "regard is", "peak memory")
    rows = [
        (
            row.name,
            f"{row.tokens_per_second:,.0f}",
            f"{row.share:.0%}",
            f"{row.ratio:.2f}×",
            f"{row.peak_memory / 2**20:,.0f} MB",
        )
        for row in results
    ]
    if markdown:
        yield from (f"| {' | '.join(cells)} |" for cells in (head, ("---", *["---:"] * 4), *rows))
        return
    widths = [max(len(cells[column]) for cells in (head, *rows)) for column in range(len(head))]
    for cells in (head, *rows):
        yield "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()


def main() -> None:
    """Compare, and print."""
    if sys.argv[1:2] == ["--one"]:
        model, name, steps, warmup = sys.argv[2:]
        print(json.dumps(asdict(measure(model, name, int(steps), int(warmup)))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders, such as regard")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="per round, after the warm-up")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    for model in chosen.models:
        peers = list(PEERS[MODELS[model].kind])
        names = [*OURS, *peers, *(peer + KEPT for peer in peers)]
        names = [name for name in names if not chosen.only or name in chosen.only]
        results, highest = compare(model, names, chosen.rounds, chosen.steps, chosen.warmup)
        print(f"\n{model}: the ceiling is {highest / 1e9:.0f} GFLOP/s\n")
        print("\n".join(table(results, chosen.markdown)), flush=True)


if __name__ == "__main__":
    main()
