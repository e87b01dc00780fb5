"""Language modeling: text in, a network out that continues text; measured by loss and bits per byte."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.config import Config, CorpusConfig
from regard.data.batching import DataPosition, Ids
from regard.data.corpus_scan import CorpusStats, ReportProgress, document_stats
from regard.data.language_batches import (
    BlockBatches,
    LanguageBatch,
    PackedBatches,
    row_lengths,
    validation_source,
)
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_documents import check_lossless_tokenizer, prepare_documents
from regard.data.readers import read_documents
from regard.data.readers.jsonl import JsonLinesReader
from regard.data.tokenizer import unknown_note
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.errors import ConfigError, DataError
from regard.evaluation.likelihood import ProgressCallback, evaluate_language_model, perplexity
from regard.registry import ExampleType
from regard.tasks.common import (
    DEFAULT_CONTEXT_LENGTH,
    check_context,
    check_text_corpus,
    check_text_data,
    context_length,
    describe_rows,
    device_of,
)
from regard.training.automatic_settings import (
    RECURRENT_SCHEDULE,
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
from regard.training.display import Sample
from regard.training.network_sizes import EPOCHS_LIMIT, TRAINING_SHARE, fit_size, parse_size, peak_of_gpt, with_dropout
from regard.training.task import (
    ALL_WORK,
    Ability,
    Check,
    Evaluation,
    EvaluationOptions,
    NetworkTask,
    TrainedModel,
    ValidationResult,
)

if TYPE_CHECKING:
    from regard.models.network import Network
    from regard.training.batches import LazyBatch, TokenBatch
    from regard.training.losses import Objective

SAMPLE_PROMPT_TOKENS, SAMPLE_TOKENS, SAMPLE_TEMPERATURE = 12, 60, 0.8  # continuations shown at each validation
LANGUAGE_MODEL_SIZES = [
    NetworkSize(3_000_000, "a small GPT", 128, 4, 4, 512, 0.1),
    NetworkSize(50_000_000, "a medium GPT", 256, 6, 8, 1024, 0.1),
    NetworkSize(math.inf, "a larger GPT", 384, 6, 6, 1536, 0.0),
]
RECURRENT_LANGUAGE_MODEL_SIZES = [
    NetworkSize(3_000_000, "a small recurrent network", 256, 2, None, None, 0.2),
    NetworkSize(50_000_000, "a medium recurrent network", 512, 2, None, None, 0.1),
    NetworkSize(math.inf, "a large recurrent network", 1024, 2, None, None, 0.0),
]
NO_SMOOTHING = AutomaticSetting(
    "training.label_smoothing", 0.0, "a language model is measured by the probabilities it assigns"
)


class LanguageModelingTask(NetworkTask):
    """Train a language model."""

    name = "gpt"
    title = "language model"
    help = "a language model, from text"
    noun = "language model"
    suggested_for: ClassVar[ExampleType | None] = "documents"
    chooses_size = True
    evaluation_options = frozenset({"context_length"})
    model: ClassVar = {"kind": "decoder-only"}
    builtin_splits: ClassVar = {"builtin:python-docs": {"valid": "builtin:python-docs-dev"}}

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """Generate text."""
        return ("generate",)

    def check(self, config: Config) -> None:
        """The data are texts without translations or parses."""
        check_text_data(config, "a language model")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the text once."""
        return document_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this amount of text."""
        size = choose_size(RECURRENT_LANGUAGE_MODEL_SIZES if user.recurrent else LANGUAGE_MODEL_SIZES, stats.characters)
        tokenizer = text_tokenizer(stats.characters, user)
        tokens = token_count(stats.characters, tokenizer.value)
        if user.fine_tuning:
            return [
                NO_SMOOTHING,
                AutomaticSetting("training.max_grad_norm", 1.0, "as GPT"),
                AutomaticSetting("training.optimizer.kind", "adamw", "as GPT"),
                *fine_tuning_settings(tokens, user),
            ]
        length = RunLength(min(30, max(2, 60_000_000 / tokens)), max_epochs=EPOCHS_LIMIT)
        network = network_settings(size, f"{stats.characters:,} characters: {size.name}", user)
        if user.size is not None:
            chosen = user.size.name or f"learns most of this text in {user.minutes:g} minutes on this machine"
            network = network_settings(user.size, chosen, user)
        return [
            *network,
            tokenizer,
            vocab_setting(stats.characters, tokenizer.value, largest=64_000),
            NO_SMOOTHING,
            *(RECURRENT_SCHEDULE if user.recurrent else _gpt_settings(user)),
            *length_settings(tokens, length, user),
        ]

    def sized(
        self, stats: CorpusStats, user: UserSettings, size: str | None, measure: Callable[[UserSettings], float]
    ) -> UserSettings:
        """A network of the requested size, or the one that learns most in the time, as far as the user set none."""
        if not self.chooses_size:
            return super().sized(stats, user, size, measure)
        tokenizer = text_tokenizer(stats.characters, user).value
        tokens = token_count(stats.characters, tokenizer)
        is_open = user.width is None and not user.recurrent and not user.fine_tuning
        if size is not None:
            if not is_open:
                raise ConfigError(
                    f"--size {size}: the network has a size already, by a preset, --from, model.kind or model.width; "
                    "remove one of them."
                )
            vocabulary = vocab_setting(stats.characters, tokenizer, largest=64_000).value
            user = replace(user, size=parse_size(size, user.vocab_size or vocabulary))
        if user.minutes is None:
            return user
        seconds = 60 * user.minutes * TRAINING_SHARE
        if user.size is None and is_open:
            fit = fit_size(seconds, tokens, lambda size: measure(replace(user, size=size)))
            return replace(user, size=fit.size, budget_tokens=fit.tokens)
        budget = seconds / measure(user)
        chosen = None if user.size is None else with_dropout(user.size, budget / tokens)
        return replace(user, size=chosen, budget_tokens=budget)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the text."""
        if config.tokenizer.file is None:
            check_lossless_tokenizer(config.tokenizer.kind)
        return prepare_documents(folder, key, config, report)

    def prepared_settings(self, config: Config, prepared: PreparedData) -> dict[str, Any]:
        """The context length that was trained on, which a model folder keeps."""
        return {"data": {"context_length": context_length(config)}}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Loss, perplexity and bits per byte of the text; for conversations, the loss of the assistant's tokens."""
        check_text_corpus(model, corpus, self.noun)
        if self.name == LanguageModelingTask.name and JsonLinesReader.matches(corpus.files[0]):
            from regard.data.conversations import holds_conversations
            from regard.tasks.chat import ChatTask

            if holds_conversations(corpus.files):
                return ChatTask().evaluate(model, corpus, options, invalid, count)
        trained = model.config.context_window or model.config.data.context_length
        context = check_context(model, options.context_length) or trained or DEFAULT_CONTEXT_LENGTH
        name, documents = ", ".join(corpus.file_names), read_documents(corpus.files, invalid, corpus.columns)
        likelihood = evaluate_language_model(model, documents, name, context, count)
        if likelihood.unknown:
            invalid.note(f"{unknown_note(likelihood.unknown, likelihood.tokens)}; bits per byte are left out")
        return Evaluation({"context_length": context}, likelihood)

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundLanguageModeling":
        """Bind the task to text and a network."""
        return BoundLanguageModeling(config, prepared, network)


def _gpt_settings(user: UserSettings) -> list[AutomaticSetting]:
    values = {
        "model.activation": "gelu",
        "model.norm_order": "pre",
        "model.positions.kind": "learned",
        "model.scale_embeddings": False,
        "training.max_grad_norm": 1.0,
        "training.optimizer.kind": "adamw",
        "training.optimizer.weight_decay": 0.1,
        "training.schedule.kind": "cosine",
    }
    peak = AutomaticSetting("training.schedule.learning_rate", 1e-3, "stable for small language models")
    width = user.width or (user.size.width if user.size is not None else None)
    if width is not None and (user.size is not None or user.minutes is not None):
        peak = AutomaticSetting("training.schedule.learning_rate", peak_of_gpt(width), "learned most for this width")
    return [
        *(AutomaticSetting(key, value, "as GPT") for key, value in values.items()),
        AutomaticSetting("model.positions.max_length", user.context_length or 256, "the context length"),
        peak,
    ]


class BoundLanguageModeling:
    """Batches, objective and validation of a language model."""

    unit = "tokens"
    share = ALL_WORK

    def __init__(self, config: Config, prepared: PreparedData, network: "Network") -> None:
        from regard.models.summary import FlopCounter

        self.config = config
        self.network = network
        self.tokenizer = prepared.tokenizer
        self.context_length = context_length(config)
        self._valid, self._test = prepared.valid, prepared.test
        if not len(prepared.valid.store.columns[0].ids):  # before training, and not at its first validation
            raise DataError(
                "data.valid has no text to measure the model on; pass more text than "
                f"{', '.join(config.data.train.file_names)} has, or a file with --valid."
            )
        self._separate = config.data.documents == "separate"
        self._source = self._training_batches(prepared.train)
        self._flops = FlopCounter(network)

    def _training_batches(self, split: PreparedSplit) -> BlockBatches | PackedBatches:
        (column,) = split.store.columns
        batches = PackedBatches if self._separate else BlockBatches
        training, weights = self.config.training, split.weights(self.config.data.train)
        return batches(column, self.context_length, training.batch_tokens, self.config.tokens, training.seed, weights)

    def objective(self) -> "Objective[Any]":
        """Predict each token from those before it."""
        from regard.training.losses import CausalLMObjective

        return CausalLMObjective(self.network, self.config.training.label_smoothing)

    def batches(self, position: DataPosition) -> "Iterator[tuple[DataPosition, LazyBatch[Any]]]":
        """Blocks of text, or documents packed into rows, shuffled in each epoch."""
        for after, spans in self._source.iterate_spans(position):
            yield after, self._lazy_batch(spans)

    def _lazy_batch(self, spans: Ids) -> "LazyBatch[TokenBatch]":
        import torch

        from regard.training.batches import LazyBatch

        lengths = row_lengths(spans)

        def gather(rank: int, world_size: int) -> "TokenBatch":
            return token_batch(self._source.batch(spans, rank, world_size))

        return LazyBatch(len(lengths), int(lengths.sum()), [torch.from_numpy(lengths)], gather)

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._source.num_batches(0)

    def flops(self, batch: "LazyBatch[Any]") -> float:
        """Forward and backward pass, without padding, as if each token attended to its whole row."""
        return self._flops.training_flops(batch.lengths[0])

    def describe(self, position: DataPosition, batch: "LazyBatch[Any]") -> str:
        """The size of a batch, and the start of its first row."""
        return describe_rows(batch.shard(0, 1).target, position, self.tokenizer)

    def validate(self, check: Check) -> ValidationResult:
        """Loss and bits per byte of the validation text, and a few continuations."""
        return self._measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same for the test text."""
        return self._measure(self._test, check) if self._test is not None else None

    def _measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        import torch

        from regard.training.losses import CausalLMObjective

        objective, total, targets = CausalLMObjective(self.network, 0.0), 0.0, 0.0
        with torch.no_grad():
            for batch in self._validation_batches(split, check):
                loss = objective(batch)
                total, targets = total + float(loss.cross_entropy), targets + loss.targets
            total, targets = self.share.total([total, targets])
            scores = {"loss": total / targets, "perplexity": perplexity(total / targets)}
            # an unknown token costs the same whatever its text is, so that the text would look too cheap
            if not split.unknown_tokens(self.tokenizer) and (size := self._bytes(split)):
                scores["bits_per_byte"] = total / math.log(2) / size
            return ValidationResult(scores, list(self._samples(split, check)) if self.share.rank == 0 else [])

    def _validation_batches(self, split: PreparedSplit, check: Check) -> "Iterator[TokenBatch]":
        """Every token of a split once, in order, on the device of the network; the share of this process."""
        (column,) = split.store.columns
        tokens, device = self.config.training.batch_tokens, device_of(self.network)
        source = validation_source(column, self.context_length, tokens, self.config.tokens, separate=self._separate)
        for spans in self.share.own(source.plan(0)):
            check()
            yield token_batch(source.batch(spans)).to(device)

    def _bytes(self, split: PreparedSplit) -> int:
        """The size of the text in bytes of UTF-8."""
        (column,) = split.store.columns
        return sum(len(self.tokenizer.decode(column[n].tolist()).encode()) for n in range(len(split.store)))

    def _samples(self, split: PreparedSplit, check: Check) -> Iterator[Sample]:
        """Continuations of evenly spaced prompts of the text, the same at each validation."""
        from regard.decoding.sampling import Sampler

        (column,) = split.store.columns
        for number in range(self.config.validation.samples):
            check()
            start = number * len(column.ids) // max(1, self.config.validation.samples)
            prompt = column.ids[start : start + min(SAMPLE_PROMPT_TOKENS, self.context_length - 1)].astype("int64")
            if len(prompt) == 0:
                continue
            length = min(SAMPLE_TOKENS, self.context_length - len(prompt))
            sampling = SamplingOptions(
                temperature=SAMPLE_TEMPERATURE, seed=number, constraints=OutputConstraints(max_tokens=length)
            )
            sampler = Sampler([self.network], [prompt.tolist()], [0], self.config.tokens, sampling)
            while sampler.active:
                sampler.step()
            yield Sample(self.tokenizer.decode(prompt.tolist()), "", self.tokenizer.decode(sampler.generated(0)))


def token_batch(batch: LanguageBatch) -> "TokenBatch":
    """Return a batch as tensors, which share its memory."""
    import torch

    from regard.training.batches import TokenBatch

    return TokenBatch(
        target=torch.from_numpy(batch.ids),
        labels=torch.from_numpy(batch.labels),
        target_mask=None if batch.mask is None else torch.from_numpy(batch.mask),
        features=None if batch.document_ids is None else {"document_ids": torch.from_numpy(batch.document_ids)},
    )
