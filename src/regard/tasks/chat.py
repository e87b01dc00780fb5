"""Supervised fine-tuning on conversations: a language model learns what the assistant writes, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from regard.config import Config, CorpusConfig
from regard.data.batching import CorpusWeights, Ids
from regard.data.conversation_batches import ChatBatch, ConversationBatches
from regard.data.corpus_scan import CorpusStats, ReportProgress
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.errors import ConfigError
from regard.evaluation.likelihood import ProgressCallback, perplexity
from regard.tasks.common import TextScores, check_context, check_text_data, device_of
from regard.tasks.language_modeling import NO_SMOOTHING, BoundLanguageModeling, LanguageModelingTask, token_batch
from regard.training.automatic_settings import (
    AutomaticSetting,
    UserSettings,
    fine_tuning_settings,
    text_tokenizer,
    token_count,
)
from regard.training.display import Sample
from regard.training.task import Check, Evaluation, EvaluationOptions, TrainedModel, ValidationResult

if TYPE_CHECKING:
    from regard.models.network import Network
    from regard.training.batches import LazyBatch
    from regard.training.chat_objectives import ChatTokens
    from regard.training.losses import Objective

CHAT_CONTEXT = 512
SAMPLE_TOKENS = 80  # of an answer that is shown at a validation


class ChatTask(LanguageModelingTask):
    """Fine-tune a language model on conversations."""

    name = "chat"
    title = "chat model"
    help = "a chat model, from conversations in OpenAI's format and a language model (--from)"
    noun = "language model"
    suggested_for = None
    chooses_size = False
    uses_chat_template = True
    metrics = ("loss",)
    evaluation_options = frozenset({"context_length"})
    model: ClassVar = {"kind": "decoder-only"}
    builtin_splits: ClassVar = {}

    def check(self, config: Config) -> None:
        """The data are conversations, and training starts from a model with a tokenizer."""
        check_text_data(config, "a chat model")
        check_chat_start(config, self.name)

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the conversations once."""
        from regard.data.conversations import conversation_stats

        return conversation_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this amount of text."""
        return chat_settings(stats, user)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the conversations."""
        from regard.data.conversations import prepare_conversations

        return prepare_conversations(folder, key, config, chat_context(config) + 1, report)

    def prepared_settings(self, config: Config, prepared: PreparedData) -> dict[str, Any]:
        """The context length that was trained on, which a model folder keeps."""
        return {"data": {"context_length": chat_context(config)}}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Loss and perplexity of the answers in conversations, exactly as validated."""
        from regard.data.conversations import prepare_conversations

        context = check_context(model, options.context_length) or chat_context(model.config)
        settings = {"train": corpus, "valid": corpus, "test": CorpusConfig(), "skip_invalid": invalid.skip}
        data = model.config.data.model_copy(update={**settings, "context_length": context})
        tokenizer = model.config.tokenizer.model_copy(update={"file": str(model.folder / "tokenizer.json")})
        config = model.config.model_copy(update={"data": data, "tokenizer": tokenizer})
        with TemporaryDirectory(prefix="regard-") as folder:
            prepared = prepare_conversations(
                Path(folder), "", config, context + 1, lambda what, done: count("reading", done, None)
            )
            for message in prepared.valid.omissions():
                invalid.note(message)
            bound = BoundChat(config, prepared, model.network.eval())
            scores = bound.losses(prepared.valid, lambda: None)
            learned = int(prepared.valid.store.columns[1].ids[:].sum())
        return Evaluation({"context_length": context}, TextScores(scores, learned))

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundChat":
        """Bind the task to conversations and a network."""
        return BoundChat(config, prepared, network)


def check_chat_start(config: Config, task: str) -> None:
    """Raise a ConfigError unless training starts from a language model."""
    if not config.model.generates:
        raise ConfigError(f"regard train {task}: model.kind = {config.model.kind!r} is no language model; use one.")
    if config.training.start_from is None:
        raise ConfigError(
            f"train {task} fine-tunes a language model, whose tokenizer and chat template it uses; pass --from MODEL."
        )


def chat_context(config: Config) -> int:
    """Number of tokens of a row: the longest conversation that is not cut."""
    positions = config.model.max_length
    return config.data.context_length or min(CHAT_CONTEXT, positions or CHAT_CONTEXT)


def chat_settings(stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
    """Settings of fine-tuning on conversations."""
    tokens = token_count(stats.characters, text_tokenizer(stats.characters, user).value)
    return [
        NO_SMOOTHING,
        AutomaticSetting("training.max_grad_norm", 1.0, "as GPT"),
        AutomaticSetting("training.optimizer.kind", "adamw", "as GPT"),
        *fine_tuning_settings(tokens, user),
    ]


class BoundChat(BoundLanguageModeling):
    """Batches, objective and validation of a model that learns from conversations."""

    _source: ConversationBatches

    def _training_batches(self, split: PreparedSplit) -> ConversationBatches:
        return self._batches_of(split, self.config.training.seed, split.weights(self.config.data.train))

    def _batches_of(
        self, split: PreparedSplit, seed: int = 0, weights: CorpusWeights | None = None
    ) -> ConversationBatches:
        column, learned = split.store.columns
        tokens, special = self.config.training.batch_tokens, self.config.tokens
        longest = int(column.lengths.max(initial=0))  # attention costs the square of a row's length
        length = min(self.context_length, max(CHAT_CONTEXT, longest))
        return ConversationBatches(column, length, tokens, special, seed, weights, learned=learned)

    def objective(self) -> "Objective[Any]":
        """Predict each token of the assistant from those before it."""
        from regard.training.chat_objectives import ChatObjective

        return ChatObjective(self.network, self.config.training.label_smoothing)

    def _lazy_batch(self, spans: Ids) -> "LazyBatch[Any]":
        import torch

        from regard.data.language_batches import row_lengths
        from regard.training.batches import LazyBatch

        lengths = row_lengths(spans)

        def gather(rank: int, world_size: int) -> "ChatTokens":
            return chat_tokens(self._source.chats(spans, rank, world_size))

        return LazyBatch(len(lengths), None, [torch.from_numpy(lengths)], gather)

    def _measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        scores = self.losses(split, check)
        return ValidationResult(scores, list(self._samples(split, check)) if self.share.rank == 0 else [])

    def losses(self, split: PreparedSplit, check: Check) -> dict[str, float]:
        """Loss and perplexity per token of the assistant."""
        import torch

        from regard.training.chat_objectives import ChatObjective

        objective, total, targets = ChatObjective(self.network, 0.0), 0.0, 0.0
        source, device = self._batches_of(split), device_of(self.network)
        with torch.no_grad():
            for spans in self.share.own(source.plan(0)):
                check()
                batch = chat_tokens(source.chats(spans)).to(device)
                if batch.targets:
                    loss = objective(batch)
                    total, targets = total + float(loss.cross_entropy), targets + loss.targets
        total, targets = self.share.total([total, targets])
        return {"loss": total / targets, "perplexity": perplexity(total / targets)}

    def _samples(self, split: PreparedSplit, check: Check) -> Iterator[Sample]:
        """Greedy answers to the last questions of evenly spaced conversations, the same at each validation."""
        from regard.decoding.sampling import Sampler

        column, learned = split.store.columns
        count = min(self.config.validation.samples, len(split.store))
        for number in range(count):
            check()
            example = number * len(split.store) // count
            ids, marks = column[example].astype("int64"), learned[example]
            (last,) = np.flatnonzero(marks)[-1:]
            start = int(np.flatnonzero(marks[: last + 1] == 0)[-1]) + 1 if (marks[: last + 1] == 0).any() else 1
            prompt, answer = ids[:start].tolist(), ids[start : last + 1].tolist()
            length = min(SAMPLE_TOKENS, self.context_length - len(prompt))
            if length < 1:
                continue
            sampling = SamplingOptions(temperature=0.0, constraints=OutputConstraints(max_tokens=length))
            sampler = Sampler([self.network], [prompt], [0], self.config.tokens, sampling)
            while sampler.active:
                sampler.step()
            texts = (self.tokenizer.decode(part) for part in (prompt, answer, sampler.generated(0)))
            yield Sample(*texts)


def chat_tokens(batch: ChatBatch) -> "ChatTokens":
    """Return a batch of conversations as tensors."""
    import torch

    from regard.training.chat_objectives import ChatTokens

    tokens = token_batch(batch.tokens)
    return ChatTokens(
        target=tokens.target,
        labels=tokens.labels,
        target_mask=tokens.target_mask,
        features=tokens.features,
        learned=torch.from_numpy(batch.learned),
    )
