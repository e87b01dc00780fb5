"""The bidirectional language model (ELMo, Peters et al. 2018), an encoder that learns from plain text.

B batch · T tokens · C model width, half of it for each direction · V vocabulary
"""

from collections.abc import Mapping

from torch import Tensor, nn

from regard.models.network import EncodingNetwork, Memory
from regard.nn.bidirectional_stack import BidirectionalStack
from regard.nn.mixing import LayerMixing


class BidirectionalLanguageModel(EncodingNetwork):
    """Two language models, one in each direction, whose layers are mixed into a vector for each token."""

    def __init__(
        self, encoder: BidirectionalStack, mixing: LayerMixing, pooling: nn.Module, head: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.mixing = mixing
        self.pooling = pooling
        self.head = head

    def encode(self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        return Memory(self.mixing(self.encoder(ids, mask, features=features)), mask)

    def both_ways(
        self, ids: Tensor, following: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Texts (B, T), and the same one token later -> the last states (B, T, C) of both directions, for `logits`.

        The forward half has read ids up to its place, and is the last word on `following` there. The backward half has
        read `following` from the end down to its place, and is the last word on the id there.
        """
        return self.encoder(ids, mask, backwards=following, features=features)[-1]
