"""From settings to what reads an encoder's vectors out."""

from torch import nn

from regard import nn as rn
from regard.config import ClassHeadConfig, EncoderConfig, NoHeadConfig, TagHeadConfig, TokenHeadConfig
from regard.models.activations import ACTIVATIONS
from regard.nn.readout import LabelReadout, TextReadout, TokenReadout


def readout(config: EncoderConfig, table: nn.Parameter, width: int | None = None) -> nn.Module | None:
    """The head of an encoder whose tokens have the vectors `table` (V, C), and come out `width` wide."""
    width = width or table.size(1)
    match config.head:
        case NoHeadConfig():
            return None
        case TokenHeadConfig(activation=activation, norm_epsilon=epsilon):
            norm = nn.LayerNorm(width, eps=epsilon)
            return TokenReadout(nn.Linear(width, width), ACTIVATIONS[activation](), norm, rn.Output(table, bias=True))
        case ClassHeadConfig(labels=labels, dropout=dropout):
            return TextReadout(width, len(labels), dropout)
        case TagHeadConfig(labels=labels, dropout=dropout):
            return LabelReadout(width, len(labels), dropout)
