"""The root of all settings, and the checks that involve several of its tables."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Count, Counts, Strings, variant
from regard.config.data import DataConfig, TokenizerConfig
from regard.config.errors import did_you_mean
from regard.config.network import (
    BidirectionalLanguageModelConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
)
from regard.config.tasks import task_info
from regard.config.training import DecodingConfig, TestingConfig, TrainingConfig, ValidationConfig
from regard.config.transformer import DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig
from regard.registry import TASK_REGISTRY

ModelConfig = Annotated[
    EncoderDecoderConfig
    | DecoderOnlyConfig
    | EncoderOnlyConfig
    | RecurrentEncoderDecoderConfig
    | RecurrentLanguageModelConfig
    | BidirectionalLanguageModelConfig,
    Field(discriminator="kind"),
    variant("encoder-decoder"),
]


class SpecialTokensConfig(BaseConfig):
    """Ids of the special tokens."""

    pad: Count = 0
    """Padding."""
    unknown: Count = 1
    """Replaces what is not in the vocabulary."""
    start: Count = 2
    """Start of a sequence."""
    end: Count = 3
    """End of a sequence."""
    mask: Count | None = None
    """Replaces masked tokens; only masked language models have it."""
    other_ends: Counts = ()
    """Further tokens that end a generated text, such as the end of a turn in a chat."""

    @property
    def ends(self) -> tuple[int, ...]:
        """All tokens that end a generated text."""
        return (self.end, *self.other_ends)

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all special tokens."""
        return frozenset(number for ids in self.named_ids.values() for number in ids)

    @property
    def named_ids(self) -> dict[str, tuple[int, ...]]:
        """The ids of each setting: one, or several."""
        ids = {name: value if isinstance(value, tuple) else (value,) for name, value in self}
        return {name: values for name, values in ids.items() if values not in ((), (None,))}


class LanguagesConfig(BaseConfig):
    """Languages of a multilingual translator: their tokens stand before the source and begin the translation."""

    codes: Strings = ()
    """Codes of the languages, such as `en` or `ita_Latn`; empty for a translator of one pair of languages."""
    tokens: Counts = Field(default=(), validate_default=True)
    """Ids of their tokens, in the same order."""

    @field_validator("tokens")
    @classmethod
    def _check_each_language_has_a_token(cls, tokens: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        codes = info.data.get("codes")
        if codes is not None and len(codes) != len(tokens):
            raise ValueError(f"has {len(tokens)} ids, but languages.codes has {len(codes)} languages")
        return tokens


class Config(BaseConfig):
    """All settings of a model and of its training.

    >>> Config().model.width
    512
    """

    model: ModelConfig = Field(default_factory=EncoderDecoderConfig)
    """The network."""
    tokens: SpecialTokensConfig = Field(default_factory=SpecialTokensConfig, validate_default=True)
    """Ids of the special tokens."""
    languages: LanguagesConfig = Field(default_factory=LanguagesConfig)
    """Languages of a multilingual translator."""
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig, validate_default=True)
    """How text is tokenized."""
    data: DataConfig = Field(default_factory=DataConfig, validate_default=True)
    """Which data is used."""
    training: TrainingConfig = Field(default_factory=TrainingConfig, validate_default=True)
    """How the network is trained."""
    validation: ValidationConfig = Field(default_factory=ValidationConfig, validate_default=True)
    """How the network is validated during training."""
    testing: TestingConfig = Field(default_factory=TestingConfig, validate_default=True)
    """How a translator is evaluated on the test data."""
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)
    """How a trained translator decodes by default."""

    @property
    def task(self) -> str:
        """Name of the task that the network is trained for; empty if it cannot be trained."""
        return self.training.task or self.model.task

    @property
    def context_window(self) -> int | None:
        """Most tokens that the network should process at once, by its positions or its training; None if any."""
        trained = self.data.context_length if self.model.generates and not self.model.extrapolates else None
        return min((length for length in (self.model.max_length, trained) if length is not None), default=None)

    @field_validator("tokens")
    @classmethod
    def _check_ids_are_in_vocabulary(cls, tokens: SpecialTokensConfig, info: ValidationInfo) -> SpecialTokensConfig:
        model = info.data.get("model")
        if model is not None:
            size = max(model.vocab_size, getattr(model, "target_vocab_size", None) or 0)
            for name, number in ((name, max(ids)) for name, ids in tokens.named_ids.items()):
                if number >= size:
                    raise ValueError(f"tokens.{name} = {number} is past the last token of model.vocab_size = {size}")
        return tokens

    @field_validator("tokenizer")
    @classmethod
    def _check_tokens_fit_parses(cls, tokenizer: TokenizerConfig, info: ValidationInfo) -> TokenizerConfig:
        model = info.data.get("model")
        if model is not None and model.needs_parses and tokenizer.dropout:
            raise ValueError(
                f"tokenizer.dropout = {tokenizer.dropout:g} splits words into different tokens each time, but "
                f"model.positions.kind = {model.positions.kind!r} stores positions for the usual ones only: "
                "set tokenizer.dropout = 0"
            )
        return tokenizer

    @field_validator("data")
    @classmethod
    def _check_context_fits_positions(cls, data: DataConfig, info: ValidationInfo) -> DataConfig:
        model = info.data.get("model")
        limit = None if model is None else model.max_length
        if limit is not None and data.context_length is not None and data.context_length > limit:
            raise ValueError(
                f"data.context_length = {data.context_length} is more than model.positions.max_length = {limit}"
            )
        return data

    @field_validator("training")
    @classmethod
    def _set_default_max_grad_norm(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if model is None or "max_grad_norm" in training.model_fields_set:
            return training
        default = model.default_max_grad_norm
        return training if training.max_grad_norm == default else training.model_copy(update={"max_grad_norm": default})

    @field_validator("training")
    @classmethod
    def _check_task_exists(cls, training: TrainingConfig) -> TrainingConfig:
        if training.task is not None and training.task not in TASK_REGISTRY:
            raise ValueError(
                f"training.task = {training.task!r} is not a task{did_you_mean(training.task, TASK_REGISTRY.names())}: "
                f"use one of {', '.join(TASK_REGISTRY.names())}"
            )
        return training

    @field_validator("training")
    @classmethod
    def _check_initialization(cls, training: TrainingConfig) -> TrainingConfig:
        if training.start_from is not None and training.pretrained_embeddings is not None:
            raise ValueError(
                "training.pretrained_embeddings and training.start_from both initialize the embeddings: remove one"
            )
        return training

    @field_validator("training")
    @classmethod
    def _check_rdrop_has_dropout(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if training.rdrop and model is not None and not model.uses_dropout:
            raise ValueError(
                f"training.rdrop = {training.rdrop:g} compares two passes that differ by dropout, but there is none: "
                "set model.dropout above 0"
            )
        return training

    @field_validator("training")
    @classmethod
    def _check_frozen_weights_are_trained(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if training.freeze_encoder and training.start_from is None:
            raise ValueError(
                "training.freeze_encoder = True needs training.start_from: frozen weights must be trained already"
            )
        if training.lora.rank:
            start = f"training.lora.rank = {training.lora.rank}"
            if training.start_from is None:
                raise ValueError(f"{start} needs training.start_from, the model to adapt: pass --from MODEL")
            if training.freeze_encoder:
                raise ValueError(f"{start} and training.freeze_encoder both freeze the encoder: remove one")
            if training.parallel.kind not in ("ddp",):
                raise ValueError(f"{start} needs training.parallel.kind = 'ddp': each process has the whole network")
        if training.freeze_encoder and model is not None:
            task = training.task or model.task
            if not task or not task_info(task).supports_freezing:
                raise ValueError(
                    f"training.freeze_encoder = True is for heads with labels, but model.kind = {model.kind!r} has none"
                )
        return training

    @field_validator("validation")
    @classmethod
    def _check_metric_fits_task(cls, validation: ValidationConfig, info: ValidationInfo) -> ValidationConfig:
        model, training, metric = info.data.get("model"), info.data.get("training"), validation.metric
        if metric == "loss" or model is None or training is None:
            return validation
        task = training.task or model.task
        metrics = task_info(task).metrics if task else ("loss",)
        if metric not in metrics:
            raise ValueError(
                f"validation.metric = {metric!r} is not measured where model.kind = {model.kind!r} is trained for "
                f"{task or 'nothing'}{did_you_mean(metric, metrics)}: use {' or '.join(metrics)}"
            )
        if metric in ("bleu", "chrf") and validation.sentences == 0:
            raise ValueError(f"validation.metric = {metric!r} needs validation.sentences, which is 0")
        return validation
