"""The task of language modelling: text in, a network out that continues it, measured by loss and bits per byte."""

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import Config, CorpusConfig
from regard.data.batching import DataPosition
from regard.data.language_batches import BlockBatches, LanguageBatch, PackedBatches, validation_batches
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_documents import check_lossless_tokenizer, prepare_documents
from regard.data.stats import CorpusStats, ReportProgress, document_stats
from regard.data.tokenizer import Tokenizer
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.sampling import Sampler
from regard.evaluation.scoring import perplexity
from regard.models.anatomy import FlopCounter
from regard.models.network import Network
from regard.training.automatic_settings import AutomaticSetting, UserSettings, picks_for_text
from regard.training.display import Sample
from regard.training.objectives import NextToken, Objective, TokenBatch
from regard.training.one_sided import check_one_sided
from regard.training.task import Check, ValidationResult

CONTEXT = 256
PROMPT, CONTINUATION, TEMPERATURE = 12, 60, 0.8  # tokens, tokens, and how daring: samples at each validation


class LanguageKind:
    """How a language model comes about."""

    name = "language model"

    def check(self, config: Config) -> None:
        """Text has no other side, and no parses."""
        check_one_sided(config, "a language model")

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the text once."""
        return document_stats(corpus, skip_invalid, report)

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit so much text."""
        return picks_for_text(scan, said)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Make tokenizer and stores."""
        if config.tokenizer.file is None:
            check_lossless_tokenizer(config.tokenizer.kind)
        return prepare_documents(folder, key, config, report)

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "LanguageModelling":
        """The task itself."""
        return LanguageModelling(config, prepared, network)


class LanguageModelling:
    """Training a language model."""

    name = "language model"
    unit = "tokens"

    def __init__(self, config: Config, prepared: PreparedData, network: Network) -> None:
        self.config = config
        self.network = network
        self.tokenizer = prepared.tokenizer
        self.context = context_of(config)
        self._valid, self._test = prepared.valid, prepared.test
        self._apart = config.data.documents == "separate"
        (column,) = prepared.train.store.columns
        plan = PackedBatches if self._apart else BlockBatches
        training = config.training
        self._plan = plan(column, self.context, training.batch_tokens, config.tokens, training.seed)
        self._cost = FlopCounter(network)

    def objective(self) -> Objective[Any]:
        """Predict each token from those before it."""
        return NextToken(self.network, self.config.training.label_smoothing)

    def batches(self, place: DataPosition) -> Iterator[tuple[DataPosition, TokenBatch]]:
        """Blocks of text, or documents packed into rows, shuffled each epoch."""
        for after, batch in self._plan.iterate(place):
            yield after, tensors(batch)

    @cached_property
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""
        return self._plan.num_batches(0)

    def flops(self, batch: TokenBatch) -> float:
        """Forward and backward, pads not counted; each token is taken to see its whole row."""
        return self._cost.training_flops(self._lengths(batch))

    def _lengths(self, batch: TokenBatch) -> Tensor:
        """How many real tokens each row has."""
        real = batch.target_mask
        return real.sum(1) if real is not None else torch.full((len(batch.target),), batch.target.size(1))

    def describe(self, place: DataPosition, batch: TokenBatch) -> str:
        """Its size, and how its first row begins."""
        return describe_rows(batch.target, place, self.tokenizer)

    def validate(self, check: Check) -> ValidationResult:
        """Loss and bits per byte of the validation text, and a few continuations."""
        return self._measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same for the test text."""
        return self._measure(self._test, check) if self._test is not None else None

    @torch.no_grad()
    def _measure(self, part: PreparedSplit, check: Check) -> ValidationResult:
        objective, total, targets = NextToken(self.network, 0.0), 0.0, 0
        for batch in self._in_order(part, check):
            found = objective(batch)
            total, targets = total + float(found.cross_entropy), targets + found.targets
        loss = total / targets
        scores = {"loss": loss, "perplexity": perplexity(loss)}
        if size := self._bytes(part):
            scores["bits_per_byte"] = total / math.log(2) / size
        return ValidationResult(scores, list(self._samples(part, check)))

    def _in_order(self, part: PreparedSplit, check: Check) -> Iterator[TokenBatch]:
        """Every token of a part once, as the text runs, on the device of the network."""
        (column,) = part.store.columns
        tokens = self.config.training.batch_tokens
        device = next(self.network.parameters()).device
        for batch in validation_batches(column, self.context, tokens, self.config.tokens, apart=self._apart):
            check()
            yield tensors(batch).to(device)

    def _bytes(self, part: PreparedSplit) -> int:
        """The size of the text in bytes of UTF-8."""
        (column,) = part.store.columns
        return sum(len(self.tokenizer.decode(column[n].tolist()).encode()) for n in range(len(part.store)))

    def _samples(self, part: PreparedSplit, check: Check) -> Iterator[Sample]:
        """Continuations of places in the text, always the same ones."""
        (column,) = part.store.columns
        for number in range(self.config.validation.samples):
            check()
            begin = number * len(column.ids) // max(1, self.config.validation.samples)
            prompt = column.ids[begin : begin + min(PROMPT, self.context - 1)].astype("int64")
            if len(prompt) == 0:
                continue
            length = min(CONTINUATION, self.context - len(prompt))
            sampling = SamplingOptions(
                temperature=TEMPERATURE, seed=number, constraints=OutputConstraints(max_length=length)
            )
            writer = Sampler([self.network], [prompt.tolist()], [0], self.config.tokens, sampling)
            while writer.active:
                writer.step()
            yield Sample(self.tokenizer.decode(prompt.tolist()), "", self.tokenizer.decode(writer.generated(0)))


def context_of(config: Config) -> int:
    """How many tokens are read at once."""
    return config.data.context_length or config.model.max_length or CONTEXT


def describe_rows(ids: Tensor, place: DataPosition, tokenizer: Tokenizer) -> str:
    """The size of a batch of texts (B, T), and how its first row begins."""
    first = tokenizer.decode(ids[0, :20].tolist())
    rows, length = ids.shape
    return f"epoch {place.epoch + 1}, batch {place.batch}: {rows} rows of {length} tokens, the first {first!r}…"


def tensors(batch: LanguageBatch) -> TokenBatch:
    """A batch of text as an objective takes it."""
    return TokenBatch(
        target=torch.from_numpy(batch.ids),
        labels=torch.from_numpy(batch.labels),
        target_mask=None if batch.mask is None else torch.from_numpy(batch.mask),
        features=None if batch.document_ids is None else {"document_ids": torch.from_numpy(batch.document_ids)},
    )
