"""Imported decoders compute what transformers computes, for random settings of every family."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    logging,
)

from regard.errors import ModelError
from regard.interop import import_huggingface
from regard.models import load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4


def opt(draw: random.Random, seed: int) -> Any:
    heads = draw.choice([1, 2])
    width = heads * draw.choice([4, 6])
    config = OPTConfig(
        vocab_size=draw.randint(11, 40),
        hidden_size=width,
        word_embed_proj_dim=width,
        num_hidden_layers=2,
        num_attention_heads=heads,
        ffn_dim=draw.randint(5, 40),
        max_position_embeddings=30,
        do_layer_norm_before=seed != 2,
        activation_function=draw.choice(["relu", "gelu"]),
        tie_word_embeddings=draw.choice([True, False]),
    )
    return OPTForCausalLM(config)


def gpt_neox(draw: random.Random, seed: int) -> Any:
    heads = draw.choice([1, 2])
    config = GPTNeoXConfig(
        vocab_size=draw.randint(11, 40),
        hidden_size=heads * 8,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=draw.randint(5, 40),
        max_position_embeddings=30,
        use_parallel_residual=seed != 2,
        hidden_act=draw.choice(["relu", "gelu", "gelu_new"]),
        rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": [0.25, 1.0, 0.5][seed]},
        tie_word_embeddings=draw.choice([True, False]),
        eos_token_id=0,
    )
    return GPTNeoXForCausalLM(config)


def gemma_settings(draw: random.Random) -> dict[str, Any]:
    kv_heads = draw.choice([1, 2])
    heads = kv_heads * draw.choice([1, 2])
    return {
        "vocab_size": draw.randint(11, 40),
        "hidden_size": heads * draw.choice([4, 6]),
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": draw.choice([4, 6, 10]),
        "intermediate_size": draw.randint(5, 40),
        "rms_norm_eps": draw.choice([1e-6, 1e-3]),
        "attention_bias": draw.choice([True, False]),
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }


def gemma(draw: random.Random, seed: int) -> Any:
    return GemmaForCausalLM(GemmaConfig(**gemma_settings(draw)))


def gemma2(draw: random.Random, seed: int) -> Any:
    config = Gemma2Config(
        **gemma_settings(draw),
        sliding_window=4,
        query_pre_attn_scalar=draw.choice([4, 9, 100]),
        attn_logit_softcapping=[2.0, 5.0, None][seed],
        final_logit_softcapping=[3.0, None, 30.0][seed],
        attn_implementation="eager",  # the others have no cap
    )
    return Gemma2ForCausalLM(config)


FAMILIES = {"opt": opt, "gpt_neox": gpt_neox, "gemma": gemma, "gemma2": gemma2}


def random_model(family: str, seed: int) -> Any:
    """A network with random settings and parameters, gains and biases included."""
    torch.manual_seed(seed)
    model = FAMILIES[family](random.Random(f"{family} {seed}"), seed).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(float("norm" in name and "weight" in name) + 0.3 * torch.randn_like(tensor))
    return model


def random_batch(vocab_size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ids (B, T) with padding on the left, and their token mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab_size, (3, 24), generator=generator)
    return ids, torch.arange(24) >= torch.tensor([[0], [5], [13]])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_equal_transformers(family: str, seed: int, tmp_path: Path) -> None:
    model = random_model(family, seed)
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert (report.kind, report.skipped) == (family, ())
    network = load_network(tmp_path / "ours").network
    ids, mask = random_batch(model.config.vocab_size, seed)
    expected = model(input_ids=ids).logits
    torch.testing.assert_close(network(ids), expected, atol=TOLERANCE, rtol=TOLERANCE)
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    padded = model(input_ids=ids, attention_mask=mask.long(), position_ids=positions).logits
    torch.testing.assert_close(network(ids, mask)[mask], padded[mask], atol=TOLERANCE, rtol=TOLERANCE)
    cache = network.new_cache()
    steps = [network.logits(network.decode(part, cache=cache)) for part in ids.split([9, *[1] * 15], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
def test_end_tokens_and_sampling_of_the_generation_config(family: str, tmp_path: Path) -> None:
    model = random_model(family, 0)
    model.generation_config.update(eos_token_id=[3, 5, 10**6], do_sample=True, temperature=0.6, top_k=7)
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert {3, 5} <= set(load_network(tmp_path / "ours").config.tokens.ends)
    assert sum("temperature 0.6, top_k 7" in note for note in report.notes) == 1
    path = tmp_path / "original" / "generation_config.json"
    path.write_text('{"eos_token_id": ["a"]}', "utf-8")
    with pytest.raises(ModelError, match=r'eos_token_id = \["a"\] should be a token id, or a list of them'):
        import_huggingface(tmp_path / "original", tmp_path / "again")
