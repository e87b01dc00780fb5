"""Settings that all networks share, prediction heads of text encoders, and settings of recurrent networks.

A head is a table with a `kind`, or its name alone: `head = "tokens"`, `head = { kind = "classes" }`. Recurrent networks
are translators with and without attention, language models, and ELMo.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Depth, PositiveFloat, Probability, Size, Strings, variant
from regard.registry import Activation, Pooling

LABEL_TASKS = {"classes": "classify", "tags": "tag"}  # head kind -> task


class NetworkConfig(BaseConfig):
    """Properties that the rest of the package needs of any network."""

    translates: ClassVar[bool] = False
    """Whether the network maps a source text to a target text."""
    generates: ClassVar[bool] = False
    """Whether the network continues a text."""
    default_max_grad_norm: ClassVar[float] = 0.0
    """Default of `training.max_grad_norm`."""
    default_task: ClassVar[str] = ""
    """Task that the network is trained for; of an encoder, with head = "tokens"."""

    @property
    def max_length(self) -> int | None:
        """Longest sequence that the network accepts; None if there is no limit."""
        return None

    @property
    def extrapolates(self) -> bool:
        """Whether the network works well on sequences longer than those it was trained on."""
        return True

    @property
    def has_alignment(self) -> bool:
        """Whether cross-attention aligns the output with the source."""
        return self.translates

    @property
    def task(self) -> str:
        """Task that the network is trained for; empty if it cannot be trained."""
        return self.default_task

    @property
    def fills_masks(self) -> bool:
        """Whether the network predicts masked tokens."""
        return False

    @property
    def needs_parses(self) -> bool:
        """Whether each source sentence must come with a dependency parse."""
        return False

    @property
    def uses_dropout(self) -> bool:
        """Whether any dropout is on, so that two passes in training differ."""
        return any(value > 0 for name, value in self if name.endswith("dropout"))


class NoHeadConfig(BaseConfig):
    """No head: the network returns vectors."""

    kind: Literal["none"] = "none"
    """Name of the head."""


class TokenHeadConfig(BaseConfig):
    """Token prediction: masked tokens, or of a bidirectional language model the tokens on both sides."""

    kind: Literal["tokens"] = "tokens"
    """Name of the head."""
    activation: Activation = "gelu"
    """Activation of the dense layer before the output projection."""
    norm_epsilon: PositiveFloat = 1e-5
    """Epsilon of the norm after the dense layer."""


class _LabelHeadConfig(BaseConfig):
    labels: Strings = ()
    """Labels that can be predicted; by default those of the training data, in alphabetical order."""
    dropout: Probability = 0.1
    """Dropout on the input of the last layer."""

    @field_validator("labels")
    @classmethod
    def _check_labels_are_unique(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        duplicate = next((label for n, label in enumerate(labels) if label in labels[:n]), None)
        if duplicate is not None:
            raise ValueError(f"has {duplicate!r} twice")
        return labels


class ClassHeadConfig(_LabelHeadConfig):
    """Text classification: one label per text, or per pair of texts."""

    kind: Literal["classes"] = "classes"
    """Name of the head."""


class TagHeadConfig(_LabelHeadConfig):
    """Token classification: one label per word."""

    kind: Literal["tags"] = "tags"
    """Name of the head."""


HeadConfig = Annotated[
    NoHeadConfig | TokenHeadConfig | ClassHeadConfig | TagHeadConfig, Field(discriminator="kind"), variant("none")
]


class EncoderConfig(NetworkConfig):
    """Settings of networks that encode text: a vector per token, one per text, and a prediction head."""

    head: HeadConfig = Field(default_factory=NoHeadConfig)
    """Prediction head: masked tokens (`tokens`), text classes (`classes`), word tags (`tags`) or `none`."""
    pooling: Pooling = "mean"
    """Text vector: the mean over tokens, the first token's vector, or that vector through a dense layer with tanh
    (`first-dense`, BERT) or ReLU (`first-relu`, DistilBERT)."""

    @property
    def task(self) -> str:
        """Task of the head."""
        return LABEL_TASKS.get(self.head.kind, self.default_task if self.head.kind == "tokens" else "")


def check_shared_vocabulary(size: int | None, info: ValidationInfo) -> int | None:
    """Raise ValueError if `target_vocab_size` differs from `vocab_size` while embeddings are shared."""
    vocab_size = info.data.get("vocab_size")
    if size not in (None, vocab_size) and info.data.get("share_embeddings"):
        raise ValueError(f"differs from model.vocab_size = {vocab_size}: set model.share_embeddings = false")
    return size


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
    head: HeadConfig = Field(default_factory=TokenHeadConfig)
    """Prediction head: next and previous tokens (`tokens`), text classes (`classes`), word tags (`tags`) or `none`."""

    @field_validator("width")
    @classmethod
    def _check_width_is_even(cls, width: int) -> int:
        if width % 2:
            raise ValueError(f"should be even, with half of it per direction: use {width + 1}")
        return width
