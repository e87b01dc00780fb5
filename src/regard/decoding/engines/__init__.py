"""Engines run searches: their interface, and the choice of the engine for a model and its options. Torch-free.

PyTorch supports every network and option, CTranslate2 most of them, much faster on CPUs.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, Protocol

from regard.config import Config
from regard.data.syntax import TokenFeatures
from regard.decoding.options import SamplingOptions, SearchOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.errors import INSTALL_TRAINING_PACKAGES, ConfigError, InputError, MissingPackageError
from regard.interop.exporters import MAX_POSITIONS, unsupported_reason
from regard.registry import ENGINES, EngineName

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchRequest:
    """Sentences to translate, and how."""

    sources: Sequence[Sequence[int]]
    """The ids of each sentence, without the end token."""
    search: SearchOptions = field(default_factory=SearchOptions)
    prefixes: Sequence[Sequence[int]] | None = None
    """The ids that each translation must begin with."""
    token_scores: bool = True
    """Return the log-probability of each token."""
    attention: bool = False
    """Return the attention of each token to the source."""
    token_texts: Sequence[str] = ()
    """The text of each target token by id, for suppressed words and custom logits processors."""
    features: Sequence[TokenFeatures] = ()
    """The features of each sentence's tokens, for networks that need parses."""


class Engine(Protocol):
    """Searches for translations."""

    name: str

    def search(self, request: SearchRequest) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first, in the order of the sentences."""
        ...

    def best_ids(self, request: SearchRequest) -> list[list[int]]:
        """Return only the ids of the first hypothesis of each sentence."""
        ...


def max_target_lengths(request: SearchRequest, config: Config) -> list[int]:
    """Return the maximum number of target tokens of each sentence, end token included.

    Without a `max_tokens`, it is the length of the source plus the model's `decoding.extra_tokens`: 50 (§6.1).
    """
    return limited_lengths(request, config.decoding.extra_tokens, config.model.max_length)


def limited_lengths(request: SearchRequest, extra_tokens: int, positions: int | None) -> list[int]:
    """Return the same, given these two values of the model, which take longer to look up than a sentence to count."""
    max_tokens = request.search.constraints.max_tokens
    limits = []
    for source in request.sources:
        limit = len(source) + 1 + extra_tokens if max_tokens is None else max_tokens
        limits.append(limit if positions is None else min(limit, positions))
        if positions is not None and len(source) + 1 > positions:
            raise InputError(
                f"The sentence has {len(source) + 1} tokens with its end token, but this network has {positions} "
                "learned positions; split it, or train with more positions."
            )
    return limits


def choose_engine(name: EngineName, config: Config, *obstacles: str | None) -> Literal["torch", "ctranslate2"]:
    """Return the engine for a model; `obstacles` are reasons why its options cannot be run by CTranslate2."""
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}; the engines are auto, torch and ctranslate2.")
    if name == "torch":
        _check_torch("the engine torch was requested")
        log.info("engine: torch, as requested.")
        return "torch"
    reason = next((reason for reason in (unsupported_reason(config), *obstacles) if reason), None)
    if reason is None:
        log.info("engine: ctranslate2, which supports the model and the options.")
        return "ctranslate2"
    if name == "ctranslate2":
        raise ConfigError(f"the engine ctranslate2 cannot be used because {reason}; use the engine torch, or auto.")
    _check_torch(reason)
    log.info("engine: torch, because %s.", reason)
    return "torch"


def _check_torch(reason: str) -> None:
    if find_spec("torch") is None:
        raise MissingPackageError(f"PyTorch is needed because {reason}; {INSTALL_TRAINING_PACKAGES}.")


def unsupported_search(options: TranslationOptions, config: Config, *, is_ensemble: bool) -> str | None:
    """Return why CTranslate2 cannot run a search with these options; None if it can."""
    if is_ensemble:
        return "CTranslate2 does not support ensembles"
    if options.prefix:
        return "a prefix is set"
    if options.search.coverage_penalty:
        return "a coverage penalty is set"
    constraints = options.search.constraints
    if constraints.logits_processors:
        return "logits processors are set"
    longest = max(options.max_source_tokens + config.decoding.extra_tokens, constraints.max_tokens or 0)
    if longest >= MAX_POSITIONS:
        return f"it has only {MAX_POSITIONS:,} positions"
    if options.suppress or constraints.suppressed_words:
        return "words are suppressed"
    if options.token_scores and (constraints.min_tokens > 1 or constraints.suppressed_sequences):
        return "token scores are requested with a minimum length or suppressed sequences"
    return None


def unsupported_sampling(
    sampling: SamplingOptions, *, is_seeded: bool, is_ensemble: bool, fits_window: bool
) -> str | None:
    """Return why CTranslate2 cannot sample with these options; None if it can."""
    if is_ensemble:
        return "CTranslate2 does not support ensembles"
    if sampling.constraints.suppressed_words:
        return "words are suppressed"
    if sampling.constraints.logits_processors:
        return "logits processors are set"
    if sampling.lookup:
        return "lookup is set"
    if sampling.top_logprobs is not None:
        return "token log-probabilities are requested"
    if sampling.min_p is not None:
        return "CTranslate2 has no min_p"
    if sampling.top_p is not None and sampling.top_p < 1 and (sampling.top_k is None or sampling.top_k > 1024):
        return "CTranslate2 supports top_p only with a top_k of at most 1,024"
    if is_seeded and not sampling.greedy:
        return "a seed is set, and CTranslate2's samples are not reproducible"
    if not fits_window:
        return "the text may outgrow the model's context window"
    return None
