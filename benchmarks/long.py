"""Cost of one attention layer on long sequences, forward and backward, with BigBird of Hugging Face and an LSTM.

    python benchmarks/long.py                                                  # 512 to 16,384 tokens
    python benchmarks/long.py --lengths 4096 16384 --rounds 5 --only BigBird

A layer is self-attention with its four projections, of width 256 with 4 heads, in float32, for one sequence without
padding. The layouts of regard are computed while the clock runs, as for the first layer of a network; the masks of
Hugging Face are made before it starts, and its random blocks are drawn again in each pass, as in training. Below 705
tokens Hugging Face uses full attention. BigBird has blocks of 64 tokens: 3 of the window, 2 global, 3 random. The
window is 128 tokens to each side. Linformer projects to 256 positions.

The implementations take turns, round after round, each time in a fresh process; the tables have medians over the
rounds. regard has the allocator settings of `regard train`; the others run with their defaults, and with `+ kept
memory` with these settings too. Memory is the increase of the peak resident set in the first pass over what the process
held before, with layer and input in place; the minimum over the rounds is shown.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from common import ALLOCATOR, SPIN_COUNT, clock, print_markdown, run_in_process, with_spread
from torch import Tensor, nn

from regard import nn as rn
from regard.machine import keep_freed_memory
from regard.nn.bigbird import BigBirdPattern

WIDTH, HEADS = 256, 4
BLOCK_SIZE, RANDOM_BLOCKS, WINDOW, PROJECTED_LENGTH = 64, 3, 128, 256
LENGTHS = [512, 1024, 2048, 4096, 8192, 16_384]
MIN_SECONDS, MIN_PASSES = 1.0, 3  # of a measurement
REFERENCE = "regard BigBird"
Layer = Callable[[Tensor], Tensor]  # (1, n, WIDTH) -> (1, n, WIDTH)
Measurements = dict[tuple[str, int], list["LayerMeasurement"]]  # the rounds, by name and length


# --- layers -----------------------------------------------------------------------------------------------------------


def self_attention(kernel: Callable[[float, int], rn.AttentionKernel]) -> Callable[[int], Layer]:
    """Return self-attention with a kernel, which is made from the scale and the length."""

    def make(length: int) -> Layer:
        layer = rn.SelfAttention(WIDTH, HEADS, kernel(1 / math.sqrt(WIDTH // HEADS), length), rn.Positions())
        ids = torch.zeros(1, length)
        return lambda x: layer(x, rn.make_layout(ids))

    return make


def huggingface_bigbird(length: int) -> Layer:
    """Return BigBird of transformers with its output projection, without the normalization that follows."""
    from transformers import BigBirdConfig, BigBirdModel
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdSelfAttention

    config = BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=BLOCK_SIZE,
        num_random_blocks=RANDOM_BLOCKS,
        max_position_embeddings=length,
        attention_probs_dropout_prob=0.0,
        use_bias=False,
    )
    output = nn.Linear(WIDTH, WIDTH, bias=False)
    if length <= (5 + 2 * RANDOM_BLOCKS) * BLOCK_SIZE:
        full = BigBirdSelfAttention(config)
        return lambda x: output(full(x)[0])
    sparse = BigBirdBlockSparseAttention(config)
    masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, length), BLOCK_SIZE)
    block_mask, band_mask, query_mask, key_mask = masks
    return lambda x: output(sparse(x, band_mask, query_mask, key_mask, block_mask, block_mask)[0])


def lstm(length: int) -> Layer:
    """Return the unidirectional LSTM of PyTorch with the same width."""
    layer = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    return lambda x: layer(x)[0]


LAYERS: dict[str, Callable[[int], Layer]] = {
    "regard full": self_attention(lambda scale, length: rn.FullAttention(scale)),
    "regard window": self_attention(lambda scale, length: rn.WindowAttention(scale, WINDOW)),
    REFERENCE: self_attention(
        lambda scale, length: rn.BigBirdAttention(scale, BLOCK_SIZE, BigBirdPattern(3, 2, RANDOM_BLOCKS, 0))
    ),
    "regard Linformer": self_attention(
        lambda scale, length: rn.LinformerAttention(
            scale, rn.LengthProjection(PROJECTED_LENGTH, length), rn.LengthProjection(PROJECTED_LENGTH, length)
        )
    ),
    "HF BigBird": huggingface_bigbird,
    f"HF BigBird{ALLOCATOR}": huggingface_bigbird,
    "nn.LSTM": lstm,
}


# --- measurement ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerMeasurement:
    """Measurement of one process."""

    seconds: float  # of a pass
    memory: int  # bytes


def measure(name: str, length: int) -> LayerMeasurement:
    """Run one layer forward and backward in this process."""
    if name.startswith("regard") or name.endswith(ALLOCATOR):
        keep_freed_memory()
    torch.manual_seed(0)
    _run_pass(LAYERS[name](2 * BLOCK_SIZE), torch.randn(1, 2 * BLOCK_SIZE, WIDTH))  # one-time setup of PyTorch
    layer = LAYERS[name](length)
    x = torch.randn(1, length, WIDTH, requires_grad=True)
    before = _reset_peak_memory()
    _run_pass(layer, x)
    memory = _peak_memory() - before
    passes: list[float] = []
    while len(passes) < MIN_PASSES or sum(passes) < MIN_SECONDS:
        start = clock()
        _run_pass(layer, x)
        passes.append(clock() - start)
    return LayerMeasurement(median(passes), memory)


def _run_pass(layer: Layer, x: Tensor) -> None:
    layer(x).square().sum().backward()


def _reset_peak_memory() -> int:
    """Reset the peak of the resident set to its current size, and return it in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_memory()


def _peak_memory() -> int:
    """Return the peak of the resident set in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


# --- comparison -------------------------------------------------------------------------------------------------------


def compare(names: list[str], lengths: list[int], rounds: int) -> Measurements:
    """Measure the layers in turns, each time in a fresh process."""
    results: Measurements = {(name, n): [] for name in names for n in lengths}
    for turn in range(rounds):
        for length in lengths:
            for name in names:
                environment = {**SPIN_COUNT, "HF_HUB_OFFLINE": "1"}
                last = LayerMeasurement(**run_in_process(__file__, [name, str(length)], environment=environment))
                results[name, length].append(last)
                print(
                    f"round {turn + 1}, {length} tokens, {name}: {last.seconds * 1000:.1f} ms, "
                    f"{last.memory / 2**20:.0f} MB",
                    file=sys.stderr,
                )
    return results


def _typical(runs: list[LayerMeasurement]) -> LayerMeasurement:
    """Return the median time and the lowest memory of all rounds."""
    return LayerMeasurement(median(run.seconds for run in runs), min(run.memory for run in runs))


def cost_table(results: Measurements, names: list[str], lengths: list[int]) -> Iterator[tuple[str, ...]]:
    """Yield rows with milliseconds and megabytes."""
    yield ("ms / MB", *(f"{length:,} tokens" for length in lengths))
    for name in names:
        cells = [name]
        for length in lengths:
            runs = results[name, length]
            milliseconds = [1000 * run.seconds for run in runs]
            form = ",.0f" if min(milliseconds) >= 100 else ".1f"
            cells.append(f"{with_spread(milliseconds, form)} / {_typical(runs).memory / 2**20:,.0f}")
        yield tuple(cells)


def ratio_table(results: Measurements, names: list[str], lengths: list[int]) -> Iterator[tuple[str, ...]]:
    """Yield rows with time and memory relative to BigBird of regard."""
    yield (f"ms / MB relative to {REFERENCE}", *(f"{length:,} tokens" for length in lengths))
    for name in (name for name in names if name != REFERENCE):
        pairs = [(_typical(results[name, length]), _typical(results[REFERENCE, length])) for length in lengths]
        yield (name, *(f"{a.seconds / b.seconds:.2f}× / {a.memory / max(1, b.memory):.2f}×" for a, b in pairs))


def main() -> None:
    """Compare the layers and print the tables."""
    if sys.argv[1:2] == ["--one"]:
        name, length = sys.argv[2:]
        print(json.dumps(asdict(measure(name, int(length)))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help=f"multiples of {BLOCK_SIZE}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="layers, by a part of their names")
    options = parser.parse_args()
    names = [name for name in LAYERS if not options.only or any(part in name for part in options.only)]
    results = compare(names, options.lengths, options.rounds)
    print_markdown(cost_table(results, names, options.lengths))
    if REFERENCE in names:
        print_markdown(ratio_table(results, names, options.lengths))


if __name__ == "__main__":
    main()
