"""Translation models for labs: trained on the phrasebook, and kept in the models folder for other labs.

The run folder of a model is named by a hash of its settings, data and version, so that labs that need the same model
share it and a second run of a lab finds it trained.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from regard import __version__, phrasebook
from regard.api import Model, load
from regard.config import Config, ConfigSource, load_sources, validate_sources
from regard.evaluation.likelihood import perplexity
from regard.evaluation.metrics import score_translations
from regard.files import write_text
from regard.labs import LabContext
from regard.labs.trials import count_parameters
from regard.phrasebook import AlignedPair, SplitName
from regard.phrasebook.phrases import GlossedWord, align, spell
from regard.training.run_folder import RunFolder
from regard.training.runner import run_training
from regard.training.setup import TrainRequest

Settings = Mapping[str, Any]
TRANSLATION_SETUP = """The models translate English to Italian. With full effort they are trained on the whole
phrasebook that comes with regard and use bfloat16 matrix products where the processor supports them; with default
effort on its people topic; with quick effort on a generated toy corpus. With default and quick effort they are smaller,
and pre-norm so that they tolerate a higher learning rate."""


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranslationData:
    """Training and test pairs with gold alignments, the files that training reads, and a hash of their content."""

    files: Mapping[str, str]
    train: list[AlignedPair]
    test: list[AlignedPair]
    digest: str


def translation_data(context: LabContext, max_train: int | None = None) -> TranslationData:
    """Return the pairs for this effort; `max_train` limits the training pairs, except with full effort."""
    splits = context.by_effort(_toy_splits, lambda: _topic_splits("people"), _phrasebook_splits)()
    splits = {**splits, "train": splits["train"][:max_train]}
    texts = {split: "".join(f"{p.source}\t{p.target}\n" for p in splits[split]) for split in ("train", "dev")}
    digest = hashlib.sha256("\n".join(texts.values()).encode()).hexdigest()
    if context.effort == "full":
        files = {"train": "builtin:phrasebook", "dev": "builtin:phrasebook-dev"}
    else:
        folder = context.models_folder / f"pairs-{context.effort}{'' if max_train is None else f'-{max_train}'}"
        files = {split: str(folder / f"{split}.tsv") for split in texts}
        folder.mkdir(parents=True, exist_ok=True)
        for split, file in files.items():
            _write_if_changed(Path(file), texts[split])
    return TranslationData({"train": files["train"], "valid": files["dev"]}, splits["train"], splits["test"], digest)


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        write_text(path, text)


def _toy_splits() -> dict[str, list[AlignedPair]]:
    pairs = toy_pairs()
    train = [pair for n, pair in enumerate(pairs) if n % HELD_OUT_EVERY]
    return {"train": train, "dev": pairs[:: 2 * HELD_OUT_EVERY], "test": pairs[HELD_OUT_EVERY :: 2 * HELD_OUT_EVERY]}


def _topic_splits(topic: str) -> dict[str, list[AlignedPair]]:
    return {split: [pair for pair in pairs if pair.topic == topic] for split, pairs in _phrasebook_splits().items()}


def _phrasebook_splits() -> dict[str, list[AlignedPair]]:
    splits: list[SplitName] = ["train", "dev", "test"]
    return {split: phrasebook.split(split) for split in splits}


# --- toy corpus -------------------------------------------------------------------------------------------------------

FIRST_NAMES = ("Marco", "Anna", "Luca", "Maria", "Paolo", "Chiara")
VERBS = {"see": "vede", "find": "trova", "want": "vuole", "love": "ama", "draw": "disegna", "describe": "descrive"}
TEMPLATE_NOUNS = {
    "house": "casa",
    "car": "macchina",
    "door": "porta",
    "book": "libro",
    "garden": "giardino",
    "letter": "lettera",
}
ADJECTIVES = {"red": "ross", "white": "bianc", "small": "piccol", "new": "nuov", "old": "vecchi", "yellow": "giall"}
HELD_OUT_EVERY = 8  # every eighth pair is not trained on


@cache
def toy_pairs() -> list[AlignedPair]:
    """Return all pairs of a toy grammar (26 words, 3 sentence patterns) with gold alignments, in a fixed mixed order.

    As in the phrasebook, Italian adjectives follow their nouns, articles and endings agree, and `does` is aligned with
    the verb.

    >>> pair = toy_pairs()[0]
    >>> pair.source, pair.target
    ('Marco sees the red house.', 'Marco vede la casa rossa.')
    >>> pair.alignment
    ((0, 0), (1, 1), (2, 2), (3, 4), (4, 3), (5, 5))
    """
    parts = product(FIRST_NAMES, VERBS, TEMPLATE_NOUNS, ADJECTIVES, ("statement", "negation", "question"))
    pairs = [_toy_pair(*choice) for choice in parts]
    stride = 1399  # coprime to the number of pairs, so that every pair occurs once
    return [pairs[n * stride % len(pairs)] for n in range(len(pairs))]


def _toy_pair(name: str, verb: str, noun: str, adjective: str, mood: str) -> AlignedPair:
    """Return a pair; words of the same role are aligned."""
    ending = "a" if TEMPLATE_NOUNS[noun].endswith("a") else "o"
    subject, auxiliary, infinitive = (name, "subject"), ("does", "verb"), (verb, "verb")
    openings = {
        "statement": [subject, (f"{verb}s", "verb")],
        "negation": [subject, auxiliary, ("not", "not"), infinitive],
        "question": [auxiliary, subject, infinitive],
    }
    mark = ("?" if mood == "question" else ".", "mark")
    english = [*openings[mood], ("the", "article"), (adjective, "adjective"), (noun, "noun"), mark]
    article = ("la" if ending == "a" else "il", "article")
    negation = [("non", "not")] if mood == "negation" else []
    predicate = [
        (VERBS[verb], "verb"),
        article,
        (TEMPLATE_NOUNS[noun], "noun"),
        (ADJECTIVES[adjective] + ending, "adjective"),
    ]
    italian = [subject, *negation, *predicate, mark]
    sides = [[GlossedWord(text, (role,)) for text, role in side] for side in (english, italian)]
    return AlignedPair(spell(sides[0]), spell(sides[1]), align(*sides))


# --- models -----------------------------------------------------------------------------------------------------------


def base_settings(context: LabContext) -> dict[str, Any]:
    """Return the settings that labs vary: the size of `regard demo` with full effort, smaller otherwise."""
    width, layers, steps, tokens = context.by_effort((32, 1, 200, 512), (64, 2, 500, 2048), (128, 2, 1000, 1024))
    return {
        "model": {
            "kind": "encoder-decoder",
            "vocab_size": context.by_effort(2000, 1000, 2000),
            "width": width,
            "layers": layers,
            "heads": 4,
            "feed_forward": 4 * width,
            "norm_order": context.by_effort("pre", "pre", "post"),  # post-norm diverges at the higher learning rate
            "dropout": context.by_effort(0.0, 0.1, 0.1),
        },
        "tokenizer": {"kind": context.by_effort("word", "bpe", "bpe")},
        "training": {
            "steps": steps,
            "seed": 1,
            "batch_tokens": tokens,
            "precision": context.by_effort("float32", "float32", "bfloat16"),
            "schedule": {
                "kind": "cosine",
                "learning_rate": context.by_effort(1e-2, 1e-2, 4e-3),
                "warmup_steps": steps // 6,
            },
        },
    }


def training_settings(steps: int, seed: int = 1) -> dict[str, Any]:
    """Return the training settings for a number of steps, with warmup in proportion."""
    return {"steps": steps, "seed": seed, "schedule": {"warmup_steps": steps // 6}}


def comparison_steps(context: LabContext) -> int:
    """Return the steps of labs that compare many models; too few for convergence."""
    return context.by_effort(100, 250, 450)


def train_for_comparison(context: LabContext, settings: Settings, name: str, seed: int = 1) -> Model:
    """Return a model trained for `comparison_steps`; labs that use the same settings share it."""
    training = merge_settings(training_settings(comparison_steps(context), seed), settings.get("training", {}))
    return train_translator(context, {**settings, "training": training}, name)


def train_translator(context: LabContext, settings: Settings, name: str, data: TranslationData | None = None) -> Model:
    """Return the model with these settings over the base settings, trained now or loaded from the models folder.

    `settings` are nested like a TOML file, such as `{"model": {"heads": 1}}`. With another `model.kind`, the settings
    that both kinds have are kept. `name` describes the model in the log; `data` defaults to all pairs of this effort.
    """
    data = data or translation_data(context)
    steps = merge_settings(base_settings(context), settings)["training"]["steps"]
    run_settings = {
        "data": {
            **{split: {"files": [file]} for split, file in data.files.items()},
            "store": str(context.models_folder / "data"),
        },
        "validation": {"every": steps, "sentences": 0},
        "training": {"precision": "float32"},  # the same results on every processor
    }
    sources = [
        *load_sources("phrasebook"),
        ConfigSource("base settings of the labs", base_settings(context)),
        ConfigSource("settings of the lab", settings),
        ConfigSource("run settings of the lab", run_settings),
    ]
    run = RunFolder(context.models_folder / _folder_name(validate_sources(sources), data.digest))
    if not _is_finished(run):
        run_training(TrainRequest(sources, run.folder, resume=True, command=["regard", "lab"]))
        context.log(f"  trained {name} for {steps:,} steps")
    return load(run.folder)


def _folder_name(config: Config, digest: str) -> str:
    """Return a name by a hash of settings, content of the data files and version."""
    settings = config.model_dump(mode="json", exclude={"data": {"train", "valid", "test", "store"}})
    identity = json.dumps([__version__, digest, settings], sort_keys=True)
    return f"{config.model.kind}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _is_finished(run: RunFolder) -> bool:
    return run.info_path.exists() and bool(run.read_info().get("finished"))


def merge_settings(base: Settings, changes: Settings) -> dict[str, Any]:
    """Return nested settings with changes applied.

    >>> merge_settings({"model": {"heads": 4, "width": 64}}, {"model": {"heads": 1}})
    {'model': {'heads': 1, 'width': 64}}
    """
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge_settings(merged[key], value) if nested else value
    return merged


# --- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranslatorScores:
    """Size of a model, perplexity of the reference translations, and BLEU of its greedy translations."""

    parameters: int
    perplexity: float
    bleu: float


def evaluate_translator(model: Model, pairs: list[AlignedPair]) -> TranslatorScores:
    """Return size, perplexity and BLEU of a model on these pairs."""
    outputs = model.translate([pair.source for pair in pairs], beam=1, split_sentences=False, engine="torch")
    bleu = translation_scores(outputs, pairs)["bleu"]
    return TranslatorScores(count_parameters(model.network), reference_perplexity(model, pairs), bleu)


def reference_perplexity(model: Model, pairs: list[AlignedPair]) -> float:
    """Return the perplexity per token of the reference translations."""
    scores = model.score_detailed([pair.source for pair in pairs], [pair.target for pair in pairs])
    log_probabilities = [value for score in scores for value in score.log_probabilities]
    return perplexity(-sum(log_probabilities) / len(log_probabilities))


def translation_scores(outputs: list[str], pairs: list[AlignedPair]) -> dict[str, float]:
    """Return BLEU, chrF and exact match of translations."""
    return score_translations(outputs, [[pair.target] for pair in pairs]).values
