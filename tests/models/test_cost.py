"""What a batch costs equals what PyTorch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from family import DECODERS, SPARSE, make
from regard.models.cost import Cost


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in SPARSE])
def test_training_flops_equal_torchs_count(name: str) -> None:
    network = make(DECODERS[name])
    sources, targets = torch.randint(4, 20, (3, 6)), torch.randint(4, 20, (3, 5))
    names = [tap for tap in network.taps if tap.endswith("kernel.weights")]
    for tap in names:  # so that attention runs as plain products, which the counter can count
        network.taps[tap].register_forward_hook(lambda *_: None)
    with FlopCounterMode(display=False) as counter:
        logits = network(sources, targets) if network.encodes else network(targets)
    lengths = torch.full((3,), 5), torch.full((3,), 6) if network.encodes else None
    assert Cost(network).training(*lengths) == 3 * counter.get_total_flops()
    assert logits.size(1) == 5


def test_pads_cost_nothing() -> None:
    cost = Cost(make(DECODERS["encoder-decoder"]))
    several = cost.training(torch.tensor([4, 4, 4]), torch.tensor([3, 3, 3]))
    assert several == pytest.approx(3 * cost.training(torch.tensor([4]), torch.tensor([3])))
