"""Objectives of fine-tuning on conversations: the answers of assistants, and preferences between two answers.

Direct preference optimization (Rafailov et al. 2023) takes the answer y⁺ that was preferred over y⁻ for a prompt x.
With the network π and a frozen reference π₀, the network it started as, an answer has the reward

    r(x, y) = β (log π(y | x) − log π₀(y | x)),

and the loss is −log σ(r(x, y⁺) − r(x, y⁻)). A network with LoRA is its own reference: with the adapter switched off.

P pairs · B rows · T tokens · N tokens of answers · C model width · V vocabulary
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.models.network import Network
from regard.nn.functional import at_least_float32
from regard.nn.lora import lora_disabled
from regard.training.batches import Batch, TokenBatch
from regard.training.losses import CHUNK_LOGITS, CausalLMObjective, Loss, select_positions


@dataclass(frozen=True)
class ChatTokens(TokenBatch):
    """Conversations, in which only some tokens are predicted."""

    learned: Tensor | None = None  # (B, T) True where an assistant writes the next token

    @property
    def targets(self) -> int:
        """Number of tokens to predict."""
        assert self.learned is not None
        return int(self.learned.sum())


class ChatObjective(CausalLMObjective):
    """Predict each token that an assistant writes from all tokens before it."""

    def states(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """The decoder states before the tokens of assistants (N, C), and these tokens (N,)."""
        hidden = self.network.decode(
            batch.target, mask=batch.mask_of("target_mask"), features=batch.features_of("features")
        )
        return select_positions(batch.mask_of("learned"), hidden, batch.labels)


@dataclass(frozen=True)
class PreferenceTokens(Batch):
    """Both conversations of preference pairs: all chosen ones, then all rejected ones."""

    target: Tensor  # (2P, T)
    labels: Tensor  # (2P, T) the token after each
    target_mask: Tensor  # (2P, T) False at padding
    learned: Tensor  # (2P, T) True where the next token is of the answer

    @property
    def examples(self) -> int:
        """Number of pairs."""
        return len(self.target) // 2

    @property
    def targets(self) -> int:
        """Number of pairs."""
        return self.examples


def answer_log_probabilities(network: Network, batch: PreferenceTokens) -> Tensor:
    """Return log π(y | x) of each conversation's answer (2P,): the sum over its tokens."""
    learned = batch.mask_of("learned")
    hidden = network.decode(batch.target, mask=batch.mask_of("target_mask"))
    states, targets = select_positions(learned, hidden, batch.labels)  # (N, C), (N,)
    rows = batch.learned.nonzero()[:, 0]  # of each target
    log_p = torch.cat([_token_log_probabilities(network, *chunk) for chunk in _chunks(network, states, targets)])
    return log_p.new_zeros(len(batch.target)).index_add(0, rows, log_p)


def _chunks(network: Network, states: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    with torch.no_grad():
        vocabulary = network.logits(states[:1]).size(-1)
    size = max(1, CHUNK_LOGITS // vocabulary)
    return zip(states.split(size), targets.split(size), strict=True)


def _token_log_probabilities(network: Network, states: Tensor, targets: Tensor) -> Tensor:
    """log p of each target (N,); the logits are computed again in the backward pass, and not kept for it."""

    def compute(states: Tensor) -> Tensor:
        return -F.cross_entropy(at_least_float32(network.logits(states)), targets, reduction="none")

    if not torch.is_grad_enabled():
        return compute(states)
    result: Tensor = checkpoint(compute, states, use_reentrant=False, preserve_rng_state=False)
    return result


@dataclass(frozen=True)
class Rewards:
    """β (log π − log π₀) of the answers of preference pairs."""

    chosen: Tensor  # (P,)
    rejected: Tensor  # (P,)

    @property
    def margins(self) -> Tensor:
        """By how much the chosen answers have a higher reward (P,)."""
        return self.chosen - self.rejected

    @property
    def losses(self) -> Tensor:
        """−log σ(margin) of each pair (P,)."""
        return -F.logsigmoid(self.margins)

    def sums(self) -> Mapping[str, float]:
        """Sums over the pairs: the loss, correctly ordered pairs, and rewards."""
        return {
            "loss": float(self.losses.sum()),
            "accuracy": float((self.margins > 0).sum()),
            "margin": float(self.margins.sum()),
            "chosen_reward": float(self.chosen.sum()),
            "rejected_reward": float(self.rejected.sum()),
        }


class PreferenceObjective(nn.Module):
    """Direct preference optimization: prefer the chosen answer to the rejected one more than the reference does."""

    passes = 1
    max_weight = 1.0
    settings_to_lower: tuple[str, ...] = ()

    def __init__(self, network: Network, beta: float, reference: Network | None = None) -> None:
        """Without a `reference`, it is the network with its LoRA matrices switched off."""
        super().__init__()
        self.network = network
        self.beta = beta
        self._reference = (reference,)  # in a tuple, so that its parameters are not trained

    def forward(self, batch: PreferenceTokens) -> Loss:
        """The loss of a batch, summed over its pairs."""
        loss = self.rewards(batch).losses.sum()
        return Loss(loss, loss.detach(), batch.targets)

    def rewards(self, batch: PreferenceTokens) -> Rewards:
        """The rewards of both answers of each pair."""
        reference = self.reference_log_probabilities(batch)
        rewards = self.beta * (answer_log_probabilities(self.network, batch) - reference)
        chosen, rejected = rewards.chunk(2)
        return Rewards(chosen, rejected)

    @torch.no_grad()
    def reference_log_probabilities(self, batch: PreferenceTokens) -> Tensor:
        """log π₀(y | x) of each conversation's answer (2P,), without dropout."""
        (reference,) = self._reference
        if reference is not None:
            return answer_log_probabilities(reference.to(batch.target.device), batch)
        with _evaluating(self.network), lora_disabled(self.network):
            return answer_log_probabilities(self.network, batch)


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    training = network.training
    network.train(False)
    try:
        yield
    finally:
        network.train(training)
