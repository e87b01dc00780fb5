"""Which engine carries out a request, and why."""

import logging
from typing import Literal

from regard.config import Config
from regard.decoding.settings import EXTRA_TARGET_TOKENS, SamplingOptions
from regard.decoding.translator import TranslationOptions
from regard.errors import ConfigError
from regard.interop.ctranslate2_limits import POSITIONS, why_not

Name = Literal["auto", "torch", "ctranslate2"]
log = logging.getLogger(__name__)


def decide(wanted: Name, config: Config, *hindrances: str | None) -> Literal["torch", "ctranslate2"]:
    """The engine for a model and a request. `hindrances` are reasons why it cannot be CTranslate2; the first counts."""
    if wanted not in ("auto", "torch", "ctranslate2"):
        raise ConfigError(f"there is no engine {wanted!r}; the engines are auto, torch and ctranslate2.")
    if wanted == "torch":
        log.info("engine: torch, because it was asked for.")
        return "torch"
    reason = next((reason for reason in (why_not(config), *hindrances) if reason), None)
    if reason is None:
        log.info("engine: ctranslate2, which holds the model and the request.")
        return "ctranslate2"
    if wanted == "ctranslate2":
        raise ConfigError(f"the engine ctranslate2 cannot do this: {reason}; use --engine torch, or auto.")
    log.info("engine: torch, because %s.", reason)
    return "torch"


def hindrance_to_search(wish: TranslationOptions, *, ensemble: bool) -> str | None:
    """Why CTranslate2 cannot carry out a search; None if it can."""
    if ensemble:
        return "several models are to vote"
    if wish.prefix:
        return "translations are to begin in a given way"
    if wish.search.coverage_penalty:
        return "there is a coverage penalty"
    bounds = wish.search.bounds
    if max(wish.longest + EXTRA_TARGET_TOKENS, bounds.longest or 0) >= POSITIONS:
        return f"it has only {POSITIONS:,} positions"
    if wish.forbidden or bounds.words:
        return "words are forbidden"
    if wish.scored and (bounds.shortest > 1 or bounds.forbidden):
        return "the probability of each token is wanted where not every token may come"
    return None


def hindrance_to_sampling(sampling: SamplingOptions, *, seeded: bool, ensemble: bool, room: bool) -> str | None:
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
