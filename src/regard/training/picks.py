"""What to train when nothing is said but the data: sizes that suit the amount of text, each with its reason.

The sizes are those of the presets. The rules are rules of thumb, and every one of them can be overruled.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from regard.config import Source
from regard.text.scan import Scan

NAME = "picked for this data"


@dataclass(frozen=True)
class Pick:
    """A setting, its value, and why."""

    setting: str
    value: Any
    why: str


def source_of(picks: Iterable[Pick]) -> Source:
    """The picks as a place where settings come from, below any that the user gave.

    >>> source_of([Pick("model.width", 128, "…"), Pick("model.layers", 4, "…")]).values
    {'model': {'width': 128, 'layers': 4}}
    """
    values: dict[str, Any] = {}
    for pick in picks:
        *path, key = pick.setting.split(".")
        table = values
        for part in path:
            table = table.setdefault(part, {})
        table[key] = pick.value
    return Source(NAME, values)


@dataclass(frozen=True)
class _Size:
    """A network, and for how many examples at most it is meant."""

    most: float
    name: str
    width: int
    layers: int
    heads: int
    feed_forward: int
    dropout: float


TRANSLATORS = [
    _Size(50_000, "tiny", 128, 4, 4, 256, 0.3),
    _Size(1_000_000, "small", 256, 3, 4, 1024, 0.1),
    _Size(math.inf, "paper-base", 512, 6, 8, 2048, 0.1),
]
LANGUAGE_MODELS = [
    _Size(3_000_000, "a small GPT", 128, 4, 4, 512, 0.1),
    _Size(50_000_000, "a medium GPT", 256, 6, 8, 1024, 0.1),
    _Size(math.inf, "a larger GPT", 384, 6, 6, 1536, 0.0),
]


def picks_for_pairs(scan: Scan, *, hold_out: bool = True) -> list[Pick]:
    """Settings of a translator for so many pairs; `hold_out` some of them for validation."""
    size = next(size for size in TRANSLATORS if scan.examples <= size.most)
    vocabulary = _vocabulary(scan.characters)
    pairs = f"{scan.examples:,} pairs"
    tokens = scan.characters / 2 / 3.5  # of one side; a sub-word is about three and a half characters
    epochs = min(60, max(3, 4_000_000 / max(1, scan.examples)))
    steps = _round(min(100_000, max(1000, epochs * tokens / 4096)))
    share = _held_out(scan.examples)
    held_out = [Pick("data.held_out", share, f"about {share * scan.examples:,.0f} pairs for validation")]
    return [
        *_network(size, f"{pairs}: {size.name} learns them without learning them by heart"),
        Pick("model.vocabulary", vocabulary, f"{scan.characters:,} characters give that many sub-words a use"),
        *(held_out if hold_out else []),
        *_length(steps, f"about {max(1, round(steps * 4096 / tokens)):,} passes over the data"),
    ]


def picks_for_text(scan: Scan) -> list[Pick]:
    """Settings of a language model for so much text."""
    size = next(size for size in LANGUAGE_MODELS if scan.characters <= size.most)
    by_character = scan.characters < 300_000
    kind = "character" if by_character else "byte-level"
    reason = "too little text for sub-words" if by_character else "sub-words of bytes, which lose nothing"
    tokens = scan.characters / (1 if by_character else 3.5)
    steps = _round(min(100_000, max(1000, min(30, max(2, 60_000_000 / tokens)) * tokens / 4096)))
    characters = f"{scan.characters:,} characters"
    return [
        *_network(size, f"{characters}: {size.name}"),
        Pick("model.activation", "gelu", "as GPT"),
        Pick("model.norm_order", "pre", "as GPT: trains without a long warm-up"),
        Pick("model.positions.kind", "learned", "as GPT"),
        Pick("model.positions.length", 256, "the context: what it sees at once"),
        Pick("model.scale_embeddings", False, "as GPT"),
        Pick("tokenizer.kind", kind, reason),
        Pick("model.vocabulary", _vocabulary(scan.characters), f"{characters} give that many sub-words a use"),
        Pick("training.label_smoothing", 0.0, "a language model is judged by its probabilities"),
        Pick("training.clip", 1.0, "as GPT"),
        Pick("training.optimizer.kind", "adamw", "as GPT"),
        Pick("training.optimizer.weight_decay", 0.1, "as GPT"),
        Pick("training.schedule.kind", "cosine", "as GPT"),
        Pick("training.schedule.peak", 1e-3, "what small language models bear"),
        *_length(steps, f"about {max(1, round(steps * 4096 / tokens)):,} passes over the data"),
    ]


def _network(size: _Size, why: str) -> list[Pick]:
    return [
        Pick("model.width", size.width, why),
        Pick("model.layers", size.layers, "with that width"),
        Pick("model.heads", size.heads, "with that width"),
        Pick("model.feed_forward", size.feed_forward, "with that width"),
        Pick("model.dropout", size.dropout, "the less text, the more dropout"),
    ]


def _length(steps: int, why: str) -> list[Pick]:
    every = _round(max(100, steps / 20))
    return [
        Pick("training.steps", steps, why),
        Pick(
            "training.schedule.warmup", min(4000, _round(steps / 10)), "a tenth of the steps, the paper's 4,000 at most"
        ),
        Pick("validation.every", every, "twenty times a run"),
        Pick("training.patience", 5, "stops when a quarter of the run brought nothing"),
        Pick("training.average", 5, "as the paper does with its last checkpoints"),
    ]


def _vocabulary(characters: int) -> int:
    """Sub-words: 2,000 for a booklet, 32,000 for a library."""
    return next(
        (size for size, most in ((2000, 1e6), (4000, 3e6), (8000, 3e7), (16_000, 3e8)) if characters <= most), 32_000
    )


def _held_out(examples: int) -> float:
    """A twentieth, and no more than about two thousand pairs."""
    return round(min(0.05, 2000 / max(1, examples)), 6)


def _round(number: float) -> int:
    """Two figures and zeros.

    >>> _round(12_345)
    12000
    """
    scale = int(10 ** max(0, math.floor(math.log10(number)) - 1))
    return round(number / scale) * scale
