"""The contract of an engine, so that whoever asks for a translation need not know who makes it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from regard.config import Config
from regard.data.syntax import TokenFeatures
from regard.decoding.options import EXTRA_TARGET_TOKENS, SamplingOptions, SearchOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.errors import ConfigError, InputError
from regard.interop.ctranslate2_support import MAX_POSITIONS, unsupported_reason

Ids = Sequence[int]


@dataclass(frozen=True)
class SearchRequest:
    """What to search for in a batch of sentences."""

    sources: Sequence[Ids]
    """The ids of each sentence, without its end."""
    search: SearchOptions = field(default_factory=SearchOptions)
    prefixes: Sequence[Ids] | None = None
    """How each translation must begin."""
    scored: bool = True
    """Whether the probability of each token is wanted."""
    watched: bool = False
    """Whether it is wanted what each token looked at."""
    spelling: Sequence[str] = ()
    """The text of each token of the target by its id, where words are forbidden."""
    facts: Sequence[TokenFeatures] = ()
    """What is known of each sentence's tokens, for networks that read parses; for others, nothing."""


class Engine(Protocol):
    """Finds translations."""

    name: str

    def search(self, task: SearchRequest) -> list[list[Hypothesis]]:
        """The hypotheses for each sentence, the best first, in the order of the sentences."""
        ...


def max_target_lengths(task: SearchRequest, config: Config) -> list[int]:
    """The most tokens that each translation may have, its end included: 50 more than its source (§6.1)."""
    longest, learned = task.search.bounds.longest, config.model.max_length
    found = []
    for source in task.sources:
        limit = len(source) + 1 + EXTRA_TARGET_TOKENS if longest is None else longest
        found.append(limit if learned is None else min(limit, learned))
        if learned is not None and len(source) + 1 > learned:
            raise InputError(
                f"The sentence is {len(source) + 1} tokens long with its end, but this network learned {learned} "
                "positions: split it, or train with more."
            )
    return found


EngineName = Literal["auto", "torch", "ctranslate2"]
Precision = Literal["int8", "float32"]
log = logging.getLogger(__name__)


def choose_engine(wanted: EngineName, config: Config, *hindrances: str | None) -> Literal["torch", "ctranslate2"]:
    """The engine for a model and a request. `hindrances` are reasons why it cannot be CTranslate2; the first counts."""
    if wanted not in ("auto", "torch", "ctranslate2"):
        raise ConfigError(f"there is no engine {wanted!r}; the engines are auto, torch and ctranslate2.")
    if wanted == "torch":
        log.info("engine: torch, because it was asked for.")
        return "torch"
    reason = next((reason for reason in (unsupported_reason(config), *hindrances) if reason), None)
    if reason is None:
        log.info("engine: ctranslate2, which holds the model and the request.")
        return "ctranslate2"
    if wanted == "ctranslate2":
        raise ConfigError(f"the engine ctranslate2 cannot do this: {reason}; use --engine torch, or auto.")
    log.info("engine: torch, because %s.", reason)
    return "torch"


def unsupported_search(wish: TranslationOptions, *, ensemble: bool) -> str | None:
    """Why CTranslate2 cannot carry out a search; None if it can."""
    if ensemble:
        return "several models are to vote"
    if wish.prefix:
        return "translations are to begin in a given way"
    if wish.search.coverage_penalty:
        return "there is a coverage penalty"
    bounds = wish.search.bounds
    if max(wish.longest + EXTRA_TARGET_TOKENS, bounds.longest or 0) >= MAX_POSITIONS:
        return f"it has only {MAX_POSITIONS:,} positions"
    if wish.forbidden or bounds.words:
        return "words are forbidden"
    if wish.scored and (bounds.shortest > 1 or bounds.forbidden):
        return "the probability of each token is wanted where not every token may come"
    return None


def unsupported_sampling(sampling: SamplingOptions, *, seeded: bool, ensemble: bool, room: bool) -> str | None:
    """Why CTranslate2 cannot draw; None if it can."""
    if ensemble:
        return "several models are to vote"
    if sampling.bounds.words:
        return "words are forbidden"
    if sampling.candidates is not None:
        return "the probability of each token is wanted"
    if sampling.min_p is not None:
        return "it has no min-p"
    if sampling.top_p is not None and sampling.top_p < 1 and (sampling.top_k is None or sampling.top_k > 1024):
        return "it has top-p only with a top-k of at most 1,024"
    if seeded and not sampling.greedy:
        return "a seed is given, and its draws cannot be repeated"
    if not room:
        return "the text may outgrow the model's window"
    return None
