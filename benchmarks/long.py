"""What one attention layer costs on long texts, beside Hugging Face's BigBird and an LSTM: forward and backward.

    python benchmarks/long.py                                                  # 512 to 16,384 tokens
    python benchmarks/long.py --lengths 4096 16384 --rounds 5 --only BigBird

A layer is self-attention with its four projections, of width 256 with 4 heads, in float32, for one text without pads.
Ours are laid out on the clock, as for the first layer of a network; Hugging Face's masks are made before it starts, and
its random blocks are drawn anew at each pass, as its layer does in training. Below 705 tokens it has full attention,
as its model then has. BigBird has blocks of 64 tokens: 3 of the window, 2 global, 3 random. The window reaches 128
tokens to each side. Linformer has 256 mixtures.

Contenders take turns, round after round, each time in a fresh process; medians over the rounds are shown. Ours have the
allocator settings of `regard train`; peers run as their users run them, and with `+ kept memory` they get these too.
Memory is how far the peak of the resident set rises in the first pass above what the process held before, with layer
and text in place; the smallest over the rounds is shown.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from regard import nn as rn
from regard.nn.bigbird import BigBirdPattern
from regard.training.environment import keep_freed_memory

WIDTH, HEADS = 256, 4
BLOCK, RANDOM, REACH, MIXTURES = 64, 3, 128, 256
LENGTHS = [512, 1024, 2048, 4096, 8192, 16_384]
SECONDS, FEWEST = 1.0, 3  # passes go on for so long, and there are at least so many
OURS, KEPT = "regard BigBird", " + kept memory"
Layer = Callable[[Tensor], Tensor]  # (1, n, WIDTH) -> (1, n, WIDTH)


# ── contenders ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ours(kernel: Callable[[float, int], rn.AttentionKernel]) -> Callable[[int], Layer]:
    """Self-attention with this kernel, which is made of the scale and the length."""

    def make(length: int) -> Layer:
        layer = rn.SelfAttention(WIDTH, HEADS, kernel(1 / math.sqrt(WIDTH // HEADS), length), rn.Positions())
        ids = torch.zeros(1, length)
        return lambda x: layer(x, rn.make_layout(ids))

    return make


def hugging_face(length: int) -> Layer:
    """transformers' BigBird, with the output projection that follows it, and without the norm that follows that."""
    from transformers import BigBirdConfig, BigBirdModel
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdSelfAttention

    config = BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=BLOCK,
        num_random_blocks=RANDOM,
        max_position_embeddings=length,
        attention_probs_dropout_prob=0.0,
        use_bias=False,
    )
    output = nn.Linear(WIDTH, WIDTH, bias=False)
    if length <= (5 + 2 * RANDOM) * BLOCK:
        full = BigBirdSelfAttention(config)
        return lambda x: output(full(x)[0])
    sparse = BigBirdBlockSparseAttention(config)
    blocked, band, of_queries, of_keys = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, length), BLOCK)
    return lambda x: output(sparse(x, band, of_queries, of_keys, blocked, blocked)[0])


def lstm(length: int) -> Layer:
    """PyTorch's LSTM of the same width, one direction."""
    layer = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    return lambda x: layer(x)[0]


CONTENDERS: dict[str, Callable[[int], Layer]] = {
    "regard full": ours(lambda scale, length: rn.FullAttention(scale)),
    "regard window": ours(lambda scale, length: rn.WindowAttention(scale, REACH)),
    OURS: ours(lambda scale, length: rn.BigBirdAttention(scale, BLOCK, BigBirdPattern(3, 2, RANDOM, 0))),
    "regard Linformer": ours(
        lambda scale, length: rn.LinformerAttention(
            scale, rn.LengthProjection(MIXTURES, length), rn.LengthProjection(MIXTURES, length)
        )
    ),
    "HF BigBird": hugging_face,
    f"HF BigBird{KEPT}": hugging_face,
    "nn.LSTM": lstm,
}


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Measured:
    """What one process found."""

    seconds: float  # of a pass
    memory: int  # bytes


def measure(name: str, length: int) -> Measured:
    """Forward and backward through one contender, in this process."""
    if name.startswith("regard") or name.endswith(KEPT):
        keep_freed_memory()
    torch.manual_seed(0)
    _pass(CONTENDERS[name](2 * BLOCK), torch.randn(1, 2 * BLOCK, WIDTH))  # whatever PyTorch sets up once
    layer = CONTENDERS[name](length)
    x = torch.randn(1, length, WIDTH, requires_grad=True)
    before = _reset_peak()
    _pass(layer, x)
    memory = _peak() - before
    passes = []
    while len(passes) < FEWEST or sum(passes) < SECONDS:
        began = time.perf_counter()
        _pass(layer, x)
        passes.append(time.perf_counter() - began)
    return Measured(median(passes), memory)


def _pass(layer: Layer, x: Tensor) -> None:
    layer(x).square().sum().backward()


def _reset_peak() -> int:
    """Let the peak of the resident set start again from what it is now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The peak of the resident set, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def compare(names: list[str], lengths: list[int], rounds: int) -> dict[tuple[str, int], Measured]:
    """Let the contenders take turns."""
    found: dict[tuple[str, int], list[Measured]] = {(name, length): [] for name in names for length in lengths}
    for turn in range(rounds):
        for length in lengths:
            for name in names:
                command = [sys.executable, __file__, "--one", name, str(length)]
                environment = os.environ | {"GOMP_SPINCOUNT": "10000", "HF_HUB_OFFLINE": "1"}
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
                last = Measured(**json.loads(done.stdout.splitlines()[-1]))
                found[name, length].append(last)
                print(
                    f"round {turn + 1}, {length} tokens, {name}: {last.seconds * 1000:.1f} ms, "
                    f"{last.memory / 2**20:.0f} MB",
                    file=sys.stderr,
                )
    return {
        key: Measured(median(one.seconds for one in those), min(one.memory for one in those))
        for key, those in found.items()
    }


def costs(found: dict[tuple[str, int], Measured], names: list[str], lengths: list[int]) -> Iterator[tuple[str, ...]]:
    """A table of milliseconds and megabytes."""
    yield ("ms / MB", *(f"{length:,} tokens" for length in lengths))
    for name in names:
        cells = (found[name, length] for length in lengths)
        yield (name, *(f"{_figure(cell.seconds * 1000)} / {cell.memory / 2**20:,.0f}" for cell in cells))


def ratios(found: dict[tuple[str, int], Measured], names: list[str], lengths: list[int]) -> Iterator[tuple[str, ...]]:
    """How many times the time and the memory of our BigBird each other one takes."""
    yield (f"times {OURS}'s ms / MB", *(f"{length:,} tokens" for length in lengths))
    for name in (name for name in names if name != OURS):
        pairs = [(found[name, length], found[OURS, length]) for length in lengths]
        yield (name, *(f"{a.seconds / b.seconds:.2f}× / {a.memory / max(1, b.memory):.2f}×" for a, b in pairs))


def show(table: Iterator[tuple[str, ...]]) -> None:
    """Print a table as Markdown."""
    head, *body = table
    print()
    for cells in (head, ("---", *["---:"] * (len(head) - 1)), *body):
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()


def _figure(value: float) -> str:
    """Three digits, and never a power of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Compare, and print."""
    if sys.argv[1:2] == ["--one"]:
        name, length = sys.argv[2:]
        print(json.dumps(asdict(measure(name, int(length)))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help=f"multiples of {BLOCK}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders, by a part of their names")
    chosen = parser.parse_args()
    names = [name for name in CONTENDERS if not chosen.only or any(part in name for part in chosen.only)]
    found = compare(names, chosen.lengths, chosen.rounds)
    show(costs(found, names, chosen.lengths))
    if OURS in names:
        show(ratios(found, names, chosen.lengths))


if __name__ == "__main__":
    main()
