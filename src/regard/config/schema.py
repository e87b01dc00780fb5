"""Everything that can be set, in one tree."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig
from regard.config.data import DataConfig, TokenizerConfig
from regard.config.model import LABEL_TASKS, EncoderDecoderConfig, ModelConfig
from regard.config.training import TestingConfig, TrainingConfig, ValidationConfig

LABEL_METRICS = {  # metrics of what an encoder's head predicts, and the tasks that are measured by them
    "accuracy": (*LABEL_TASKS.values(), "masked"),
    "macro_f1": tuple(LABEL_TASKS.values()),
}
TokenId = Annotated[int, Field(ge=0)]


class SpecialTokensConfig(BaseConfig):
    """The ids of the tokens that are not text."""

    pad: TokenId = 0
    unknown: TokenId = 1
    start: TokenId = 2
    end: TokenId = 3
    mask: TokenId | None = None
    """Stands where a token is hidden; only encoders that learn to guess hidden tokens have it."""


class Config(BaseConfig):
    """The root of all settings: the network, and how it comes to know what it knows.

    >>> Config().model.width
    512
    """

    model: ModelConfig = EncoderDecoderConfig()
    tokens: SpecialTokensConfig = Field(default=SpecialTokensConfig(), validate_default=True)
    tokenizer: TokenizerConfig = Field(default=TokenizerConfig(), validate_default=True)
    data: DataConfig = Field(default=DataConfig(), validate_default=True)
    training: TrainingConfig = Field(default=TrainingConfig(), validate_default=True)
    validation: ValidationConfig = Field(default=ValidationConfig(), validate_default=True)
    testing: TestingConfig = Field(default=TestingConfig(), validate_default=True)

    @property
    def context_window(self) -> int | None:
        """How many tokens the network should see at once: it cannot read more, or writes badly then; None: any."""
        trained = self.data.context_length if self.model.generates and not self.model.extrapolates else None
        return min((length for length in (self.model.max_length, trained) if length is not None), default=None)

    @field_validator("tokens")
    @classmethod
    def _tokens_are_in_the_vocabulary(cls, tokens: SpecialTokensConfig, info: ValidationInfo) -> SpecialTokensConfig:
        model = info.data.get("model")
        if model is not None:
            size = max(model.vocab_size, getattr(model, "target_vocab_size", None) or 0)
            for name, number in tokens:
                if number is not None and number >= size:
                    raise ValueError(f"tokens.{name} = {number} is past the last token of model.vocab_size = {size}")
        return tokens

    @field_validator("tokenizer")
    @classmethod
    def _pieces_keep_their_place_in_the_tree(cls, tokenizer: TokenizerConfig, info: ValidationInfo) -> TokenizerConfig:
        model = info.data.get("model")
        if model is not None and model.needs_parses and tokenizer.dropout:
            raise ValueError(
                f"tokenizer.dropout = {tokenizer.dropout:g} cuts words into other pieces each time, but "
                "model.positions.kind = 'syntax' has places for the usual ones only: set tokenizer.dropout = 0"
            )
        return tokenizer

    @field_validator("data")
    @classmethod
    def _the_context_has_positions(cls, data: DataConfig, info: ValidationInfo) -> DataConfig:
        model = info.data.get("model")
        learned = None if model is None else model.max_length
        if learned is not None and data.context_length is not None and data.context_length > learned:
            raise ValueError(
                f"data.context_length = {data.context_length} is more than model.positions.max_length = {learned}"
            )
        return data

    @field_validator("training")
    @classmethod
    def _clipping_suits_the_network(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if (
            model is None
            or "max_grad_norm" in training.model_fields_set
            or training.max_grad_norm == model.default_max_grad_norm
        ):
            return training
        return training.model_copy(update={"max_grad_norm": model.default_max_grad_norm})

    @field_validator("training")
    @classmethod
    def _the_schedule_can_be_followed(cls, training: TrainingConfig) -> TrainingConfig:
        schedule = training.schedule
        if training.start_from is not None and training.pretrained_embeddings is not None:
            raise ValueError(
                "training.pretrained_embeddings and training.start_from both say how embeddings begin: drop one"
            )
        if schedule.learning_rate is None and schedule.warmup_steps == 0:
            raise ValueError(
                "training.schedule.warmup_steps = 0 needs training.schedule.learning_rate: the paper's follows from it"
            )
        return training

    @field_validator("training")
    @classmethod
    def _readings_differ(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if training.rdrop and model is not None and not model.uses_dropout:
            raise ValueError(
                f"training.rdrop = {training.rdrop:g} compares two readings that differ by dropout, and there "
                "is none: set model.dropout above 0"
            )
        return training

    @field_validator("training")
    @classmethod
    def _what_is_frozen_has_learned(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if training.freeze_encoder and training.start_from is None:
            raise ValueError(
                "training.freeze_encoder = True needs training.start_from: what is left as it is must have learned"
            )
        if training.freeze_encoder and model is not None and model.task not in LABEL_TASKS.values():
            raise ValueError(
                f"training.freeze_encoder = True is for heads of labels, but model.kind = {model.kind!r} has none"
            )
        return training

    @field_validator("validation")
    @classmethod
    def _the_metric_can_be_measured(cls, validation: ValidationConfig, info: ValidationInfo) -> ValidationConfig:
        model, metric = info.data.get("model"), validation.metric
        if metric == "loss" or model is None:
            return validation
        if metric in LABEL_METRICS:
            if model.task not in LABEL_METRICS[metric]:
                raise ValueError(
                    f"validation.metric = {metric!r} is for labels, but model.kind = {model.kind!r} has none"
                )
            return validation
        if not model.translates:
            raise ValueError(f"validation.metric = {metric!r} is for translators, but model.kind = {model.kind!r}")
        if validation.sentences == 0:
            raise ValueError(f"validation.metric = {metric!r} needs validation.sentences, which is 0")
        return validation
