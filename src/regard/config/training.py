"""Settings of training, validation and testing. The defaults are those of "Attention Is All You Need" (§5)."""

from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Count, Fraction, NonNegativeFloat, PositiveFloat, Probability, Size
from regard.config.optimizers import (
    AdamConfig,
    InverseSqrtScheduleConfig,
    OptimizerConfig,
    ParameterGroupConfig,
    ScheduleConfig,
)

BleuTokenizer = Literal["13a", "intl", "char", "zh", "none"]  # sacreBLEU's names
BLEU_TOKENIZERS = get_args(BleuTokenizer)


class MaskingConfig(BaseConfig):
    """Masked language modeling: which tokens are masked. The defaults are BERT's (Devlin et al. 2019, §3.1)."""

    probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Fraction of tokens selected for prediction; at least one per text."""
    mask_fraction: Fraction = 0.8
    """Fraction of the selected tokens that is replaced by the mask token."""
    random_fraction: Fraction = Field(default=0.1, validate_default=True)
    """Fraction of the selected tokens that is replaced by a random token; the rest stays unchanged."""
    whole_words: bool = False
    """Whether all tokens of a word are selected together."""

    @field_validator("random_fraction")
    @classmethod
    def _check_sum(cls, random: float, info: ValidationInfo) -> float:
        masked = info.data.get("mask_fraction")
        if masked is not None and masked + random > 1 + 1e-9:
            raise ValueError(
                f"is too large with training.masking.mask_fraction = {masked}: their sum should be at most 1; lower one"
            )
        return random


class TrainingConfig(BaseConfig):
    """How the network is trained."""

    task: str | None = None
    """Task of `regard train`; by default it follows from the network and its head."""
    steps: Size = 100_000
    """Maximum number of updates."""
    epochs: PositiveFloat | None = None
    """Maximum number of passes over the training data; unlimited by default."""
    batch_tokens: Size = 4096
    """Tokens per batch, padding included; the longer side of a pair counts."""
    gradient_accumulation: Size = 1
    """Batches whose gradients are summed for one update; the number of processes does not change the result."""
    label_smoothing: Probability = 0.1
    """Probability mass spread over the vocabulary in the target distribution (§5.4)."""
    rdrop: NonNegativeFloat = 0.0
    """Weight α of R-Drop (Liang et al. 2021): two passes with different dropout should agree; 0 turns it off."""
    masking: MaskingConfig = MaskingConfig()
    """Masked language modeling, for encoders with head = "tokens"."""
    optimizer: OptimizerConfig = AdamConfig()
    """Optimizer: `adam`, `adamw` or a registered one."""
    schedule: ScheduleConfig = InverseSqrtScheduleConfig()
    """Learning-rate schedule: `inverse-sqrt`, `cosine`, `constant`, `plateau` or a registered one."""
    parameter_groups: dict[Annotated[str, Field(pattern=r"^[\w-]+$")], ParameterGroupConfig] = {}  # noqa: RUF012
    """Parameters with their own learning rate, weight decay or optimizer, by a name; the first that matches counts."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Layer-wise learning-rate decay for fine-tuning: each layer learns this factor slower than the one above it."""
    max_grad_norm: NonNegativeFloat = 0.0
    """Maximum gradient norm for clipping; 0 turns it off. The default of recurrent networks is 1."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of matrix products; weights, updates and losses stay in float32. `bfloat16` is used where it is faster."""
    ema_decay: Probability = 0.0
    """Decay of an exponential moving average of the weights, which is validated and saved instead; 0 turns it off."""
    average_checkpoints: Count = 0
    """Average the weights of this many last validations at the end (§6.1), and keep the result if it is better."""
    patience: Count = 0
    """Early stopping: validations without improvement before training stops; 0 turns it off."""
    pretrained_embeddings: str | None = None
    """File with word vectors in text format that initialize the embeddings of tokens that are words."""
    start_from: str | None = None
    """Model or run folder whose weights and tokenizer training starts from."""
    freeze_encoder: bool = False
    """Train the head only and keep the other weights of `start_from`."""
    seed: Count = 1
    """Seed of all random numbers."""
    checkpoint_minutes: NonNegativeFloat = 5.0
    """Minutes between checkpoints, which are also saved at each validation; 0 saves one after every step."""
    log_every: Size = 50
    """Steps between two lines of metrics.jsonl."""
    threads: Size | None = None
    """Number of CPU threads; all cores by default."""

    @field_validator("parameter_groups")
    @classmethod
    def _check_weight_decay(
        cls, groups: dict[str, ParameterGroupConfig], info: ValidationInfo
    ) -> dict[str, ParameterGroupConfig]:
        for name, group in groups.items():
            optimizer = group.optimizer or info.data.get("optimizer")
            if group.weight_decay is not None and optimizer is not None and not hasattr(optimizer, "weight_decay"):
                raise ValueError(
                    f"training.parameter_groups.{name}.weight_decay = {group.weight_decay:g} needs an optimizer with "
                    f"weight decay, but training.optimizer.kind = {optimizer.kind!r} has none: use 'adamw'"
                )
        return groups


class ValidationConfig(BaseConfig):
    """How the network is validated during training."""

    every: Size = 1000
    """Steps between validations."""
    metric: str = "loss"
    """Metric that decides which model is best, when to stop early and when a plateau is reached: `loss`, or a metric
    of the task, such as `bleu`, `chrf`, `accuracy` or `macro_f1`."""
    sentences: Count = 500
    """Sentences translated for BLEU and chrF; 0 turns these metrics off."""
    samples: Count = 3
    """Translated sentences shown in the progress display and the report."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """Tokenizer of sacreBLEU, also for the final test; `none` if the text is tokenized already."""


class TestingConfig(BaseConfig):
    """How a translator is evaluated on the test data after training."""

    __test__ = False  # pytest would collect the class because of its name

    beam: Annotated[int, Field(ge=1, le=1000)] = 1
    """Beam width; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Exponent α of the length penalty (§6.1); larger values favor longer translations."""
    references: Literal["separate", "grouped"] = "separate"
    """`grouped`: pairs with the same source become one sentence with several references."""
