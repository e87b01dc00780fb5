"""The settings of masked-token training: which tokens are hidden from an encoder, and behind what."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from regard.config.settings import BaseConfig

Share = Annotated[float, Field(ge=0, le=1)]


class MaskingConfig(BaseConfig):
    """What is hidden; the defaults are BERT's (Devlin et al. 2019, §3.1)."""

    probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The share of a text's tokens that is hidden, to be predicted from the others; in each text, one at least."""
    mask_fraction: Share = 0.8
    """Of these, the share in whose place the mask token is read."""
    random_fraction: Share = Field(default=0.1, validate_default=True)
    """And the share in whose place a token drawn at random is read; the rest is read unchanged, and predicted too."""
    whole_words: bool = False
    """Hide all tokens of a word together, so that none can be guessed from the rest of its word."""

    @field_validator("random_fraction")
    @classmethod
    def _shares_of_one_whole(cls, random: float, info: ValidationInfo) -> float:
        masked = info.data.get("mask_fraction")
        if masked is not None and masked + random > 1 + 1e-9:
            raise ValueError(
                f"is too much with training.masking.mask_fraction = {masked}: their sum is at most 1; lower one"
            )
        return random
