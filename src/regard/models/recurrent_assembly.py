"""From settings to recurrent networks."""

from collections.abc import Callable

from torch import nn

from regard import nn as rn
from regard.config import (
    BidirectionalLanguageModelConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    TokenHeadConfig,
)
from regard.models.components import output_projection, prediction_head
from regard.models.recurrent import BidirectionalLanguageModel, RecurrentEncoderDecoder, RecurrentLanguageModel
from regard.nn.embedding import embedding_matrix
from regard.nn.prediction_heads import BidirectionalLMHead
from regard.nn.recurrent import (
    AdditiveScore,
    AttendingLayer,
    DotScore,
    GeneralScore,
    GRUCell,
    LSTMCell,
    RecurrentCell,
    RecurrentLayer,
    RNNCell,
    Score,
    SourceAttention,
)
from regard.nn.recurrent_stack import BidirectionalStack, LayerMixing, RecurrentStack

RECURRENT_CELLS: dict[str, type[RecurrentCell]] = {"rnn": RNNCell, "lstm": LSTMCell, "gru": GRUCell}
ATTENTION_SCORES: dict[str, Callable[[int], Score]] = {
    "additive": AdditiveScore,
    "dot": lambda width: DotScore(),
    "general": GeneralScore,
}


def recurrent_encoder_decoder(config: RecurrentEncoderDecoderConfig) -> RecurrentEncoderDecoder:
    """Assemble the encoder-decoder network of these settings."""
    source = embedding_matrix(config.vocab_size, config.width)
    target = source
    if not config.share_embeddings:
        target = embedding_matrix(config.target_vocab_size or config.vocab_size, config.width)
    return RecurrentEncoderDecoder(
        _stack(config, source, bidirectional=config.bidirectional),
        _decoder(config, target),
        output_projection(config, target),
    )


def _decoder(config: RecurrentEncoderDecoderConfig, table: nn.Parameter) -> RecurrentStack:
    layers = config.decoder_layers or config.layers
    if config.attention == "none":
        return _stack(config, table, layers)
    before = config.attention_timing == "before"
    attention = SourceAttention(
        config.width, ATTENTION_SCORES[config.attention](config.width), others=2 if before else 1
    )
    return _stack(config, table, layers, attention=attention, attends=before)


def recurrent_language_model(config: RecurrentLanguageModelConfig) -> RecurrentLanguageModel:
    """Assemble the language model of these settings."""
    table = embedding_matrix(config.vocab_size, config.width)
    return RecurrentLanguageModel(_stack(config, table), output_projection(config, table))


def bidirectional_language_model(
    config: BidirectionalLanguageModelConfig, pooling: nn.Module
) -> BidirectionalLanguageModel:
    """Assemble the bidirectional language model of these settings; each direction has half of the width."""
    half = config.width // 2
    table = embedding_matrix(config.vocab_size, half)
    forwards, backwards = (
        [RecurrentLayer(RECURRENT_CELLS[config.cell], half, half) for _ in range(config.layers)] for _ in range(2)
    )
    embedding = rn.TokenEmbedding(table, rn.Positions(), dropout=config.dropout)
    if isinstance(config.head, TokenHeadConfig):
        head: nn.Module | None = BidirectionalLMHead(output_projection(config, table))
    else:
        head = prediction_head(config, table, config.width)
    return BidirectionalLanguageModel(
        BidirectionalStack(embedding, forwards, backwards, config.dropout),
        LayerMixing(1 + config.layers),
        pooling,
        head,
    )


def _stack(
    config: RecurrentConfig,
    table: nn.Parameter,
    layers: int | None = None,
    *,
    bidirectional: bool = False,
    attention: SourceAttention | None = None,
    attends: bool = False,
) -> RecurrentStack:
    cell, width, count = RECURRENT_CELLS[config.cell], config.width, layers or config.layers
    lowest = [AttendingLayer(cell, width, width)] if attends else []
    others = [RecurrentLayer(cell, width, width, bidirectional=bidirectional) for _ in range(count - len(lowest))]
    embedding = rn.TokenEmbedding(table, rn.Positions(), dropout=config.dropout)
    return RecurrentStack(embedding, [*lowest, *others], attention, config.dropout)
