"""Training steps on the meta device, which has shapes but no values: reading a value there is an error.

A GPU would compute the same operations, and wait wherever these tests fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from family import VOCABULARY, features_of
from regard.config import (
    ClassHeadConfig,
    EncoderConfig,
    ModelConfig,
    SyntaxPositionsConfig,
    TagHeadConfig,
    TokenHeadConfig,
)
from regard.models import Network, build
from regard.models.assembly import build_meta
from regard.models.network import EncoderNetwork
from regard.models.recurrent import BidirectionalLanguageModel
from regard.training.batches import Batch, BidirectionalBatch, LabelBatch, MaskedBatch, TokenBatch
from regard.training.losses import (
    BidirectionalLMObjective,
    CausalLMObjective,
    LabelObjective,
    MaskedLMObjective,
    Objective,
)

META = torch.device("meta")
LENGTHS = [7, 4, 5]


class DeviceSpy(TorchDispatchMode):
    """Collects operations that take a tensor of the CPU and one of another device, which a GPU would refuse."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor) and x.dim()]
        copies = func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_)
        if len({x.device.type for x in tensors}) > 1 and not copies:
            self.mixed.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def reads(values: list[float]) -> Iterator[list[int]]:
    """Let the meta device return these values for a tensor of their number; yields the sizes of what was read."""
    sizes: list[int] = []
    original = Tensor.tolist

    def tolist(tensor: Tensor) -> Any:
        if tensor.device.type != "meta":
            return original(tensor)
        sizes.append(tensor.numel())
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "tolist", tolist)
        yield sizes


def right_padded(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Random ids (B, T) and their mask."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    return ids, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def objective_and_batch(config: ModelConfig, *, meta: bool) -> tuple[Objective[Any], Batch]:
    """The objective that a network of these settings is trained with, and a padded batch on the CPU."""
    network = (build_meta if meta else build)(config).train()
    ids, mask = right_padded(LENGTHS)
    if not isinstance(config, EncoderConfig):
        return CausalLMObjective(network, 0.1), _token_batch(network, config, ids, mask)
    assert isinstance(network, EncoderNetwork)
    if isinstance(network, BidirectionalLanguageModel) and isinstance(config.head, TokenHeadConfig):
        for part in (network.mixing, network.pooling):  # as the task does
            part.requires_grad_(False)
        return BidirectionalLMObjective(network, 0.1), BidirectionalBatch(ids, ids.roll(-1, 1), mask)
    match config.head:
        case ClassHeadConfig():
            return LabelObjective(network, 0.1, per_word=False), LabelBatch(ids, mask, torch.tensor([[0], [1], [1]]))
        case TagHeadConfig():
            labels = torch.where(mask & (ids % 2 == 0), 0, -1)
            return LabelObjective(network, 0.1, per_word=True), LabelBatch(ids, mask, labels)
        case TokenHeadConfig():
            return MaskedLMObjective(network, 0.1), MaskedBatch(ids, ids, mask & (ids % 3 == 0), mask)
    raise ValueError("a network without a head is not trained")


def _token_batch(network: Network, config: ModelConfig, ids: Tensor, mask: Tensor) -> TokenBatch:
    if not network.encodes:
        return TokenBatch(ids, ids.roll(-1, 1), mask)
    source, source_mask = right_padded([6, 3, 6])
    syntax = isinstance(getattr(config, "positions", None), SyntaxPositionsConfig)
    features = features_of(source_mask) if syntax else None
    return TokenBatch(ids, ids.roll(-1, 1), mask, source, source_mask, source_features=features)
