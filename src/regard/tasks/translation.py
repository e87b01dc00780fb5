"""Translation: sentence pairs in, a translator out; measured by loss, BLEU and chrF."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from regard.config import BLEU_TOKENIZERS, Config, CorpusConfig
from regard.data.batching import BatchSampler, DataPosition, EpochSampler, Ids, make_pair_batch, pair_batch_from_ids
from regard.data.bpe_dropout import BpeDropout
from regard.data.corpus_scan import CorpusStats, ReportProgress, pair_stats
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_pairs import prepare_pairs
from regard.data.readers import read_pairs
from regard.data.readers.base import Pair
from regard.data.store import TokenStore
from regard.decoding.domain import CALIBRATION_SENTENCES, DOMAIN_FILE, Domain, calibrate
from regard.decoding.options import GREEDY, TranslationOptions, search_options
from regard.decoding.results import Translation
from regard.decoding.segmentation import measure_lengths, split_rule
from regard.decoding.translator import Translator, check_parses
from regard.errors import ConfigError, DataError, ModelError
from regard.evaluation.likelihood import ProgressCallback, perplexity, scorable_pairs
from regard.evaluation.metrics import score_translations, sentence_chrf
from regard.evaluation.translation import (
    EvaluationSentence,
    evaluate_translations,
    evaluation_sentences,
    reference_likelihood,
    translate_pairs,
)
from regard.models.folder_files import read_config, resolve_model_folder
from regard.registry import EngineName, Precision
from regard.tasks.common import device_of, rank_outputs
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
    peak_setting,
    token_count,
    validation_split,
    vocab_setting,
)
from regard.training.display import Sample
from regard.training.task import (
    ALL_WORK,
    Ability,
    BoundTask,
    Check,
    Evaluation,
    EvaluationOptions,
    NetworkTask,
    OutputRow,
    TrainedModel,
    ValidationResult,
)

if TYPE_CHECKING:
    from regard.models.network import Network
    from regard.training.batches import LazyBatch, TokenBatch
    from regard.training.losses import CausalLMObjective

NUM_BOUNDARY_TOKENS = 1  # each side has one token besides its text: its end, or its start
TRANSLATION_SIZES = [
    NetworkSize(50_000, "tiny", 128, 4, 4, 256, 0.3),
    NetworkSize(1_000_000, "small", 256, 3, 4, 1024, 0.1),
    NetworkSize(math.inf, "paper-base", 512, 6, 8, 2048, 0.1),
]
RECURRENT_TRANSLATION_SIZES = [
    NetworkSize(50_000, "a small recurrent network", 256, 1, None, None, 0.3),
    NetworkSize(1_000_000, "a medium recurrent network", 256, 2, None, None, 0.2),
    NetworkSize(math.inf, "a large recurrent network", 512, 2, None, None, 0.2),
]


class TranslationTask(NetworkTask):
    """Train a translator."""

    name = "translation"
    title = "translation"
    help = "a translator, from sentence pairs"
    noun = "translator"
    metrics = ("loss", "bleu", "chrf")
    model: ClassVar = {"kind": "encoder-decoder"}
    suggested_for = "pairs"
    reads_aligned_files = True
    data_options = "--source and --target, or --data"
    evaluation_options = frozenset(
        {"beam", "length_penalty", "split_sentences", "engine", "precision", "output", "bleu_tokenizer", "references"}
    )
    builtin_splits: ClassVar = {
        "builtin:phrasebook": {"valid": "builtin:phrasebook-dev", "test": "builtin:phrasebook-test"}
    }

    def abilities(self, config: Config) -> tuple[Ability, ...]:
        """Translate."""
        return ("translate",)

    def check(self, config: Config) -> None:
        """Every format of pairs is fine, except that parses belong to the lines of aligned files."""
        needs_parses, positions = config.model.needs_parses, getattr(config.model, "positions", None)
        for name, split in zip(("train", "valid", "test"), config.data.splits, strict=True):
            prefix = "--" if name == "train" else f"--{name}-"
            if split.parses and not needs_parses:
                actual = "the network is recurrent" if positions is None else f"model.positions = {positions.kind!r}"
                raise ConfigError(
                    f"{prefix}parses: is for model.positions = 'syntax', but {actual}; drop it, or use those positions."
                )
            if split.files and needs_parses:
                raise ConfigError(
                    f"{split.files[0]}: holds pairs without parses, but model.positions = 'syntax' needs them; "
                    f"pass {prefix}source, {prefix}target and {prefix}parses instead."
                )
            if split.has_files and needs_parses and not split.parses:
                raise ConfigError(
                    f"{prefix}parses is missing: model.positions = 'syntax' needs every sentence parsed, as CoNLL-U."
                )

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the pairs once."""
        return pair_stats(corpus, skip_invalid, report)

    def automatic_settings(self, stats: CorpusStats, user: UserSettings) -> list[AutomaticSetting]:
        """Settings for this number of pairs."""
        size = choose_size(RECURRENT_TRANSLATION_SIZES if user.recurrent else TRANSLATION_SIZES, stats.examples)
        tokenizer = user.tokenizer or "bpe"
        tokens = token_count(stats.characters / 2, tokenizer)  # of one side
        length = RunLength(min(60, max(3, 4_000_000 / max(1, stats.examples))))
        if user.fine_tuning:
            return [
                *validation_split(stats.examples, "pairs", user),
                *fine_tuning_settings(tokens, user),
            ]
        syntax = AutomaticSetting("model.positions.kind", "syntax", "the source comes with parses")
        return [
            *network_settings(size, f"{stats.examples:,} pairs: {size.name} fits them with little overfitting", user),
            vocab_setting(stats.characters, tokenizer),
            *validation_split(stats.examples, "pairs", user),
            *(RECURRENT_SCHEDULE if user.recurrent else [peak_setting(size.width, tokens, length, user)]),
            *([syntax] if user.has_parses else []),
            *length_settings(tokens, length, user),
        ]

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Tokenize the pairs."""
        return prepare_pairs(folder, key, config, report)

    def prepared_settings(self, config: Config, prepared: PreparedData) -> dict[str, Any]:
        """The lengths that were trained on, up to which texts are not split; a fine-tuned model keeps longer ones."""
        sources, *_ = prepared.train.store.columns
        lengths = measure_lengths(sources, prepared.tokenizer)
        if config.training.start_from is not None:
            with suppress(ModelError):  # a run can be resumed without the model that it started from
                base = read_config(resolve_model_folder(config.training.start_from)).data
                lengths = {name: max(length, getattr(base, name) or 1) for name, length in lengths.items()}
        return {"data": {name: getattr(config.data, name) or length for name, length in lengths.items()}}

    def evaluate(
        self,
        model: TrainedModel,
        corpus: CorpusConfig,
        options: EvaluationOptions,
        invalid: InvalidLines,
        count: ProgressCallback,
    ) -> Evaluation:
        """Translate the sources, and compare with the references: BLEU, chrF, TER, loss and perplexity."""
        check_parses(model.config.model, has_parses=bool(corpus.parses))
        if corpus.parses and corpus.files:
            raise ConfigError(
                f"{corpus.files[0]}: holds pairs without parses; pass --source, --target and --parses instead."
            )
        bleu_tokenizer = options.bleu_tokenizer or BLEU_TOKENIZERS[0]
        if bleu_tokenizer not in BLEU_TOKENIZERS:
            raise ConfigError(
                f"--bleu-tokenizer {bleu_tokenizer}: is not one of sacrebleu's; use {', '.join(BLEU_TOKENIZERS)}."
            )
        if options.precision not in (None, *get_args(Precision)):
            raise ConfigError(f"there is no precision {options.precision!r}; the precisions are int8 and float32.")
        search = search_options(model.config.decoding, options.beam, options.length_penalty)
        translation = TranslationOptions(search, options.split_sentences)
        precision = cast(Precision, options.precision or "int8")
        engine = cast(EngineName, options.engine or "auto")  # checked by the translator
        translator = model.translator(translation, engine=engine, precision=precision)
        name = ", ".join(corpus.file_names)
        pairs = list(scorable_pairs(model, read_pairs(corpus, invalid), name, invalid))
        if not pairs:
            raise DataError(f"{name}: has no pairs to evaluate a model on; provide some.")
        sentences = evaluation_sentences(pairs, options.references or "separate")
        outputs = []
        for output in translate_pairs(translator, translation, [sentence.pair for sentence in sentences], count):
            outputs.append(output)
            if options.output is not None:
                options.output(output)
        used = translator.engine.name
        settings = {"beam": search.beam, "length_penalty": search.length_penalty, "engine": used}
        if used == "ctranslate2":
            settings["precision"] = precision
        settings["split_sentences"] = str(split_rule(model.config, options.split_sentences))
        likelihood = reference_likelihood(model, pairs, count)
        return Evaluation(settings, evaluate_translations(sentences, outputs, likelihood, bleu_tokenizer))

    def model_files(self, bound: BoundTask[Any], check: Check) -> dict[str, str]:
        """What the training data cover."""
        return {DOMAIN_FILE: bound.domain(check).to_json()} if isinstance(bound, BoundTranslation) else {}

    def bind(self, config: Config, prepared: PreparedData, network: "Network") -> "BoundTranslation":
        """Bind the task to pairs and a network."""
        return BoundTranslation(config, prepared, network)


class BoundTranslation:
    """Batches, objective and validation of a translator."""

    unit, validation_search = "tokens", GREEDY.summary
    share = ALL_WORK

    def __init__(self, config: Config, prepared: PreparedData, network: "Network") -> None:
        from regard.models.summary import FlopCounter

        self.config = config
        self.network = network
        self.tokenizer = prepared.tokenizer
        self._valid, self._test = prepared.valid, prepared.test
        self._store = prepared.train.store
        self._sampler = EpochSampler(
            self._store.columns[:2],  # the others are features of the source
            config.training.batch_tokens,
            config.training.seed,
            NUM_BOUNDARY_TOKENS,
            prepared.train.weights(config.data.train),
        )
        dropout = config.tokenizer.dropout
        self._dropout = BpeDropout(prepared.tokenizer, dropout) if dropout else None
        self._flops = FlopCounter(network)

    def objective(self) -> "CausalLMObjective":
        """Predict each token of the translation."""
        from regard.training.losses import CausalLMObjective

        return CausalLMObjective(self.network, self.config.training.label_smoothing)

    def batches(self, position: DataPosition) -> "Iterator[tuple[DataPosition, LazyBatch[TokenBatch]]]":
        """Pairs of similar length, shuffled in each epoch."""
        for after, examples in self._sampler.iterate(position):
            yield after, self._lazy_batch(examples) if self._dropout is None else self._with_dropout(examples, after)

    def _lazy_batch(self, examples: Ids) -> "LazyBatch[TokenBatch]":
        import torch

        from regard.training.batches import LazyBatch, pair_tensors

        lengths = [column.lengths_of(examples) + NUM_BOUNDARY_TOKENS for column in self._store.columns[:2]]

        def gather(rank: int, world_size: int) -> "TokenBatch":
            return pair_tensors(make_pair_batch(self._store, examples, self.config.tokens, rank, world_size))

        return LazyBatch(len(examples), int(lengths[1].sum()), [*map(torch.from_numpy, lengths)], gather)

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._sampler.batches_per_epoch

    def flops(self, batch: "LazyBatch[TokenBatch]") -> float:
        """Forward and backward pass, without padding."""
        if batch.lengths:
            source_lengths, target_lengths = batch.lengths
            return self._flops.training_flops(target_lengths, source_lengths)
        rows = batch.rows_read
        assert rows.target_mask is not None
        assert rows.source_mask is not None
        both = self._flops.training_flops(rows.target_mask.sum(1), rows.source_mask.sum(1))
        return both * batch.examples / rows.examples

    def describe(self, position: DataPosition, batch: "LazyBatch[TokenBatch]") -> str:
        """The size of a batch, and its first pair."""
        whole = batch.shard(0, 1)
        assert whole.source is not None
        source, target = (self.tokenizer.decode(side[0].tolist()) for side in (whole.source, whole.target))
        return (
            f"epoch {position.epoch + 1}, batch {position.batch}: {len(whole.target)} pairs of up to "
            f"{whole.source.size(1)} and {whole.target.size(1)} tokens, the first {source!r} → {target!r}"
        )

    def validate(self, check: Check) -> ValidationResult:
        """Loss of all validation pairs, greedy BLEU and chrF of the first ones."""
        sentences = evaluation_sentences(self._valid.pairs(self.config.validation.sentences), "separate")
        return self._measure(self._valid, sentences, TranslationOptions(GREEDY), check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same scores of all test pairs, with the beam search set for testing."""
        if self._test is None:
            return None
        settings, pairs = self.config.testing, self._test.pairs(None)
        sentences = evaluation_sentences(pairs, settings.references)
        search = replace(GREEDY, beam=settings.beam, length_penalty=settings.length_penalty)
        return self._measure(self._test, sentences, TranslationOptions(search), check)

    def domain(self, check: Check) -> Domain:
        """What the training data cover, with limits that few validation sentences exceed."""
        options = TranslationOptions(GREEDY, token_scores=True)
        translations = self._translate(self._valid.pairs(CALIBRATION_SENTENCES), options, check)
        sentences = [sentence for translation in translations for sentence in translation.sentences]
        confidences = [sentence.confidence for sentence in sentences if sentence.confidence is not None]
        counts = self._store.columns[0].token_counts(len(self.tokenizer))
        ids = self.tokenizer.encode_batch([sentence.source for sentence in sentences])
        return calibrate(confidences, counts, ids, self.config.data.description)

    def _with_dropout(self, examples: Ids, position: DataPosition) -> "LazyBatch[TokenBatch]":
        """The batch of these examples, tokenized again with BPE-dropout; each row has random numbers of its own."""
        from regard.training.batches import LazyBatch, pair_tensors

        seed = self.config.training.seed, position.epoch, position.batch

        def gather(rank: int, world_size: int) -> "TokenBatch":
            assert self._dropout is not None
            sides: tuple[list[Ids], list[Ids]] = [], []
            for row in range(rank, len(examples), world_size):
                random = np.random.default_rng([*seed, row])
                for side, column in zip(sides, self._store.columns, strict=True):
                    side.append(np.array(self._dropout.encode(column[examples[row]], random), np.int64))
            return pair_tensors(pair_batch_from_ids(*sides, self.config.tokens))

        return LazyBatch(len(examples), None, (), gather)

    def _loss(self, store: TokenStore, check: Check) -> float:
        """Cross entropy per token, without label smoothing."""
        import torch

        from regard.training.batches import pair_tensors
        from regard.training.losses import CausalLMObjective

        objective, total, targets = CausalLMObjective(self.network, 0.0), 0.0, 0.0
        device = device_of(self.network)
        for examples in self.share.own(BatchSampler(_lengths(store), self.config.training.batch_tokens).epoch(0)):
            check()
            with torch.no_grad():
                loss = objective(pair_tensors(make_pair_batch(store, examples, self.config.tokens)).to(device))
            total, targets = total + float(loss.cross_entropy), targets + loss.targets
        total, targets = self.share.total([total, targets])
        return total / targets

    def _measure(
        self, split: PreparedSplit, sentences: Sequence[EvaluationSentence], options: TranslationOptions, check: Check
    ) -> ValidationResult:
        loss = self._loss(split.store, check)
        scores = {"loss": loss, "perplexity": perplexity(loss)}
        if not sentences:
            return ValidationResult(scores)
        pairs, settings = [sentence.pair for sentence in sentences], self.config.validation
        own = self._translate(list(self.share.own(pairs)), options, check)
        outputs = self.share.merge([translation.text for translation in own])
        references = [sentence.references for sentence in sentences]
        metrics = score_translations(outputs, references, bleu_tokenizer=settings.bleu_tokenizer)
        scores |= {**metrics.values, "sentences": len(sentences)}
        shown = zip(pairs[: settings.samples], outputs, strict=False)
        samples = [Sample(pair.source, pair.target, output) for pair, output in shown]
        ranked = _ranked(sentences, outputs)
        return ValidationResult(scores, samples, metrics.signatures, ranked, search=options.search.summary)

    def _translate(self, pairs: Sequence[Pair], options: TranslationOptions, check: Check) -> list[Translation]:
        from regard.decoding.engines.pytorch import TorchEngine

        engine = TorchEngine([self.network], self.config, check)
        translator = Translator(engine, self.config, self.tokenizer, self.tokenizer)
        parses = [pair.parse for pair in pairs] if self.config.model.needs_parses else None
        return translator.translate([pair.source for pair in pairs], options, parses)


def _ranked(sentences: Sequence[EvaluationSentence], outputs: Sequence[str]) -> Mapping[str, Sequence[OutputRow]]:
    ratings = sentence_chrf(outputs, [sentence.references for sentence in sentences])
    rows: list[OutputRow] = [
        {"source": row.pair.source, "reference": " / ".join(row.references), "output": output, "score": round(chrf, 1)}
        for row, output, chrf in zip(sentences, outputs, ratings, strict=True)
    ]
    return rank_outputs(rows, ratings, length_of="reference")


def _lengths(store: TokenStore) -> NDArray[np.int64]:
    return np.stack([column.lengths for column in store.columns[:2]]) + NUM_BOUNDARY_TOKENS  # the others are features
