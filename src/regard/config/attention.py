"""Settings of self-attention kernels."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from regard.config.base import Counts, Size, VariantConfig
from regard.registry import Registry


class AttentionConfig(VariantConfig):
    """A self-attention kernel.

    The builder is called as `build(config, model, encoder=...)` with the settings of the Transformer, and returns a
    function that makes the kernel of one layer.
    """

    default_kind: ClassVar[str] = "full"
    causal: ClassVar[bool] = True
    """Whether the kernel can hide later positions, as a decoder needs."""
    keeps_positions: ClassVar[bool] = True
    """Whether a key stands for one position, so that distances between queries and keys exist."""
    divides_heads: ClassVar[bool] = False
    """Whether tensor parallelism can divide the heads among processes: no parameters, and the same for all heads."""


ATTENTION: Registry[type[AttentionConfig]] = Registry("attention")
AttentionConfig.registry = ATTENTION


@ATTENTION.register("full")
class FullAttentionConfig(AttentionConfig):
    """Every position attends to every other position (§3.2.1)."""

    builder: ClassVar = "regard.models.assembly:build_full_attention"
    divides_heads: ClassVar[bool] = True
    kind: Literal["full"] = "full"
    """Name of the attention kernel."""


@ATTENTION.register("linformer")
class LinformerAttentionConfig(AttentionConfig):
    """Keys and values are projected along the length to a fixed number, in encoders only (Wang et al. 2020)."""

    builder: ClassVar = "regard.models.assembly:build_linformer_attention"
    causal: ClassVar[bool] = False
    keeps_positions: ClassVar[bool] = False
    kind: Literal["linformer"] = "linformer"
    """Name of the attention kernel."""
    projected_length: Size = 128
    """k: number of projected keys and values."""
    max_length: Size = 512
    """n: length of the projections, which is the longest sequence the network accepts."""
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"
    """Which projections are shared: none; across heads; across keys and values too; across layers too."""


@ATTENTION.register("bigbird")
class BigBirdAttentionConfig(AttentionConfig):
    """Blocks of positions attend to neighboring, global and random blocks, in encoders only (Zaheer et al. 2020)."""

    builder: ClassVar = "regard.models.assembly:build_bigbird_attention"
    causal: ClassVar[bool] = False
    kind: Literal["bigbird"] = "bigbird"
    """Name of the attention kernel."""
    block_size: Size = 64
    """Positions per block."""
    window_blocks: Size = 3
    """Width of the local window in blocks, centered on a position's own block; odd."""
    global_blocks: Annotated[int, Field(ge=0, le=2**24)] = 2
    """Blocks that attend to all and are attended by all, taken alternately from the start and the end of the text."""
    random_blocks: Annotated[int, Field(ge=0, le=2**24)] = 3
    """Additional random blocks that each block attends to; fixed by `seed`."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the random blocks, together with the number of blocks in the text."""

    @field_validator("window_blocks")
    @classmethod
    def _check_window_is_odd(cls, blocks: int) -> int:
        if blocks % 2 == 0:
            raise ValueError(f"should be odd, so that the window has a center: use {blocks - 1} or {blocks + 1}")
        return blocks


@ATTENTION.register("window")
class WindowAttentionConfig(AttentionConfig):
    """Each position attends to nearby positions: on both sides in an encoder, to earlier ones in a decoder."""

    builder: ClassVar = "regard.models.assembly:build_window_attention"
    divides_heads: ClassVar[bool] = True
    kind: Literal["window"] = "window"
    """Name of the attention kernel."""
    window: Size = 128
    """Number of positions visible on each side, besides the position itself."""
    full_layers: Counts = ()
    """Layers with full attention instead of a window, counted from 0."""
