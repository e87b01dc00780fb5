"""Small random networks in model folders, and slow reference decoding."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    ModelConfig,
    NtkScalingConfig,
    RotaryPositionsConfig,
    ScalingConfig,
    SpecialTokensConfig,
    WindowAttentionConfig,
    YarnScalingConfig,
)
from regard.models import Network, build, save

VOCABULARY = 29
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 24, "layers": 2, "heads": 4, "feed_forward": 20}

_LLAMA: dict[str, Any] = {**SMALL, "norm": "rms", "norm_order": "pre", "activation": "swiglu"}
_PLAIN: dict[str, Any] = {"scale_embeddings": False, "dropout": 0.0}
_YARN: dict[str, Any] = {"factor": 4.0, "original_length": 8}


def rotary_decoder(**settings: Any) -> DecoderOnlyConfig:
    """A small network of the Llama family."""
    positions = {"layout": "halves", "base": 500.0} | settings.pop("positions", {})
    return DecoderOnlyConfig(**_LLAMA | settings, positions=RotaryPositionsConfig(**positions))


SCALINGS: dict[str, ScalingConfig] = {
    "linear": LinearScalingConfig(factor=3.0),
    "NTK": NtkScalingConfig(factor=3.0),
    "YaRN": YarnScalingConfig(**_YARN),
    "YaRN with its own factor of scores": YarnScalingConfig(**_YARN, attention_factor=1.3, fast_turns=3.0),
    "Llama 3": Llama3ScalingConfig(**_YARN),
    "Llama 3, other limits": Llama3ScalingConfig(factor=4.0, original_length=40, low_turns=0.5, high_turns=5.0),
}
ROTARY: dict[str, DecoderOnlyConfig] = {
    "Llama": rotary_decoder(**_PLAIN),
    "Llama, neighboring pairs, scaled embeddings, unscaled scores": rotary_decoder(
        positions={"layout": "interleaved"}, scale_scores=False, kv_heads=2
    ),
    "Llama, all biases, wide heads, untied": rotary_decoder(
        **_PLAIN, attention_bias=True, value_width=8, kv_heads=1, tie_output=False
    ),
    "Mistral": rotary_decoder(**_PLAIN, attention=WindowAttentionConfig(window=2)),
    "Qwen2": rotary_decoder(**_PLAIN, attention_bias="qkv", kv_heads=2),
    "Qwen2, windows": rotary_decoder(**_PLAIN, attention_bias="qkv", attention=WindowAttentionConfig(window=3)),
    "Qwen2 with zero biases, windows in some layers": rotary_decoder(
        **_PLAIN, attention=WindowAttentionConfig(window=1, full_layers=(0,)), positions={"layout": "interleaved"}
    ),
    "Qwen3": rotary_decoder(**_PLAIN, qk_norm=True, kv_heads=2),
    "Qwen3, all biases, neighboring pairs, unscaled scores": rotary_decoder(
        qk_norm=True, attention_bias=True, scale_scores=False, positions={"layout": "interleaved"}
    ),
    "Mixtral": rotary_decoder(**_PLAIN, experts=3, kv_heads=2),
    "Mixtral without gains, windows, untied": rotary_decoder(
        **_PLAIN,
        experts=4,
        experts_per_token=3,
        norm_affine=False,
        attention=WindowAttentionConfig(window=2),
        tie_output=False,
    ),
    "Qwen3Moe, all biases, neighboring pairs, unscaled scores, windows": rotary_decoder(
        qk_norm=True,
        attention_bias=True,
        scale_scores=False,
        positions={"layout": "interleaved"},
        experts=3,
        attention=WindowAttentionConfig(window=2),
    ),
    "Qwen3 without gains, windows": rotary_decoder(
        qk_norm=True, norm_affine=False, attention=WindowAttentionConfig(window=2)
    ),
} | {f"{name} scaling": rotary_decoder(**_PLAIN, positions={"scaling": scaling}) for name, scaling in SCALINGS.items()}


def random_network(model: ModelConfig, seed: int = 0, noise: float = 0.4) -> Network:
    """A network with random parameters, none of them zero or one."""
    torch.manual_seed(seed)
    network = build(model).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.abs_()  # the sign of norm weights is arbitrary
            parameter.add_(torch.randn_like(parameter) * noise)
    return network


def saved(folder: Path, model: ModelConfig, seed: int = 0, **tokens: int) -> tuple[Network, Config]:
    """Write a model folder with a random network and a tokenizer with the words w4, w5, …"""
    network = random_network(model, seed)
    config = Config(model=model, tokens=SpecialTokensConfig.model_validate(tokens))
    save(folder, network, config, extra_files={"tokenizer.json": words().to_str().encode()})
    return network, config


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator, for tests that do not modify its folder."""
    folder = tmp_path_factory.mktemp("models") / "translator"
    saved(folder, EncoderDecoderConfig(**SMALL))
    return folder


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with 40 learned positions, for tests that do not modify its folder."""
    folder = tmp_path_factory.mktemp("models") / "writer"
    saved(folder, DecoderOnlyConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=40)))
    return folder


CHATML = ("<|end|>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with the characters of ASCII and the tokens of ChatML, and a context window of 200 tokens."""
    folder = tmp_path_factory.mktemp("models") / "talker"
    fast = Tokenizer(models.BPE({name: n for n, name in enumerate([*CHATML, "Ġ", "Ċ", *map(chr, range(33, 127))])}, []))
    fast.pre_tokenizer, fast.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    fast.add_special_tokens([AddedToken(name, normalized=False) for name in CHATML])
    model = rotary_decoder(**_PLAIN, vocab_size=fast.get_vocab_size(), kv_heads=2)
    tokens = SpecialTokensConfig(pad=0, unknown=0, start=0, end=0)
    config = Config.model_validate({"model": model, "tokens": tokens, "data": {"context_length": 200}})
    save(folder, random_network(model, noise=0.2), config, extra_files={"tokenizer.json": fast.to_str().encode()})
    return folder


def words(size: int = VOCABULARY, prefix: str = "w") -> Tokenizer:
    """A tokenizer of numbered words, which are separated by spaces."""
    special = ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]
    vocabulary = {name: n for n, name in enumerate([*special, *(f"{prefix}{n}" for n in range(4, size))])}
    tokenizer = {
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
        "model": json.loads(Tokenizer(models.WordLevel(vocabulary, "[UNK]")).to_str())["model"],
    }
    return Tokenizer.from_str(json.dumps(tokenizer))


def sources(vocabulary: int = VOCABULARY, count: int = 5, longest: int = 9, seed: int = 0) -> list[list[int]]:
    """Random sentences of ids that are not special tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(4, vocabulary, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def log_probabilities(network: Network, config: Config, source: list[int] | None, target: list[int]) -> Tensor:
    """The log-probabilities after each token (T, V), without padding and start tokens."""
    tokens = config.tokens
    memory = None if source is None else network.encode(torch.tensor([[*source, tokens.end]]))
    logits = network.logits(network.decode(torch.tensor([target]), memory))[0]
    logits[:, list({tokens.pad, tokens.start} - {tokens.end})] = -torch.inf
    return logits.log_softmax(-1)


def greedy_decode(
    network: Network, config: Config, source: list[int] | None, prompt: list[int], max_tokens: int
) -> list[int]:
    """Continue a prompt greedily without a cache; the end token is not included."""
    generated = list(prompt)
    while len(generated) < len(prompt) + max_tokens:
        best = int(log_probabilities(network, config, source, generated)[-1].argmax())
        if best == config.tokens.end:
            break
        generated.append(best)
    return generated[len(prompt) :]
