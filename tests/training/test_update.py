"""One update: accumulation and sharing change nothing, and what is wrong is met before the weights are touched."""

import math

import pytest
import torch
from hypothesis import given
from torch import nn

from family import DECODERS, batches, make
from family import Batch as Sentences
from regard.config import AdamConfig, AdamWConfig
from regard.models import Network
from regard.models.weights import named_tensors
from regard.training.objectives import NextToken, TokenBatch
from regard.training.optimizers import build_optimizer
from regard.training.update import DivergedError, update

TOLERANCE = 1e-9


def batch_of(sentences: Sentences, network: Network) -> TokenBatch:
    source = (sentences.source, sentences.source_mask) if network.encodes else (None, None)
    return TokenBatch(
        target=sentences.target,
        labels=sentences.target.flip(1),
        target_mask=sentences.target_mask,
        source=source[0],
        source_mask=source[1],
        source_features=sentences.features if network.encodes else None,
    )


def after(network: Network, batches: list[TokenBatch], **settings: float) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    update(NextToken(network, 0.1), optimizer, batches, 0.5, **settings)  # type: ignore[arg-type]
    return named_tensors(network)


@pytest.mark.parametrize("name", DECODERS)
@given(sentences=batches(rows=5))
def test_accumulated_batches_equal_one_large_batch(name: str, sentences: Sentences) -> None:
    whole, parts = make(DECODERS[name]), make(DECODERS[name])
    large = batch_of(sentences, whole)
    split = [large.shard(n, 3) for n in range(3) if len(large.target[n::3])]
    assert sum(part.targets for part in split) == large.targets
    once, several = after(whole, [large]), after(parts, split)
    for tensor in once:
        assert torch.allclose(once[tensor], several[tensor], atol=TOLERANCE)


@given(sentences=batches(rows=4))
def test_pads_and_the_numbers_they_hold_change_nothing(sentences: Sentences) -> None:
    network = make(DECODERS["encoder-decoder"])
    batch = batch_of(sentences, network)
    noise = torch.randint_like(batch.labels, 0, 20)
    assert batch.target_mask is not None
    other = TokenBatch(
        batch.target.where(batch.target_mask, noise),
        batch.labels.where(batch.target_mask, noise),
        batch.target_mask,
        batch.source,
        batch.source_mask,
    )
    objective = NextToken(network, 0.1)
    assert torch.allclose(objective(batch).loss, objective(other).loss, atol=TOLERANCE)


@given(sentences=batches())
def test_the_reported_loss_is_the_sum_over_real_targets(sentences: Sentences) -> None:
    network = make(DECODERS["encoder-decoder"])
    batch = batch_of(sentences, network)
    logits = network(batch.source, batch.target, batch.source_mask, batch.target_mask)
    chosen = logits.log_softmax(-1).gather(2, batch.labels[..., None]).squeeze(2)
    seen = update(NextToken(network, 0.0), torch.optim.SGD(network.parameters()), [batch], 0.0)
    assert seen.targets == int(sentences.target_mask.sum())
    assert seen.cross_entropy == pytest.approx(float(-chosen.detach()[sentences.target_mask].sum()))
    assert seen.loss == pytest.approx(seen.cross_entropy)


def test_clipping_scales_the_whole_gradient() -> None:
    network = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    before = network.weight.detach().clone()
    seen = update(Toy(network, factor=100.0), optimizer, [EMPTY], 1.0, max_grad_norm=0.5)
    assert seen.grad_norm > 50
    assert (network.weight - before).norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(("factor", "bound"), [(math.nan, math.inf), (math.inf, math.inf), (100.0, 20.0)])
def test_a_diverged_loss_leaves_the_weights_alone(factor: float, bound: float) -> None:
    network = nn.Linear(2, 1, bias=False)
    before = network.weight.detach().clone()
    with pytest.raises(DivergedError):
        update(Toy(network, factor), build_optimizer(network, AdamConfig()), [EMPTY], 1.0, max_loss=bound)
    assert torch.equal(network.weight, before)


def test_a_gradient_that_is_no_number_is_met_even_where_the_loss_looks_well() -> None:
    network = nn.Linear(2, 1, bias=False)
    network.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(DivergedError, match="norm nan"):
        update(Toy(network, 1.0), build_optimizer(network, AdamConfig()), [EMPTY], 1.0)


def test_weight_decay_is_for_matrices_only() -> None:
    network = make(DECODERS["encoder-decoder, narrow keys, biases, untied"])
    decayed, free = build_optimizer(network, AdamWConfig(weight_decay=0.1)).param_groups
    assert decayed["weight_decay"] == 0.1
    assert all(parameter.dim() > 1 for parameter in decayed["params"])
    assert free["weight_decay"] == 0.0
    assert all(parameter.dim() == 1 for parameter in free["params"])
    assert len(decayed["params"]) + len(free["params"]) == len(list(network.parameters()))


class Toy(nn.Module):
    """A loss of a single target: the factor times the sum of the weights' absolute values."""

    def __init__(self, network: nn.Linear, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, batch: TokenBatch):  # type: ignore[no-untyped-def]
        from regard.training.losses import Loss

        loss = self.network.weight.abs().sum() * self.factor
        return Loss(loss, loss.detach(), 1)


EMPTY = TokenBatch(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long))
