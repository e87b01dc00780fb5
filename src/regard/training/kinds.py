"""Which kind of training suits a network."""

from regard.config import Config
from regard.errors import ConfigError
from regard.training.language import LanguageKind
from regard.training.task import Kind
from regard.training.translation import TranslationKind

KINDS: dict[str, Kind] = {  # by model.kind
    "encoder-decoder": TranslationKind(),
    "decoder-only": LanguageKind(),
    "recurrent-encoder-decoder": TranslationKind(),
    "recurrent-language-model": LanguageKind(),
}


def kind_of(config: Config) -> Kind:
    """What is trained follows from the network."""
    if config.model.kind not in KINDS:
        raise ConfigError(
            f"model.kind = {config.model.kind!r} cannot be trained yet; use 'encoder-decoder' or 'decoder-only'."
        )
    return KINDS[config.model.kind]
