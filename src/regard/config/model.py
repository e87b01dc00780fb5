"""The settings of a network. The defaults are those of the base model of "Attention Is All You Need".

A variant is a table with a `kind`: `positions = { kind = "learned", length = 512 }`. A variant whose other settings
may keep their defaults can be given by its name alone: `positions = "learned"`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.attention import (
    AttentionConfig,
    BigBirdAttentionConfig,
    FullAttentionConfig,
    LinformerAttentionConfig,
    WindowAttentionConfig,
)
from regard.config.base import BaseConfig, Depth, Rate, Size, variant
from regard.config.heads import HeadConfig, NoHeadConfig, TokenHeadConfig
from regard.config.positions import (
    AlibiPositionsConfig,
    PositionsConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
)


class NetworkConfig(BaseConfig):
    """What the rest of the house asks of any network's settings."""

    translates: ClassVar[bool] = False  # whether it reads one text and writes another
    generates: ClassVar[bool] = False  # whether it goes on with a text
    default_max_grad_norm: ClassVar[float] = 0.0  # what training.max_grad_norm is where nothing is said
    default_task: ClassVar[str] = ""  # the task that it is trained for; of an encoder, to predict tokens

    @property
    def max_length(self) -> int | None:
        """The longest sequence the network can read; None: any."""
        return None

    @property
    def extrapolates(self) -> bool:
        """Whether it reads well past the length that it was trained on."""
        return True

    @property
    def has_alignment(self) -> bool:
        """Whether what it writes can be traced to where it looked."""
        return self.translates

    @property
    def task(self) -> str:
        """What it is trained for; nothing: it cannot be trained as it is."""
        return self.default_task

    @property
    def needs_parses(self) -> bool:
        """Whether it wants a parse of each sentence beside its text."""
        return False

    @property
    def uses_dropout(self) -> bool:
        """Whether dropout makes each reading another, in training."""
        return any(value > 0 for name, value in self if name.endswith("dropout"))


class TransformerConfig(NetworkConfig):
    """What every Transformer has, whichever of its two stacks it keeps."""

    kind: str
    """Which of the networks this is."""
    vocab_size: Size = 37_000
    """Tokens known to the network (§5.1: a shared vocabulary of about 37,000)."""
    width: Size = 512
    """d_model: the width of every token's vector between the layers."""
    layers: Depth = 6
    """N: layers in a stack."""
    heads: Size = 8
    """h: attention heads; each is `width / heads` wide."""
    key_width: Size | None = None
    """d_k: the width of queries and keys in a head, where it should differ from `width / heads` (Table 3, row B)."""
    feed_forward: Annotated[int, Field(ge=0, le=2**24)] = 2048
    """d_ff: hidden units of the feed-forward layers; 0 leaves these layers out."""
    activation: Literal["relu", "gelu", "gelu-tanh", "swish", "swiglu"] = "relu"
    """The non-linearity of the feed-forward layers."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """Layer normalisation, root-mean-square normalisation (no mean, no bias), or none."""
    norm_order: Literal["post", "pre"] = "post"
    """`post`: LayerNorm(x + Sublayer(x)), the paper's. `pre`: x + Sublayer(LayerNorm(x)), and one norm at the end."""
    norm_epsilon: Annotated[float, Field(gt=0)] = 1e-5
    """Added to the variance under the root, so that a constant vector does not divide by zero."""
    embedding_norm: bool = False
    """Normalise the sum of embedding and position as well (BERT)."""
    residual: bool = True
    """Residual connections around the sub-layers; off, to see what they are for."""
    positions: PositionsConfig = SinusoidalPositionsConfig()
    """How order reaches the network."""
    attention: AttentionConfig = FullAttentionConfig()
    """Who looks at whom in self-attention; where all look at all, it costs the square of the length."""
    dropout: Rate = 0.1
    """On the output of each sub-layer and on the sum of embedding and position (§5.4)."""
    attention_dropout: Rate = 0.0
    """On the attention weights."""
    activation_dropout: Rate = 0.0
    """On the hidden units of the feed-forward layers."""
    attention_bias: bool = False
    """Biases on the four projections of attention; the paper's have none."""
    scale_embeddings: bool = True
    """Multiply embeddings by √width (§3.4)."""
    scale_scores: bool = True
    """Divide scores by √d_k (§3.2.1); off, to see softmax saturate."""

    @field_validator("heads")
    @classmethod
    def _heads_divide_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("width")
        if width is None or width % heads == 0:
            return heads
        below = next((n for n in range(min(heads, width), 0, -1) if width % n == 0), 1)
        above = next((n for n in range(heads, min(width, 10 * heads) + 1) if width % n == 0), None)
        nearest = " or ".join(str(n) for n in (below, above) if n is not None)
        raise ValueError(f"does not divide model.width = {width}: use {nearest}")

    @field_validator("positions")
    @classmethod
    def _rotary_turns_pairs(cls, positions: PositionsConfig, info: ValidationInfo) -> PositionsConfig:
        width, heads, key_width = (info.data.get(name) for name in ("width", "heads", "key_width"))
        if isinstance(positions, RotaryPositionsConfig) and width and heads and (key_width or width // heads) % 2:
            found = f"key_width = {key_width}" if key_width else f"width / model.heads = {width // heads}"
            raise ValueError(f"turns pairs of entries, and model.{found} is odd: set model.key_width to an even number")
        return positions

    @field_validator("attention")
    @classmethod
    def _mixtures_have_no_distance(cls, attention: AttentionConfig, info: ValidationInfo) -> AttentionConfig:
        positions = info.data.get("positions")
        if isinstance(attention, LinformerAttentionConfig) and isinstance(
            positions, AlibiPositionsConfig | RelativePositionsConfig
        ):
            raise ValueError(
                f"model.attention.kind = {attention.kind!r} looks at mixtures of tokens, which have no distance, and "
                f"model.positions.kind = {positions.kind!r} needs one: use sinusoidal, learned, rotary or none"
            )
        return attention

    @field_validator("positions")
    @classmethod
    def _a_tree_is_of_a_source(cls, positions: PositionsConfig) -> PositionsConfig:
        if isinstance(positions, SyntaxPositionsConfig) and not cls.translates:
            raise ValueError(
                "model.positions.kind = 'syntax' needs a source that is given with its parse, which only a translator "
                "has: use model.kind = 'encoder-decoder', or other positions"
            )
        return positions

    @property
    def max_length(self) -> int | None:
        """The longest sequence the network can read; None: any."""
        learned = [part.max_length for part in (self.positions, self.attention) if hasattr(part, "max_length")]
        return min(learned, default=None)

    @property
    def extrapolates(self) -> bool:
        """Whether it reads well past the length that it was trained on; with a window, keys are not turned further."""
        turned = isinstance(self.positions, RotaryPositionsConfig) and isinstance(self.attention, WindowAttentionConfig)
        return self.positions.extrapolates or turned

    @property
    def head_width(self) -> int:
        """d_v, the width of a head's values; also d_k unless `key_width` says otherwise."""
        return self.width // self.heads


class AutoregressiveConfig(BaseConfig):
    """What a network has that ends in a distribution over the next token."""

    tie_output: bool = True
    """The pre-softmax projection is the embedding matrix of the tokens it predicts (§3.4)."""
    output_bias: bool = False
    """A bias per token on the logits."""
    causal_mask: bool = True
    """A position sees only itself and what is before it; off, to see a decoder cheat."""


def sharing_needs_one_vocabulary(size: int | None, info: ValidationInfo) -> int | None:
    """Let a `target_vocabulary` differ only where embeddings are not shared."""
    vocabulary = info.data.get("vocab_size")
    if size not in (None, vocabulary) and info.data.get("share_embeddings"):
        raise ValueError(f"differs from model.vocab_size = {vocabulary}: set model.share_embeddings = false")
    return size


class EncoderDecoderConfig(AutoregressiveConfig, TransformerConfig):
    """The whole Transformer of the paper: one stack reads, the other writes."""

    family: ClassVar[str] = "encoder-decoder Transformer"
    translates: ClassVar[bool] = True
    default_task: ClassVar[str] = "translation"
    kind: Literal["encoder-decoder"] = "encoder-decoder"
    decoder_layers: Depth | None = None
    """Layers of the decoder, where they should differ from `layers`."""
    share_embeddings: bool = True
    """Source and target use one embedding matrix (§3.4); needs one vocabulary."""
    target_vocab_size: Size | None = None
    """Tokens known to the decoder, where they differ from `vocabulary`."""

    _sharing = field_validator("target_vocab_size")(sharing_needs_one_vocabulary)

    @field_validator("attention")
    @classmethod
    def _mixtures_have_no_place_in_a_tree(cls, attention: AttentionConfig, info: ValidationInfo) -> AttentionConfig:
        positions = info.data.get("positions")
        if (
            isinstance(attention, LinformerAttentionConfig)
            and isinstance(positions, SyntaxPositionsConfig)
            and positions.distance
        ):
            raise ValueError(
                "model.attention.kind = 'linformer' looks at mixtures of tokens, which have no distance in a tree: "
                "set model.positions.distance = false, or use other attention"
            )
        return attention

    @property
    def needs_parses(self) -> bool:
        """Syntax positions are those of a tree."""
        return isinstance(self.positions, SyntaxPositionsConfig)


class DecoderOnlyConfig(AutoregressiveConfig, TransformerConfig):
    """A language model: the decoder alone, without cross-attention (GPT)."""

    family: ClassVar[str] = "decoder-only Transformer"
    generates: ClassVar[bool] = True
    default_task: ClassVar[str] = "language"
    kind: Literal["decoder-only"] = "decoder-only"

    @field_validator("attention")
    @classmethod
    def _sees_no_future(cls, attention: AttentionConfig) -> AttentionConfig:
        if isinstance(attention, LinformerAttentionConfig | BigBirdAttentionConfig):
            asked = f"model.attention.kind = {attention.kind!r}"
            raise ValueError(f"{asked} looks ahead, which a decoder must not: use 'window' or 'full'")
        return attention


LABEL_TASKS = {"classes": "classification", "tags": "tagging"}  # what heads other than the usual one are trained for


class EncoderConfig(NetworkConfig):
    """What a network has that only reads: what is made of a vector for each token."""

    head: HeadConfig = NoHeadConfig()
    """What is predicted from the vectors: hidden tokens, a class of the text, a tag for each word, or nothing."""
    pooling: Literal["mean", "first", "first-dense"] = "mean"
    """One vector for the text: the mean over its tokens, the first token's, or that one through a dense tanh layer."""

    @property
    def task(self) -> str:
        """What the head is for."""
        return LABEL_TASKS.get(self.head.kind, self.default_task if self.head.kind == "tokens" else "")


class EncoderOnlyConfig(EncoderConfig, TransformerConfig):
    """A text encoder: a vector per token, and one for the whole text (BERT)."""

    family: ClassVar[str] = "encoder-only Transformer"
    default_task: ClassVar[str] = "masked"
    kind: Literal["encoder-only"] = "encoder-only"
    segments: Annotated[int, Field(ge=0)] = 0
    """Learned vectors telling first text from second, where two are read at once; BERT has 2."""


class RecurrentConfig(NetworkConfig):
    """What every recurrent network has."""

    default_max_grad_norm: ClassVar[float] = 1.0  # gradients explode through many steps (Pascanu et al. 2013)
    kind: str
    """Which of the networks this is."""
    vocab_size: Size = 37_000
    """Tokens known to the network."""
    width: Size = 512
    """The width of embeddings and states."""
    layers: Depth = 2
    """Recurrent layers, one on top of the other; of an encoder-decoder, in each of the two."""
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    """What happens at each step: h = tanh(W h + W x), a long short-term memory, or a gated recurrent unit."""
    dropout: Rate = 0.1
    """On what goes into each layer and on what comes out of the last; never from step to step."""
    tie_output: bool = True
    """The pre-softmax projection is the embedding matrix of the tokens it predicts."""
    output_bias: bool = False
    """A bias per token on the logits."""


class RecurrentEncoderDecoderConfig(RecurrentConfig):
    """A recurrent translator: the decoder starts where the encoder ended, and looks back if it has attention."""

    family: ClassVar[str] = "recurrent encoder-decoder"
    translates: ClassVar[bool] = True
    default_task: ClassVar[str] = "translation"
    kind: Literal["recurrent-encoder-decoder"] = "recurrent-encoder-decoder"
    bidirectional: bool = Field(default=True, validate_default=True)
    """Half of the encoder's width reads from the end to the beginning."""
    attention: Literal["none", "additive", "dot", "general"] = "additive"
    """The score of states s and h: vᵀ tanh(W s + U h), sᵀ h, or sᵀ W h; `none`: the decoder cannot look back."""
    attention_order: Literal["before", "after"] | None = None
    """`before` each step, which then reads what was seen (Bahdanau); `after` it, for the prediction alone (Luong).
    Where it is not given, additive attention looks before, the others after."""
    decoder_layers: Depth | None = None
    """Layers of the decoder, where they should differ from `layers`."""
    share_embeddings: bool = True
    """Source and target use one embedding matrix; needs one vocabulary."""
    target_vocab_size: Size | None = None
    """Tokens known to the decoder, where they differ from `vocabulary`."""

    @field_validator("bidirectional")
    @classmethod
    def _two_directions_need_two_halves(cls, both: bool, info: ValidationInfo) -> bool:
        width = info.data.get("width")
        if both and width is not None and width % 2:
            raise ValueError(f"needs an even model.width, not {width}: use {width + 1}, or set bidirectional = false")
        return both

    _sharing = field_validator("target_vocab_size")(sharing_needs_one_vocabulary)

    @field_validator("attention_order")
    @classmethod
    def _a_place_needs_attention(cls, place: str | None, info: ValidationInfo) -> str | None:
        if place is not None and info.data.get("attention") == "none":
            raise ValueError("places no attention, since model.attention is none: choose additive, dot or general")
        return place

    @property
    def attention_timing(self) -> Literal["before", "after"]:
        """When the decoder looks at the source, if it does."""
        return self.attention_order or ("before" if self.attention == "additive" else "after")

    @property
    def has_alignment(self) -> bool:
        """A decoder that cannot look back leaves no trace."""
        return self.attention != "none"


class RecurrentLanguageModelConfig(RecurrentConfig):
    """A recurrent language model: its state is all it remembers."""

    family: ClassVar[str] = "recurrent language model"
    generates: ClassVar[bool] = True
    default_task: ClassVar[str] = "language"
    kind: Literal["recurrent-language-model"] = "recurrent-language-model"


class BidirectionalLanguageModelConfig(EncoderConfig, RecurrentConfig):
    """A text encoder of two language models, one in each direction, whose layers are mixed (ELMo)."""

    family: ClassVar[str] = "bidirectional language model"
    default_task: ClassVar[str] = "bidirectional"
    kind: Literal["bidirectional-language-model"] = "bidirectional-language-model"
    width: Size = 512
    """The width of a token's vector: half of it is read forwards, half backwards, and embeddings have half of it."""
    layers: Depth = 2
    """Recurrent layers in each direction, one on top of the other; with the embedding, one more is mixed."""
    dropout: Rate = 0.1
    """On what comes out of the embedding and of each layer; never from step to step."""
    head: HeadConfig = TokenHeadConfig()
    """What is predicted: the tokens on both sides of each, a class of the text, a tag for each word, or nothing."""

    @field_validator("width")
    @classmethod
    def _two_directions_need_two_halves(cls, width: int) -> int:
        if width % 2:
            raise ValueError(f"has no half for each direction: use {width + 1}")
        return width


ModelConfig = Annotated[
    EncoderDecoderConfig
    | DecoderOnlyConfig
    | EncoderOnlyConfig
    | RecurrentEncoderDecoderConfig
    | RecurrentLanguageModelConfig
    | BidirectionalLanguageModelConfig,
    Field(discriminator="kind"),
    variant("encoder-decoder"),
]
