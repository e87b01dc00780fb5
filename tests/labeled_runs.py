"""Small labeled data sets for tests, and short runs on them."""

import random
from collections.abc import Sequence
from pathlib import Path

from regard.config import load_sources
from regard.training.runner import run_training
from regard.training.setup import TrainRequest

WORDS = ["the", "cat", "dog", "bird", "sees", "likes", "eats", "a", "red", "big", "fish", "is"]
SMALL = [
    "model.kind=encoder-only",
    "model.vocab_size=320",
    "model.width=32",
    "model.layers=1",
    "model.heads=4",
    "model.feed_forward=64",
    "model.norm_order=pre",
    "model.dropout=0.0",
    "tokenizer.kind=word",
    "tokenizer.byte_fallback=false",
    "training.batch_tokens=400",
    "training.label_smoothing=0.0",
    "training.schedule.kind=cosine",
    "training.schedule.learning_rate=0.005",
    "training.schedule.warmup_steps=20",
    "training.checkpoint_minutes=0",
    "training.threads=1",
    "training.log_every=1",
    "data.validation_fraction=0.1",
    "validation.samples=1",
]


def negated_sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences labeled by whether they contain "not"."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.randint(3, 7))
        negated = draw.random() < 0.5
        if negated:
            words[draw.randrange(len(words))] = "not"
        rows.append(("negated" if negated else "plain", " ".join(words)))
    return rows


def word_pairs(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Pairs of words, the same or different."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        first, second = draw.sample(WORDS[:6], 2)
        same = draw.random() < 0.5
        rows.append(("same" if same else "different", first, first if same else second))
    return rows


def tagged_sentences(count: int, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Sentences in which the tag of a word depends on the word before it."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(["red", "cat", "dog", "a", "big"], k=draw.randint(2, 6))
        tags = ["O", *("B-AFTER" if word == "red" else "O" for word in words[:-1])]
        rows.append(list(zip(words, tags, strict=True)))
    return rows


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    return path


def write_columns(path: Path, sentences: Sequence[Sequence[tuple[str, str]]]) -> Path:
    path.write_text(
        "".join("".join(f"{word} {tag}\n" for word, tag in sentence) + "\n" for sentence in sentences), "utf-8"
    )
    return path


def run(out: Path, data: Path, *settings: str, head: str = "classes", resume: bool = False) -> Path:
    sets = [*SMALL, f"model.head={head}", f"data.train.files={data}", *settings]
    return run_training(TrainRequest(load_sources(None, sets), out, resume=resume)).folder
