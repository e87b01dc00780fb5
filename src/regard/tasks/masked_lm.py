"""Masked language modeling: text in, an encoder out that predicts masked tokens, as BERT is pretrained."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.config import Config, CorpusConfig
from regard.data.batching import CorpusWeights, DataPosition
from regard.data.corpus_scan import CorpusStats, ReportProgress, document_stats
from regard.data.encoder_batches import (
    NUM_SPECIAL_TOKENS,
    JoinedPassages,
    PassageBatch,
    PassagePlan,
    PassageSource,
    SeparatePassages,
)
from regard.data.lines import InvalidLines
from regard.data.masking import MaskedTokens, MaskingDraws, TokenMasker, format_masked
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_documents import LOSSLESS_TOKENIZERS, prepare_documents
from regard.data.store import TokenColumn
from regard.data.tokenizer import MASK_TOKENS, load_tokenizer, mask_token_id
from regard.errors import ConfigError, DataError
from regard.evaluation.likelihood import ProgressCallback, perplexity
from regard.models.folder_files import TOKENIZER_FILE, resolve_model_folder
from regard.tasks.common import check_text_data, context_length, describe_rows, device_of, evaluate_text
from regard.training.automatic_settings import (
    AutomaticSetting,
    NetworkSize,
    RunLength,
    UserSettings,
    choose_size,
    fine_tuning_settings,
    length_settings,
    network_settings,
    token_count,
    vocab_setting,
)
from regard.training.display import Sample
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
    from regard.training.batches import LazyBatch, MaskedBatch
    from regard.training.losses import MaskedLMObjective

SAMPLE_TOKENS = 24
MASKED_LM_SIZES = [
    NetworkSize(3_000_000, "a small encoder", 128, 4, 4, 512, 0.1),
    NetworkSize(50_000_000, "a medium encoder", 256, 6, 8, 1024, 0.1),
    NetworkSize(math.inf, "a larger encoder", 384, 6, 6, 1536, 0.1),
]


class MaskedLMTask(NetworkTask):
    """Train an encoder to predict masked tokens."""

    name = "masked"
    title = "masked language model"
    help = "a BERT text encoder, from text"
    noun = "masked language model"
    evaluation_options = frozenset({"context_length"})
    metrics = ("loss", "accuracy")
    model: ClassVar = {"kind": "encoder-only", "head": {"kind": "tokens"}}
    builtin_splits: ClassVar = {"builtin:python-docs": {"valid": "builtin:python-docs-dev"}}

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """Fill masks, and embed texts."""
        return ("fill", "embed") if config.tokens.mask is not None else ("embed",)

    def check(self, config: Config) -> None:
        """The data are texts; the tokenizer must have a mask token; a passage must hold at least one token of text."""
        check_text_data(config, "an encoder")
        if config.tokenizer.file is not None and config.tokens.mask is None:
            raise DataError(
                f"{config.tokenizer.file}: has no mask token, such as {' or '.join(MASK_TOKENS)}; "
                "add one, or leave tokenizer.file out to train a tokenizer that has one."
            )
        start = config.training.start_from
        if start is not None and mask_token_id(load_tokenizer(resolve_model_folder(start) / TOKENIZER_FILE)) is None:
            raise ConfigError(
                f"{start}: its tokenizer has no mask token, such as {' or '.join(MASK_TOKENS)}; "
                "start from a model that has one, such as those of regard train masked."
            )
        if context_length(config) <= NUM_SPECIAL_TOKENS:
            raise ConfigError(
                f"data.context_length = {context_length(config)} leaves no room for text between the start and end "
                f"tokens; use {NUM_SPECIAL_TOKENS + 1} or more."
            )

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the text once."""
        return document_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this amount of text."""
        size = choose_size(MASKED_LM_SIZES, stats.characters)
        tokenizer = user.tokenizer or "bpe"
        tokens = token_count(stats.characters, tokenizer)
        bert = {
            "model.activation": "gelu",
            "model.positions.kind": "learned",
            "model.scale_embeddings": False,
            "training.max_grad_norm": 1.0,
            "training.optimizer.kind": "adamw",
            "training.optimizer.weight_decay": 0.01,
        }
        smoothing = AutomaticSetting("training.label_smoothing", 0.0, "predictions are measured by their probabilities")
        if user.fine_tuning:
            training = (
                AutomaticSetting(key, value, "as BERT") for key, value in bert.items() if key.startswith("training.")
            )
            return [smoothing, *training, *fine_tuning_settings(tokens, user)]
        return [
            *network_settings(size, f"{stats.characters:,} characters: {size.name}", user),
            *(AutomaticSetting(key, value, "as BERT") for key, value in bert.items()),
            AutomaticSetting("model.norm_order", "pre", "trains without a long warmup"),
            AutomaticSetting("model.positions.max_length", user.context_length or 128, "the passage length"),
            AutomaticSetting("tokenizer.kind", tokenizer, "subwords that mark the start of words"),
            vocab_setting(stats.characters, tokenizer),
            smoothing,
            AutomaticSetting("training.schedule.kind", "cosine", "decays to zero, as BERT's schedule does"),
            AutomaticSetting("training.schedule.learning_rate", 1e-3, "stable for small encoders"),
            # An epoch predicts one token in seven, where a language model predicts all of them.
            *length_settings(tokens, RunLength(min(100, max(4, 200_000_000 / tokens))), user),
        ]

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the text."""
        file = config.tokenizer.file
        spaced = (
            load_tokenizer(Path(file)).marks_word_starts if file else config.tokenizer.kind not in LOSSLESS_TOKENIZERS
        )
        return prepare_documents(folder, key, config, report, single_spaces=spaced, mask_token=True)

    def prepared_settings(self, config: Config, prepared: PreparedData) -> dict[str, Any]:
        """The id of the mask token."""
        return {"tokens": {"mask": mask_token_id(prepared.tokenizer)}} if config.tokens.mask is None else {}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Loss, perplexity and accuracy of masked tokens, as in validation."""
        spaced = model.tokenizer.marks_word_starts
        return evaluate_text(self, model, corpus, options, invalid, count, spaced=spaced)

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundMaskedLM":
        """Bind the task to text and a network."""
        return BoundMaskedLM(config, prepared, network)


class BoundMaskedLM:
    """Batches, objective and validation of a masked language model."""

    unit = "tokens"
    share = ALL_WORK

    def __init__(self, config: Config, prepared: PreparedData, network: "Network") -> None:
        from regard.models.network import EncoderNetwork
        from regard.models.summary import FlopCounter

        assert isinstance(network, EncoderNetwork)
        self.config = config
        self.network: Network = network
        self._encoder = network
        self.tokenizer = prepared.tokenizer
        self._valid, self._test = prepared.valid, prepared.test
        self._masker = TokenMasker(config.training.masking, prepared.tokenizer, config.tokens)
        for name, split in prepared.splits.items():
            self._check_text(split.store.columns[0], name)
        weights = prepared.train.weights(config.data.train)
        self._source = self._passages(prepared.train, config.training.seed, weights)
        self._flops = FlopCounter(network, exclude=network.pooling)

    def objective(self) -> "MaskedLMObjective":
        """Predict masked tokens."""
        from regard.training.losses import MaskedLMObjective

        return MaskedLMObjective(self._encoder, self.config.training.label_smoothing)

    def batches(self, position: DataPosition) -> "Iterator[tuple[DataPosition, LazyBatch[MaskedBatch]]]":
        """Passages, shuffled in each epoch and masked differently each time."""
        for after, plan in self._source.iterate(position):
            yield after, self._lazy_batch(plan, [self.config.training.seed, after.epoch, after.batch])

    def _lazy_batch(self, plan: PassagePlan, seed: Sequence[int]) -> "LazyBatch[MaskedBatch]":
        """A batch whose rows are masked with their part of the random numbers of the whole batch.

        How many tokens are selected depends on the text: unknown tokens are not, and whole words are or are not.
        """
        from regard.training.batches import LazyBatch

        def gather(rank: int, world_size: int) -> "MaskedBatch":
            batch = plan.read(rank, world_size)
            draws = MaskingDraws.sample(plan.shape, np.random.default_rng(seed)).rows(rank, world_size)
            return _tensors(batch, self._masker.apply(batch.ids, draws))

        return LazyBatch(len(plan.lengths), None, (), gather)

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._source.batches_per_epoch

    def flops(self, batch: "LazyBatch[MaskedBatch]") -> float:
        """Forward and backward pass, without padding; only masked tokens are predicted."""
        rows = batch.rows_read
        return self._flops.training_flops(rows.selected.sum(1), rows.mask.sum(1)) * batch.examples / rows.examples

    def describe(self, position: DataPosition, batch: "LazyBatch[MaskedBatch]") -> str:
        """The size of a batch, and the start of its first passage."""
        return describe_rows(batch.shard(0, 1).original, position, self.tokenizer)

    def validate(self, check: Check) -> ValidationResult:
        """Loss and accuracy of masked tokens of the validation text, the same at each validation, and samples."""
        return self._measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same for the test text."""
        return self._measure(self._test, check) if self._test is not None else None

    def _measure(self, split: PreparedSplit, check: Check) -> ValidationResult:
        import torch

        from regard.training.losses import MaskedLMObjective, smoothed_cross_entropy

        objective, total, correct, targets = MaskedLMObjective(self._encoder, 0.0), 0.0, 0.0, 0.0
        device = device_of(self.network)
        with torch.no_grad():
            for number, plan in self.share.own(enumerate(self._passages(split).validation_batches())):
                check()
                states, originals = objective.states(self._lazy_batch(plan, [number]).to(device))
                logits = objective.network.logits(states)
                total += float(smoothed_cross_entropy(logits, originals).cross_entropy)
                correct += int((logits.argmax(-1) == originals).sum())
                targets += len(originals)
            total, correct, targets = self.share.total([total, correct, targets])
            loss = total / targets
            scores = {"loss": loss, "perplexity": perplexity(loss), "accuracy": correct / targets}
            return ValidationResult(scores, list(self._samples(split, check)) if self.share.rank == 0 else [])

    def _samples(self, split: PreparedSplit, check: Check) -> Iterator[Sample]:
        """Evenly spaced pieces of the text, the same at each validation: masked, original, and filled by the model."""
        from regard.decoding.encoder_inference import predict_masks

        (column,), count = split.store.columns, self.config.validation.samples
        always = self.config.training.masking.model_copy(update={"mask_fraction": 1.0, "random_fraction": 0.0})
        masker = TokenMasker(always, self.tokenizer, self.config.tokens)
        length = min(SAMPLE_TOKENS, context_length(self.config) - NUM_SPECIAL_TOKENS)
        for number in range(count):
            check()
            ids = _piece(column, number * len(column.ids) // count, length)
            masked = masker.apply(ids[None], MaskingDraws.sample((1, len(ids)), np.random.default_rng([number])))
            positions = np.flatnonzero(masked.selected).tolist()
            if not positions:
                continue
            (candidates,) = predict_masks([self.network], [masked.input_ids[0].tolist()], self.config.tokens, top_k=1)
            filled = ids.copy()
            filled[positions] = [ranked[0][0] for ranked in candidates]
            text = format_masked(self.tokenizer, ids.tolist(), positions)
            yield Sample(text, self.tokenizer.decode(ids.tolist()), self.tokenizer.decode(filled.tolist()))

    def _passages(self, split: PreparedSplit, seed: int = 0, weights: CorpusWeights | None = None) -> PassageSource:
        (column,) = split.store.columns
        passages = SeparatePassages if self.config.data.documents == "separate" else JoinedPassages
        length, tokens = context_length(self.config), self.config.training.batch_tokens
        return passages(column, length, tokens, self.config.tokens, seed, weights)

    def _check_text(self, column: TokenColumn, name: str) -> None:
        """Raise a DataError if there is no token that can be masked."""
        step = 2**16
        if not any(self._masker.maskable(column.ids[n : n + step]).any() for n in range(0, len(column.ids), step)):
            raise DataError(
                f"data.{name} has no token that the tokenizer knows, so none can be masked; provide more text."
            )


def _piece(column: TokenColumn, start: int, length: int) -> NDArray[np.int64]:
    """`length` tokens of the document at `start`: from there on or, near its end, its last ones."""
    document = int(np.searchsorted(column.ends, start, side="right"))
    first = int(column.ends[document - 1]) if document else 0
    end = min(start + length, int(column.ends[document]))
    return column.ids[max(first, end - length) : end].astype(np.int64)


def _tensors(batch: PassageBatch, masked: MaskedTokens) -> "MaskedBatch":
    import torch

    from regard.training.batches import MaskedBatch

    return MaskedBatch(
        ids=torch.from_numpy(masked.input_ids),
        original=torch.from_numpy(batch.ids),
        selected=torch.from_numpy(masked.selected),
        mask=torch.from_numpy(batch.mask),
    )
