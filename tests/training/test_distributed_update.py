"""One update of one of several processes: the weight of its gradients and what it counts."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.config import DecoderOnlyConfig
from regard.models import build
from regard.training.batches import TokenBatch
from regard.training.distributed import ProcessGroup
from regard.training.losses import CausalLMObjective
from regard.training.optimizers import update


@dataclass(frozen=True)
class LonelyGroup(ProcessGroup):
    """One process of a group whose other processes are left out: nothing is exchanged."""

    def sum(self, values: Tensor) -> Tensor:
        return values


def batch(rows: int) -> TokenBatch:
    ids = torch.arange(rows * 4).view(rows, 4) % 11
    return TokenBatch(target=ids, labels=ids.roll(-1, 1))


def objective() -> nn.Module:
    torch.manual_seed(0)
    network = build(DecoderOnlyConfig(vocab_size=11, width=8, layers=1, heads=2, feed_forward=8, dropout=0.0))
    return CausalLMObjective(network, 0.0)


def gradients(rows: int, rank: int, world_size: int) -> tuple[list[Tensor], float]:
    module = objective()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    result = update(module, optimizer, [batch(rows)], 0.0, process_group=LonelyGroup(rank, world_size))
    return [p.grad.clone() for p in module.parameters() if p.grad is not None], result.loss


def test_gradients_averaged_over_processes_are_those_of_one_process() -> None:
    whole, loss = gradients(4, 0, 1)
    parts = [gradients(4, rank, 2) for rank in range(2)]
    for index, gradient in enumerate(whole):
        mean = torch.stack([part[0][index] for part in parts]).mean(0)  # as DistributedDataParallel averages
        torch.testing.assert_close(mean, gradient, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(sum(part[1] for part in parts), loss, atol=1e-5, rtol=1e-5)


def test_a_process_without_examples_adds_nothing() -> None:
    whole, loss = gradients(1, 0, 1)
    (first, first_loss), (second, second_loss) = (gradients(1, rank, 2) for rank in range(2))
    assert all(not gradient.any() for gradient in second)
    assert second_loss == 0.0
    torch.testing.assert_close(first_loss, loss, atol=1e-5, rtol=1e-5)
    for gradient, part in zip(whole, first, strict=True):
        torch.testing.assert_close(part / 2, gradient, atol=1e-6, rtol=1e-5)
