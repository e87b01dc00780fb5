"""Optimizer steps: gradient accumulation, padding, clipping, and divergence before the weights change."""

import math

import pytest
import torch
from hypothesis import given
from torch import nn

from family import DECODERS, batches, make
from family import Batch as Sentences
from regard.config import AdamConfig
from regard.models import Network
from regard.models.folder import named_tensors
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
    shards = [large.shard(n, 3) for n in range(3) if len(large.target[n::3])]
    assert sum(part.targets for part in shards) == large.targets
    once, accumulated = after(whole, [large]), after(parts, shards)
    for tensor in once:
        assert torch.allclose(once[tensor], accumulated[tensor], atol=TOLERANCE)


@given(sentences=batches(rows=4))
def test_padding_does_not_change_the_loss(sentences: Sentences) -> None:
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
def test_the_reported_loss_is_the_sum_over_targets_without_padding(sentences: Sentences) -> None:
    network = make(DECODERS["encoder-decoder"])
    batch = batch_of(sentences, network)
    logits = network(batch.source, batch.target, batch.source_mask, batch.target_mask)
    log_p = logits.log_softmax(-1).gather(2, batch.labels[..., None]).squeeze(2)
    result = update(NextToken(network, 0.0), torch.optim.SGD(network.parameters()), [batch], 0.0)
    assert result.targets == int(sentences.target_mask.sum())
    assert result.cross_entropy == pytest.approx(float(-log_p.detach()[sentences.target_mask].sum()))
    assert result.loss == pytest.approx(result.cross_entropy)


def test_clipping_scales_the_gradient() -> None:
    network = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    before = network.weight.detach().clone()
    result = update(Toy(network, factor=100.0), optimizer, [EMPTY], 1.0, max_grad_norm=0.5)
    assert result.grad_norm > 50
    assert (network.weight - before).norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(("factor", "max_loss"), [(math.nan, math.inf), (math.inf, math.inf), (100.0, 20.0)])
def test_a_diverged_loss_does_not_change_the_weights(factor: float, max_loss: float) -> None:
    network = nn.Linear(2, 1, bias=False)
    before = network.weight.detach().clone()
    with pytest.raises(DivergedError):
        update(Toy(network, factor), build_optimizer(network, AdamConfig()), [EMPTY], 1.0, max_loss=max_loss)
    assert torch.equal(network.weight, before)


def test_a_gradient_that_is_nan_is_detected_although_the_loss_is_finite() -> None:
    network = nn.Linear(2, 1, bias=False)
    network.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(DivergedError, match="norm nan"):
        update(Toy(network, 1.0), build_optimizer(network, AdamConfig()), [EMPTY], 1.0)


class Toy(nn.Module):
    """The loss of one target: the factor times the sum of absolute weights."""

    def __init__(self, network: nn.Linear, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, batch: TokenBatch):  # type: ignore[no-untyped-def]
        from regard.training.losses import Loss

        loss = self.network.weight.abs().sum() * self.factor
        return Loss(loss, loss.detach(), 1)


EMPTY = TokenBatch(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long))
