"""Greedy decoding: at each step the most probable token, for many sentences at once.

B sentences · S source length · V vocabulary
"""

import torch
from torch import Tensor

from regard.config import SpecialTokens
from regard.models.network import Network

EXTRA = 50  # tokens that a translation may have more than its source (§6.1)


@torch.no_grad()
def greedy(
    network: Network,
    source: Tensor,
    source_real: Tensor | None,
    tokens: SpecialTokens,
    longest: int | None = None,
) -> list[list[int]]:
    """Translate the sentences `source` (B, S): the ids of each translation, without start and end.

    A translation ends after 50 tokens more than its source has, or where the network's positions do (`longest`). A
    sentence that has ended is taken out of the batch, so that the others do not wait for it.
    """
    memory = network.encode(source, source_real)
    cache = network.new_cache()
    lengths = source_real.sum(1) if source_real is not None else source.new_full((len(source),), source.size(1))
    limits = lengths + EXTRA if longest is None else (lengths + EXTRA).clamp(max=longest)
    outputs: list[list[int]] = [[] for _ in range(len(source))]
    rows = torch.arange(len(source), device=source.device)  # which sentence each row of the batch is
    last = source.new_full((len(source), 1), tokens.start)
    for written in range(1, int(limits.max()) + 1):
        logits = network.logits(network.decode(last, memory, cache)[:, -1])  # (B, V)
        logits[:, [tokens.pad, tokens.start]] = float("-inf")  # not text, and not an end
        chosen = logits.argmax(-1)
        going = (chosen != tokens.end) & (written < limits)
        for row, token in zip(rows.tolist(), chosen.tolist(), strict=True):
            if token != tokens.end:
                outputs[row].append(token)
        if not going.any():
            break
        if not going.all():
            kept = going.nonzero().squeeze(1)
            rows, limits, chosen = rows[kept], limits[kept], chosen[kept]
            memory, cache = memory.select(kept), cache.select(kept)
        last = chosen[:, None]
    return outputs
