"""Sampling: each token drawn from the network's own distribution over the next one."""

import torch
from torch import Tensor

from regard.models.network import Network


@torch.no_grad()
def sample(
    network: Network, prompt: Tensor, length: int, *, temperature: float = 1.0, generator: torch.Generator | None = None
) -> list[int]:
    """Continue a prompt (T,) by `length` tokens. A temperature below one prefers what is probable."""
    cache = network.new_cache()
    last = prompt[None]
    written: list[int] = []
    for _ in range(length):
        logits = network.logits(network.decode(last, None, cache)[:, -1])  # (1, V)
        last = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        written.append(int(last))
    return written
