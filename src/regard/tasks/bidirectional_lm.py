"""Bidirectional language modeling (ELMo): text in, an encoder out; measured by what it predicts in both directions.

The forward direction reads `[SOS] a b c` and predicts `a b c [EOS]`; the backward direction reads `[EOS] c b a` and
predicts `c b a [SOS]`. So the input of one direction is the labels of the other, and the batches are those of a
language model.
"""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from regard.config import Config, CorpusConfig
from regard.data.batching import DataPosition
from regard.data.corpus_scan import CorpusStats
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.evaluation.likelihood import ProgressCallback, perplexity
from regard.tasks.common import evaluate_text
from regard.tasks.language_modeling import NO_SMOOTHING, BoundLanguageModeling, LanguageModelingTask
from regard.training.automatic_settings import (
    AutomaticSetting,
    NetworkSize,
    RunLength,
    UserSettings,
    choose_size,
    fine_tuning_settings,
    length_settings,
    network_settings,
    text_tokenizer,
    token_count,
    vocab_setting,
)
from regard.training.task import Ability, Check, Evaluation, EvaluationOptions, TrainedModel, ValidationResult

if TYPE_CHECKING:
    from regard.models.network import Network
    from regard.models.recurrent import BidirectionalLanguageModel
    from regard.training.batches import BidirectionalBatch, LazyBatch, TokenBatch
    from regard.training.losses import Objective

BIDIRECTIONAL_LM_SIZES = [
    NetworkSize(3_000_000, "small", 256, 2, None, None, 0.3),
    NetworkSize(50_000_000, "medium", 512, 2, None, None, 0.2),
    NetworkSize(math.inf, "large", 1024, 2, None, None, 0.1),
]


class BidirectionalLMTask(LanguageModelingTask):
    """Train a bidirectional language model, from the same data as a language model."""

    name = "elmo"
    title = "bidirectional language model"
    help = "an ELMo text encoder, from text"
    noun = "bidirectional language model"
    suggested_for = None
    chooses_size = False
    key_name = "bidirectional"
    model: ClassVar = {"kind": "bidirectional-language-model", "head": {"kind": "tokens"}}

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """Embed texts."""
        return ("embed",)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this amount of text."""
        size = choose_size(BIDIRECTIONAL_LM_SIZES, stats.characters)
        tokenizer = text_tokenizer(stats.characters, user)
        tokens = token_count(stats.characters, tokenizer.value)
        if user.fine_tuning:
            return [NO_SMOOTHING, *fine_tuning_settings(tokens, user)]
        return [
            *network_settings(size, f"{stats.characters:,} characters: {size.width // 2} for each direction", user),
            tokenizer,
            vocab_setting(stats.characters, tokenizer.value),
            NO_SMOOTHING,
            AutomaticSetting("training.schedule.kind", "cosine", "decays to zero at the last step"),
            AutomaticSetting("training.schedule.learning_rate", 1e-3, "stable for small language models"),
            *length_settings(tokens, RunLength(min(20, max(2, 60_000_000 / tokens))), user),
        ]

    def prepared_settings(self, config: Config, prepared: PreparedData) -> dict[str, Any]:
        """Nothing: an encoder reads texts of any length."""
        return {}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Loss and perplexity of both directions, as in validation."""
        return evaluate_text(self, model, corpus, options, invalid, count)

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundBidirectionalLM":
        """Bind the task to text and a network."""
        from regard.models.recurrent import BidirectionalLanguageModel

        assert isinstance(network, BidirectionalLanguageModel)
        return BoundBidirectionalLM(config, prepared, network)


class BoundBidirectionalLM(BoundLanguageModeling):
    """Batches, objective and validation of a bidirectional language model."""

    def __init__(self, config: Config, prepared: PreparedData, network: "BidirectionalLanguageModel") -> None:
        super().__init__(config, prepared, network)
        self._bidirectional = network
        for part in (network.mixing, network.pooling):  # trained by later tasks; they get no gradient here
            part.requires_grad_(False)

    def objective(self) -> "Objective[Any]":
        """Predict each token from those before it, and from those after it."""
        from regard.training.losses import BidirectionalLMObjective

        return BidirectionalLMObjective(self._bidirectional, self.config.training.label_smoothing)

    def batches(self, position: DataPosition) -> "Iterator[tuple[DataPosition, LazyBatch[Any]]]":
        """The batches of a language model, each token predicted twice."""
        for after, batch in super().batches(position):
            yield after, _both_directions(batch)

    def flops(self, batch: "LazyBatch[Any]") -> float:
        """Forward and backward pass, without padding; both directions read and predict every token."""
        (lengths,) = batch.lengths
        return self._flops.training_flops(lengths, lengths)

    def _measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        """The loss of both directions, and the perplexity of each."""
        import torch

        from regard.training.losses import BidirectionalLMObjective

        objective, forward, backward, tokens = BidirectionalLMObjective(self._bidirectional, 0.0), 0.0, 0.0, 0.0
        with torch.no_grad():
            for batch in self._validation_batches(split, check):
                first, second = objective.losses(_bidirectional(batch))
                forward, backward = forward + float(first.cross_entropy), backward + float(second.cross_entropy)
                tokens += first.targets
        forward, backward, tokens = self.share.total([forward, backward, tokens])
        loss = (forward + backward) / (2 * tokens)
        scores = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "forward_perplexity": perplexity(forward / tokens),
            "backward_perplexity": perplexity(backward / tokens),
        }
        return ValidationResult(scores)


def _both_directions(batch: "LazyBatch[TokenBatch]") -> "LazyBatch[BidirectionalBatch]":
    from regard.training.batches import LazyBatch

    def gather(rank: int, world_size: int) -> "BidirectionalBatch":
        return _bidirectional(batch.shard(rank, world_size))

    return LazyBatch(batch.examples, 2 * batch.targets, batch.lengths, gather)


def _bidirectional(batch: "TokenBatch") -> "BidirectionalBatch":
    from regard.training.batches import BidirectionalBatch

    return BidirectionalBatch(**{field.name: getattr(batch, field.name) for field in fields(batch) if field.init})
