"""A task: unlikelihood training of a language model, against repetition (Welleck et al. 2020).

    loss(t) = −log p(x_t) − Σ over c in C_t of log(1 − p(c)),   C_t = {x_1, …, x_{t−1}} without x_t

Data, settings, batches and validation are those of `regard train gpt`; only the objective is new. It has the logits of
all positions in memory at once.

B rows · T tokens of a row · N targets · C model width · V vocabulary
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.config import Config
from regard.data.preparation import PreparedData
from regard.errors import ConfigError
from regard.models import Network
from regard.tasks.language_modeling import BoundLanguageModeling, LanguageModelingTask
from regard.training.batches import TokenBatch
from regard.training.losses import CausalLMObjective, Loss, select_positions, smoothed_cross_entropy


class UnlikelihoodTask(LanguageModelingTask):
    """What `regard train unlikelihood` trains."""

    name = "unlikelihood"
    title = "language model that avoids repetition"
    help = "a language model that avoids repetition, from text"

    def check(self, config: Config) -> None:
        """The data are those of a language model; R-Drop, which replaces the objective, is off."""
        super().check(config)
        if config.training.rdrop:
            raise ConfigError(f"regard train {self.name} has no R-Drop; set training.rdrop = 0.")

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "BoundUnlikelihood":
        """Bind the task to text and a network."""
        return BoundUnlikelihood(config, prepared, network)


class BoundUnlikelihood(BoundLanguageModeling):
    """Batches and validation of a language model, with another objective."""

    def objective(self) -> "UnlikelihoodObjective":
        """Predict each token from those before it, and avoid repeating them."""
        return UnlikelihoodObjective(self.network, self.config.training.label_smoothing)


class UnlikelihoodObjective(CausalLMObjective):
    """Cross entropy plus the unlikelihood of earlier tokens."""

    def forward(self, batch: TokenBatch) -> Loss:
        """Return the loss of a batch, summed over its targets."""
        states, targets = self.states(batch)  # (N, C), (N,)
        logits = self.network.logits(states).float()  # (N, V)
        earlier, _ = select_positions(
            batch.mask_of("target_mask"), earlier_tokens(batch, logits.size(-1)), batch.labels
        )
        likelihood = smoothed_cross_entropy(logits, targets, self.label_smoothing)
        # log(1 − p) is −∞ for p = 1, which float32 rounds to
        unlikelihood = -torch.log1p(-logits.softmax(-1).clamp(max=1 - 1e-6))
        loss = likelihood.loss + (unlikelihood * earlier).sum()
        return Loss(loss, likelihood.cross_entropy, likelihood.targets)


def earlier_tokens(batch: TokenBatch, vocabulary: int) -> Tensor:
    """Return the candidates (B, T, V): True at tokens of the row so far, except the next one."""
    seen = F.one_hot(batch.target, vocabulary).cumsum(1) > 0
    return seen.scatter(2, batch.labels[..., None], False)
