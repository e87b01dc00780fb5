"""Settings of Transformers; `attention` and `positions` have those of their parts.

The defaults are those of the base model of "Attention Is All You Need". A variant is a table with a `kind`:
`positions = { kind = "learned", max_length = 512 }`. A variant whose other settings keep their defaults can be given by
its name: `positions = "learned"`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.attention import AttentionConfig, FullAttentionConfig, WindowAttentionConfig
from regard.config.base import BaseConfig, Count, Depth, PositiveFloat, Probability, Size
from regard.config.network import EncoderConfig, NetworkConfig, check_shared_vocabulary
from regard.config.positions import (
    PositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
)
from regard.registry import Activation


class TransformerConfig(NetworkConfig):
    """Settings of every Transformer: encoder-decoder, decoder-only or encoder-only."""

    kind: str
    """Name of the network."""
    vocab_size: Size = 37_000
    """Number of tokens in the vocabulary (§5.1: a shared vocabulary of about 37,000)."""
    width: Size = 512
    """d_model: size of the hidden states."""
    layers: Depth = 6
    """N: layers per stack."""
    value_width: Size | None = None
    """d_v: size of values per head; `width / heads` by default."""
    heads: Size = 8
    """h: attention heads."""
    kv_heads: Size | None = None
    """Key and value heads; `heads` by default. With fewer, consecutive query heads share one (grouped-query attention,
    Ainslie et al. 2023; one: multi-query attention)."""
    key_width: Size | None = None
    """d_k: size of queries and keys per head; that of values by default (Table 3, row B)."""
    feed_forward: Annotated[int, Field(ge=0, le=2**24)] = 2048
    """d_ff: hidden units of the feed-forward layers; 0 removes these layers."""
    activation: Literal[Activation, "swiglu", "geglu", "geglu-tanh"] = "relu"
    """Activation function of the feed-forward layers; `relu2` is the square of `relu` (So et al. 2021), and `swiglu`,
    `geglu` and `geglu-tanh` have gates (Shazeer 2020)."""
    experts: Annotated[int, Field(ge=0, le=4096)] = 0
    """Mixture of experts: number of feed-forward layers in each layer, of which a router chooses some for each token; 0
    or 1: a single one, without a router."""
    experts_per_token: Annotated[int, Field(ge=0, le=4096)] = Field(default=2, validate_default=True)
    """Experts that each token uses; their probabilities are divided by their sum, as in Mixtral (Jiang et al. 2024)."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """Normalization: LayerNorm, RMSNorm or none."""
    norm_order: Literal["post", "pre"] = "post"
    """`post`: LayerNorm(x + Sublayer(x)), as in the paper; `pre`: x + Sublayer(LayerNorm(x)) and a final norm."""
    sandwich_norm: bool = Field(default=False, validate_default=True)
    """Whether the output of a pre-norm sublayer is normalized too, before it is added (Ding et al. 2021)."""
    first_norm: bool = True
    """Whether the first sublayer of a pre-norm stack normalizes its input; turn off where embeddings are normalized."""
    parallel_sublayers: bool = False
    """Whether all sublayers of a layer read its input, and their outputs are added (Wang & Komatsuzaki 2021)."""
    norm_epsilon: PositiveFloat = 1e-5
    """Added to the variance in the norms for numerical stability."""
    norm_affine: bool = True
    """Whether norms have learned gains, and LayerNorm also biases; without them they only normalize."""
    qk_norm: bool = False
    """Whether queries and keys are RMS-normalized in each head, before they are rotated (Henry et al. 2020); with
    `norm_affine`, a layer has a gain for each unit of a query and of a key, the same in all heads."""
    zero_output: bool = False
    """Whether the output matrices of attention and feed-forward layers start at zero, so that at first each layer adds
    nothing."""
    embedding_norm: bool = False
    """Whether the sum of token and position embeddings is normalized (BERT)."""
    residual: bool = True
    """Whether sublayers have residual connections; turn off for experiments."""
    positions: PositionsConfig = Field(default_factory=SinusoidalPositionsConfig)
    """Position scheme: `sinusoidal`, `learned`, `rotary`, `alibi`, `relative`, `syntax`, `none` or a registered one."""
    attention: AttentionConfig = Field(default_factory=FullAttentionConfig)
    """Self-attention kernel: `full`, `window`, `bigbird`, `linformer` or a registered one."""
    dropout: Probability = 0.1
    """Dropout on the output of each sublayer and on the embeddings (§5.4)."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout on the hidden units of the feed-forward layers."""
    attention_bias: bool | Literal["qkv"] = False
    """Whether the four projections of attention have biases; the paper's have none. `qkv`: all but the output."""
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by √width (§3.4)."""
    scale_scores: bool = True
    """Whether attention scores are divided by √d_k (§3.2.1); turn off for experiments."""
    attention_soft_cap: PositiveFloat | None = None
    """c: attention scores x become c · tanh(x / c), between −c and c (Gemma Team 2024); none by default."""

    @field_validator("heads")
    @classmethod
    def _check_heads_divide_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("width")
        if width is None or width % heads == 0 or info.data.get("value_width") is not None:
            return heads
        below = next((n for n in range(min(heads, width), 0, -1) if width % n == 0), 1)
        above = next((n for n in range(heads, min(width, 10 * heads) + 1) if width % n == 0), None)
        nearest = " or ".join(str(n) for n in (below, above) if n is not None)
        raise ValueError(f"does not divide model.width = {width}: use {nearest}")

    @field_validator("kv_heads")
    @classmethod
    def _check_kv_heads_divide_heads(cls, kv_heads: int | None, info: ValidationInfo) -> int | None:
        heads = info.data.get("heads")
        if kv_heads is None or heads is None or heads % kv_heads == 0:
            return kv_heads
        below = next(n for n in range(min(kv_heads, heads), 0, -1) if heads % n == 0)
        above = next((n for n in range(kv_heads, heads + 1) if heads % n == 0), None)
        nearest = " or ".join(str(n) for n in (below, above) if n is not None)
        raise ValueError(f"does not divide model.heads = {heads}: use {nearest}")

    @field_validator("experts")
    @classmethod
    def _check_experts_have_units(cls, experts: int, info: ValidationInfo) -> int:
        if experts > 1 and info.data.get("feed_forward") == 0:
            raise ValueError(
                f"{experts} experts are feed-forward layers, but model.feed_forward = 0 removes these: set the hidden "
                "units of an expert"
            )
        return experts

    @field_validator("experts_per_token")
    @classmethod
    def _check_experts_exist(cls, per_token: int, info: ValidationInfo) -> int:
        experts = info.data.get("experts", 0)
        if experts > 1 and per_token < 2:
            raise ValueError("leaves one gate, which is 1 whatever the router computes, so that it never learns: use 2")
        if experts > 1 and per_token > experts:
            raise ValueError(f"is more than model.experts = {experts}: use at most {experts}")
        return per_token

    @field_validator("positions")
    @classmethod
    def _check_rotary_size_is_even(cls, positions: PositionsConfig, info: ValidationInfo) -> PositionsConfig:
        width, heads, value_width, key_width = (
            info.data.get(name) for name in ("width", "heads", "value_width", "key_width")
        )
        size = f"width / model.heads = {width // heads}" if width and heads else ""
        size = f"key_width = {key_width}" if key_width else f"value_width = {value_width}" if value_width else size
        rotated = key_width or value_width or (width // heads if width and heads else 0)
        if isinstance(positions, RotaryPositionsConfig) and positions.rotated_width is None and rotated % 2:
            raise ValueError(
                f"rotates pairs of entries, but model.{size} is odd: set model.key_width to an even number"
            )
        return positions

    @field_validator("sandwich_norm")
    @classmethod
    def _check_outputs_are_added(cls, sandwich_norm: bool, info: ValidationInfo) -> bool:
        if sandwich_norm and info.data.get("norm_order") == "post":
            raise ValueError(
                "is for model.norm_order = 'pre'; with 'post' every output is normalized after the addition"
            )
        return sandwich_norm

    @field_validator("positions")
    @classmethod
    def _check_rotated_units_exist(cls, positions: PositionsConfig, info: ValidationInfo) -> PositionsConfig:
        width, heads, value_width, key_width = (
            info.data.get(name) for name in ("width", "heads", "value_width", "key_width")
        )
        available = key_width or value_width or (width // heads if width and heads else None)
        if isinstance(positions, RotaryPositionsConfig) and available and (positions.rotated_width or 0) > available:
            raise ValueError(
                f"rotates model.positions.rotated_width = {positions.rotated_width} units, but queries have {available}"
            )
        return positions

    @field_validator("positions")
    @classmethod
    def _check_embeddings_have_units(cls, positions: PositionsConfig, info: ValidationInfo) -> PositionsConfig:
        width = info.data.get("width")
        if width is not None and positions.appended_width(width) >= width:
            raise ValueError(
                f"model.positions.width = {positions.appended_width(width)} leaves no unit of model.width = {width} to "
                "the embeddings: use a smaller model.positions.width, or combine = 'add'"
            )
        return positions

    @field_validator("positions")
    @classmethod
    def _check_source_is_parsed(cls, positions: PositionsConfig) -> PositionsConfig:
        if positions.needs_parses and not cls.translates:
            raise ValueError(
                f"model.positions.kind = {positions.kind!r} needs a parsed source sentence, which only a translator "
                "has: use model.kind = 'encoder-decoder', or other positions"
            )
        return positions

    @field_validator("attention")
    @classmethod
    def _check_distances_exist(cls, attention: AttentionConfig, info: ValidationInfo) -> AttentionConfig:
        positions = info.data.get("positions")
        if positions is not None and positions.uses_distances and not attention.keeps_positions:
            raise ValueError(
                f"model.attention.kind = {attention.kind!r} attends to mixtures of positions, but "
                f"model.positions.kind = {positions.kind!r} needs the distance between positions: "
                "use sinusoidal, learned, rotary or none"
            )
        return attention

    @property
    def max_length(self) -> int | None:
        """Longest sequence that the network accepts; None if there is no limit."""
        limits = (getattr(part, "max_length", None) for part in (self.positions, self.attention))
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def extrapolates(self) -> bool:
        """Whether the network works well on longer sequences; rotary positions do so with window attention."""
        attention = self.attention
        is_local = isinstance(attention, WindowAttentionConfig) and not attention.full_layers
        return self.positions.extrapolates or (isinstance(self.positions, RotaryPositionsConfig) and is_local)

    @property
    def embedding_width(self) -> int:
        """Size of the token embeddings: `width`, without the units that concatenated positions have."""
        return self.width - self.positions.appended_width(self.width)

    @property
    def head_width(self) -> int:
        """d_v: size of a head's values; also d_k unless `key_width` is set."""
        return self.value_width or self.width // self.heads


class AutoregressiveConfig(BaseConfig):
    """Settings of networks that predict the next token."""

    tie_output: bool = Field(default=True, validate_default=True)
    """Whether the output projection is the embedding matrix of the predicted tokens (§3.4)."""
    output_bias: bool = False
    """Whether the logits have a bias per token."""
    logit_soft_cap: PositiveFloat | None = None
    """c: logits x become c · tanh(x / c), between −c and c (Gemma Team 2024); none by default."""
    causal_mask: bool = True
    """Whether a position attends only to itself and earlier positions; turn off for experiments."""

    @field_validator("tie_output")
    @classmethod
    def _check_output_is_as_wide_as_embeddings(cls, tied: bool, info: ValidationInfo) -> bool:
        width, positions = info.data.get("width"), info.data.get("positions")
        if tied and width and positions is not None and positions.appended_width(width):
            raise ValueError(
                f"needs embeddings of model.width = {width}, but with model.positions.combine = 'concatenate' they "
                f"have {width - positions.appended_width(width)} units: set model.tie_output = false"
            )
        return tied


class EncoderDecoderConfig(AutoregressiveConfig, TransformerConfig):
    """The full Transformer of the paper: an encoder for the source, a decoder for the target."""

    family: ClassVar[str] = "encoder-decoder Transformer"
    translates: ClassVar[bool] = True
    default_task: ClassVar[str] = "translation"
    kind: Literal["encoder-decoder"] = "encoder-decoder"
    """Name of the network."""
    decoder_layers: Depth | None = None
    """Layers of the decoder; `layers` by default."""
    share_embeddings: bool = True
    """Whether source and target use the same embedding matrix (§3.4); needs one vocabulary."""
    target_vocab_size: Size | None = None
    """Number of tokens in the decoder's vocabulary; `vocab_size` by default."""

    _check_sharing = field_validator("target_vocab_size")(check_shared_vocabulary)

    @field_validator("attention")
    @classmethod
    def _check_tree_distances_exist(cls, attention: AttentionConfig, info: ValidationInfo) -> AttentionConfig:
        positions = info.data.get("positions")
        if isinstance(positions, SyntaxPositionsConfig) and positions.distance and not attention.keeps_positions:
            raise ValueError(
                f"model.attention.kind = {attention.kind!r} attends to mixtures of positions, which have no distance "
                "in a tree: set model.positions.distance = false, or use other attention"
            )
        return attention

    @property
    def needs_parses(self) -> bool:
        """Whether each source sentence must come with a dependency parse."""
        return self.positions.needs_parses


class DecoderOnlyConfig(AutoregressiveConfig, TransformerConfig):
    """A language model: the decoder without cross-attention (GPT)."""

    family: ClassVar[str] = "decoder-only Transformer"
    generates: ClassVar[bool] = True
    default_task: ClassVar[str] = "gpt"
    kind: Literal["decoder-only"] = "decoder-only"
    """Name of the network."""

    @field_validator("attention")
    @classmethod
    def _check_attention_is_causal(cls, attention: AttentionConfig) -> AttentionConfig:
        if not attention.causal:
            raise ValueError(
                f"model.attention.kind = {attention.kind!r} attends to later positions, which a decoder must not: "
                "use 'window' or 'full'"
            )
        return attention


class EncoderOnlyConfig(EncoderConfig, TransformerConfig):
    """A text encoder: a vector per token and one per text (BERT)."""

    family: ClassVar[str] = "encoder-only Transformer"
    default_task: ClassVar[str] = "masked"
    kind: Literal["encoder-only"] = "encoder-only"
    """Name of the network."""
    segments: Count = 0
    """Number of segment embeddings, which distinguish the texts of a pair; BERT has 2."""

    @property
    def fills_masks(self) -> bool:
        """Whether the network has a head that predicts masked tokens."""
        return self.head.kind == "tokens"
