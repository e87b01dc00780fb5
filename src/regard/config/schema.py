"""Everything that can be set, in one tree."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from regard.config.model import EncoderDecoder, ModelConfig, Settings

TokenId = Annotated[int, Field(ge=0)]


class SpecialTokens(Settings):
    """The ids of the tokens that are not text."""

    pad: TokenId = 0
    unknown: TokenId = 1
    start: TokenId = 2
    end: TokenId = 3


class Config(Settings):
    """The root of all settings.

    >>> Config().model.width
    512
    """

    model: ModelConfig = EncoderDecoder()
    tokens: SpecialTokens = Field(default=SpecialTokens(), validate_default=True)

    @field_validator("tokens")
    @classmethod
    def _tokens_are_in_the_vocabulary(cls, tokens: SpecialTokens, info: ValidationInfo) -> SpecialTokens:
        model = info.data.get("model")
        if model is not None:
            size = max(model.vocabulary, getattr(model, "target_vocabulary", None) or 0)
            for name, number in tokens:
                if number >= size:
                    raise ValueError(f"tokens.{name} = {number} is past the last token of model.vocabulary = {size}")
        return tokens
