"""Which kind of training suits a network."""

from regard.config import Config, DecoderOnly, EncoderDecoder
from regard.errors import ConfigError
from regard.training.language import LanguageKind
from regard.training.task import Kind
from regard.training.translation import TranslationKind


def kind_of(config: Config) -> Kind:
    """What is trained follows from the network."""
    match config.model:
        case EncoderDecoder():
            return TranslationKind()
        case DecoderOnly():
            return LanguageKind()
        case _:
            raise ConfigError(
                f"model.kind = {config.model.kind!r} cannot be trained yet; use 'encoder-decoder' or 'decoder-only'."
            )
