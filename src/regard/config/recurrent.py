"""Settings of recurrent networks: translators with and without attention, language models, ELMo."""

from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import Depth, Probability, Size
from regard.config.network import EncoderConfig, HeadConfig, NetworkConfig, TokenHeadConfig, check_shared_vocabulary


class RecurrentConfig(NetworkConfig):
    """Settings of every recurrent network."""

    default_max_grad_norm: ClassVar[float] = 1.0  # gradients explode over many steps (Pascanu et al. 2013)
    kind: str
    """Name of the network."""
    vocab_size: Size = 37_000
    """Number of tokens in the vocabulary."""
    width: Size = 512
    """Size of embeddings and hidden states."""
    layers: Depth = 2
    """Stacked recurrent layers; of an encoder-decoder, in each of the two."""
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    """Recurrent cell: vanilla RNN (tanh), LSTM or GRU."""
    dropout: Probability = 0.1
    """Dropout on the input of each layer and the output of the last; not on recurrent connections."""
    tie_output: bool = True
    """Whether the output projection is the embedding matrix of the predicted tokens."""
    output_bias: bool = False
    """Whether the logits have a bias per token."""


class RecurrentEncoderDecoderConfig(RecurrentConfig):
    """A recurrent translator: the decoder starts from the final encoder state, with or without attention."""

    family: ClassVar[str] = "recurrent encoder-decoder"
    translates: ClassVar[bool] = True
    default_task: ClassVar[str] = "translation"
    kind: Literal["recurrent-encoder-decoder"] = "recurrent-encoder-decoder"
    """Name of the network."""
    bidirectional: bool = Field(default=True, validate_default=True)
    """Whether the encoder is bidirectional, with half of the width per direction."""
    attention: Literal["none", "additive", "dot", "general"] = "additive"
    """Attention score of states s and h: vᵀ tanh(W s + U h), sᵀ h, or sᵀ W h; `none` has no attention."""
    attention_order: Literal["before", "after"] | None = None
    """Attention `before` each step, as its input (Bahdanau), or `after` it, for the prediction (Luong); by default
    additive attention comes before and the others after."""
    decoder_layers: Depth | None = None
    """Layers of the decoder; `layers` by default."""
    share_embeddings: bool = True
    """Whether source and target use the same embedding matrix; needs one vocabulary."""
    target_vocab_size: Size | None = None
    """Number of tokens in the decoder's vocabulary; `vocab_size` by default."""

    @field_validator("bidirectional")
    @classmethod
    def _check_width_is_even(cls, bidirectional: bool, info: ValidationInfo) -> bool:
        width = info.data.get("width")
        if bidirectional and width is not None and width % 2:
            raise ValueError(f"needs an even model.width, not {width}: use {width + 1}, or set bidirectional = false")
        return bidirectional

    _check_sharing = field_validator("target_vocab_size")(check_shared_vocabulary)

    @field_validator("attention_order")
    @classmethod
    def _check_has_attention(cls, order: str | None, info: ValidationInfo) -> str | None:
        if order is not None and info.data.get("attention") == "none":
            raise ValueError("has no effect, since model.attention is none: choose additive, dot or general")
        return order

    @property
    def attention_timing(self) -> Literal["before", "after"]:
        """Whether the decoder attends to the source before or after each step."""
        return self.attention_order or ("before" if self.attention == "additive" else "after")

    @property
    def has_alignment(self) -> bool:
        """Whether attention aligns the output with the source."""
        return self.attention != "none"


class RecurrentLanguageModelConfig(RecurrentConfig):
    """A recurrent language model."""

    family: ClassVar[str] = "recurrent language model"
    generates: ClassVar[bool] = True
    default_task: ClassVar[str] = "gpt"
    kind: Literal["recurrent-language-model"] = "recurrent-language-model"
    """Name of the network."""


class BidirectionalLanguageModelConfig(EncoderConfig, RecurrentConfig):
    """A text encoder of a forward and a backward language model whose layers are mixed (ELMo)."""

    family: ClassVar[str] = "bidirectional language model"
    default_task: ClassVar[str] = "elmo"
    kind: Literal["bidirectional-language-model"] = "bidirectional-language-model"
    """Name of the network."""
    width: Size = 512
    """Size of a token's vector: half of it per direction; embeddings have half of it."""
    layers: Depth = 2
    """Stacked recurrent layers per direction; the mixture also includes the embedding."""
    dropout: Probability = 0.1
    """Dropout on the output of the embedding and of each layer; not on recurrent connections."""
    head: HeadConfig = TokenHeadConfig()
    """Prediction head: next and previous tokens (`tokens`), text classes (`classes`), word tags (`tags`) or `none`."""

    @field_validator("width")
    @classmethod
    def _check_width_is_even(cls, width: int) -> int:
        if width % 2:
            raise ValueError(f"should be even, with half of it per direction: use {width + 1}")
        return width
