"""The final linear layer (§3.4): hidden states to logits over the vocabulary. C model width · V vocabulary"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.taps import Tap


class Output(nn.Module):
    """The pre-softmax projection; its matrix may be the embedding's."""

    def __init__(self, weight: nn.Parameter, bias: bool = False) -> None:
        super().__init__()
        self.weight = weight  # (V, C)
        self.bias = nn.Parameter(torch.zeros(len(weight))) if bias else None
        self.logits = Tap()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.logits(F.linear(hidden, self.weight, self.bias))  # (…, C) -> (…, V)
