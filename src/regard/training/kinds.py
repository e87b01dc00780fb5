"""Which kind of training suits a network."""

from collections.abc import Sequence

from regard.config import Config, ConfigSource, EncoderConfig, unchecked_value, validate_sources
from regard.errors import ConfigError
from regard.training.bidirectional import BidirectionalKind
from regard.training.classification import ClassificationKind
from regard.training.language import LanguageKind
from regard.training.masked import MaskedKind
from regard.training.tagging import TaggingKind
from regard.training.task import Task
from regard.training.translation import TranslationKind

KINDS: dict[str, Task] = {  # by the task that a network is for
    "translation": TranslationKind(),
    "language": LanguageKind(),
    "bidirectional": BidirectionalKind(),
    "masked": MaskedKind(),
    "classification": ClassificationKind(),
    "tagging": TaggingKind(),
}
COMMANDS = {  # what `regard train` calls them
    "translation": "translation",
    "language": "gpt",
    "bidirectional": "elmo",
    "masked": "masked",
    "classification": "classify",
    "tagging": "tag",
}


def check_command(config: Config, what: str) -> None:
    """Complain where `regard train WHAT` would train something else, because of settings or what it starts from."""
    task = config.model.task
    if COMMANDS[task] == what:
        return
    head = f" with model.head = {config.model.head.kind!r}" if isinstance(config.model, EncoderConfig) else ""
    other = "give other settings" if config.training.start_from is None else "start from another model"
    raise ConfigError(
        f"regard train {what}: model.kind = {config.model.kind!r}{head} is for regard train {COMMANDS[task]}; "
        f"use that, or {other}."
    )


def task_of(config: Config) -> Task:
    """What is trained follows from the network."""
    if config.model.task in KINDS:
        return KINDS[config.model.task]
    raise ConfigError(
        f"model.kind = {config.model.kind!r} without a model.head predicts nothing, so it cannot be trained; "
        "set model.head to 'tokens', 'classes' or 'tags'."
    )


def task_in_sources(sources: Sequence[ConfigSource]) -> Task | None:
    """What is trained, as far as sources say, whatever else may be wrong with them."""
    said = {
        name: value for name in ("kind", "head") if (value := unchecked_value(sources, f"model.{name}")) is not None
    }
    try:
        return KINDS.get(validate_sources([ConfigSource("", {"model": said})]).model.task)
    except ConfigError:
        return None
