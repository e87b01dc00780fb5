"""The task of a bidirectional language model (ELMo): text in, an encoder out, measured by what it predicts both ways.

Forwards it reads `[SOS] a b c` and predicts `a b c [EOS]`; backwards it reads `[EOS] c b a` and predicts `c b a [SOS]`.
So what one direction reads is what the other predicts, and the batches are those of any language model.

B rows · T their length · N real places · C model width · V vocabulary
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from regard.config import Config
from regard.data.batching import DataPosition
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.stats import CorpusStats
from regard.evaluation.scoring import perplexity
from regard.models.network import Network
from regard.models.recurrent import BidirectionalLanguageModel
from regard.training.automatic_settings import AutomaticSetting, UserSettings, picks_for_both_ways
from regard.training.language import LanguageKind, LanguageModelling
from regard.training.losses import Loss, smoothed_cross_entropy
from regard.training.objectives import Objective, TokenBatch
from regard.training.task import Check, ValidationResult


@dataclass(frozen=True)
class TwoWayBatch(TokenBatch):
    """Texts in which every token is to be predicted twice."""

    @property
    def targets(self) -> int:
        """How many predictions there are, of both directions."""
        return 2 * super().targets


class BothWays(Objective[BidirectionalLanguageModel]):
    """Predict each token from those before it, and from those after it."""

    def __init__(self, network: BidirectionalLanguageModel, label_smoothing: float) -> None:
        super().__init__()
        self.network = network
        self.label_smoothing = label_smoothing

    def directions(self, batch: TwoWayBatch) -> tuple[Loss, Loss]:
        """The loss forwards, and the loss backwards."""
        states, wanted = self.states(batch)
        logits = self.network.logits(states)
        ahead, back = (smoothed_cross_entropy(logits[:, n], wanted[:, n], self.label_smoothing) for n in (0, 1))
        return ahead, back

    def states(self, batch: TwoWayBatch) -> tuple[Tensor, Tensor]:
        """The states of both directions at each real token, and what follows and went before it (N, 2)."""
        hidden = self.network.bidirectional_states(
            batch.target, batch.labels, batch.target_mask, batch.features
        ).flatten(0, 1)
        wanted = torch.stack([batch.labels, batch.target], dim=-1).flatten(0, 1)
        if batch.target_mask is not None:
            places = batch.target_mask.flatten().nonzero().squeeze(1)
            hidden, wanted = hidden.index_select(0, places), wanted.index_select(0, places)
        return hidden, wanted


class BidirectionalKind(LanguageKind):
    """How a bidirectional language model comes about: from text, as any language model."""

    name = "bidirectional language model"

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit so much text."""
        return picks_for_both_ways(scan, said)

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "BidirectionalModelling":
        """The task itself."""
        assert isinstance(network, BidirectionalLanguageModel)
        return BidirectionalModelling(config, prepared, network)


class BidirectionalModelling(LanguageModelling):
    """Training a bidirectional language model."""

    name = "bidirectional language model"

    def __init__(self, config: Config, prepared: PreparedData, network: BidirectionalLanguageModel) -> None:
        super().__init__(config, prepared, network)
        self._both = network
        for part in (network.mixing, network.pooling):  # for later tasks to learn: nothing here depends on them
            part.requires_grad_(False)

    def objective(self) -> Objective[Any]:
        """Predict each token from those before it, and from those after it."""
        return BothWays(self._both, self.config.training.label_smoothing)

    def batches(self, place: DataPosition) -> Iterator[tuple[DataPosition, TwoWayBatch]]:
        """Those of a language model, each token wanted twice."""
        for after, batch in super().batches(place):
            yield after, _both_ways(batch)

    def flops(self, batch: TokenBatch) -> float:
        """Forward and backward, pads not counted; both directions read and predict at every place."""
        lengths = self._lengths(batch)
        return self._cost.training_flops(lengths, lengths)

    @torch.no_grad()
    def _measure(self, part: PreparedSplit, check: Check) -> ValidationResult:
        """The loss of both directions, and the perplexity of each."""
        objective, ahead, back, places = BothWays(self._both, 0.0), 0.0, 0.0, 0
        for batch in self._in_order(part, check):
            forwards, backwards = objective.directions(_both_ways(batch))
            ahead, back = ahead + float(forwards.cross_entropy), back + float(backwards.cross_entropy)
            places += forwards.targets
        loss = (ahead + back) / (2 * places)
        scores = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "forward_perplexity": perplexity(ahead / places),
            "backward_perplexity": perplexity(back / places),
        }
        return ValidationResult(scores)


def _both_ways(batch: TokenBatch) -> TwoWayBatch:
    return TwoWayBatch(**{field.name: getattr(batch, field.name) for field in fields(batch)})
