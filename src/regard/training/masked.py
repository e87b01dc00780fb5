"""The task of masked-token modelling: text in, an encoder out that guesses hidden tokens, as BERT is pre-trained.

B passages · T their length · N hidden tokens · C model width · V vocabulary
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.config import Config, CorpusConfig
from regard.data.batching import DataPosition
from regard.data.masked_text import format_masked
from regard.data.masking import MaskedTokens, MaskingDraws, TokenMasker
from regard.data.passages import NUM_SPECIAL_TOKENS, JoinedPassages, PassageBatch, PassageSource, SeparatePassages
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.prepare_documents import LOSSLESS_TOKENIZERS, prepare_documents
from regard.data.stats import CorpusStats, ReportProgress, document_stats
from regard.data.store import TokenColumn
from regard.data.tokenizer import MASK_TOKENS, load_tokenizer, mask_token_id
from regard.decoding.fill_mask import predict_masks
from regard.errors import ConfigError, DataError
from regard.evaluation.scoring import perplexity
from regard.models.anatomy import FlopCounter
from regard.models.folder_files import TOKENIZER_FILE, resolve_model_folder
from regard.models.network import EncoderNetwork, Network
from regard.training.automatic_settings import AutomaticSetting, UserSettings, picks_for_encoder
from regard.training.display import Sample
from regard.training.language import context_of, describe_rows
from regard.training.losses import smoothed_cross_entropy
from regard.training.objectives import Batch, Objective
from regard.training.one_sided import check_one_sided
from regard.training.state import generator
from regard.training.task import Check, ValidationResult

SAMPLE = 24  # tokens of a text that is shown


class MaskedKind:
    """How an encoder that guesses hidden tokens comes about."""

    name = "masked-token model"

    def check(self, config: Config) -> None:
        """Text has no other side; a tokenizer that is given must have a mask; a passage holds one token at least."""
        check_one_sided(config, "an encoder")
        if config.tokenizer.file is not None and config.tokens.mask is None:
            raise DataError(
                f"{config.tokenizer.file}: has no token to hide others behind, such as {' or '.join(MASK_TOKENS)}; "
                "add one, or leave tokenizer.file out to learn a tokenizer that has."
            )
        start = config.training.start_from
        if start is not None and mask_token_id(load_tokenizer(resolve_model_folder(start) / TOKENIZER_FILE)) is None:
            raise ConfigError(
                f"{start}: its tokenizer has no token to hide others behind, such as {' or '.join(MASK_TOKENS)}; "
                "start from a model that has, as regard train masked makes them."
            )
        if context_of(config) <= NUM_SPECIAL_TOKENS:
            raise ConfigError(
                f"data.context_length = {context_of(config)} leaves no room for text between its start and its end; "
                f"use {NUM_SPECIAL_TOKENS + 1} or more."
            )

    def corpus_stats(self, corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
        """Read the text once."""
        return document_stats(corpus, skip_invalid, report)

    def automatic_settings(self, scan: CorpusStats, said: UserSettings) -> list[AutomaticSetting]:
        """Settings that suit so much text."""
        return picks_for_encoder(scan, said)

    def prepare(self, folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
        """Make tokenizer and stores."""
        given = config.tokenizer.file
        marked = (
            load_tokenizer(Path(given)).marks_word_starts if given else config.tokenizer.kind not in LOSSLESS_TOKENIZERS
        )
        return prepare_documents(folder, key, config, report, single_spaces=marked, mask_token=True)

    def bind(self, config: Config, prepared: PreparedData, network: Network) -> "MaskedModelling":
        """The task itself."""
        return MaskedModelling(config, prepared, network)


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Passages some of whose tokens are hidden."""

    ids: Tensor  # (B, T) what the encoder reads
    original: Tensor  # (B, T) what stood there
    selected: Tensor  # (B, T) True at the tokens that are to be predicted
    mask: Tensor  # (B, T) False at pads

    @property
    def examples(self) -> int:
        """How many passages."""
        return len(self.ids)

    @property
    def targets(self) -> int:
        """How many tokens are hidden."""
        return int(self.selected.sum())


class HiddenToken(Objective[EncoderNetwork]):
    """Predict each hidden token from the passage around it."""

    def __init__(self, network: EncoderNetwork, label_smoothing: float) -> None:
        super().__init__()
        self.network = network
        self.label_smoothing = label_smoothing
        network.pooling.requires_grad_(False)  # nothing here teaches it, so processes have no gradient to wait for

    def states(self, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """The encoder's state at each hidden token (N, C), and what it is (N,)."""
        real = None if bool(batch.mask.all()) else batch.mask
        states = self.network.encode(batch.ids, real).states.flatten(0, 1)  # (B·T, C)
        wanted = batch.selected.flatten().nonzero().squeeze(1)
        return states.index_select(0, wanted), batch.original.flatten().index_select(0, wanted)


class MaskedModelling:
    """Training an encoder to guess hidden tokens."""

    name = "masked-token model"
    unit = "tokens"

    def __init__(self, config: Config, prepared: PreparedData, network: Network) -> None:
        assert isinstance(network, EncoderNetwork)
        self.config = config
        self.network: Network = network
        self._encoder = network
        self.tokenizer = prepared.tokenizer
        self._valid, self._test = prepared.valid, prepared.test
        self._masking = TokenMasker(config.training.masking, prepared.tokenizer, config.tokens)
        for name, part in prepared.splits.items():
            self._check_text(part.store.columns[0], name)
        self._plan = self._passages(prepared.train, config.training.seed)
        self._cost = FlopCounter(network, exclude=network.pooling)

    def objective(self) -> HiddenToken:
        """Predict hidden tokens."""
        return HiddenToken(self._encoder, self.config.training.label_smoothing)

    def batches(self, place: DataPosition) -> Iterator[tuple[DataPosition, MaskedBatch]]:
        """Passages, shuffled each epoch, each time with other tokens hidden."""
        for after, batch in self._plan.iterate(place):
            random = generator(self.config.training.seed, after.epoch, after.batch)
            hidden = self._masking.apply(batch.ids, MaskingDraws.sample(batch.ids.shape, random))
            if hidden.selected.any():  # unless all is unknown
                yield after, _tensors(batch, hidden)

    @cached_property
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""
        return self._plan.batches_per_epoch

    def flops(self, batch: MaskedBatch) -> float:
        """Forward and backward, pads not counted; only hidden tokens are predicted."""
        return self._cost.training_flops(batch.selected.sum(1), batch.mask.sum(1))

    def describe(self, place: DataPosition, batch: MaskedBatch) -> str:
        """Its size, and how its first passage begins."""
        return describe_rows(batch.original, place, self.tokenizer)

    def validate(self, check: Check) -> ValidationResult:
        """How well hidden tokens of the validation text are predicted, always the same ones, and a few texts filled."""
        return self._measure(self._valid, check)

    def test(self, check: Check) -> ValidationResult | None:
        """The same for the test text."""
        return self._measure(self._test, check) if self._test is not None else None

    @torch.no_grad()
    def _measure(self, part: PreparedSplit, check: Check) -> ValidationResult:
        objective, total, right, targets = HiddenToken(self._encoder, 0.0), 0.0, 0, 0
        device = next(self.network.parameters()).device
        for number, batch in enumerate(self._passages(part).validation_batches()):
            check()
            hidden = self._masking.apply(batch.ids, MaskingDraws.sample(batch.ids.shape, generator(number)))
            states, wanted = objective.states(_tensors(batch, hidden).to(device))
            logits = objective.network.logits(states)
            total += float(smoothed_cross_entropy(logits, wanted).cross_entropy)
            right += int((logits.argmax(-1) == wanted).sum())
            targets += len(wanted)
        loss = total / targets
        scores = {"loss": loss, "perplexity": perplexity(loss), "accuracy": right / targets}
        return ValidationResult(scores, list(self._samples(part, check)))

    def _samples(self, part: PreparedSplit, check: Check) -> Iterator[Sample]:
        """Places in the text, always the same ones, with tokens behind the mask, and with the best guesses instead."""
        (column,), count = part.store.columns, self.config.validation.samples
        masked = self.config.training.masking.model_copy(update={"mask_fraction": 1.0, "random_fraction": 0.0})
        masking = TokenMasker(masked, self.tokenizer, self.config.tokens)
        for number in range(count):
            check()
            ids = _near(
                column, number * len(column.ids) // count, min(SAMPLE, context_of(self.config) - NUM_SPECIAL_TOKENS)
            )
            hidden = masking.apply(ids[None], MaskingDraws.sample((1, len(ids)), generator(number)))
            places = np.flatnonzero(hidden.selected).tolist()
            if not places:
                continue
            (guesses,) = predict_masks([self.network], [hidden.input_ids[0].tolist()], self.config.tokens, top_k=1)
            filled = ids.copy()
            filled[places] = [ranked[0][0] for ranked in guesses]
            asked = format_masked(self.tokenizer, ids.tolist(), places)
            yield Sample(asked, self.tokenizer.decode(ids.tolist()), self.tokenizer.decode(filled.tolist()))

    def _passages(self, part: PreparedSplit, seed: int = 0) -> PassageSource:
        (column,) = part.store.columns
        kind = SeparatePassages if self.config.data.documents == "separate" else JoinedPassages
        return kind(column, context_of(self.config), self.config.training.batch_tokens, self.config.tokens, seed)

    def _check_text(self, column: TokenColumn, name: str) -> None:
        """Complain where there is not one token to hide."""
        step = 2**16
        if not any(self._masking.maskable(column.ids[n : n + step]).any() for n in range(0, len(column.ids), step)):
            raise DataError(
                f"data.{name} has no token that the tokenizer knows, so none can be hidden; give more text."
            )


def _near(column: TokenColumn, begin: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """So many tokens of the document at a place, from there on or, where it ends too soon, as many as it has."""
    document = int(np.searchsorted(column.ends, begin, side="right"))
    first = int(column.ends[document - 1]) if document else 0
    end = min(begin + length, int(column.ends[document]))
    return column.ids[max(first, end - length) : end].astype(np.int64)


def _tensors(batch: PassageBatch, hidden: MaskedTokens) -> MaskedBatch:
    parts: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {
        "ids": hidden.input_ids,
        "original": batch.ids,
        "selected": hidden.selected,
        "mask": batch.mask,
    }
    return MaskedBatch(**{name: torch.from_numpy(part) for name, part in parts.items()})
