"""The settings of self-attention: who looks at whom."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from regard.config.base import BaseConfig, Size, variant


class FullAttentionConfig(BaseConfig):
    """Every token looks at every other (§3.2.1)."""

    kind: Literal["full"] = "full"


class LinformerAttentionConfig(BaseConfig):
    """Keys and values are mixed into a fixed number along the length, in encoders (Wang et al. 2020)."""

    kind: Literal["linformer"] = "linformer"
    projected_length: Size = 128
    """k: how many mixtures of keys, and of values, are left to look at."""
    max_length: Size = 512
    """n: how many tokens the mixtures are learned for: the longest sequence the network can read."""
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"
    """Who shares a projection: nobody; all heads; keys and values too; all layers too."""


class BigBirdAttentionConfig(BaseConfig):
    """Blocks of tokens see their neighbours, a few global and a few random blocks, in encoders (Zaheer et al. 2020)."""

    kind: Literal["bigbird"] = "bigbird"
    block_size: Size = 64
    """Tokens in a block."""
    window_blocks: Size = 3
    """Blocks around a token's own that it sees, its own included; odd."""
    global_blocks: Annotated[int, Field(ge=0, le=2**24)] = 2
    """Blocks that see all and are seen by all: the first and the last by turns, from both ends of the text."""
    random_blocks: Annotated[int, Field(ge=0, le=2**24)] = 3
    """Further blocks that each block sees, drawn once and for all from `seed`."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """What the random blocks follow from, together with the number of blocks in the text."""

    @field_validator("window_blocks")
    @classmethod
    def _has_a_middle(cls, blocks: int) -> int:
        if blocks % 2 == 0:
            raise ValueError(f"has no middle: use {blocks - 1} or {blocks + 1}")
        return blocks


class WindowAttentionConfig(BaseConfig):
    """Each token looks at those near it: on both sides in an encoder, backwards only in a decoder."""

    kind: Literal["window"] = "window"
    window: Size = 128
    """How far a token sees, in tokens to each side; it also sees itself."""


AttentionConfig = Annotated[
    FullAttentionConfig | LinformerAttentionConfig | BigBirdAttentionConfig | WindowAttentionConfig,
    Field(discriminator="kind"),
    variant("full"),
]
