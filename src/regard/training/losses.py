"""Losses and objectives: from a batch to the number that training minimizes.

The losses are cross entropy with label smoothing (§5.4) and R-Drop (Liang et al. 2021). R-Drop runs each batch twice
with different dropout and penalizes different predictions. With the predictions P and Q of the two passes, the loss of
a target is

    ½ (loss(P) + loss(Q) + α · D),   D = ½ (KL(P‖Q) + KL(Q‖P)) = ½ Σ over v of (P[v] − Q[v]) (log P[v] − log Q[v]),

half of the paper's, so that it is comparable with the loss of one pass.

Each loss has its formula here. On CPUs `regard.nn.cpu.losses` computes the same numbers in less time and memory. On
GPUs the formula is computed for some targets at a time, and the logits again in the backward pass, so that those of a
whole batch are never stored.

An objective runs a network on a batch and returns its loss. It is an `nn.Module` so that DistributedDataParallel can
wrap it. Logits are computed only at positions that have a target, because the projection to the vocabulary is the
largest matrix product of a step.

B examples · S source length · T target length · N targets · C model width · V vocabulary
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.config import TrainingConfig
from regard.models.network import DecoderNetwork, EncoderDecoderNetwork, EncoderNetwork, Network
from regard.models.recurrent import BidirectionalLanguageModel
from regard.nn import cpu
from regard.nn.cpu.losses import chunked_cross_entropy, chunked_rdrop, one_pass_cross_entropy
from regard.nn.embedding import OutputProjection
from regard.nn.functional import at_least_float32
from regard.nn.layout import PaddingMask
from regard.training.batches import Batch, BidirectionalBatch, LabelBatch, MaskedBatch, TokenBatch

CHUNK_LOGITS = 2**26  # logits that are computed at once, except on CPUs: 256 MB
NetworkT = TypeVar("NetworkT", bound=Network)


@dataclass(frozen=True)
class Loss:
    """Sums over the targets of a batch, so that batches of any size add up to one large batch."""

    loss: Tensor  # what is minimized
    cross_entropy: Tensor  # negative log-likelihood in nats, without label smoothing; detached
    targets: int


def smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, smoothing: float = 0.0, weights: Tensor | None = None
) -> Loss:
    """Cross entropy of logits (N, V) and targets (N,), smoothed by ε = `smoothing`.

    The target distribution has 1 − ε at the right token, and ε spread evenly over the vocabulary:
    loss = (1 − ε)·(−log p[right]) + ε·mean over v of (−log p[v]).

    `weights` (V,) multiply the loss of each target by the weight of the right class; `Loss.cross_entropy` has none.
    """
    logits = at_least_float32(logits)
    if weights is None and cpu.enabled(logits.device):
        return Loss(*one_pass_cross_entropy(logits, targets, smoothing), len(targets))
    log_p = logits.log_softmax(-1)
    cross_entropy = -log_p.gather(1, targets[:, None]).squeeze(1)  # (N,)
    losses = (1 - smoothing) * cross_entropy - smoothing * log_p.mean(-1)
    if weights is not None:
        losses = losses * weights[targets]
    return Loss(losses.sum(), cross_entropy.detach().sum(), len(targets))


def projected_cross_entropy(states: Tensor, output: OutputProjection, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """`smoothed_cross_entropy` of `output(states)`, for states (N, C) and targets (N,)."""
    if output.is_watched:
        return smoothed_cross_entropy(output(states), targets, smoothing)
    if not cpu.enabled(states.device) or output.soft_cap is not None:
        return _in_chunks(
            lambda states, targets: smoothed_cross_entropy(output(states), targets, smoothing),
            len(output.weight),
            states,
            targets,
        )
    losses = chunked_cross_entropy(at_least_float32(states), output.weight, output.bias, targets, smoothing)
    return Loss(*losses, len(targets))


def rdrop_cross_entropy(
    first: Tensor,
    second: Tensor,
    targets: Tensor,
    smoothing: float,
    weight: float,
    class_weights: Tensor | None = None,
) -> Loss:
    """The R-Drop loss of the logits (N, V) of two passes for the same targets (N,); `weight` is α.

    `class_weights` (V,) apply to the cross entropy, not to the divergence of both passes.
    """
    first, second = at_least_float32(first), at_least_float32(second)
    losses = [smoothed_cross_entropy(logits, targets, smoothing, class_weights) for logits in (first, second)]
    loss = (losses[0].loss + losses[1].loss + weight * symmetric_kl(first, second)) / 2
    return Loss(loss, (losses[0].cross_entropy + losses[1].cross_entropy) / 2, len(targets))


def projected_rdrop(
    first: Tensor, second: Tensor, output: OutputProjection, targets: Tensor, smoothing: float, weight: float
) -> Loss:
    """`rdrop_cross_entropy` of `output(first)` and `output(second)`, for states (N, C) and targets (N,)."""
    if output.is_watched:
        return rdrop_cross_entropy(output(first), output(second), targets, smoothing, weight)
    if not cpu.enabled(first.device) or output.soft_cap is not None:
        return _in_chunks(
            lambda first, second, targets: rdrop_cross_entropy(
                output(first), output(second), targets, smoothing, weight
            ),
            2 * len(output.weight),
            first,
            second,
            targets,
        )
    states = at_least_float32(first), at_least_float32(second)
    return Loss(*chunked_rdrop(*states, output.weight, output.bias, targets, smoothing, weight), len(targets))


def _in_chunks(loss: Callable[..., Loss], logits: int, *tensors: Tensor) -> Loss:
    """The loss of tensors (N, …) with `logits` logits per target, computed for some targets at a time."""
    rows = max(1, CHUNK_LOGITS // logits)
    if len(tensors[0]) <= rows:
        return loss(*tensors)
    chunks = zip(*(tensor.split(rows) for tensor in tensors), strict=True)
    losses: list[Loss] = [checkpoint(loss, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    total = torch.stack([part.loss for part in losses]).sum()
    return Loss(total, torch.stack([part.cross_entropy for part in losses]).sum(), len(tensors[0]))


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """D of the predictions of two logits (N, V), summed over the targets."""
    log_p, log_q = first.log_softmax(-1), second.log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2


class Objective(nn.Module, Generic[NetworkT]):
    """Predict targets from the hidden states that a network computes for a batch."""

    passes = 1  # forward passes of each batch
    settings_to_lower: tuple[str, ...] = ()  # that make training more stable, besides the learning rate
    max_weight = 1.0  # of a target in the loss
    network: NetworkT
    label_smoothing: float

    def states(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The states to predict from (N, C), and the targets (N,)."""
        raise NotImplementedError

    def forward(self, batch: Any) -> Loss:
        """The loss of a batch, summed over its targets."""
        return self.loss(*self.states(batch))

    def loss(self, states: Tensor, targets: Tensor) -> Loss:
        """The loss of predictions from these states."""
        return smoothed_cross_entropy(self._logits(states), targets.flatten(), self.label_smoothing)

    def rdrop_loss(self, first: Tensor, second: Tensor, targets: Tensor, weight: float) -> Loss:
        """The R-Drop loss of the states of two forward passes; `weight` is α."""
        logits = self._logits(first), self._logits(second)
        return rdrop_cross_entropy(*logits, targets.flatten(), self.label_smoothing, weight)

    def _logits(self, states: Tensor) -> Tensor:
        return self.network.logits(states).flatten(0, -2)


class CausalLMObjective(Objective[DecoderNetwork | EncoderDecoderNetwork]):
    """Predict each token of the target from the tokens before it, and from the source if there is one.

    With a source this is translation, without one language modeling.
    """

    def __init__(self, network: Network, label_smoothing: float) -> None:
        super().__init__()
        assert isinstance(network, DecoderNetwork | EncoderDecoderNetwork)
        self.network = network
        self.label_smoothing = label_smoothing

    def states(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """The decoder states at all target tokens (N, C), and the tokens that follow (N,)."""
        memory = None
        if batch.source is not None:
            memory = self.network.encode(
                batch.source, batch.mask_of("source_mask"), batch.features_of("source_features")
            )
        mask = batch.mask_of("target_mask")
        hidden = self.network.decode(
            batch.target, memory, mask=mask, features=batch.features_of("features")
        )  # (B, T, C)
        return select_positions(mask, hidden, batch.labels)

    def loss(self, states: Tensor, targets: Tensor) -> Loss:
        """The loss of predictions from these states."""
        return projected_cross_entropy(states, self.network.output, targets, self.label_smoothing)

    def rdrop_loss(self, first: Tensor, second: Tensor, targets: Tensor, weight: float) -> Loss:
        """The R-Drop loss of the states of two forward passes; `weight` is α."""
        return projected_rdrop(first, second, self.network.output, targets, self.label_smoothing, weight)


class BidirectionalLMObjective(Objective[BidirectionalLanguageModel]):
    """Predict each token from those before it, and from those after it (ELMo)."""

    def __init__(self, network: BidirectionalLanguageModel, label_smoothing: float) -> None:
        super().__init__()
        self.network = network
        self.label_smoothing = label_smoothing

    def losses(self, batch: BidirectionalBatch) -> tuple[Loss, Loss]:
        """The losses of the forward and of the backward direction."""
        states, targets = self.states(batch)
        logits = self.network.logits(states)
        forward, backward = (smoothed_cross_entropy(logits[:, n], targets[:, n], self.label_smoothing) for n in (0, 1))
        return forward, backward

    def states(self, batch: BidirectionalBatch) -> tuple[Tensor, Tensor]:
        """The states of both directions at all tokens (N, C), and the next and the current token (N, 2)."""
        mask = batch.mask_of("target_mask")
        hidden = self.network.bidirectional_states(batch.target, batch.labels, mask, batch.features_of("features"))
        return select_positions(mask, hidden, torch.stack([batch.labels, batch.target], dim=-1))


class MaskedLMObjective(Objective[EncoderNetwork]):
    """Predict each masked token from the rest of the passage (BERT)."""

    def __init__(self, network: EncoderNetwork, label_smoothing: float) -> None:
        super().__init__()
        self.network = network
        self.label_smoothing = label_smoothing
        network.pooling.requires_grad_(False)  # it gets no gradient here, and distributed processes would wait for one

    def states(self, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """The encoder states at all masked tokens (N, C), and the original tokens (N,)."""
        memory = self.network.encode(batch.ids, batch.mask_of("mask"))
        return select_positions(batch.mask_of("selected"), memory.states, batch.original)


class LabelObjective(Objective[EncoderNetwork]):
    """Predict the label of each text, or with `per_word` the tag of each word."""

    class_weights: Tensor | None

    def __init__(
        self,
        network: EncoderNetwork,
        label_smoothing: float,
        *,
        per_word: bool,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.label_smoothing = label_smoothing
        self.per_word = per_word
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)  # (L,)
        self.max_weight = max(class_weights or (1.0,))

    def states(self, batch: LabelBatch) -> tuple[Tensor, Tensor]:
        """The vectors of texts or of words (N, C) that have a label, and the labels (N,), text by text."""
        memory = self.network.encode(batch.ids, batch.mask_of("mask"), batch.features_of("features"))
        labeled = batch.mask_of("labeled")
        assert labeled is not None
        if self.per_word:
            return select_positions(labeled, memory.states, batch.labels)
        return self.network.pool(memory), batch.labels.flatten().index_select(0, labeled.slots)

    def loss(self, states: Tensor, targets: Tensor) -> Loss:
        """The loss of predictions from these states."""
        return smoothed_cross_entropy(self._logits(states), targets, self.label_smoothing, self.class_weights)

    def rdrop_loss(self, first: Tensor, second: Tensor, targets: Tensor, weight: float) -> Loss:
        """The R-Drop loss of the states of two forward passes; `weight` is α."""
        logits = self._logits(first), self._logits(second)
        return rdrop_cross_entropy(*logits, targets, self.label_smoothing, weight, self.class_weights)


class RDrop(nn.Module):
    """Run each batch through the network twice, with different dropout, and penalize different predictions."""

    passes = 2
    settings_to_lower = ("training.rdrop",)

    def __init__(self, objective: Objective[Any], weight: float) -> None:
        super().__init__()
        self.objective = objective
        self.weight = weight
        self.max_weight = objective.max_weight

    def forward(self, batch: Batch) -> Loss:
        """The loss of a batch, summed over its targets."""
        states, targets = self.objective.states(batch.repeated())
        half = len(targets) // 2
        return self.objective.rdrop_loss(states[:half], states[half:], targets[:half], self.weight)


def training_objective(objective: Objective[Any], training: TrainingConfig) -> Objective[Any] | RDrop:
    """The objective that training minimizes: that of the task, with the regularization of the settings."""
    return RDrop(objective, training.rdrop) if training.rdrop else objective


def select_positions(mask: PaddingMask | None, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """States (B, T, …) and targets (B, T, …) at the positions where the mask (B, T) is True, or at all positions."""
    states, targets = states.flatten(0, 1), targets.flatten(0, 1)
    if mask is None or mask.is_full:
        return states, targets
    return states.index_select(0, mask.slots), targets.index_select(0, mask.slots)
