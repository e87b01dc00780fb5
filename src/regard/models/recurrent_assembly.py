"""From settings to a recurrent network: where the name of a cell or of a score becomes an object."""

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
from regard.models import bidirectional, recurrent
from regard.models.readouts import readout
from regard.nn.attending import AttendingLayer
from regard.nn.bidirectional_stack import BidirectionalStack
from regard.nn.embedding import token_table
from regard.nn.mixing import LayerMixing
from regard.nn.recurrent import Cell, GRUCell, LSTMCell, RecurrentLayer, VanillaCell
from regard.nn.recurrent_stack import RecurrentStack
from regard.nn.source_attention import AdditiveScore, DotScore, GeneralScore, Score, SourceAttention
from regard.nn.two_way_readout import TwoWayReadout

CELLS: dict[str, type[Cell]] = {"rnn": VanillaCell, "lstm": LSTMCell, "gru": GRUCell}
SCORES: dict[str, Callable[[int], Score]] = {
    "additive": AdditiveScore,
    "dot": lambda width: DotScore(),
    "general": GeneralScore,
}


def recurrent_encoder_decoder(config: RecurrentEncoderDecoderConfig) -> recurrent.RecurrentEncoderDecoder:
    """The translator that these settings describe."""
    source = token_table(config.vocab_size, config.width)
    target = source
    if not config.share_embeddings:
        target = token_table(config.target_vocab_size or config.vocab_size, config.width)
    return recurrent.RecurrentEncoderDecoder(
        _stack(config, source, bidirectional=config.bidirectional), _decoder(config, target), _output(config, target)
    )


def _decoder(config: RecurrentEncoderDecoderConfig, table: nn.Parameter) -> RecurrentStack:
    layers = config.decoder_layers or config.layers
    if config.attention == "none":
        return _stack(config, table, layers)
    before = config.attention_timing == "before"
    attention = SourceAttention(config.width, SCORES[config.attention](config.width), others=2 if before else 1)
    return _stack(config, table, layers, attention=attention, attends=before)


def recurrent_language_model(config: RecurrentLanguageModelConfig) -> recurrent.RecurrentLanguageModel:
    """The language model that these settings describe."""
    table = token_table(config.vocab_size, config.width)
    return recurrent.RecurrentLanguageModel(_stack(config, table), _output(config, table))


def bidirectional_language_model(
    config: BidirectionalLanguageModelConfig, pooling: nn.Module
) -> bidirectional.BidirectionalLanguageModel:
    """The encoder that these settings describe; each direction has half of its width."""
    half = config.width // 2
    table = token_table(config.vocab_size, half)
    forwards, backwards = (
        [RecurrentLayer(CELLS[config.cell], half, half) for _ in range(config.layers)] for _ in range(2)
    )
    embedding = rn.Embedding(table, rn.Positions(), dropout=config.dropout)
    if isinstance(config.head, TokenHeadConfig):
        head: nn.Module | None = TwoWayReadout(_output(config, table))
    else:
        head = readout(config, table, config.width)
    return bidirectional.BidirectionalLanguageModel(
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
    cell, width, count = CELLS[config.cell], config.width, layers or config.layers
    lowest = [AttendingLayer(cell, width, width)] if attends else []
    others = [RecurrentLayer(cell, width, width, bidirectional=bidirectional) for _ in range(count - len(lowest))]
    embedding = rn.Embedding(table, rn.Positions(), dropout=config.dropout)
    return RecurrentStack(embedding, [*lowest, *others], attention, config.dropout)


def _output(config: RecurrentConfig, table: nn.Parameter) -> rn.Output:
    return rn.Output(table if config.tie_output else token_table(*table.shape), bias=config.output_bias)
