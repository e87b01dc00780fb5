"""What two directions of reading predict: the token that follows, and the one that went before.

C model width, half of it for each direction · V vocabulary
"""

from torch import Tensor, nn

from regard.nn.output import Output


class TwoWayReadout(nn.Module):
    """One projection to the vocabulary, used by both directions."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(hidden.unflatten(-1, (2, -1)))  # (…, C) -> (…, 2, C/2) -> (…, 2, V)
