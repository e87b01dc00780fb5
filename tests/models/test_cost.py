"""What a batch costs equals what PyTorch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from family import DECODERS, ENCODERS, SPARSE, features_of, make
from regard.models import EncoderOnlyTransformer
from regard.models.anatomy import FlopCounter
from regard.nn import open_taps


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in SPARSE])
def test_training_flops_equal_torchs_count(name: str) -> None:
    network = make(DECODERS[name])
    sources, targets = torch.randint(4, 20, (3, 6)), torch.randint(4, 20, (3, 5))
    with open_taps(network), FlopCounterMode(display=False) as counter:  # it cannot count inside fused kernels
        features = features_of(torch.ones_like(sources).bool())
        logits = network(sources, targets, source_features=features) if network.encodes else network(targets)
    lengths = torch.full((3,), 5), torch.full((3,), 6) if network.encodes else None
    assert FlopCounter(network).training_flops(*lengths) == 3 * counter.get_total_flops()
    assert logits.size(1) == 5


def test_an_encoder_that_guesses_hidden_tokens_costs_what_torch_counts() -> None:
    config = ENCODERS["encoder-only, hidden tokens"].model_copy(update={"pooling": "first-dense"})
    network = make(config)
    assert isinstance(network, EncoderOnlyTransformer)
    with open_taps(network), FlopCounterMode(display=False) as counter:
        states = network.encode(torch.randint(4, 20, (3, 6))).states
        network.logits(states[:, :2])  # two hidden tokens in each text
    cost = FlopCounter(network, exclude=network.pooling)
    assert cost.training_flops(torch.full((3,), 2), torch.full((3,), 6)) == 3 * counter.get_total_flops()


def test_pads_cost_nothing() -> None:
    cost = FlopCounter(make(DECODERS["encoder-decoder"]))
    several = cost.training_flops(torch.tensor([4, 4, 4]), torch.tensor([3, 3, 3]))
    assert several == pytest.approx(3 * cost.training_flops(torch.tensor([4]), torch.tensor([3])))
