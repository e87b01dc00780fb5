"""Short training runs for tests: a language of eight words, translated word by word in reverse order."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from commands import default_signal_handlers
from regard.config import load_sources
from regard.training.runner import run_training
from regard.training.setup import TrainRequest

WORDS = dict(
    zip(
        ["one", "two", "three", "four", "five", "six", "seven", "eight"],
        ["uno", "due", "tre", "quattro", "cinque", "sei", "sette", "otto"],
        strict=True,
    )
)
SETTINGS = [
    "model.vocab_size=340",
    "model.width=32",
    "model.layers=1",
    "model.heads=2",
    "model.feed_forward=64",
    "training.steps=20",
    "training.batch_tokens=120",
    "training.log_every=1",
    "training.schedule.learning_rate=0.005",
    "training.schedule.warmup_steps=10",
    "training.checkpoint_minutes=60",
    "training.threads=1",
    "validation.sentences=8",
    "validation.samples=1",
]


def pairs(count: int, seed: int = 0, longest: int = 6) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    sources = [draw.choices(list(WORDS), k=draw.randint(1, longest)) for _ in range(count)]
    return [(" ".join(words), " ".join(WORDS[word] for word in reversed(words))) for words in sources]


def write_pairs(path: Path, count: int = 300, seed: int = 0, longest: int = 6) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs(count, seed, longest)), "utf-8")
    return path


def request(out: Path, data: Path, *settings: str, resume: bool = False) -> TrainRequest:
    sets = [*SETTINGS, f"data.train.files={data}", "data.validation_fraction=0.1", *settings]
    return TrainRequest(load_sources(None, sets), out, resume=resume)


def run(out: Path, data: Path, *settings: str, resume: bool = False) -> Path:
    return run_training(request(out, data, *settings, resume=resume)).folder


def command(out: Path, data: Path, *settings: str, resume: bool = False) -> list[str]:
    toml = out.with_suffix(".toml")
    toml.parent.mkdir(parents=True, exist_ok=True)
    toml.write_text("")
    sets = [*SETTINGS, "data.validation_fraction=0.1", *settings]
    return [
        *(sys.executable, "-m", "regard", "train", str(toml), "--data", str(data), "--out", str(out), "--quiet"),
        *(part for setting in sets for part in ("--set", setting)),
        *(["--resume"] if resume else []),
    ]


def start(out: Path, data: Path, *settings: str, resume: bool = False) -> subprocess.Popen[str]:
    call = command(out, data, *settings, resume=resume)
    return subprocess.Popen(
        call,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=default_signal_handlers,
    )


def lines(out: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The complete lines of a JSON Lines file."""
    path = out / name
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def numbers(out: Path) -> list[dict[str, Any]]:
    """The metrics without times."""
    times = {"tokens_per_second", "utilization", "seconds"}
    return [{key: value for key, value in line.items() if key not in times} for line in lines(out)]
