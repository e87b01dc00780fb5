"""Shared helpers of the decoding tests: small translators and sentences for them."""

from functools import cache

import torch

from family import DECODERS, Batch, make
from regard.config import Config, SpecialTokensConfig
from regard.decoding.engines.pytorch import TorchEngine

TOKENS = SpecialTokensConfig()
TRANSLATORS = [name for name, config in DECODERS.items() if config.translates and not config.needs_parses]
BIASED = "encoder-decoder, narrow keys, biases, untied"


def sentences(batch: Batch) -> list[list[int]]:
    """The sources of a batch without padding."""
    return [source[mask].tolist() for source, mask in zip(batch.source, batch.source_mask, strict=True)]


@cache
def engine(name: str, seed: int = 0) -> TorchEngine:
    """The torch engine with one network, for tests that do not modify it."""
    return TorchEngine([make(DECODERS[name], seed)], Config(model=DECODERS[name]))


def never_ending() -> TorchEngine:
    """The torch engine with a network that never generates the end token."""
    engine = TorchEngine([make(DECODERS[BIASED])], Config(model=DECODERS[BIASED]))
    with torch.no_grad():
        dict(engine.networks[0].named_parameters())["output.bias"][TOKENS.end] = -1e9
    return engine
