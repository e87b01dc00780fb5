"""What each token of the source is worth to each token of the target: the price of leaving it out.

    cost[t, j] = log p(y_t | x, y_<t) − log p(y_t | x without x_j, y_<t)

All in passes over the same target, so many at a time; this is the ablation that attention weights are held against.
Where there is a parse, the other tokens keep their places in the tree: the branch that held the token stays, empty.

S source tokens · T target tokens
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

TOKENS = 4096  # of source and target that are read at a time


@torch.no_grad()
def erasure(trace: "Trace") -> Tensor:
    """The costs (T, S); the end of the source is never left out, so its column is zero."""
    written, network = trace.written, trace.subject.network
    if written.source is None or written.read is None:
        raise InputError("There is no source whose tokens could be left out: this network does not translate.")
    device = next(network.parameters()).device
    source, read = torch.tensor([written.source], device=device), torch.tensor([written.read], device=device)
    facts = trace.recording.facts
    follows = torch.tensor(written.follows, device=device)[:, None]  # (T, 1)
    whole = trace.recording.logits().log_softmax(-1).gather(1, follows)[:, 0]  # (T,)
    count = source.size(1)
    costs = torch.zeros(len(whole), count)
    together = max(1, TOKENS // (count + read.size(1)))
    for left_out in torch.arange(count - 1, device=device).split(together):
        rows = len(left_out)
        real = torch.ones(rows, count, dtype=torch.bool, device=device)
        real[torch.arange(rows), left_out] = False
        known = {name: fact.expand(rows, -1) for name, fact in facts.items()}
        memory = network.encode(source.expand(rows, -1), real, known or None)
        logits = network.logits(network.decode(read.expand(rows, -1), memory)).float().log_softmax(-1)
        without = logits.gather(2, follows.expand(rows, -1, -1))[..., 0]  # (rows, T)
        costs[:, left_out.cpu()] = (whole - without).mT.cpu()
    return costs
