"""The settings of a network. The defaults are those of the base model of "Attention Is All You Need".

A variant is a table with a `kind`: `positions = { kind = "learned", length = 512 }`. A variant whose other settings
may keep their defaults can be given by its name alone: `positions = "learned"`.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

Size = Annotated[int, Field(gt=0, le=2**24)]  # past that, it is a slip of the finger
Depth = Annotated[int, Field(gt=0, le=1000)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """A table of settings: nothing unknown is accepted, nothing is converted silently, nothing changes later."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class SinusoidalPositions(Settings):
    """Sines and cosines of geometrically growing wavelengths, added to the embeddings (§3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = "interleaved"
    """`interleaved` sin, cos, sin, cos … as the paper writes it; `halves` all sines, then all cosines."""


class LearnedPositions(Settings):
    """One learned vector per position, added to the embeddings; no position past the last one."""

    kind: Literal["learned"] = "learned"
    length: Size = 512
    """How many positions are learned: the longest sequence the network can read."""


class NoPositions(Settings):
    """No positions: self-attention cannot tell a sentence from its reorderings."""

    kind: Literal["none"] = "none"


def variant(default: str) -> BeforeValidator:
    """Accept a variant's name for its table, and take a table that names no kind to be of the default kind."""

    def complete(value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        return {"kind": default, **value} if isinstance(value, dict) else value

    return BeforeValidator(complete)


PositionsConfig = Annotated[
    SinusoidalPositions | LearnedPositions | NoPositions, Field(discriminator="kind"), variant("sinusoidal")
]


class NetworkConfig(Settings):
    """What the rest of the house asks of any network's settings."""

    translates: ClassVar[bool] = False  # whether it reads one text and writes another
    continues: ClassVar[bool] = False  # whether it goes on with a text
    usual_clip: ClassVar[float] = 0.0  # what training.clip is where nothing is said

    @property
    def longest(self) -> int | None:
        """The longest sequence the network can read; None: any."""
        return None

    @property
    def aligns(self) -> bool:
        """Whether what it writes can be traced to where it looked."""
        return self.translates


class TransformerConfig(NetworkConfig):
    """What every Transformer has, whichever of its two stacks it keeps."""

    kind: str
    """Which of the networks this is."""
    vocabulary: Size = 37_000
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
    positions: PositionsConfig = SinusoidalPositions()
    """How order reaches the network."""
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

    @property
    def longest(self) -> int | None:
        """The longest sequence the network can read; None: any."""
        return self.positions.length if isinstance(self.positions, LearnedPositions) else None

    @property
    def head_width(self) -> int:
        """d_v, the width of a head's values; also d_k unless `key_width` says otherwise."""
        return self.width // self.heads


class Predicts(Settings):
    """What a network has that ends in a distribution over the next token."""

    share_output: bool = True
    """The pre-softmax projection is the embedding matrix of the tokens it predicts (§3.4)."""
    output_bias: bool = False
    """A bias per token on the logits."""
    look_ahead_mask: bool = True
    """A position sees only itself and what is before it; off, to see a decoder cheat."""


def sharing_needs_one_vocabulary(size: int | None, info: ValidationInfo) -> int | None:
    """Let a `target_vocabulary` differ only where embeddings are not shared."""
    vocabulary = info.data.get("vocabulary")
    if size not in (None, vocabulary) and info.data.get("share_embeddings"):
        raise ValueError(f"differs from model.vocabulary = {vocabulary}: set model.share_embeddings = false")
    return size


class EncoderDecoder(Predicts, TransformerConfig):
    """The whole Transformer of the paper: one stack reads, the other writes."""

    family: ClassVar[str] = "encoder-decoder Transformer"
    translates: ClassVar[bool] = True
    kind: Literal["encoder-decoder"] = "encoder-decoder"
    decoder_layers: Depth | None = None
    """Layers of the decoder, where they should differ from `layers`."""
    share_embeddings: bool = True
    """Source and target use one embedding matrix (§3.4); needs one vocabulary."""
    target_vocabulary: Size | None = None
    """Tokens known to the decoder, where they differ from `vocabulary`."""

    _sharing = field_validator("target_vocabulary")(sharing_needs_one_vocabulary)


class DecoderOnly(Predicts, TransformerConfig):
    """A language model: the decoder alone, without cross-attention (GPT)."""

    family: ClassVar[str] = "decoder-only Transformer"
    continues: ClassVar[bool] = True
    kind: Literal["decoder-only"] = "decoder-only"


class EncoderOnly(TransformerConfig):
    """A text encoder: a vector per token, and one for the whole text (BERT)."""

    family: ClassVar[str] = "encoder-only Transformer"
    kind: Literal["encoder-only"] = "encoder-only"
    segments: Annotated[int, Field(ge=0)] = 0
    """Learned vectors telling first text from second, where two are read at once; BERT has 2."""
    pooling: Literal["mean", "first", "first-dense"] = "mean"
    """One vector for the text: the mean over its tokens, the first token's, or that one through a dense tanh layer."""


class RecurrentConfig(NetworkConfig):
    """What every recurrent network has."""

    usual_clip: ClassVar[float] = 1.0  # gradients explode through many steps (Pascanu et al. 2013)
    kind: str
    """Which of the networks this is."""
    vocabulary: Size = 37_000
    """Tokens known to the network."""
    width: Size = 512
    """The width of embeddings and states."""
    layers: Depth = 2
    """Recurrent layers, one on top of the other; of an encoder-decoder, in each of the two."""
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    """What happens at each step: h = tanh(W h + W x), a long short-term memory, or a gated recurrent unit."""
    dropout: Rate = 0.1
    """On what goes into each layer and on what comes out of the last; never from step to step."""
    share_output: bool = True
    """The pre-softmax projection is the embedding matrix of the tokens it predicts."""
    output_bias: bool = False
    """A bias per token on the logits."""


class RecurrentEncoderDecoder(RecurrentConfig):
    """A recurrent translator: the decoder starts where the encoder ended, and looks back if it has attention."""

    family: ClassVar[str] = "recurrent encoder-decoder"
    translates: ClassVar[bool] = True
    kind: Literal["recurrent-encoder-decoder"] = "recurrent-encoder-decoder"
    bidirectional: bool = Field(default=True, validate_default=True)
    """Half of the encoder's width reads from the end to the beginning."""
    attention: Literal["none", "additive", "dot", "general"] = "additive"
    """The score of states s and h: vᵀ tanh(W s + U h), sᵀ h, or sᵀ W h; `none`: the decoder cannot look back."""
    share_embeddings: bool = True
    """Source and target use one embedding matrix; needs one vocabulary."""
    target_vocabulary: Size | None = None
    """Tokens known to the decoder, where they differ from `vocabulary`."""

    @field_validator("bidirectional")
    @classmethod
    def _two_directions_need_two_halves(cls, both: bool, info: ValidationInfo) -> bool:
        width = info.data.get("width")
        if both and width is not None and width % 2:
            raise ValueError(f"needs an even model.width, not {width}: use {width + 1}, or set bidirectional = false")
        return both

    _sharing = field_validator("target_vocabulary")(sharing_needs_one_vocabulary)

    @property
    def aligns(self) -> bool:
        """A decoder that cannot look back leaves no trace."""
        return self.attention != "none"


class RecurrentLanguageModel(RecurrentConfig):
    """A recurrent language model: its state is all it remembers."""

    family: ClassVar[str] = "recurrent language model"
    continues: ClassVar[bool] = True
    kind: Literal["recurrent-language-model"] = "recurrent-language-model"


ModelConfig = Annotated[
    EncoderDecoder | DecoderOnly | EncoderOnly | RecurrentEncoderDecoder | RecurrentLanguageModel,
    Field(discriminator="kind"),
    variant("encoder-decoder"),
]
