"""What is asked of decoding: how wide to search, how to draw, what must and must not be written. Knows no torch."""

from dataclasses import dataclass, field

from regard.errors import ConfigError

MAX_LENGTH = 10**6  # tokens that anyone could want
MAX_BEAM = 1000  # hypotheses that are followed at once
MIN_TEMPERATURE = (
    1e-4  # a lower temperature takes the most probable: logits divided by it would be too large for a float
)
MIN_REPETITION_PENALTY = 0.01  # of repetitions; below it, likewise
MAX_SOURCE_TOKENS = 250  # tokens of a sentence that is not split: about what networks see in training
DEFAULT_GENERATED_TOKENS = 200  # tokens that are written where no length is asked for
EXTRA_TARGET_TOKENS = 50  # tokens that a translation may have more than its source (§6.1)


@dataclass(frozen=True)
class OutputConstraints:
    """What may be written at all: how much of it, and which words not."""

    shortest: int = 0
    """Tokens before the end may come."""
    longest: int | None = None
    """Tokens at most, the end included; without it, as many as the kind of text suggests."""
    forbidden: tuple[tuple[int, ...], ...] = ()
    """Sequences of ids that are never written."""
    words: tuple[str, ...] = ()
    """Words, or several in a row, that are never written, however they are cut into tokens."""

    def __post_init__(self) -> None:
        if self.shortest < 0:
            raise ConfigError(f"a minimum length of {self.shortest} makes no sense; it should be 0 or more.")
        if self.longest is not None and self.longest < max(1, self.shortest):
            least = f"the minimum length, {self.shortest}" if self.shortest > 1 else "1"
            raise ConfigError(f"a maximum length of {self.longest} is less than {least}; raise it.")
        if max(self.longest or 0, self.shortest) > MAX_LENGTH:
            raise ConfigError(f"a length of more than {MAX_LENGTH:,} tokens makes no sense; lower it.")


@dataclass(frozen=True)
class SearchOptions:
    """Beam search as the paper has it (§6.1), greedy where the width is 1.

    A hypothesis is worth log P(y|x) / ((5 + |y|) / 6)^α, its end counted in |y|, plus what coverage takes away (Wu et
    al., 2016, eq. 14). Those that have ended are kept aside. A search ends when nothing that is still open can win any
    more; with a patience (Kasai et al., 2022), already when patience · width hypotheses have ended.
    """

    width: int = 4
    """Hypotheses that are followed at the same time."""
    length_penalty: float = 0.6
    """α: how much longer sentences are forgiven for their lower probability."""
    coverage_penalty: float = 0.0
    """β: how much it costs to leave words of the source unattended."""
    patience: float | None = None
    """Ended hypotheses, in units of the width, after which a search stops looking; None: when it cannot gain."""
    hypotheses: int = 1
    """How many translations of each sentence to give, the best first."""
    bounds: OutputConstraints = OutputConstraints(shortest=1)
    """A sentence that says something is not translated by nothing."""
    spare: int = 0
    """How many more to give where the search has met them anyway; it never goes on for their sake."""

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_BEAM:
            raise ConfigError(f"a beam of {self.width} makes no sense; it should be 1 (greedy) to {MAX_BEAM:,}.")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"a length penalty of {self.length_penalty} makes no sense; it should be 0 to 10.")
        if not 0 <= self.coverage_penalty <= 100:
            raise ConfigError(f"a coverage penalty of {self.coverage_penalty} makes no sense; it should be 0 to 100.")
        if self.patience is not None and not self.patience > 0:
            raise ConfigError(f"a patience of {self.patience} makes no sense; it should be above 0.")
        if self.hypotheses < 1:
            raise ConfigError(f"{self.hypotheses} translations of a sentence make no sense; ask for 1 or more.")
        if self.hypotheses > self.width:
            raise ConfigError(
                f"a beam of {self.width} gives at most as many translations, not {self.hypotheses}; widen the beam."
            )

    def worth(self, log_probability: float, length: int) -> float:
        """The score of a hypothesis of so many tokens, its end included.

        >>> SearchOptions(length_penalty=1.0).worth(-3.0, length=7)
        -1.5
        """
        return log_probability / self.penalty(length)

    def penalty(self, length: int) -> float:
        """((5 + |y|) / 6)^α."""
        return float(((5 + length) / 6) ** self.length_penalty)


GREEDY = SearchOptions(width=1)


@dataclass(frozen=True)
class SamplingOptions:
    """How each next token is drawn. What is left out by one of these is out; the rest shares the probability."""

    temperature: float = 1.0
    """Below one, the probable becomes more so; 0 takes the most probable."""
    top_k: int | None = None
    """Only the so many most probable."""
    top_p: float | None = None
    """Only the most probable that together reach this probability."""
    min_p: float | None = None
    """Only those at least this many times as probable as the most probable."""
    repetition_penalty: float = 1.0
    """Makes what has been written already less probable (Keskar et al., 2019)."""
    no_repeat: int | None = None
    """No sequence of so many tokens comes twice."""
    seed: int = 0
    """The same seed draws the same."""
    bounds: OutputConstraints = OutputConstraints()
    candidates: int | None = None
    """How many of the most probable tokens are told with each that is drawn; None: nor is its own probability."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise ConfigError(f"a temperature of {self.temperature} makes no sense; it should be 0 to 100.")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"the {self.top_k} most probable tokens are none; top-k should be 1 or more.")
        for name, share in (("top-p", self.top_p), ("min-p", self.min_p)):
            if share is not None and not 0 < share <= 1:
                raise ConfigError(f"{name} is {share}, but it is a probability above 0 and up to 1.")
        if not MIN_REPETITION_PENALTY <= self.repetition_penalty <= 100:
            raise ConfigError(
                f"a repetition penalty of {self.repetition_penalty} makes no sense; take {MIN_REPETITION_PENALTY} "
                "to 100; 1 is none."
            )
        if self.no_repeat is not None and self.no_repeat < 1:
            raise ConfigError(f"sequences of {self.no_repeat} tokens are none; no-repeat should be 1 or more.")

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn, and the most probable token always taken."""
        return self.temperature < MIN_TEMPERATURE


@dataclass(frozen=True)
class TranslationOptions:
    """What is asked of the translation of lines."""

    search: SearchOptions = field(default_factory=SearchOptions)
    split: bool = True
    """Whether a line is taken apart into sentences."""
    longest: int = MAX_SOURCE_TOKENS
    """Tokens from which on a sentence is taken apart at punctuation."""
    prefix: str = ""
    """How the translation of each line must begin."""
    forbidden: tuple[str, ...] = ()
    """Words that are not written."""
    scored: bool = False
    watched: bool = False
    copy_unknown: bool = False
    """Whether a word that the vocabulary lacks is replaced by the word of the source that was looked at."""


@dataclass(frozen=True)
class GenerationOptions:
    """What is asked of the continuation of prompts."""

    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    samples: int = 1
    """How many continuations of each prompt."""
    stop: tuple[str, ...] = ()
    """Texts at which a continuation stops; they are not part of it."""
