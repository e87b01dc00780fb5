"""Rotary positions equal the formula, and the two conventions of transformers (LLaMA and GPT-J)."""

import cmath
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj import modeling_gptj

from regard.config import DecoderOnlyConfig, RotaryPositionsConfig
from regard.models import build
from regard.nn import FrequencyScaling, LinearScaling, Llama3Scaling, NtkScaling, Tokens, YarnScaling
from regard.nn import RotaryPositions as Rotary


def reference(x: Tensor, positions: Tensor, base: float, halves: bool) -> Tensor:
    """Multiply each pair, as a complex number, by e^(imθ)."""
    out, width = x.clone(), x.size(-1)
    for b, h, t in torch.cartesian_prod(*(torch.arange(size) for size in x.shape[:3])).view(-1, 3).tolist():
        for i in range(width // 2):
            first, second = (i, i + width // 2) if halves else (2 * i, 2 * i + 1)
            angle = positions[b % len(positions), t].item() * base ** (-2 * i / width)
            z = complex(x[b, h, t, first], x[b, h, t, second]) * cmath.exp(1j * angle)
            out[b, h, t, first], out[b, h, t, second] = z.real, z.imag
    return out


@given(
    sizes=st.tuples(*[st.integers(1, 3)] * 4),
    one_row=st.booleans(),
    base=st.floats(2, 1e6),
    halves=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_rotations_equal_the_formula(
    sizes: tuple[int, ...], one_row: bool, base: float, halves: bool, seed: int
) -> None:
    rows, heads, length, pairs = sizes
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, heads, length, 2 * pairs, dtype=torch.float64, generator=generator)
    positions = torch.randint(0, 500, (1 if one_row else rows, length), generator=generator)
    rotated = Rotary(base, halves).rotate(x, Tokens(positions))
    torch.testing.assert_close(rotated, reference(x, positions, base, halves), atol=1e-10, rtol=0)


@given(m=st.integers(0, 1000), n=st.integers(0, 1000), shift=st.integers(0, 1000), halves=st.booleans())
def test_products_depend_on_the_distance_only_and_norms_are_kept(m: int, n: int, shift: int, halves: bool) -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rotary = Rotary(halves=halves)

    def at(x: Tensor, position: int) -> Tensor:
        return rotary.rotate(x, Tokens(torch.tensor([[position]])))

    original, shifted = at(q, m) @ at(k, n).mT, at(q, m + shift) @ at(k, n + shift).mT
    torch.testing.assert_close(original, shifted, atol=1e-10, rtol=0)
    torch.testing.assert_close(at(q, m).norm(), q.norm())


def test_angles_are_exact_far_from_the_start() -> None:
    x = torch.ones(1, 1, 1, 2)
    rotated = Rotary().rotate(x, Tokens(torch.tensor([[100_003]])))
    expected = reference(x.double(), torch.tensor([[100_003]]), 10_000, halves=False)
    torch.testing.assert_close(rotated.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("halves", [False, True])
def test_bfloat16_stays_bfloat16(halves: bool) -> None:
    x, tokens = torch.randn(1, 2, 5, 8), Tokens(torch.arange(5)[None])
    rotated = Rotary(halves=halves).rotate(x.bfloat16(), tokens)
    assert rotated.dtype == torch.bfloat16
    torch.testing.assert_close(rotated.float(), Rotary(halves=halves).rotate(x, tokens), atol=0.05, rtol=0)


@pytest.mark.parametrize(("tied", "kv_heads"), [(False, 3), (True, 3), (False, 1)])
def test_a_network_with_halves_equals_llama(tied: bool, kv_heads: int) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 30}
    theirs = LlamaForCausalLM(
        LlamaConfig(
            **sizes,
            num_attention_heads=3,
            num_key_value_heads=kv_heads,
            rms_norm_eps=1e-5,
            tie_word_embeddings=tied,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        )
    ).eval()
    config = DecoderOnlyConfig(
        vocab_size=30,
        width=24,
        layers=2,
        heads=3,
        kv_heads=kv_heads,
        feed_forward=40,
        activation="swiglu",
        norm="rms",
        norm_order="pre",
        positions=RotaryPositionsConfig(layout="halves", base=500.0),
        scale_embeddings=False,
        tie_output=tied,
    )
    ours = build(config).eval()
    ours.load_state_dict(as_ours(theirs, ours.state_dict()))
    ids = torch.randint(0, 30, (2, 50))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=0)


def as_ours(llama: LlamaForCausalLM, ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a LLaMA under the names of our network."""
    theirs = llama.state_dict()
    renamed = {
        "decoder.embedding.weight": theirs["model.embed_tokens.weight"],
        "decoder.norm.weight": theirs["model.norm.weight"],
        "output.weight": theirs["lm_head.weight"],
    }
    for number in range(llama.config.num_hidden_layers):
        layer, their_layer = f"decoder.layers.{number}", f"model.layers.{number}"

        def joined(*names: str, their_layer: str = their_layer) -> Tensor:
            return torch.cat([theirs[f"{their_layer}.{name}.weight"] for name in names])

        renamed |= {
            f"{layer}.attention.query_key_value.weight": joined(*(f"self_attn.{name}_proj" for name in "qkv")),
            f"{layer}.attention.output.weight": joined("self_attn.o_proj"),
            f"{layer}.feed_forward.inner.weight": joined("mlp.gate_proj", "mlp.up_proj"),
            f"{layer}.feed_forward.output.weight": joined("mlp.down_proj"),
            f"{layer}.attention_residual.norm.weight": joined("input_layernorm"),
            f"{layer}.feed_forward_residual.norm.weight": joined("post_attention_layernorm"),
        }
    return {name: renamed[name] for name in ours}


SCALINGS: dict[str, tuple[FrequencyScaling, dict[str, Any], int | None]] = {  # ours, theirs, length of the text
    "none": (LinearScaling(1.0), {"rope_type": "linear", "factor": 1.0}, None),
    "linear": (LinearScaling(3.0), {"rope_type": "linear", "factor": 3.0}, None),
    "ntk": (NtkScaling(4.0), {"rope_type": "dynamic", "factor": 1.0}, 4 * 64),
    "yarn": (
        YarnScaling(4.0, 64),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        None,
    ),
    "yarn, all settings": (
        YarnScaling(8.0, 256, fast_turns=16.0, slow_turns=2.0, attention_factor=1.5),
        {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 256,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "attention_factor": 1.5,
        },
        None,
    ),
    "llama3": (
        Llama3Scaling(8.0, 64, low_turns=1.0, high_turns=4.0),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
        None,
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "length"), SCALINGS.values(), ids=SCALINGS)
@pytest.mark.parametrize(("width", "base"), [(8, 10_000.0), (64, 10_000.0), (128, 500_000.0)])
def test_scaled_frequencies_equal_transformers(
    ours: FrequencyScaling, theirs: dict[str, Any], length: int | None, width: int, base: float
) -> None:
    config = LlamaConfig(head_dim=width, max_position_embeddings=64, rope_parameters={**theirs, "rope_theta": base})
    expected, magnitude = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, torch.device("cpu"), seq_len=length)
    torch.testing.assert_close(ours.frequencies(width, base).float(), expected, atol=0, rtol=1e-5)
    assert ours.magnitude == pytest.approx(magnitude)


def test_a_scaling_divides_positions_and_multiplies_products() -> None:
    x, tokens = torch.randn(2, 3, 11, 8, dtype=torch.float64), Tokens(torch.arange(11)[None])
    divided = Rotary(scaling=LinearScaling(2.0)).rotate(x, Tokens(2 * torch.arange(11)[None]))
    torch.testing.assert_close(divided, Rotary().rotate(x, tokens), atol=1e-12, rtol=0)
    scaled = Rotary(scaling=YarnScaling(2.0, 64, attention_factor=3.0)).rotate(x, tokens)
    torch.testing.assert_close(scaled.norm(dim=-1), 3 * x.norm(dim=-1))


def test_interleaved_pairs_equal_gpt_j() -> None:
    x = torch.randn(2, 3, 11, 8)  # (B, H, T, D)
    sines, cosines = modeling_gptj.create_sinusoidal_positions(11, 8).chunk(2, dim=-1)
    theirs = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sines[None], cosines[None]).transpose(1, 2)
    ours = Rotary().rotate(x, Tokens(torch.arange(11)[None]))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
