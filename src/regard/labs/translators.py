"""Translators for experiments: trained on the phrasebook as anyone's would be, kept for the labs that come after.

A run's folder is named by its settings, so that labs which ask for the same translator share it, and a second run of a
lab finds it finished.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Source, gather
from regard.evaluation.likelihood import perplexity
from regard.evaluation.scores import score
from regard.labs.handful import HELD_OUT, handful
from regard.labs.lab import Bench
from regard.model import Model, load
from regard.text import phrasebook
from regard.text.phrasebook.splits import Split
from regard.training.run import Run
from regard.training.start import Order, carry_out

Settings = Mapping[str, Any]
TAUGHT = """Translators learn English to Italian: in a full run from the whole phrasebook that comes with regard, in a
usual one from its chapter on people, and in a quick one from a handful of sentences like them. Except in a full run
they are small, and their norms come before the sub-layers: so they bear the high rates at which little time is
enough."""


@dataclass(frozen=True)
class Book:
    """What translators learn from, and what they are tested on, with true alignments."""

    files: Mapping[str, str]
    train: list[phrasebook.Pair]
    test: list[phrasebook.Pair]


def book(bench: Bench) -> Book:
    """The phrasebook in a full run, its chapter on people in a usual one; in a quick one, a handful of sentences."""
    if bench.effort == "full":
        files = {"train": "builtin:phrasebook", "valid": "builtin:phrasebook-dev"}
        return Book(files, phrasebook.split("train"), phrasebook.split("test"))
    splits = _handful() if bench.effort == "quick" else _chapter("people")
    folder = bench.models / f"pairs-{bench.effort}"
    files = {part: str(folder / f"{part}.tsv") for part in ("train", "dev")}
    folder.mkdir(parents=True, exist_ok=True)
    for part, file in files.items():
        if not Path(file).exists():
            Path(file).write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in splits[part]), "utf-8")
    return Book({"train": files["train"], "valid": files["dev"]}, splits["train"], splits["test"])


def _handful() -> dict[str, list[phrasebook.Pair]]:
    pairs = handful()
    train = [pair for n, pair in enumerate(pairs) if n % HELD_OUT]
    return {"train": train, "dev": pairs[:: 2 * HELD_OUT], "test": pairs[HELD_OUT :: 2 * HELD_OUT]}


def _chapter(topic: str) -> dict[str, list[phrasebook.Pair]]:
    splits: list[Split] = ["train", "dev", "test"]
    return {split: [pair for pair in phrasebook.split(split) if pair.topic == topic] for split in splits}


def usual_settings(bench: Bench) -> dict[str, Any]:
    """The translator that labs change one thing of: the demo's in a full run, smaller ones before."""
    width, layers, steps, tokens = bench.pick((32, 1, 200, 512), (64, 2, 500, 2048), (128, 2, 800, 4096))
    return {
        "model": {
            "kind": "encoder-decoder",
            "vocabulary": bench.pick(2000, 1000, 2000),
            "width": width,
            "layers": layers,
            "heads": 4,
            "feed_forward": 4 * width,
            "norm_order": bench.pick("pre", "pre", "post"),  # the paper's order does not bear the others' peaks
            "dropout": bench.pick(0.0, 0.1, 0.1),
        },
        "tokenizer": {"kind": bench.pick("word", "bpe", "bpe")},
        "training": {
            "steps": steps,
            "seed": 1,
            "batch_tokens": tokens,
            "schedule": {"kind": "cosine", "peak": bench.pick(1e-2, 1e-2, 4e-3), "warmup": steps // 6},
        },
    }


def training_for(steps: int, seed: int = 1) -> dict[str, Any]:
    """The settings of training that lasts so many steps, warm-up and all."""
    return {"steps": steps, "seed": seed, "schedule": {"warmup": steps // 6}}


def short(bench: Bench) -> int:
    """The steps of labs that train many translators, to compare them."""
    steps: int = usual_settings(bench)["training"]["steps"]
    return steps // bench.pick(1, 2, 2)


def trained(bench: Bench, settings: Settings, name: str) -> Model:
    """The translator with these settings on top of the usual ones; trained now, or found where it was trained before.

    `settings` are tables as a TOML file has them: `{"model": {"heads": 1}}`. Where they name another kind of network,
    it keeps what both kinds have. `name` is what it is called while it is trained.
    """
    wanted = merged(usual_settings(bench), settings)
    said = json.dumps([bench.effort, wanted], sort_keys=True)
    run = Run(bench.models / f"{wanted['model']['kind']}-{hashlib.sha256(said.encode()).hexdigest()[:8]}")
    if not _finished(run):
        data = {part: {"files": [file]} for part, file in book(bench).files.items()}
        around = {
            "data": {**data, "store": str(bench.models / "data")},
            "validation": {"every": wanted["training"]["steps"], "sentences": 0},
        }
        own = [Source("the lab's usual settings", usual_settings(bench)), Source("the lab", settings)]
        sources = [*gather("phrasebook"), *own, Source("the bench", around)]
        carry_out(Order(sources, run.folder, resume=True, command=["regard", "lab"]))
        bench.say(f"  trained {name} for {wanted['training']['steps']:,} steps")
    return load(run.folder)


def merged(usual: Settings, changes: Settings) -> dict[str, Any]:
    """Tables with changes laid over them.

    >>> merged({"model": {"heads": 4, "width": 64}}, {"model": {"heads": 1}})
    {'model': {'heads': 1, 'width': 64}}
    """
    laid = dict(usual)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(laid.get(key), Mapping)
        laid[key] = merged(laid[key], value) if both else value
    return laid


def _finished(run: Run) -> bool:
    return run.about.exists() and bool(run.read_about().get("finished"))


def perplexity_on(model: Model, pairs: list[phrasebook.Pair]) -> float:
    """How many tokens it wavers between, at each token of the right translations."""
    scores = [one for row in model.score([p.source for p in pairs], [p.target for p in pairs]) for one in row]
    return perplexity(-sum(scores) / len(scores))


def scores_of(outputs: list[str], pairs: list[phrasebook.Pair]) -> dict[str, float]:
    """BLEU, chrF and the share that is exactly right."""
    return score(outputs, [[pair.target] for pair in pairs]).values


def parameters(model: Model) -> int:
    """How many numbers it has learned; what is shared counts once."""
    return sum(one.numel() for one in model.network.parameters())
