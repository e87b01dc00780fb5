"""Translators for experiments: trained on the phrasebook as anyone's would be, kept for the labs that come after.

A run's folder is named by all that it depends on, so that labs which ask for the same translator share it, and a second
run of a lab finds it finished.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import phrasebook
from regard.api import Model, load
from regard.config import Config, Source, check, gather
from regard.decoding.settings import GREEDY
from regard.decoding.translator import Wish
from regard.evaluation.likelihood import perplexity
from regard.evaluation.scores import score
from regard.labs.lab import Bench
from regard.labs.trials.fitting import parameters
from regard.labs.trials.handful import HELD_OUT, handful
from regard.phrasebook.splits import Split
from regard.training.run import Run
from regard.training.start import Order, carry_out
from regard.version import __version__

Settings = Mapping[str, Any]
TAUGHT = """Translators learn English to Italian: in a full run from the whole phrasebook that comes with regard, in a
usual one from its chapter on people, and in a quick one from a handful of sentences like them. In a full run matrices
are multiplied in bfloat16 where the processor is faster so. In the others translators are small, and their norms come
before the sub-layers: so they bear the high rates at which little time is enough."""


@dataclass(frozen=True)
class Book:
    """What translators learn from, and what they are tested on, with true alignments."""

    files: Mapping[str, str]
    train: list[phrasebook.Pair]
    test: list[phrasebook.Pair]
    digest: str  # of all that training reads


@dataclass(frozen=True)
class Measured:
    """A translator on what it has not seen: perplexity of the right translations, and BLEU of greedy ones."""

    parameters: int
    perplexity: float
    bleu: float


def book(bench: Bench, first: int | None = None) -> Book:
    """The phrasebook in a full run, its chapter on people in a usual one; in a quick one, a handful of sentences.

    With `first`, except in a full run, only so many of its sentences are learned from.
    """
    splits = bench.pick(_handful, lambda: _chapter("people"), _whole)()
    splits = {**splits, "train": splits["train"][:first]}
    texts = {part: "".join(f"{p.source}\t{p.target}\n" for p in splits[part]) for part in ("train", "dev")}
    digest = hashlib.sha256("\n".join(texts.values()).encode()).hexdigest()
    if bench.effort == "full":
        files = {"train": "builtin:phrasebook", "dev": "builtin:phrasebook-dev"}
    else:
        folder = bench.models / f"pairs-{bench.effort}{'' if first is None else f'-{first}'}"
        files = {part: str(folder / f"{part}.tsv") for part in texts}
        folder.mkdir(parents=True, exist_ok=True)
        for part, file in files.items():
            _keep(Path(file), texts[part])
    return Book({"train": files["train"], "valid": files["dev"]}, splits["train"], splits["test"], digest)


def _keep(path: Path, text: str) -> None:
    """Write a file, unless it says the same already."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def _handful() -> dict[str, list[phrasebook.Pair]]:
    pairs = handful()
    train = [pair for n, pair in enumerate(pairs) if n % HELD_OUT]
    return {"train": train, "dev": pairs[:: 2 * HELD_OUT], "test": pairs[HELD_OUT :: 2 * HELD_OUT]}


def _chapter(topic: str) -> dict[str, list[phrasebook.Pair]]:
    return {split: [pair for pair in pairs if pair.topic == topic] for split, pairs in _whole().items()}


def _whole() -> dict[str, list[phrasebook.Pair]]:
    splits: list[Split] = ["train", "dev", "test"]
    return {split: phrasebook.split(split) for split in splits}


def usual_settings(bench: Bench) -> dict[str, Any]:
    """The translator that labs change one thing of: of the demo's size in a full run, smaller before."""
    width, layers, steps, tokens = bench.pick((32, 1, 200, 512), (64, 2, 500, 2048), (128, 2, 1000, 1024))
    return {
        "model": {
            "kind": "encoder-decoder",
            "vocab_size": bench.pick(2000, 1000, 2000),
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
            "precision": bench.pick("float32", "float32", "bfloat16"),
            "schedule": {"kind": "cosine", "learning_rate": bench.pick(1e-2, 1e-2, 4e-3), "warmup_steps": steps // 6},
        },
    }


def training_for(steps: int, seed: int = 1) -> dict[str, Any]:
    """The settings of training that lasts so many steps, warm-up and all."""
    return {"steps": steps, "seed": seed, "schedule": {"warmup_steps": steps // 6}}


def short(bench: Bench) -> int:
    """The steps of labs that train many translators, to compare them: too few to learn all there is."""
    return bench.pick(100, 250, 450)


def compared(bench: Bench, settings: Settings, name: str, seed: int = 1) -> Model:
    """A translator of those that labs compare, trained for a short time: whichever lab asks, it is the same."""
    training = overlaid(training_for(short(bench), seed), settings.get("training", {}))
    return trained(bench, {**settings, "training": training}, name)


def trained(bench: Bench, settings: Settings, name: str, pages: Book | None = None) -> Model:
    """The translator with these settings on top of the usual ones; trained now, or found where it was trained before.

    `settings` are tables as a TOML file has them: `{"model": {"heads": 1}}`. Where they name another kind of network,
    it keeps what both kinds have. `name` is what it is called while it is trained, `pages` what it learns from, where
    that is not the whole book.
    """
    pages = pages or book(bench)
    steps = overlaid(usual_settings(bench), settings)["training"]["steps"]
    around = {
        "data": {
            **{part: {"files": [file]} for part, file in pages.files.items()},
            "store": str(bench.models / "data"),
        },
        "validation": {"every": steps, "sentences": 0},
    }
    own = [Source("the lab's usual settings", usual_settings(bench)), Source("the lab", settings)]
    sources = [*gather("phrasebook"), *own, Source("the bench", around)]
    run = Run(bench.models / _folder_name(check(sources), pages.digest))
    if not _finished(run):
        carry_out(Order(sources, run.folder, resume=True, command=["regard", "lab"]))
        bench.say(f"  trained {name} for {steps:,} steps")
    return load(run.folder)


def _folder_name(config: Config, digest: str) -> str:
    """A name by all that a run depends on: settings, what is in its data files, wherever they are, and our version."""
    settings = config.model_dump(mode="json", exclude={"data": {"train", "valid", "test", "store"}})
    said = json.dumps([__version__, digest, settings], sort_keys=True)
    return f"{config.model.kind}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def overlaid(usual: Settings, changes: Settings) -> dict[str, Any]:
    """Tables with changes laid over them.

    >>> overlaid({"model": {"heads": 4, "width": 64}}, {"model": {"heads": 1}})
    {'model': {'heads': 1, 'width': 64}}
    """
    laid = dict(usual)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(laid.get(key), Mapping)
        laid[key] = overlaid(laid[key], value) if both else value
    return laid


def _finished(run: Run) -> bool:
    return run.about.exists() and bool(run.read_about().get("finished"))


def measured(model: Model, pairs: list[phrasebook.Pair]) -> Measured:
    """A translator's size, and how good it is on these pairs."""
    outputs = model.translate([pair.source for pair in pairs], Wish(GREEDY, split=False), engine="torch")
    return Measured(parameters(model.network), perplexity_on(model, pairs), scores_of(outputs, pairs)["bleu"])


def perplexity_on(model: Model, pairs: list[phrasebook.Pair]) -> float:
    """How many tokens it wavers between, at each token of the right translations."""
    scores = [one for row in model.score([p.source for p in pairs], [p.target for p in pairs]) for one in row]
    return perplexity(-sum(scores) / len(scores))


def scores_of(outputs: list[str], pairs: list[phrasebook.Pair]) -> dict[str, float]:
    """BLEU, chrF and the share that is exactly right."""
    return score(outputs, [[pair.target] for pair in pairs]).values
