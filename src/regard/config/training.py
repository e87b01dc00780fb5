"""The settings of training and validation. The defaults are the recipe of "Attention Is All You Need" (§5)."""

from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Rate, Size, variant

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Rising = Annotated[float, Field(ge=0)]


BleuTokenizer = Literal["13a", "intl", "char", "zh", "none"]  # sacrebleu's names
BLEU_TOKENIZERS = get_args(BleuTokenizer)


class AdamConfig(BaseConfig):
    """Adam as the paper sets it (§5.3)."""

    kind: Literal["adam"] = "adam"
    beta1: Rate = 0.9
    beta2: Rate = 0.98
    epsilon: Positive = 1e-9


class AdamWConfig(BaseConfig):
    """Adam with weight decay apart from the gradient, on matrices only (Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"
    beta1: Rate = 0.9
    beta2: Rate = 0.98
    epsilon: Positive = 1e-8
    weight_decay: Rising = 0.01


class InverseSqrtScheduleConfig(BaseConfig):
    """Rise linearly, then fall with the inverse square root of the step: the paper's (§5.3)."""

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    learning_rate: Positive | None = None
    """The highest rate, reached when the warm-up ends; without it the paper's, (width · warmup)^-½."""
    warmup_steps: Count = 4000
    """Steps of linear rise."""


class CosineScheduleConfig(BaseConfig):
    """Rise linearly, then fall along a half cosine until the last step."""

    kind: Literal["cosine"] = "cosine"
    learning_rate: Positive = 1e-3
    warmup_steps: Count = 100
    min_learning_rate: Rising = 0.0
    """The rate at the end."""


class ConstantScheduleConfig(BaseConfig):
    """Rise linearly, then stay."""

    kind: Literal["constant"] = "constant"
    learning_rate: Positive = 1e-3
    warmup_steps: Count = 0


class PlateauScheduleConfig(BaseConfig):
    """Rise linearly, then stay until validation stops improving, and shrink the rate each time that happens."""

    kind: Literal["plateau"] = "plateau"
    learning_rate: Positive = 1e-3
    warmup_steps: Count = 0
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """What the rate is multiplied by."""
    patience: Count = 2
    """Validations without improvement that are borne before it shrinks."""
    min_learning_rate: Rising = 1e-6
    """The rate never falls below this."""


OptimizerConfig = Annotated[AdamConfig | AdamWConfig, Field(discriminator="kind"), variant("adam")]
ScheduleConfig = Annotated[
    InverseSqrtScheduleConfig | CosineScheduleConfig | ConstantScheduleConfig | PlateauScheduleConfig,
    Field(discriminator="kind"),
    variant("inverse-sqrt"),
]


Share = Annotated[float, Field(ge=0, le=1)]


class MaskingConfig(BaseConfig):
    """What is hidden; the defaults are BERT's (Devlin et al. 2019, §3.1)."""

    probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The share of a text's tokens that is hidden, to be predicted from the others; in each text, one at least."""
    mask_fraction: Share = 0.8
    """Of these, the share in whose place the mask token is read."""
    random_fraction: Share = Field(default=0.1, validate_default=True)
    """And the share in whose place a token drawn at random is read; the rest is read unchanged, and predicted too."""
    whole_words: bool = False
    """Hide all tokens of a word together, so that none can be guessed from the rest of its word."""

    @field_validator("random_fraction")
    @classmethod
    def _shares_of_one_whole(cls, random: float, info: ValidationInfo) -> float:
        masked = info.data.get("mask_fraction")
        if masked is not None and masked + random > 1 + 1e-9:
            raise ValueError(
                f"is too much with training.masking.mask_fraction = {masked}: their sum is at most 1; lower one"
            )
        return random


class TrainingConfig(BaseConfig):
    """How the network learns."""

    steps: Size = 100_000
    """Updates of the weights, at most."""
    epochs: Positive | None = None
    """Passes over the data, at most."""
    batch_tokens: Size = 4096
    """Tokens in a batch, pads included; of a pair, its longer side counts."""
    gradient_accumulation: Size = 1
    """Batches whose gradients are added up for one update. Several processes share each batch, and change nothing."""
    label_smoothing: Rate = 0.1
    """How much of the probability asked for is spread over the vocabulary (§5.4)."""
    rdrop: Rising = 0.0
    """Read each batch twice, with other dropout, and ask that both predict the same, by this weight: α of R-Drop (Liang
    et al. 2021). A step takes twice as long, and less is learned by heart; 0 reads once."""
    masking: MaskingConfig = MaskingConfig()
    """Encoders with head = "tokens": which tokens they must guess."""
    optimizer: OptimizerConfig = AdamConfig()
    """How a gradient becomes an update."""
    schedule: ScheduleConfig = InverseSqrtScheduleConfig()
    """The learning rate at each step."""
    max_grad_norm: Rising = 0.0
    """Gradients whose norm is larger are scaled down to it; 0 leaves them as they are.
    Where it is not given, it is 1 for recurrent networks."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """In what matrices are multiplied while training; `bfloat16` has fewer bits, and is used where it is faster:
    1.2 to 1.8 times on processors with instructions for it. Weights, their updates and losses stay float32."""
    ema_decay: Rate = 0.0
    """Validate and keep an exponential moving average of the weights, which keeps this share at each step."""
    average_checkpoints: Count = 0
    """At the end, average the weights of the last so many validations (§6.1), and keep that if it is better."""
    patience: Count = 0
    """Stop after so many validations without improvement; 0 never stops early."""
    pretrained_embeddings: str | None = None
    """A file of word vectors in the standard text format, from which the embeddings of tokens that are words begin."""
    start_from: str | None = None
    """A model folder, or a run's, whose network and tokenizer training starts from."""
    freeze_encoder: bool = False
    """Train only the head, and leave the rest of the network as `start_from` has it."""
    seed: Count = 1
    """Everything random follows from it."""
    checkpoint_minutes: Rising = 5.0
    """How often the state of training is saved, besides at each validation; 0 saves after every step."""
    log_every: Size = 50
    """Steps between two lines of metrics.jsonl."""
    threads: Size | None = None
    """Processor cores to use; without it, all of them."""


class ValidationConfig(BaseConfig):
    """How the network is measured while it trains."""

    every: Size = 1000
    """Steps between two validations."""
    metric: Literal["loss", "bleu", "chrf", "accuracy", "macro_f1"] = "loss"
    """Which score decides what is best, when to stop early and when a plateau is reached."""
    sentences: Count = 500
    """How many sentences are translated for BLEU and chrF; 0 skips them."""
    samples: Count = 3
    """How many of them are shown."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """How BLEU divides text into words, at the end as well; `none` where words are set apart by spaces already."""


class TestingConfig(BaseConfig):
    """How a translator is measured on the test data at the end."""

    __test__ = False  # for pytest, which takes the name for its own

    beam: Annotated[int, Field(ge=1, le=1000)] = 1
    """Hypotheses that are followed at the same time; 1 is greedy."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """α: how much longer sentences are forgiven for their lower probability (§6.1)."""
    references: Literal["separate", "grouped"] = "separate"
    """`grouped`: pairs of the same source are one sentence with several right translations."""
