"""Automatic settings: values chosen from the amount of data for settings that the user left open, with a reason each.

This module has the rules that tasks share. The sizes are those of the presets; every value can be overridden.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.config import ConfigSource, unchecked_value
from regard.data.corpus_scan import CorpusStats
from regard.training.schedules import paper_peak

SOURCE_NAME = "automatic"
CHARACTERS_PER_TOKEN_BY_KIND = {"character": 1.0, "word": 5.5}  # other kinds make subwords, of about 3.5 characters
SMALL_TEXT = 300_000  # characters; less text is tokenized into characters
DEFAULT_BATCH_TOKENS, MIN_BATCH_TOKENS = 4096, 512
MIN_BATCHES_PER_EPOCH = 16  # of automatic batches; less data gets smaller batches
MAX_STEPS = 10_000_000  # of a run with a time budget
MIN_STEPS_IN_TIME = 500  # less time gets smaller batches; see benchmarks/scaling.py
MAX_EPOCHS = 100  # more passes over the same data bring overfitting, not quality
MAX_PEAK = 3e-3  # learning rate of a network of width 128 with batches of 4,096 tokens; see benchmarks/learning_rate.py
FINE_TUNING_FACTOR = 0.1  # of that learning rate: keeps most of what the model has learned
LORA_FACTOR = 0.5  # the matrices of LoRA start at zero, and are all that changes
TYPICAL_STATS = [CorpusStats(count, 100 * count) for count in (1, 100_000, 10_000_000)]  # one for each network size


@dataclass(frozen=True)
class AutomaticSetting:
    """A setting, its value, and the reason for it."""

    key: str
    value: Any
    reason: str


def as_source(settings: Iterable[AutomaticSetting]) -> ConfigSource:
    """Settings as a config source, which the user's own sources override.

    >>> as_source([AutomaticSetting("model.width", 128, "…"), AutomaticSetting("model.layers", 4, "…")]).values
    {'model': {'width': 128, 'layers': 4}}
    """
    values: dict[str, Any] = {}
    for setting in settings:
        *path, key = setting.key.split(".")
        table = values
        for part in path:
            table = table.setdefault(part, {})
        table[key] = setting.value
    return ConfigSource(SOURCE_NAME, values)


@dataclass(frozen=True)
class UserSettings:
    """Settings of the user that automatic settings depend on; None where the user left them open."""

    steps: int | None = None
    epochs: float | None = None
    batch_tokens: int | None = None
    gradient_accumulation: int | None = None
    validation_every: int | None = None
    context_length: int | None = None
    warmup_steps: int | None = None
    width: int | None = None  # of the network, or of the model that is fine-tuned
    vocab_size: int | None = None
    tokenizer: str | None = None
    recurrent: bool = False  # the network is recurrent
    has_validation_data: bool = False
    has_parses: bool = False
    fine_tuning: bool = False  # training starts from a model
    lora: bool = False  # only small matrices are trained
    minutes: float | None = None  # that training may take
    budget_tokens: float | None = None  # that it can process in this time, where its speed was measured
    size: "NetworkSize | None" = None  # of the network that was chosen for this time, or by its name

    def tokens_per_update(self, tokens: float) -> int:
        """Tokens of one optimizer step for this many training tokens, gradient accumulation included."""
        batch_tokens = self.batch_tokens or automatic_batch_tokens(tokens, self.budget_tokens)
        return batch_tokens * (self.gradient_accumulation or 1)

    def batches_per_epoch(self, tokens: float) -> float:
        """Optimizer steps of an epoch of this many training tokens, at least 1."""
        return max(1.0, tokens / self.tokens_per_update(tokens))


def user_settings(sources: Sequence[ConfigSource]) -> UserSettings:
    """Read the user's settings from config sources; invalid values are ignored here and reported by validation.

    >>> user_settings([ConfigSource("--set", {"training": {"steps": 500, "epochs": -1}})]).steps
    500
    """

    def count(key: str) -> int | None:
        value = unchecked_value(sources, key)
        return value if type(value) is int and value > 0 else None

    network = unchecked_value(sources, "model.kind")

    def number(key: str) -> float | None:
        value = unchecked_value(sources, key)
        return value if type(value) in (int, float) and value > 0 else None

    tokenizer, valid, parses = (
        unchecked_value(sources, key) for key in ("tokenizer.kind", "data.valid", "data.train.parses")
    )
    return UserSettings(
        steps=count("training.steps"),
        epochs=number("training.epochs"),
        batch_tokens=count("training.batch_tokens"),
        gradient_accumulation=count("training.gradient_accumulation"),
        validation_every=count("validation.every"),
        context_length=count("data.context_length"),
        warmup_steps=count("training.schedule.warmup_steps"),
        width=count("model.width"),
        vocab_size=count("model.vocab_size"),
        tokenizer=tokenizer if isinstance(tokenizer, str) else None,
        recurrent=isinstance(network, str) and network.startswith("recurrent"),
        has_validation_data=isinstance(valid, Mapping) and any(valid.values()),
        has_parses=bool(parses),
        fine_tuning=isinstance(unchecked_value(sources, "training.start_from"), str),
        lora=bool(count("training.lora.rank")),
        minutes=number("training.minutes"),
    )


@dataclass(frozen=True)
class NetworkSize:
    """A network, and the largest amount of data that it is meant for: examples or characters."""

    max_amount: float
    name: str
    width: int
    layers: int
    heads: int | None  # None for recurrent networks
    feed_forward: int | None
    dropout: float


@dataclass(frozen=True)
class RunLength:
    """The epochs that a run should have, and its limits."""

    epochs: float
    """Epochs without a time budget."""
    min_steps: int = 1000
    """Steps where there is little data."""
    max_epochs: float = MAX_EPOCHS
    """Epochs, however much time there is."""

    def steps(self, tokens: float, user: UserSettings) -> int:
        """The automatic number of steps."""
        if user.budget_tokens is None:
            return self._steps_of_epochs(tokens, user)
        steps = min(user.budget_tokens / user.tokens_per_update(tokens), self.limit(tokens, user))
        return round_to_two_digits(max(1, steps))

    def _steps_of_epochs(self, tokens: float, user: UserSettings) -> int:
        per_epoch = user.batches_per_epoch(tokens)
        steps = min(100_000, max(self.min_steps, self.epochs * per_epoch), max(self.epochs, MAX_EPOCHS) * per_epoch)
        return round_to_two_digits(max(1, steps))

    def limit(self, tokens: float, user: UserSettings) -> int:
        """Steps that a run with a time budget has at most: those of `max_epochs`."""
        steps = round_to_two_digits(max(1, self.max_epochs * user.batches_per_epoch(tokens)))
        return min(MAX_STEPS, max(steps, self._steps_of_epochs(tokens, user)))

    def planned(self, tokens: float, user: UserSettings) -> int:
        """Steps that the run is expected to have: the user's, or the automatic ones."""
        planned = self.steps(tokens, user)
        if user.steps is not None:
            planned = user.steps if user.budget_tokens is None else min(planned, user.steps)
        if user.epochs is not None:
            planned = max(1, min(planned, math.ceil(user.epochs * tokens / user.tokens_per_update(tokens))))
        return planned


RECURRENT_SCHEDULE = [
    AutomaticSetting("training.schedule.kind", "cosine", "recurrent networks train well with warmup and a long decay"),
    AutomaticSetting("training.schedule.learning_rate", 2e-3, "stable for recurrent networks with clipped gradients"),
]


def choose_size(sizes: Sequence[NetworkSize], amount: int) -> NetworkSize:
    """The first size that is meant for this amount of data."""
    return next(size for size in sizes if amount <= size.max_amount)


def token_count(characters: float, tokenizer: str) -> float:
    """Estimated number of tokens of a text."""
    return characters / CHARACTERS_PER_TOKEN_BY_KIND.get(tokenizer, 3.5)


def network_settings(size: NetworkSize, reason: str, user: UserSettings) -> list[AutomaticSetting]:
    """Width, layers, heads, feed-forward width and dropout of a network; sizes follow the width of the user."""
    width = user.width or size.width
    heads = None if size.heads is None else _heads(width, size.width // size.heads)
    feed_forward = None if size.feed_forward is None else max(1, round(size.feed_forward * width / size.width))
    shape = {"layers": size.layers, "heads": heads, "feed_forward": feed_forward}
    return [
        AutomaticSetting("model.width", size.width, reason),
        *(
            AutomaticSetting(f"model.{name}", value, "goes with that width")
            for name, value in shape.items()
            if value is not None
        ),
        AutomaticSetting("model.dropout", size.dropout, "less text needs more dropout"),
    ]


def _heads(width: int, head_width: int) -> int:
    """The number of heads that divides a width into heads of about `head_width`.

    >>> _heads(128, 32), _heads(96, 32), _heads(100, 32)
    (4, 3, 4)
    """
    divisors = (heads for heads in range(1, width + 1) if width % heads == 0)
    return min(divisors, key=lambda heads: abs(math.log(width / heads / head_width)))


def text_tokenizer(characters: int, user: UserSettings) -> AutomaticSetting:
    """The tokenizer of a language model, which must be lossless: bytes, or characters where there is little text."""
    by_character = characters < SMALL_TEXT
    kind = user.tokenizer or ("character" if by_character else "byte-level")
    reason = "too little text for subwords" if by_character else "byte-level subwords are lossless"
    return AutomaticSetting("tokenizer.kind", kind, reason)


def automatic_batch_tokens(tokens: float, budget_tokens: float | None = None) -> int:
    """Tokens per batch for this many training tokens: smaller batches where an epoch or the time has only a few."""
    most = min(DEFAULT_BATCH_TOKENS, round_to_two_digits(max(1, tokens / MIN_BATCHES_PER_EPOCH)))
    if budget_tokens is not None:  # a power of two, as the batches of the default are
        most = min(most, 2 ** round(math.log2(max(1, budget_tokens / MIN_STEPS_IN_TIME))))
    return max(MIN_BATCH_TOKENS, most)


def max_learning_rate(width: int, tokens_per_update: int) -> float:
    """The highest peak learning rate that is stable: lower for wider networks and for smaller batches.

    Up to a width of 180 it is that of width 128: see benchmarks/learning_rate.py for widths 128 and 256.
    """
    narrow = math.sqrt(128 / width) if width < 128 else min(1.0, math.sqrt(180 / width))
    return MAX_PEAK * narrow * min(1.0, math.sqrt(tokens_per_update / DEFAULT_BATCH_TOKENS))


def peak_setting(width: int, tokens: float, length: RunLength, user: UserSettings) -> AutomaticSetting:
    """The peak of the inverse-square-root schedule: the paper's, which rises as warmup gets shorter, up to a limit."""
    width = user.width or width
    limit = max_learning_rate(width, user.tokens_per_update(tokens))
    paper = paper_peak(width, user.warmup_steps or _warmup_steps(length.planned(tokens, user)))
    reason = "the paper's for this width and warmup" if paper <= limit else "the highest that is stable for this width"
    return AutomaticSetting("training.schedule.learning_rate", _two_digits(min(paper, limit)), reason)


def fine_tuning_settings(tokens: float, user: UserSettings) -> list[AutomaticSetting]:
    """Settings for training that starts from a translator or language model: a low learning rate and few epochs."""
    factor = LORA_FACTOR if user.lora else FINE_TUNING_FACTOR
    learning_rate = factor * max_learning_rate(user.width or 512, user.tokens_per_update(tokens))
    reason = "higher than for all weights, which LoRA leaves alone" if user.lora else ""
    epochs = min(10, max(2, 1_000_000 / max(1, tokens)))
    return [
        AutomaticSetting("training.schedule.kind", "cosine", "decays to zero, so that the last steps are small"),
        AutomaticSetting(
            "training.schedule.learning_rate",
            _two_digits(learning_rate),
            reason or "low, to keep most of what the model has learned",
        ),
        *length_settings(tokens, RunLength(epochs, min_steps=50, max_epochs=epochs), user),
    ]


def _two_digits(number: float) -> float:
    return float(f"{number:.1e}")


def _warmup_steps(planned: int) -> int:
    return max(1, min(4000, round_to_two_digits(planned / 10))) if planned >= 10 else 1


def length_settings(tokens: float, length: RunLength, user: UserSettings) -> list[AutomaticSetting]:
    """Batch size, steps for this many tokens and epochs, and what follows: warmup, validation and patience."""
    planned = length.planned(tokens, user)
    every = user.validation_every or min(planned, round_to_two_digits(max(10, length.min_steps / 10, planned / 20)))
    if user.budget_tokens is not None and user.validation_every is None:  # a validation is a third of its training
        times = min(20, max(2, round(3 * planned / user.batches_per_epoch(tokens))))
        every = max(1, round_to_two_digits(max(1, planned / times)))
    times = max(1, planned // every)
    patience = max(2, round(times / 4))
    batch_tokens = automatic_batch_tokens(tokens, user.budget_tokens)
    batches = AutomaticSetting("training.batch_tokens", batch_tokens, "gives little data or time several updates")
    return [
        *([batches] if batch_tokens < DEFAULT_BATCH_TOKENS else []),
        *_step_settings(tokens, length, user),
        AutomaticSetting(
            "training.schedule.warmup_steps", _warmup_steps(planned), "a tenth of the steps, at most the paper's 4,000"
        ),
        AutomaticSetting("validation.every", every, "once per run" if times == 1 else f"about {times} times per run"),
        AutomaticSetting(
            "training.patience", patience, f"stop after {patience} validations in a row without improvement"
        ),
        AutomaticSetting("training.average_checkpoints", 5, "as in the paper"),
    ]


def _step_settings(tokens: float, length: RunLength, user: UserSettings) -> list[AutomaticSetting]:
    def epochs(steps: int) -> str:
        passes = max(1, round(steps / user.batches_per_epoch(tokens)))
        return f"{passes:,} epoch{'s' if passes > 1 else ''}"

    if user.minutes is None:
        steps = length.steps(tokens, user)
        if user.epochs is not None:
            planned = length.planned(tokens, user)
            reason = f"the limit for this amount of data; {user.epochs:g} epochs are about {planned:,} steps"
            return [AutomaticSetting("training.steps", steps, reason)]
        return [AutomaticSetting("training.steps", steps, f"about {epochs(steps)}")]
    limit, planned = length.limit(tokens, user), length.planned(tokens, user)
    reason = f"{user.minutes:g} minutes at the speed that was measured"
    if user.budget_tokens is None:
        reason = "until training has measured its speed"
    elif planned == limit:
        reason = "more would overfit, so that the run will end before its time"
    return [
        AutomaticSetting("training.steps", limit, f"at most {epochs(limit)}, however fast this machine is"),
        AutomaticSetting("training.planned_steps", planned, f"about {epochs(planned)}: {reason}"),
    ]


def vocab_setting(characters: int, tokenizer: str, largest: int = 32_000) -> AutomaticSetting:
    """The vocabulary size: from 2,000 for less than a million characters to the largest."""
    bounds = ((2000, 1e6), (4000, 3e6), (8000, 3e7), (16_000, 3e8), (32_000, 3e9))
    size = next((size for size, most in bounds if characters <= most), largest)
    if tokenizer == "character":
        reason = "an upper bound: the tokenizer has one token per distinct character"
    else:
        reason = f"suits {characters:,} characters of {'words' if tokenizer == 'word' else 'subwords'}"
    return AutomaticSetting("model.vocab_size", size, reason)


def validation_split(
    examples: int, what: str, user: UserSettings, max_fraction: float = 0.05
) -> list[AutomaticSetting]:
    """The fraction of the data to validate on, at most about 2,000 examples, unless the user has validation data."""
    if user.has_validation_data:
        return []
    fraction = round(min(max_fraction, 2000 / max(1, examples)), 6)
    return [
        AutomaticSetting(
            "data.validation_fraction", fraction, f"about {fraction * examples:,.0f} {what} for validation"
        )
    ]


def round_to_two_digits(number: float) -> int:
    """Round to two significant digits.

    >>> round_to_two_digits(12_345)
    12000
    """
    scale = int(10 ** max(0, math.floor(math.log10(number)) - 1))
    return round(number / scale) * scale
