"""Traces of small random networks of every kind: what the tests of `look` share."""

import random
from typing import Any

import torch
from torch import Tensor

from family import DECODERS, FAMILY, make
from random_models import words
from regard.config import Config, ModelConfig, TransformerConfig
from regard.data.readers.parses import attach_parses
from regard.data.syntax import Parse
from regard.data.tokenizer import Tokenizer
from regard.decoding.options import (
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
    SearchOptions,
    TranslationOptions,
)
from regard.interpret.decode import TracedModel
from regard.interpret.trace import Trace, look
from toy_trees import conllu, random_heads

TEXT = "w5 w9 w12 w7"
SHORT = SearchOptions(bounds=OutputConstraints(shortest=4, longest=7))
TRANSLATORS = [name for name, config in DECODERS.items() if config.translates]
WRITERS = [name for name, config in DECODERS.items() if config.generates]
TRANSFORMERS = [name for name, config in FAMILY.items() if isinstance(config, TransformerConfig)]
ALIGNING = [name for name, config in DECODERS.items() if config.has_alignment]


def subject(model: ModelConfig, seed: int = 0) -> TracedModel:
    """A random network in double precision, and tokenizers of numbered words."""
    target = getattr(model, "target_vocab_size", None) or model.vocab_size
    source_words, target_words = (Tokenizer(words(size)) for size in (model.vocab_size, target))
    return TracedModel(make(model, seed), Config(model=model), source_words, target_words, "random")


def traced(name: str, text: str = TEXT, seed: int = 0, **options: Any) -> Trace:
    """A trace of a network of the family; searches and continuations are short."""
    who = subject(FAMILY[name], seed)
    wish: TranslationOptions | GenerationOptions | None = None
    if who.config.model.translates:
        wish = TranslationOptions(options.pop("search", SHORT))
    elif who.config.model.generates:
        wish = GenerationOptions(SamplingOptions(temperature=0, bounds=OutputConstraints(shortest=4, longest=4)))
    if who.config.model.needs_parses:
        options.setdefault("parse", parsed(text))
    return look(who, text, options.pop("wish", wish), **options)


def parsed(text: str) -> Parse | None:
    """A parse of a text whose words are apart by spaces; texts of as many words have the same tree."""
    words = text.split()
    ((_, parse),) = attach_parses([text], [conllu(words, random_heads(len(words), random.Random(len(words))))])
    return parse


def facts(trace: Trace, without: int | None = None) -> dict[str, Tensor] | None:
    """What the parse of a trace tells of its source's tokens, perhaps of all but one."""
    kept = [n for n in range(len(trace.decoded.source_ids or [])) if n != without]
    return {name: torch.tensor([[fact[n] for n in kept]]) for name, fact in trace.decoded.features.items()} or None
