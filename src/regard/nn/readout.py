"""What an encoder's vectors are read out for: a hidden token, or a label. C model width · V vocabulary · L labels"""

from torch import Tensor, nn

from regard.nn.dropout import Dropout
from regard.nn.output import Output
from regard.nn.taps import Tap


class TokenReadout(nn.Module):
    """Which token is hidden: a dense layer and a norm of its own before the projection (Devlin et al. 2019)."""

    def __init__(self, dense: nn.Linear, activation: nn.Module, norm: nn.Module, output: Output) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.output = output

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.norm(self.activation(self.dense(hidden))))  # (…, C) -> (…, V)


class LabelReadout(nn.Module):
    """Which label fits a token."""

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(width, labels)
        self.logits = Tap()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.logits(self.dense(self.dropout(hidden)))  # (…, C) -> (…, L)


class TextReadout(LabelReadout):
    """Which label fits a whole text: the same, on one vector for all of its tokens."""
