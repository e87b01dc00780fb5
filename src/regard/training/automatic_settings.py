"""What to train when nothing is said but the data: sizes that suit the amount of text, each with its reason.

The sizes are those of the presets. The rules are rules of thumb, and every one of them can be overruled.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.config import ConfigSource, unchecked_value
from regard.data.stats import CorpusStats

SOURCE_NAME = "picked for this data"


@dataclass(frozen=True)
class AutomaticSetting:
    """A setting, its value, and why."""

    setting: str
    value: Any
    why: str


def as_source(picks: Iterable[AutomaticSetting]) -> ConfigSource:
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
    return ConfigSource(SOURCE_NAME, values)


@dataclass(frozen=True)
class UserSettings:
    """What the user settled that picks must go with; None where nothing was said."""

    steps: int | None = None
    epochs: float | None = None
    batch_tokens: int | None = None
    accumulate: int | None = None
    every: int | None = None  # steps between two validations
    context: int | None = None
    tokenizer: str | None = None
    recurrent: bool = False  # whether the network is one
    validation: bool = False  # whether there is data for it
    parses: bool = False  # whether there are any beside the source
    tuning: bool = False  # whether the network has learned something before

    @property
    def batch(self) -> int:
        """Tokens that an update sees."""
        return (self.batch_tokens or 4096) * (self.accumulate or 1)


def user_settings(sources: Sequence[ConfigSource]) -> UserSettings:
    """What sources say; values that cannot be right are passed over here, and complained about elsewhere.

    >>> said_in([ConfigSource("--set", {"training": {"steps": 500, "epochs": -1}})]).steps
    500
    """

    def count(setting: str) -> int | None:
        value = unchecked_value(sources, setting)
        return value if type(value) is int and value > 0 else None

    network = unchecked_value(sources, "model.kind")
    epochs, kind, valid, parses = (
        unchecked_value(sources, name)
        for name in ("training.epochs", "tokenizer.kind", "data.valid", "data.train.parses")
    )
    return UserSettings(
        steps=count("training.steps"),
        epochs=epochs if type(epochs) in (int, float) and epochs > 0 else None,
        batch_tokens=count("training.batch_tokens"),
        accumulate=count("training.gradient_accumulation"),
        every=count("validation.every"),
        context=count("data.context_length"),
        tokenizer=kind if isinstance(kind, str) else None,
        recurrent=isinstance(network, str) and network.startswith("recurrent"),
        validation=isinstance(valid, Mapping) and any(valid.values()),
        parses=bool(parses),
        tuning=isinstance(unchecked_value(sources, "training.start_from"), str),
    )


@dataclass(frozen=True)
class _Size:
    """A network, and for how many examples at most it is meant."""

    most: float
    name: str
    width: int
    layers: int
    heads: int | None  # a recurrent network has none,
    feed_forward: int | None  # nor feed-forward layers
    dropout: float


TRANSLATORS = [
    _Size(50_000, "tiny", 128, 4, 4, 256, 0.3),
    _Size(1_000_000, "small", 256, 3, 4, 1024, 0.1),
    _Size(math.inf, "paper-base", 512, 6, 8, 2048, 0.1),
]
RECURRENT_TRANSLATORS = [
    _Size(50_000, "a small recurrent network", 256, 1, None, None, 0.3),
    _Size(1_000_000, "a medium recurrent network", 256, 2, None, None, 0.2),
    _Size(math.inf, "a large recurrent network", 512, 2, None, None, 0.2),
]
LANGUAGE_MODELS = [
    _Size(3_000_000, "a small GPT", 128, 4, 4, 512, 0.1),
    _Size(50_000_000, "a medium GPT", 256, 6, 8, 1024, 0.1),
    _Size(math.inf, "a larger GPT", 384, 6, 6, 1536, 0.0),
]
RECURRENT_LANGUAGE_MODELS = [
    _Size(3_000_000, "a small recurrent network", 256, 2, None, None, 0.2),
    _Size(50_000_000, "a medium recurrent network", 512, 2, None, None, 0.1),
    _Size(math.inf, "a large recurrent network", 1024, 2, None, None, 0.0),
]
AS_RECURRENT = [
    AutomaticSetting("training.schedule.kind", "cosine", "a rise and a long fall suit recurrent networks"),
    AutomaticSetting("training.schedule.learning_rate", 2e-3, "what they bear while gradients are clipped"),
]
BOTH_WAYS = [  # characters at most, width, dropout
    (3_000_000, 256, 0.3),
    (50_000_000, 512, 0.2),
    (math.inf, 1024, 0.1),
]
ENCODERS = [
    _Size(3_000_000, "a small encoder", 128, 4, 4, 512, 0.1),
    _Size(50_000_000, "a medium encoder", 256, 6, 8, 1024, 0.1),
    _Size(math.inf, "a larger encoder", 384, 6, 6, 1536, 0.1),
]
READERS = [
    _Size(100_000, "a small encoder", 128, 2, 4, 256, 0.2),
    _Size(1_000_000, "a medium encoder", 256, 4, 4, 1024, 0.1),
    _Size(math.inf, "a larger encoder", 512, 6, 8, 2048, 0.1),
]
TYPICAL_STATS = [CorpusStats(count, 100 * count) for count in (1, 100_000, 10_000_000)]  # of data, one for each size
CHARACTERS = {"character": 1.0, "word": 5.5}  # in a token; in a sub-word, about three and a half
NO_USER_SETTINGS = UserSettings()


def picks_for_pairs(scan: CorpusStats, said: UserSettings = NO_USER_SETTINGS) -> list[AutomaticSetting]:
    """Settings of a translator for so many pairs."""
    sizes = RECURRENT_TRANSLATORS if said.recurrent else TRANSLATORS
    size = next(size for size in sizes if scan.examples <= size.most)
    kind = said.tokenizer or "bpe"
    pairs = f"{scan.examples:,} pairs"
    tokens = scan.characters / 2 / CHARACTERS.get(kind, 3.5)  # of one side
    epochs = min(60, max(3, 4_000_000 / max(1, scan.examples)))
    share = _held_out(scan.examples)
    held_out = [
        AutomaticSetting("data.validation_fraction", share, f"about {share * scan.examples:,.0f} pairs for validation")
    ]
    return [
        *_network(size, f"{pairs}: {size.name} learns them without learning them by heart"),
        _vocabulary(scan.characters, kind),
        *([] if said.validation else held_out),
        *(AS_RECURRENT if said.recurrent else []),
        *([AutomaticSetting("model.positions.kind", "syntax", "the source comes with parses")] if said.parses else []),
        *_length(tokens, epochs, said),
    ]


def picks_for_both_ways(scan: CorpusStats, said: UserSettings = NO_USER_SETTINGS) -> list[AutomaticSetting]:
    """Settings of a bidirectional language model for so much text."""
    _, width, dropout = next(size for size in BOTH_WAYS if scan.characters <= size[0])
    by_character = scan.characters < 300_000
    kind = said.tokenizer or ("character" if by_character else "byte-level")
    reason = "too little text for sub-words" if by_character else "sub-words of bytes, which lose nothing"
    tokens = scan.characters / CHARACTERS.get(kind, 3.5)
    return [
        AutomaticSetting("model.width", width, f"{scan.characters:,} characters: {width // 2} for each direction"),
        AutomaticSetting("model.layers", 2, "as ELMo: the first tells more of grammar, the second more of meaning"),
        AutomaticSetting("model.dropout", dropout, "the less text, the more dropout"),
        AutomaticSetting("tokenizer.kind", kind, reason),
        _vocabulary(scan.characters, kind),
        AutomaticSetting("training.label_smoothing", 0.0, "a language model is judged by its probabilities"),
        AutomaticSetting("training.schedule.kind", "cosine", "falls to nothing by the last step"),
        AutomaticSetting("training.schedule.learning_rate", 1e-3, "what small language models bear"),
        *_length(tokens, min(20, max(2, 60_000_000 / tokens)), said),
    ]


def picks_for_text(scan: CorpusStats, said: UserSettings = NO_USER_SETTINGS) -> list[AutomaticSetting]:
    """Settings of a language model for so much text."""
    sizes = RECURRENT_LANGUAGE_MODELS if said.recurrent else LANGUAGE_MODELS
    size = next(size for size in sizes if scan.characters <= size.most)
    by_character = scan.characters < 300_000
    kind = said.tokenizer or ("character" if by_character else "byte-level")
    reason = "too little text for sub-words" if by_character else "sub-words of bytes, which lose nothing"
    tokens = scan.characters / CHARACTERS.get(kind, 3.5)
    return [
        *_network(size, f"{scan.characters:,} characters: {size.name}"),
        AutomaticSetting("tokenizer.kind", kind, reason),
        _vocabulary(scan.characters, kind),
        AutomaticSetting("training.label_smoothing", 0.0, "a language model is judged by its probabilities"),
        *(AS_RECURRENT if said.recurrent else _gpt(said)),
        *_length(tokens, min(30, max(2, 60_000_000 / tokens)), said),
    ]


def _gpt(said: UserSettings) -> list[AutomaticSetting]:
    return [
        AutomaticSetting("model.activation", "gelu", "as GPT"),
        AutomaticSetting("model.norm_order", "pre", "as GPT: trains without a long warm-up"),
        AutomaticSetting("model.positions.kind", "learned", "as GPT"),
        AutomaticSetting("model.positions.max_length", said.context or 256, "the context: what it sees at once"),
        AutomaticSetting("model.scale_embeddings", False, "as GPT"),
        AutomaticSetting("training.max_grad_norm", 1.0, "as GPT"),
        AutomaticSetting("training.optimizer.kind", "adamw", "as GPT"),
        AutomaticSetting("training.optimizer.weight_decay", 0.1, "as GPT"),
        AutomaticSetting("training.schedule.kind", "cosine", "as GPT"),
        AutomaticSetting("training.schedule.learning_rate", 1e-3, "what small language models bear"),
    ]


def picks_for_encoder(scan: CorpusStats, said: UserSettings = NO_USER_SETTINGS) -> list[AutomaticSetting]:
    """Settings of an encoder that learns to guess hidden tokens of so much text."""
    size = next(size for size in ENCODERS if scan.characters <= size.most)
    kind = said.tokenizer or "bpe"
    tokens = scan.characters / CHARACTERS.get(kind, 3.5)
    return [
        *_network(size, f"{scan.characters:,} characters: {size.name}"),
        AutomaticSetting("model.activation", "gelu", "as BERT"),
        AutomaticSetting("model.norm_order", "pre", "trains without a long warm-up"),
        AutomaticSetting("model.positions.kind", "learned", "as BERT"),
        AutomaticSetting("model.positions.max_length", said.context or 128, "the passage: what it sees at once"),
        AutomaticSetting("model.scale_embeddings", False, "as BERT"),
        AutomaticSetting("tokenizer.kind", kind, "sub-words, which know where a word starts"),
        _vocabulary(scan.characters, kind),
        AutomaticSetting("training.label_smoothing", 0.0, "a guess is judged by its probability"),
        AutomaticSetting("training.max_grad_norm", 1.0, "as BERT"),
        AutomaticSetting("training.optimizer.kind", "adamw", "as BERT"),
        AutomaticSetting("training.optimizer.weight_decay", 0.01, "as BERT"),
        AutomaticSetting("training.schedule.kind", "cosine", "falls to zero, as BERT's rate does"),
        AutomaticSetting("training.schedule.learning_rate", 1e-3, "what small encoders bear"),
        # a pass teaches a seventh of what it teaches a language model, which predicts every token
        *_length(tokens, min(100, max(4, 200_000_000 / tokens)), said),
    ]


def picks_for_classes(scan: CorpusStats, said: UserSettings = NO_USER_SETTINGS) -> list[AutomaticSetting]:
    """Settings of a classifier for so many labelled texts."""
    return [
        *_picks_for_labels(scan, said, "texts"),
        AutomaticSetting("model.segments", 2, "tells a second text from the first, where there are pairs"),
        AutomaticSetting("validation.metric", "accuracy", "what counts is how many are right"),
    ]


def picks_for_tags(scan: CorpusStats, said: UserSettings = NO_USER_SETTINGS) -> list[AutomaticSetting]:
    """Settings of a tagger for so many tagged sentences."""
    return [
        *_picks_for_labels(scan, said, "sentences"),
        AutomaticSetting("validation.metric", "macro_f1", "a rare tag counts as much as a frequent one"),
    ]


def _picks_for_labels(scan: CorpusStats, said: UserSettings, what: str) -> list[AutomaticSetting]:
    size = next(size for size in READERS if scan.examples <= size.most)
    kind = said.tokenizer or "bpe"
    tokens = scan.characters / CHARACTERS.get(kind, 3.5)
    share = _held_out(scan.examples, least=0.1)
    held_out = [
        AutomaticSetting("data.validation_fraction", share, f"about {share * scan.examples:,.0f} {what} for validation")
    ]
    if said.tuning:
        how = [
            AutomaticSetting("training.schedule.learning_rate", 1e-4, "what was learned before should bend, not break"),
            *_length(tokens, min(10, max(3, 300_000 / max(1, scan.examples))), said, least=200),
        ]
    else:
        how = [
            *_network(size, f"{scan.examples:,} {what}: {size.name}"),
            AutomaticSetting("model.activation", "gelu", "as BERT"),
            AutomaticSetting("model.norm_order", "pre", "trains without a long warm-up"),
            _vocabulary(scan.characters, kind),
            AutomaticSetting("training.schedule.learning_rate", 5e-4, "what small encoders bear"),
            *_length(tokens, min(20, max(3, 2_000_000 / max(1, scan.examples))), said),
        ]
    return [
        *how,
        *([] if said.validation else held_out),
        AutomaticSetting("training.label_smoothing", 0.0, "so that probabilities mean what they say"),
        AutomaticSetting("training.max_grad_norm", 1.0, "as BERT"),
        AutomaticSetting("training.optimizer.kind", "adamw", "as BERT"),
        AutomaticSetting("training.schedule.kind", "cosine", "falls to nothing, so that the end is calm"),
    ]


def _network(size: _Size, why: str) -> list[AutomaticSetting]:
    shape = {"layers": size.layers, "heads": size.heads, "feed_forward": size.feed_forward}
    return [
        AutomaticSetting("model.width", size.width, why),
        *(
            AutomaticSetting(f"model.{name}", value, "with that width")
            for name, value in shape.items()
            if value is not None
        ),
        AutomaticSetting("model.dropout", size.dropout, "the less text, the more dropout"),
    ]


def _length(tokens: float, epochs: float, said: UserSettings, least: int = 1000) -> list[AutomaticSetting]:
    """How long to train on so many tokens, where so many passes over them do good, and what follows from it."""
    steps = _round(min(100_000, max(least, epochs * tokens / said.batch)))
    passes = max(1, round(steps * said.batch / tokens))
    picked = AutomaticSetting(
        "training.steps", steps, f"about {passes:,} pass{'es' if passes > 1 else ''} over the data"
    )
    taken = said.steps or steps
    if said.epochs is not None:
        taken = max(1, min(taken, math.ceil(said.epochs * tokens / said.batch)))
    every = said.every or min(taken, _round(max(least / 10, taken / 20)))
    times = max(1, taken // every)
    patience = max(2, round(times / 4))
    return [
        picked,
        AutomaticSetting(
            "training.schedule.warmup_steps",
            max(1, min(4000, _round(taken / 10))),
            "a tenth of the steps, the paper's 4,000 at most",
        ),
        AutomaticSetting("validation.every", every, "once a run" if times == 1 else f"about {times} times a run"),
        AutomaticSetting(
            "training.patience", patience, f"stops when {patience} validations one after the other brought nothing"
        ),
        AutomaticSetting("training.average_checkpoints", 5, "as the paper does with its last checkpoints"),
    ]


def _vocabulary(characters: int, kind: str) -> AutomaticSetting:
    """How many tokens: 2,000 for a booklet, 32,000 for a library."""
    bounds = ((2000, 1e6), (4000, 3e6), (8000, 3e7), (16_000, 3e8))
    size = next((size for size, most in bounds if characters <= most), 32_000)
    what = "words" if kind == "word" else "sub-words"
    use = "the tokenizer has one token for each character of the text, at most"
    why = use if kind == "character" else f"{characters:,} characters give that many {what} a use"
    return AutomaticSetting("model.vocab_size", size, why)


def _held_out(examples: int, least: float = 0.05) -> float:
    """A twentieth or so, and no more than about two thousand examples."""
    return round(min(least, 2000 / max(1, examples)), 6)


def _round(number: float) -> int:
    """Two figures and zeros.

    >>> _round(12_345)
    12000
    """
    scale = int(10 ** max(0, math.floor(math.log10(number)) - 1))
    return round(number / scale) * scale
