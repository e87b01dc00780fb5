"""Small random networks in model folders, and the plainest way to decode: what exported models are compared with."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import Tensor

from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    ModelConfig,
    SpecialTokensConfig,
)
from regard.models import Network, build, save

VOCABULARY = 29
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 24, "layers": 2, "heads": 4, "feed_forward": 20}


def randomised(model: ModelConfig, seed: int = 0, noise: float = 0.4) -> Network:
    """A network in which no parameter is left at zero or one, and no logit close to another."""
    torch.manual_seed(seed)
    network = build(model).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.abs_()  # gains may begin with either sign
            parameter.add_(torch.randn_like(parameter) * noise)
    return network


def saved(folder: Path, model: ModelConfig, seed: int = 0, **tokens: int) -> tuple[Network, Config]:
    """A random network and its settings, in a model folder with a tokenizer whose words are w4, w5, …"""
    network, config = randomised(model, seed), Config(model=model, tokens=SpecialTokensConfig(**tokens))
    save(folder, network, config, extra_files={"tokenizer.json": words().to_str().encode()})
    return network, config


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a translator, for tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("models") / "translator"
    saved(folder, EncoderDecoderConfig(**SMALL))
    return folder


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a language model that has learned 40 positions."""
    folder = tmp_path_factory.mktemp("models") / "writer"
    saved(folder, DecoderOnlyConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=40)))
    return folder


def words(size: int = VOCABULARY, prefix: str = "w") -> Tokenizer:
    """A tokenizer of numbered words, separated by spaces in what it decodes."""
    special = ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]
    numbered = {name: n for n, name in enumerate([*special, *(f"{prefix}{n}" for n in range(4, size))])}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": n, "content": name, "special": True}
            | dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
            for n, name in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": json.loads(Tokenizer(models.WordLevel(numbered, "[UNK]")).to_str())["model"],
    }
    return Tokenizer.from_str(json.dumps(whole))


def sources(vocabulary: int = VOCABULARY, count: int = 5, longest: int = 9, seed: int = 0) -> list[list[int]]:
    """Sentences of ids that are text, of all lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(4, vocabulary, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def log_probabilities(network: Network, config: Config, source: list[int] | None, target: list[int]) -> Tensor:
    """Of what follows each token (T, V); tokens that are not text have none, and what they had goes to the others."""
    tokens = config.tokens
    memory = None if source is None else network.encode(torch.tensor([[*source, tokens.end]]))
    logits = network.logits(network.decode(torch.tensor([target]), memory))[0]
    logits[:, list({tokens.pad, tokens.start} - {tokens.end})] = -torch.inf
    return logits.log_softmax(-1)


def greedily(network: Network, config: Config, source: list[int] | None, prompt: list[int], longest: int) -> list[int]:
    """What follows a prompt, its end not included; every step computes everything anew."""
    written = list(prompt)
    while len(written) < len(prompt) + longest:
        best = int(log_probabilities(network, config, source, written)[-1].argmax())
        if best == config.tokens.end:
            break
        written.append(best)
    return written[len(prompt) :]
