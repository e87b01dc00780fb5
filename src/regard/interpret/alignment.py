"""Align source and target words by the cross-attention head that best agrees with erasure.

Each source token is left out in turn, and the loss in log-probability of each target token is its cost (`erasure`). The
agreement of a head is the mean, over target tokens, of the cosine between its weights and the costs; negative costs
count as zero, and the end of the source is left out of both. The weights of the head with the highest agreement are
summed over the tokens of a source word and averaged over the tokens of a target word.

Attention weights alone do not show what the output depends on, so the costs are part of the result.

T target tokens · S source tokens
"""

from dataclasses import dataclass

import torch
from pydantic import JsonValue
from torch import Tensor

from regard.errors import InputError
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.tokens import WordSpan

HEAD_SELECTION = "the head whose weights agree best, by mean cosine, with the cost of leaving out each source token"
MAX_BATCH_TOKENS = 4096  # of source and target, in one batch of erasure


@dataclass(frozen=True)
class HeadAgreement:
    """Agreement between the weights of a head and the costs of erasure, from 0 to 1."""

    point: str
    head: int
    agreement: float


@dataclass(frozen=True)
class Alignment:
    """The words of both sides, with attention weights and erasure costs for each pair."""

    source: list[WordSpan]
    target: list[WordSpan]
    chosen: HeadAgreement
    heads: list[HeadAgreement]
    weights: Tensor  # (target words, source words), of the chosen head
    costs: Tensor  # (target words, source words): sum over the tokens of both

    @property
    def pairs(self) -> list[tuple[int, int, float]]:
        """For each target word that is not special: its index, that of its source word, and the attention weight."""
        candidates = [n for n, word in enumerate(self.source) if not word.special]
        pairs = []
        for n, word in enumerate(self.target):
            if not word.special and candidates:
                best = max(candidates, key=lambda m: float(self.weights[n, m]))
                pairs.append((n, best, float(self.weights[n, best])))
        return pairs

    def as_dict(self) -> dict[str, JsonValue]:
        """Return the alignment with its method and pairs, for JSON."""
        return {
            "method": HEAD_SELECTION,
            "chosen": vars(self.chosen),
            "heads": [vars(head) for head in self.heads],
            "source": [word.text for word in self.source],
            "target": [word.text for word in self.target],
            "pairs": [{"target": t, "source": s, "weight": weight} for t, s, weight in self.pairs],
            "weights": self.weights.tolist(),
            "costs": self.costs.tolist(),
        }


def align(trace: ForwardPass) -> Alignment:
    """Align the source and the target of a trace; InputError if the network has no cross-attention."""
    names = [
        point.name for point in trace.points.values() if point.part == "cross_attention" and point.point == "weights"
    ]
    if not names or trace.source is None or trace.target is None:
        raise InputError("This network has no cross-attention, so there is nothing to align.")
    costs = erasure(trace)  # (T, S)
    heads = [
        HeadAgreement(name, head, _agreement(weights.float().cpu(), costs))
        for name in names
        for head, weights in enumerate(trace.activation(name))
    ]
    chosen = max(heads, key=lambda head: head.agreement)
    weights = trace.activation(chosen.point)[chosen.head].float().cpu()
    source, target = trace.source.words, trace.target.words
    return Alignment(
        source, target, chosen, heads, _merge_weights(weights, target, source), _sum_costs(costs, target, source)
    )


def _agreement(weights: Tensor, costs: Tensor) -> float:
    """Mean cosine between the rows of weights and costs (T, S), without the end of the source."""
    return float(torch.cosine_similarity(weights[:, :-1], costs[:, :-1].clamp(min=0), dim=-1).mean())


def _merge_weights(weights: Tensor, target: list[WordSpan], source: list[WordSpan]) -> Tensor:
    """Sum over the tokens of a source word, average over the tokens of a target word."""
    by_source = torch.stack([weights[:, list(word.tokens)].sum(1) for word in source], dim=1)
    return torch.stack([by_source[list(word.tokens)].mean(0) for word in target])


def _sum_costs(costs: Tensor, target: list[WordSpan], source: list[WordSpan]) -> Tensor:
    """Sum over the tokens of both words, since log-probabilities of a word's tokens add up."""
    by_source = torch.stack([costs[:, list(word.tokens)].sum(1) for word in source], dim=1)
    return torch.stack([by_source[list(word.tokens)].sum(0) for word in target])


@torch.no_grad()
def erasure(trace: ForwardPass) -> Tensor:
    """Return the cost (T, S) of leaving out each source token for each target token.

        cost[t, j] = log p(y_t | x, y_<t) − log p(y_t | x without x_j, y_<t)

    The end of the source is never left out, so its column is zero. In a parse, the other tokens keep their positions.
    """
    decoded, network = trace.decoded, trace.model.network
    if decoded.source_ids is None or decoded.input_ids is None:
        raise InputError("Erasure needs a source whose tokens can be left out, and this network does not translate.")
    device = next(network.parameters()).device
    source = torch.tensor([decoded.source_ids], device=device)
    target_input = torch.tensor([decoded.input_ids], device=device)
    features = trace.recording.features
    targets = torch.tensor(decoded.target_ids, device=device)[:, None]  # (T, 1)
    complete = trace.recording.logits().log_softmax(-1).gather(1, targets)[:, 0]  # (T,)
    length = source.size(1)
    costs = torch.zeros(len(complete), length)
    batch_size = max(1, MAX_BATCH_TOKENS // (length + target_input.size(1)))
    for erased in torch.arange(length - 1, device=device).split(batch_size):
        rows = len(erased)
        mask = torch.ones(rows, length, dtype=torch.bool, device=device)
        mask[torch.arange(rows), erased] = False
        batch_features = {name: values.expand(rows, -1) for name, values in features.items()}
        memory = network.encode(source.expand(rows, -1), mask, batch_features or None)
        logits = network.logits(network.decode(target_input.expand(rows, -1), memory)).float().log_softmax(-1)
        without = logits.gather(2, targets.expand(rows, -1, -1))[..., 0]  # (rows, T)
        costs[:, erased.cpu()] = (complete - without).mT.cpu()
    return costs
