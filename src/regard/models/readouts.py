"""From settings to what reads an encoder's vectors out."""

from torch import nn

from regard import nn as rn
from regard.config import ClassHead, Encodes, NoHead, TagHead, TokenHead
from regard.nn.readout import LabelReadout, TextReadout, TokenReadout

EPSILON = 1e-12  # of the norm before the projection (Devlin et al. 2019)


def readout(config: Encodes, table: nn.Parameter, width: int | None = None) -> nn.Module | None:
    """The head of an encoder whose tokens have the vectors `table` (V, C), and come out `width` wide."""
    width = width or table.size(1)
    match config.head:
        case NoHead():
            return None
        case TokenHead():
            norm = nn.LayerNorm(width, eps=EPSILON)
            return TokenReadout(nn.Linear(width, width), nn.GELU(), norm, rn.Output(table, bias=True))
        case ClassHead(labels=labels, dropout=dropout):
            return TextReadout(width, len(labels), dropout)
        case TagHead(labels=labels, dropout=dropout):
            return LabelReadout(width, len(labels), dropout)
