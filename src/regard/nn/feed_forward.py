"""The position-wise feed-forward layer (§3.3): the same two-layer network at every token.

C model width · F hidden units
"""

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.dropout import Dropout
from regard.nn.taps import Tap


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or another activation in place of max(0, ·)."""

    def __init__(self, width: int, hidden: int, activation: nn.Module | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.activation = activation or nn.ReLU()
        self.hidden = Tap()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(self.activation(self.inner(x)))  # (…, F)
        return self.output(self.dropout(hidden))


class GatedFeedForward(nn.Module):
    """SwiGLU(x) = (swish(x W) ⊙ x V) W_2, without biases (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * hidden, bias=False)  # the gate, then what it lets through
        self.hidden = Tap()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)  # (…, F) each
        return self.output(self.dropout(self.hidden(F.silu(gate) * value)))
