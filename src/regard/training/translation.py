"""The task of translation: pairs of sentences in, a translator out, measured by loss, BLEU and chrF."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Config, CorpusConfig
from regard.data.batching import BatchSampler, DataPosition
from regard.data.bpe_dropout import BpeDropout
from regard.data.pair_batches import Ids, PairBatch, make_pair_batch, pair_batch_from_ids
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_pairs import prepare_pairs
from regard.data.stats import CorpusStats, ReportProgress, pair_stats
from regard.data.store import TokenStore
from regard.decoding.engines.pytorch import TorchEngine
from regard.decoding.options import GREEDY, TranslationOptions
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.evaluation.metrics import score_translations, sentence_chrf
from regard.evaluation.scoring import perplexity
from regard.evaluation.translation import EvaluationSentence, merge_references, separate_references
from regard.models.anatomy import FlopCounter
from regard.models.network import Network
from regard.training.automatic_settings import AutomaticSetting, UserSettings, picks_for_pairs
from regard.training.display import Sample
from regard.training.objectives import NextToken, TokenBatch
from regard.training.ranked import ranked
from regard.training.state import generator
from regard.training.task import Check, ValidationResult

AS_TRAINED = TranslationOptions(
    GREEDY, split_sentences=False
)  # a pair may be several sentences, and is translated as it was learned
AROUND = 1  # each side has one token besides its text: its end, or its start


class TranslationKind:
    """How a translator comes about."""

    name = "translation"

    def check(self, config: Config) -> None:
        """Pairs can be given in every form, except that a parse belongs to a line of a file."""
        reads, positions = config.model.needs_parses, getattr(config.model, "positions", None)
        for name, part in zip(("train", "valid", "test"), config.data.splits, strict=True):
            option = "--" if name == "train" else f"--{name}-"
            if part.parses and not reads:
                used = "the network is recurrent" if positions is None else f"model.positions = {positions.kind!r}"
                raise ConfigError(
                    f"{option}parses: is for model.positions = 'syntax', but {used}; drop it, or use those positions."
                )
            if part.files and reads:
                raise ConfigError(
                    f"{part.files[0]}: holds pairs without parses, but model.positions = 'syntax' needs them; "
                    f"give {option}source, {option}target and {option}parses instead."
                )
            if part.has_files and reads and not part.parses:
                raise ConfigError(
                    f"{option}parses is missing: model.positions = 'syntax' needs every sentence parsed, as CoNLL-U."
                )

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the pairs once."""
        return pair_stats(corpus, skip_invalid, report)

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit so many pairs."""
        return picks_for_pairs(scan, said)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Make tokenizer and stores."""
        return prepare_pairs(folder, key, config, report)

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "Translation":
        """The task itself."""
        return Translation(config, prepared, network)


class Translation:
    """Training a translator."""

    name = "translation"
    unit = "tokens"

    def __init__(self, config: Config, prepared: PreparedData, network: Network) -> None:
        self.config = config
        self.network = network
        self.tokenizer = prepared.tokenizer
        self._valid, self._test = prepared.valid, prepared.test
        self._store = prepared.train.store
        self._plan = BatchSampler(_lengths(self._store), config.training.batch_tokens, config.training.seed)
        dropout = config.tokenizer.dropout
        self._dropout = BpeDropout(prepared.tokenizer, dropout) if dropout else None
        self._cost = FlopCounter(network)

    def objective(self) -> NextToken:
        """Predict each token of the translation."""
        return NextToken(self.network, self.config.training.label_smoothing)

    def batches(self, place: DataPosition) -> Iterator[tuple[DataPosition, TokenBatch]]:
        """Pairs of about equal length, shuffled each epoch."""
        for after, examples in self._plan.iterate(place):
            yield after, _tensors(self._batch(examples, after))

    @cached_property
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""
        return len(self._plan.epoch(0))

    def flops(self, batch: TokenBatch) -> float:
        """Forward and backward, pads not counted."""
        assert batch.target_mask is not None
        assert batch.source_mask is not None
        return self._cost.training_flops(batch.target_mask.sum(1), batch.source_mask.sum(1))

    def describe(self, place: DataPosition, batch: TokenBatch) -> str:
        """Its size, and its first pair."""
        assert batch.source is not None
        source, target = (self.tokenizer.decode(side[0].tolist()) for side in (batch.source, batch.target))
        return (
            f"epoch {place.epoch + 1}, batch {place.batch}: {len(batch.target)} pairs of up to "
            f"{batch.source.size(1)} and {batch.target.size(1)} tokens, the first {source!r} → {target!r}"
        )

    def validate(self, check: Check) -> ValidationResult:
        """Loss over all of the validation data, BLEU and chrF over its first sentences."""
        return self._measure(
            self._valid, separate_references(self._valid.pairs(self.config.validation.sentences)), AS_TRAINED, check
        )

    def test(self, check: Check) -> ValidationResult | None:
        """The same over all of the test data, with the search that is set for it."""
        if self._test is None:
            return None
        settings, pairs = self.config.testing, self._test.pairs(None)
        asked = merge_references(pairs) if settings.references == "grouped" else separate_references(pairs)
        search = replace(GREEDY, beam=settings.beam, length_penalty=settings.length_penalty)
        return self._measure(self._test, asked, replace(AS_TRAINED, search=search), check)

    def _batch(self, examples: Ids, place: DataPosition) -> PairBatch:
        tokens = self.config.tokens
        if self._dropout is None:
            return make_pair_batch(self._store, examples, tokens)
        random = generator(self.config.training.seed, place.epoch, place.batch)
        sources, targets = (
            [np.array(self._dropout.encode(column[n], random), np.int64) for n in examples]
            for column in self._store.columns
        )
        return pair_batch_from_ids(sources, targets, tokens)

    @torch.no_grad()
    def _loss(self, store: TokenStore, check: Check) -> float:
        """The negative log-likelihood per token, without smoothing."""
        objective, total, targets = NextToken(self.network, 0.0), 0.0, 0
        device = next(self.network.parameters()).device
        for examples in BatchSampler(_lengths(store), self.config.training.batch_tokens).epoch(0):
            check()
            loss = objective(_tensors(make_pair_batch(store, examples, self.config.tokens)).to(device))
            total, targets = total + float(loss.cross_entropy), targets + loss.targets
        return total / targets

    def _measure(
        self, part: PreparedSplit, asked: Sequence[EvaluationSentence], wish: TranslationOptions, check: Check
    ) -> ValidationResult:
        loss = self._loss(part.store, check)
        scores = {"loss": loss, "perplexity": perplexity(loss)}
        if not asked:
            return ValidationResult(scores)
        pairs, settings = [one.pair for one in asked], self.config.validation
        sources = [pair.source for pair in pairs]
        engine = TorchEngine([self.network], self.config, check)
        translator = Translator(engine, self.config, self.tokenizer, self.tokenizer)
        parses = [pair.parse for pair in pairs] if self.config.model.needs_parses else None
        outputs = [found.text for found in translator.translate(sources, wish, parses)]
        counted = score_translations(outputs, [one.references for one in asked], bleu_tokenizer=settings.bleu_tokenizer)
        scores |= counted.values
        shown = zip(pairs[: settings.samples], outputs, strict=False)
        samples = [Sample(pair.source, pair.target, output) for pair, output in shown]
        return ValidationResult(
            scores | {"sentences": len(asked)}, samples, counted.signatures, _ranked(asked, outputs)
        )


def _ranked(
    asked: Sequence[EvaluationSentence], outputs: Sequence[str]
) -> Mapping[str, Sequence[Mapping[str, str | float]]]:
    """The best, the worst and some random translations."""
    ratings = sentence_chrf(outputs, [one.references for one in asked])
    rated: list[dict[str, str | float]] = [
        {
            "source": one.pair.source,
            "reference": " / ".join(one.references),
            "output": output,
            "score_translations": round(rating, 1),
        }
        for one, output, rating in zip(asked, outputs, ratings, strict=True)
    ]
    return ranked(rated, ratings, longer="reference")


def _lengths(store: TokenStore) -> NDArray[np.int64]:
    source, target, *_ = store.columns  # what follows are facts about the source
    return np.stack([source.lengths, target.lengths]) + AROUND


def _tensors(batch: PairBatch) -> TokenBatch:
    return TokenBatch(
        target=torch.from_numpy(batch.target),
        labels=torch.from_numpy(batch.labels),
        target_mask=torch.from_numpy(batch.target_mask),
        source=torch.from_numpy(batch.source),
        source_mask=torch.from_numpy(batch.source_mask),
        source_features={name: torch.from_numpy(fact) for name, fact in batch.source_features.items()} or None,
    )
