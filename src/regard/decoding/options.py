"""Options of decoding: beam search, sampling, constraints on the output, translation and generation. Torch-free."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regard.config import DecodingConfig
from regard.errors import ConfigError
from regard.registry import SEARCHES, TEXT_FORMATS, SearchName, TextFormat

if TYPE_CHECKING:
    from regard.decoding.logits_processors import LogitsProcessor

MAX_LENGTH = 10**6  # tokens
MAX_LOOKUP = 16  # drafted tokens per step; a cache can drop as many
MAX_BEAM = 1000
MIN_TEMPERATURE = 1e-4  # below it decoding is greedy: logits divided by less could overflow
MIN_REPETITION_PENALTY = 0.01  # likewise
MAX_SOURCE_TOKENS = 250  # longer sentences are split: about the longest that networks see in training
DEFAULT_GENERATED_TOKENS = 200
RANDOM_SEEDS = 2**31
DEFAULT_TEMPERATURE = 1.0  # of the command line, the HTTP API and Python alike


@dataclass(frozen=True)
class OutputConstraints:
    """Limits on the length of the output, and sequences and words that must not occur in it."""

    min_tokens: int = 0
    """Tokens before the end token is allowed."""
    max_tokens: int | None = None
    """Maximum number of tokens, end token included; None: the default of the task."""
    suppressed_sequences: tuple[tuple[int, ...], ...] = ()
    """Token id sequences that are never generated."""
    suppressed_words: tuple[str, ...] = ()
    """Words or phrases that are never generated, however they are split into tokens."""
    logits_processors: "tuple[str | LogitsProcessor, ...]" = ()
    """Additional logits processors: registered names, or objects."""

    def __post_init__(self) -> None:
        if self.min_tokens < 0:
            raise ConfigError(f"min_tokens is {self.min_tokens}; it should be 0 or more.")
        if self.max_tokens is not None and self.max_tokens < max(1, self.min_tokens):
            lower = f"min_tokens, {self.min_tokens}" if self.min_tokens > 1 else "1"
            raise ConfigError(f"max_tokens is {self.max_tokens}, which is less than {lower}; raise it.")
        if max(self.max_tokens or 0, self.min_tokens) > MAX_LENGTH:
            longest = max(self.max_tokens or 0, self.min_tokens)
            raise ConfigError(f"a length of {longest:,} tokens is more than the limit, {MAX_LENGTH:,}; lower it.")


@dataclass(frozen=True)
class SearchOptions:
    """Options of beam search as in the paper (§6.1); a beam of 1 is greedy search.

    The score of a hypothesis y is log P(y|x) / ((5 + |y|) / 6)^α, where |y| counts the end token, minus the coverage
    penalty (Wu et al., 2016, eq. 14). The search ends when no open hypothesis can still win, or, with a patience (Kasai
    et al., 2022), when patience · beam hypotheses are finished.
    """

    beam: int = 4
    """Number of open hypotheses."""
    length_penalty: float = 0.6
    """α: larger values favor longer outputs."""
    coverage_penalty: float = 0.0
    """β: larger values penalize source tokens that received little attention."""
    patience: float | None = None
    """Finished hypotheses, in units of the beam, after which the search stops; None: when no open one can win."""
    n_best: int = 1
    """Number of hypotheses returned per sentence, best first."""
    constraints: OutputConstraints = OutputConstraints(min_tokens=1)
    """A translation is never empty by default."""
    extra_hypotheses: int = 0
    """Further hypotheses returned if the search has finished them anyway; the search is not extended for them."""

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= MAX_BEAM:
            raise ConfigError(f"beam is {self.beam}; it should be 1 (greedy) to {MAX_BEAM:,}.")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"length_penalty is {self.length_penalty}; it should be 0 to 10.")
        if not 0 <= self.coverage_penalty <= 100:
            raise ConfigError(f"coverage_penalty is {self.coverage_penalty}; it should be 0 to 100.")
        if self.patience is not None and not self.patience > 0:
            raise ConfigError(f"patience is {self.patience}; it should be greater than 0.")
        if self.n_best < 1:
            raise ConfigError(f"n_best is {self.n_best}; it should be 1 or more.")
        if self.n_best > self.beam:
            raise ConfigError(
                f"n_best is {self.n_best}, but a beam of {self.beam} gives at most {self.beam}; raise it."
            )

    def score(self, log_probability: float, length: int) -> float:
        """Return the score of a hypothesis of `length` tokens, end token included, without the coverage penalty.

        >>> SearchOptions(length_penalty=1.0).score(-3.0, length=7)
        -1.5
        """
        return log_probability / self.length_normalizer(length)

    def length_normalizer(self, length: int) -> float:
        """Return ((5 + |y|) / 6)^α."""
        return float(((5 + length) / 6) ** self.length_penalty)

    @property
    def summary(self) -> str:
        """The search in words.

        >>> GREEDY.summary, SearchOptions(4, length_penalty=0.6).summary
        ('greedy search', 'beam 4, length penalty 0.6')
        """
        return "greedy search" if self.beam == 1 else f"beam {self.beam}, length penalty {self.length_penalty:g}"


GREEDY = SearchOptions(beam=1)


def search_options(
    decoding: DecodingConfig,
    beam: int | None = None,
    length_penalty: float | None = None,
    *,
    search: SearchName = "exact",
    coverage_penalty: float = 0.0,
    patience: float | None = None,
    n_best: int = 1,
    constraints: OutputConstraints = SearchOptions.constraints,
) -> SearchOptions:
    """Return options of beam search; a beam and a length penalty of None are the model's defaults.

    >>> search_options(DecodingConfig(length_penalty=1.0), beam=8).length_penalty
    1.0
    """
    return SearchOptions(
        decoding.beam if beam is None else beam,
        decoding.length_penalty if length_penalty is None else length_penalty,
        coverage_penalty,
        search_patience(search, patience),
        n_best,
        constraints,
    )


def search_patience(search: str, patience: float | None = None) -> float | None:
    """Return the patience of a search by name: `fast` stops when as many hypotheses as the beam has are finished.

    >>> search_patience("exact"), search_patience("fast"), search_patience("exact", 2.0)
    (None, 1.0, 2.0)
    """
    if search not in SEARCHES:
        raise ConfigError(f"search is {search!r}; it should be {' or '.join(SEARCHES)}.")
    if search == "exact":
        return patience
    if patience is not None:
        raise ConfigError(f"search is 'fast', which is a patience of 1, but patience is {patience:g}; remove one.")
    return 1.0


@dataclass(frozen=True)
class SamplingOptions:
    """Options of sampling the next token; the probabilities of the tokens that remain are renormalized."""

    temperature: float = DEFAULT_TEMPERATURE
    """Below 1, the distribution is sharper; 0 is greedy."""
    top_k: int | None = None
    """Sample from the k most probable tokens."""
    top_p: float | None = None
    """Sample from the smallest set of most probable tokens whose probabilities sum to p."""
    min_p: float | None = None
    """Sample from the tokens with at least this fraction of the highest probability."""
    repetition_penalty: float = 1.0
    """Above 1, tokens that have occurred become less probable (Keskar et al., 2019)."""
    no_repeat_ngram: int | None = None
    """No n-gram of this size occurs twice."""
    seed: int = 0
    """The same seed gives the same samples."""
    constraints: OutputConstraints = OutputConstraints()
    top_logprobs: int | None = None
    """Return this many of the most probable tokens at each step, and the token's own log-probability; None: neither."""
    lookup: int = 0
    """Drafted tokens per step, taken from the text so far: the same text in fewer steps; 0: none."""

    def __post_init__(self) -> None:
        if not 0 <= self.lookup <= MAX_LOOKUP:
            raise ConfigError(f"lookup is {self.lookup}; it should be 0 (no drafts) to {MAX_LOOKUP}.")
        if not 0 <= self.temperature <= 100:
            raise ConfigError(f"temperature is {self.temperature}; it should be 0 to 100.")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k is {self.top_k}; it should be 1 or more.")
        for name, probability in (("top_p", self.top_p), ("min_p", self.min_p)):
            if probability is not None and not 0 < probability <= 1:
                raise ConfigError(f"{name} is {probability}; it should be greater than 0 and at most 1.")
        if not MIN_REPETITION_PENALTY <= self.repetition_penalty <= 100:
            raise ConfigError(
                f"repetition_penalty is {self.repetition_penalty}; it should be {MIN_REPETITION_PENALTY} to 100, "
                "where 1 means none."
            )
        if self.no_repeat_ngram is not None and self.no_repeat_ngram < 1:
            raise ConfigError(f"no_repeat_ngram is {self.no_repeat_ngram}; it should be 1 or more.")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < MIN_TEMPERATURE


@dataclass(frozen=True)
class TranslationOptions:
    """Options of the translation of lines."""

    search: SearchOptions = field(default_factory=SearchOptions)
    split_sentences: bool | None = None
    """Translate each sentence of a line on its own; None: only in lines that are longer than the training data."""
    max_source_tokens: int = MAX_SOURCE_TOKENS
    """Sentences with more tokens are split at punctuation."""
    prefix: str = ""
    """Text that the translation of each line begins with."""
    suppress: tuple[str, ...] = ()
    """Words that are never generated."""
    token_scores: bool = False
    """Return the log-probability of each token."""
    attention: bool = False
    """Return the attention of each token to the source."""
    copy_unknown: bool = False
    """Replace unknown tokens by the source word with the highest attention."""
    copy_symbols: bool = True
    """Copy sentences without letters, such as `---`, a number or a timestamp, instead of translating them."""
    unwrap: bool = False
    """Join the lines of a paragraph before they are translated; blank lines separate paragraphs."""
    format: TextFormat = "auto"
    """`html`: translate the text between tags, and put inline tags back by word alignment. `auto`: in lines with
    pairs of tags. `text`: translate tags like words."""
    details: bool = True
    """Return the sentences with tokens, scores and flags; False: texts only, which is faster."""
    source_language: str | None = None
    """Code of the language of the texts, for models of several languages."""
    target_language: str | None = None
    """Code of the language to translate to."""

    def __post_init__(self) -> None:
        if self.format not in TEXT_FORMATS:
            raise ConfigError(
                f"format is {str(self.format)!r}; it should be {', '.join(TEXT_FORMATS[:-1])} or {TEXT_FORMATS[-1]}."
            )


@dataclass(frozen=True)
class GenerationOptions:
    """Options of the continuation of prompts."""

    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    samples: int = 1
    """Number of continuations of each prompt."""
    stop: tuple[str, ...] = ()
    """Texts that end a continuation; they are not part of it."""
    stop_tokens: tuple[int, ...] = ()
    """Tokens that end a continuation, besides the end tokens of the model."""
    omit_space: bool = False
    """Leave out a space at the beginning of a continuation, which separates it from the prompt."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples is {self.samples}; it should be 1 or more.")


def generation_options(
    *,
    max_tokens: int = DEFAULT_GENERATED_TOKENS,
    min_tokens: int = 0,
    temperature: float = DEFAULT_TEMPERATURE,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    no_repeat_ngram: int | None = None,
    suppress: Sequence[str] = (),
    stop: Sequence[str] = (),
    seed: int | None = None,
    logits_processors: "Sequence[str | LogitsProcessor]" = (),
    lookup: int = 0,
    samples: int = 1,
    top_logprobs: int | None = None,
    **_engine: str,
) -> GenerationOptions:
    """Return the options that the keywords of `generate` describe; those of the engine are ignored."""
    constraints = OutputConstraints(
        min_tokens,
        max_tokens,
        suppressed_words=tuple(suppress),
        logits_processors=tuple(logits_processors),
    )
    sampling = SamplingOptions(
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        no_repeat_ngram,
        secrets.randbelow(RANDOM_SEEDS) if seed is None else seed,
        constraints,
        top_logprobs,
        lookup,
    )
    return GenerationOptions(sampling, samples, tuple(stop))
