"""Traces of small random networks of every kind, for the tests of `interpret`."""

import random
from typing import Any

import torch
from torch import Tensor

from family import DECODERS, FAMILY, make
from random_models import words
from regard.config import Config, ModelConfig, TransformerConfig
from regard.data.readers.aligned import attach_parses
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
SHORT = SearchOptions(constraints=OutputConstraints(min_tokens=4, max_tokens=7))
TRANSLATION_MODELS = [name for name, config in DECODERS.items() if config.translates]
LANGUAGE_MODELS = [name for name, config in DECODERS.items() if config.generates]
TRANSFORMER_MODELS = [name for name, config in FAMILY.items() if isinstance(config, TransformerConfig)]
ALIGNING_MODELS = [name for name, config in DECODERS.items() if config.has_alignment]


def make_traced_model(model: ModelConfig, seed: int = 0) -> TracedModel:
    """A random network in double precision with tokenizers of numbered words."""
    target_size = getattr(model, "target_vocab_size", None) or model.vocab_size
    source_tokenizer, target_tokenizer = (Tokenizer(words(size)) for size in (model.vocab_size, target_size))
    return TracedModel(make(model, seed), Config(model=model), source_tokenizer, target_tokenizer, "random")


def make_trace(name: str, text: str = TEXT, seed: int = 0, **arguments: Any) -> Trace:
    """A trace of a network of `family`, with short outputs; `arguments` are those of `look`, and `search`."""
    model = make_traced_model(FAMILY[name], seed)
    options: TranslationOptions | GenerationOptions | None = None
    if model.config.model.translates:
        options = TranslationOptions(arguments.pop("search", SHORT))
    elif model.config.model.generates:
        options = GenerationOptions(
            SamplingOptions(temperature=0, constraints=OutputConstraints(min_tokens=4, max_tokens=4))
        )
    if model.config.model.needs_parses:
        arguments.setdefault("parse", make_parse(text))
    return look(model, text, arguments.pop("options", options), **arguments)


def make_parse(text: str) -> Parse | None:
    """A random parse of a text of space-separated words; texts with equally many words have the same tree."""
    words = text.split()
    ((_, parse),) = attach_parses([text], [conllu(words, random_heads(len(words), random.Random(len(words))))])
    return parse


def trace_features(trace: Trace, without: int | None = None) -> dict[str, Tensor] | None:
    """The parse features of the source tokens, optionally without one token."""
    kept = [n for n in range(len(trace.decoded.source_ids or [])) if n != without]
    features = trace.decoded.features.items()
    return {name: torch.tensor([[values[n] for n in kept]]) for name, values in features} or None
