"""Settings of training, validation, testing, and word2vec; `optimization` has optimizers and schedules.

The defaults are those of "Attention Is All You Need" (§5), and of word2vec (Mikolov et al. 2013) for word vectors.
"""

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from regard.config.base import (
    BaseConfig,
    Count,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    Probability,
    Size,
    Strings,
)
from regard.config.data import CorpusConfig
from regard.config.optimization import (
    AdamConfig,
    InverseSqrtScheduleConfig,
    OptimizerConfig,
    ParameterGroupConfig,
    ScheduleConfig,
)
from regard.config.parallel import DdpConfig, ParallelConfig

BleuTokenizer = Literal["13a", "intl", "char", "zh", "none"]  # sacreBLEU's names
BLEU_TOKENIZERS = get_args(BleuTokenizer)


def _check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid regular expression ({error}): correct it") from None
    return patterns


Patterns = Annotated[Strings, AfterValidator(_check_patterns)]


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


class LoRAConfig(BaseConfig):
    """Low-rank adaptation (Hu et al. 2022): the weights of `start_from` are frozen, and small matrices are added."""

    rank: Annotated[int, Field(ge=0, le=4096)] = 0
    """Rank r of the matrices that are added to each layer; 0 turns LoRA off."""
    alpha: PositiveFloat = 16.0
    """The product of both matrices is multiplied by alpha / rank."""
    dropout: Probability = 0.0
    """Dropout of the input of the added matrices."""
    modules: Patterns = ()
    """Regular expressions: linear layers whose name has a match are adapted; all but those of heads by default."""


class DpoConfig(BaseConfig):
    """Direct preference optimization (Rafailov et al. 2023)."""

    beta: PositiveFloat = 0.1
    """Factor β of the rewards: larger values keep the network closer to the one it started as."""


class TrainingConfig(BaseConfig):
    """How the network is trained."""

    task: str | None = None
    """Task of `regard train`; by default it follows from the network and its head."""
    steps: Size = 100_000
    """Maximum number of updates."""
    epochs: PositiveFloat | None = None
    """Maximum number of passes over the training data; unlimited by default."""
    minutes: PositiveFloat | None = None
    """Minutes that training and its validations may take: the last step is moved to fit, and the schedule with it;
    unlimited by default."""
    planned_steps: Size | None = None
    """Updates that `minutes` are expected to allow, for which the schedule is laid out; by default the maximum."""
    batch_tokens: Size = 4096
    """Tokens per batch, padding included; the longer side of a pair counts."""
    gradient_accumulation: Size = 1
    """Batches whose gradients are summed for one update; the number of processes does not change the result."""
    batch_ramp_steps: Count = 0
    """Steps in which the batches per update grow from 1 to `gradient_accumulation`; 0 turns it off."""
    label_smoothing: Probability = 0.1
    """Probability mass spread over the vocabulary in the target distribution (§5.4)."""
    rdrop: NonNegativeFloat = 0.0
    """Weight α of R-Drop (Liang et al. 2021): two passes with different dropout should agree; 0 turns it off."""
    load_balancing: NonNegativeFloat = 0.01
    """Mixture of experts: weight of the load-balancing loss, which is 1 if all experts have equally many tokens (Fedus
    et al. 2022)."""
    balance_classes: bool = False
    """Classifiers and taggers: whether all labels count equally in the loss, each weighted by 1 / its frequency."""
    class_weights: dict[str, PositiveFloat] = {}  # noqa: RUF012
    """Classifiers and taggers: weights in the loss by label, 1 by default; they multiply those of `balance_classes`."""
    masking: MaskingConfig = Field(default_factory=MaskingConfig)
    """Masked language modeling, for encoders with head = "tokens"."""
    optimizer: OptimizerConfig = Field(default_factory=AdamConfig)
    """Optimizer: `adam`, `adamw`, `muon` or a registered one."""
    schedule: ScheduleConfig = Field(default_factory=InverseSqrtScheduleConfig)
    """Learning-rate schedule: `inverse-sqrt`, `cosine`, `wsd`, `constant`, `plateau` or a registered one."""
    parameter_groups: dict[Annotated[str, Field(pattern=r"^[\w-]+$")], ParameterGroupConfig] = {}  # noqa: RUF012
    """Parameters with their own learning rate, weight decay or optimizer, by a name; the first that matches counts."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Layer-wise learning-rate decay for fine-tuning: each layer learns this factor slower than the one above it."""
    max_grad_norm: NonNegativeFloat = 0.0
    """Maximum gradient norm for clipping; 0 turns it off. The default of recurrent networks is 1."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of matrix products; weights, updates and losses stay in float32. `bfloat16` is used where a measurement at
    the start finds it faster; `auto` is the same for Transformers that are large enough, and else `float32`; `float16`,
    with a scaled loss, is for CUDA GPUs without bfloat16."""
    compile: bool = False
    """Whether each Transformer block is compiled by `torch.compile`; it needs a C++ compiler."""
    gradient_checkpointing: bool = False
    """Whether only the inputs of each Transformer block are kept for the backward pass, which computes the block again:
    less memory, a third more computation."""
    prefetch: Count | None = None
    """Batches that a background thread builds ahead; by default 2 on a GPU and 0 on a CPU."""
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
    freeze: Patterns = ()
    """Regular expressions: parameters whose name has a match keep their values."""
    dpo: DpoConfig = Field(default_factory=DpoConfig)
    """Preference pairs."""
    lora: LoRAConfig = Field(default_factory=LoRAConfig)
    """Low-rank adaptation of the model in `start_from`, saved as an adapter."""
    seed: Count = 1
    """Seed of all random numbers."""
    checkpoint_minutes: NonNegativeFloat = 5.0
    """Minutes between checkpoints, which are also saved at each validation; 0 saves one after every step."""
    log_every: Size = 50
    """Steps between two lines of metrics.jsonl."""
    threads: Size | None = None
    """Number of CPU threads; all cores by default."""
    parallel: ParallelConfig = Field(default_factory=DdpConfig)
    """Division among processes: `ddp`, `fsdp`, `tensor` or a registered one; a single process ignores it."""
    collective_timeout_minutes: PositiveFloat = 10.0
    """Minutes after which a run fails if one of its processes does not take part in an exchange of gradients."""

    @field_validator("batch_ramp_steps")
    @classmethod
    def _check_ramp_has_an_end(cls, steps: int, info: ValidationInfo) -> int:
        if steps and info.data.get("gradient_accumulation") == 1:
            raise ValueError(
                "needs training.gradient_accumulation above 1, to which the number of batches per update grows: set "
                "it, with smaller training.batch_tokens"
            )
        return steps

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


class DecodingConfig(BaseConfig):
    """How a translator decodes unless a command or a request sets other options; stored with the model (§6.1)."""

    beam: Annotated[int, Field(ge=1, le=1000)] = 4
    """Beam width; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Exponent α of the length penalty; larger values favor longer translations."""
    extra_tokens: Annotated[int, Field(ge=0, le=1000)] = 50
    """Tokens that a translation may have more than its source."""


class Word2VecConfig(BaseConfig):
    """How word vectors are trained."""

    method: Literal["skip-gram", "cbow"] = "skip-gram"
    """`skip-gram`: a word predicts each context word; `cbow`: the mean of the context words predicts the word."""
    width: Size = 100
    """Vector size."""
    window: Size = 5
    """Maximum distance of a context word, in words on each side."""
    negative_samples: Annotated[int, Field(gt=0, le=1000)] = 5
    """Random words per context word that serve as negative examples."""
    min_count: Size = 5
    """Words with fewer occurrences have no vector."""
    subsample: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    """Words with a higher relative frequency are randomly downsampled; 0 turns it off."""
    epochs: Annotated[int, Field(gt=0, le=100_000)] = 5
    """Passes over the text."""
    lowercase: bool = False
    """Whether text is lowercased."""
    nfkc: bool = False
    """Whether text is normalized with Unicode NFKC."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of all random numbers."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """Number of CPU threads; with more than one, results are not reproducible."""


class Word2VecDataConfig(BaseConfig):
    """Which text word vectors are trained on."""

    train: CorpusConfig = Field(default_factory=CorpusConfig)
    """Training text: plain files or JSON Lines."""
    skip_invalid: bool = False
    """Whether invalid lines are skipped and counted; otherwise the first one is an error."""


class Word2VecRunConfig(BaseConfig):
    """All settings of `regard train word2vec`."""

    word2vec: Word2VecConfig = Field(default_factory=Word2VecConfig)
    """How word vectors are trained."""
    data: Word2VecDataConfig = Field(default_factory=Word2VecDataConfig)
    """Which text word vectors are trained on."""
