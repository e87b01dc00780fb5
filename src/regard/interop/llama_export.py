"""Export of decoders with rotary positions, RMS norms and SwiGLU in the format of Hugging Face's Llama.

The class follows from the settings: Llama; Mistral with windows in all layers; Qwen2 with biases of queries, keys and
values, or windows in some layers; Qwen3 with normalized queries and keys; with experts Mixtral, or Qwen3-MoE.
"""

import math
from typing import Any

import numpy as np

from regard.config import (
    Config,
    DecoderOnlyConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    NtkScalingConfig,
    RotaryPositionsConfig,
    WindowAttentionConfig,
    YarnScalingConfig,
)
from regard.interop.exporters import MAX_POSITIONS, missing_parts
from regard.interop.hf_spec import HFSpec, first_reason, suppressed_token_ids, to_huggingface, to_tensors
from regard.interop.llama import llama_mappings
from regard.interop.weight_transforms import Arrays, separate
from regard.nn.rotary import NtkScaling

LLAMA_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
LLAMA_GENERATED_TOKENS = 256  # default of generation_config.json


def unsupported_by_llama(model: DecoderOnlyConfig) -> str | None:
    """Return why no class of the Llama family can hold a network with rotary positions; None if one can."""
    other_norm = {"layer": "layer norms", "none": "none"}.get(model.norm)
    return first_reason(
        {
            f"Llama has RMS norms, and this network has {other_norm}": model.norm != "rms",
            **missing_parts(model, "Llama", has_experts=True),
            "Llama normalizes before each sublayer, and this network after": model.norm_order == "post",
            f"Llama has swiglu, and this network has {model.activation}": model.activation != "swiglu",
            "Llama has feed-forward layers, and this network has none": model.feed_forward == 0,
            "Llama has no bias on its logits, and this network has": model.output_bias,
            "Llama does not cap logits, and this network does": model.logit_soft_cap is not None,
            "Llama does not normalize embeddings, and this network does": model.embedding_norm,
            "Llama has residual connections, and this network has none": not model.residual,
            "Llama has a causal mask, and this network has none": not model.causal_mask,
            "Llama's queries and keys are as wide as its values, and this network's are not": (
                model.key_width not in (None, model.head_width)
            ),
            f"Llama has full attention and windows, and this network's attention is {model.attention.kind}": (
                model.attention.kind not in ("full", "window")
            ),
            "Qwen2 has no bias after attention with windows, and this network has": (
                model.attention_bias is True and model.attention.kind == "window" and not model.qk_norm
            ),
            "Mixtral has no biases in attention, and this network has experts and biases": (
                model.experts > 1 and bool(model.attention_bias) and not model.qk_norm
            ),
            "Mixtral and Qwen3-MoE have windows in all layers, and this network has experts, and windows in some": (
                model.experts > 1 and bool(getattr(model.attention, "full_layers", ()))
            ),
        }
    )


def export_llama(config: Config, model: DecoderOnlyConfig, arrays: Arrays) -> HFSpec:
    """Return the contents of a folder of the Llama family."""
    kind, tokens = _model_type(model), config.tokens
    biases = {"qwen2": "qkv", "qwen3": bool(model.attention_bias), "qwen3_moe": bool(model.attention_bias)}
    stored = model.model_copy(
        update={
            # ours are scaled when they are read, theirs are stored as they are used
            "tie_output": model.tie_output and not model.scale_embeddings,
            "attention_bias": biases.get(kind, model.attention_bias),
        }
    )
    length = config.context_window or MAX_POSITIONS
    if isinstance(model.attention, WindowAttentionConfig):
        length = max(length, model.attention.window + 2)
    hf_config = {
        "architectures": [LLAMA_CLASSES[kind]],
        "model_type": kind,
        "vocab_size": model.vocab_size,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads or model.heads,
        "head_dim": model.head_width,
        "intermediate_size": model.feed_forward,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm_epsilon,
        "attention_dropout": model.attention_dropout,
        "tie_word_embeddings": stored.tie_output,
        "max_position_embeddings": length,
        "rope_parameters": rope_parameters(model),
        "bos_token_id": tokens.start,
        "eos_token_id": _ids(tokens.ends),
        "pad_token_id": tokens.pad,
        **_attention_settings(kind, stored),
        **_expert_settings(kind, stored),
    }
    generation_config = {
        "bos_token_id": tokens.start,
        "eos_token_id": _ids(tokens.ends),
        "pad_token_id": tokens.pad,
        "bad_words_ids": suppressed_token_ids(config) or None,
        "max_new_tokens": LLAMA_GENERATED_TOKENS,
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "bos_token": tokens.start, "eos_token": tokens.end}
    tokenizer_config = {
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": length,
        "padding_side": "left",  # so that generated tokens directly follow the text
    }
    prefix = (tokens.start,) if tokens.start != tokens.end else ()
    tensors = to_huggingface(llama_mappings(stored), to_tensors(_equivalent(arrays, model, stored)))
    return HFSpec(hf_config, tensors, prefix, (), special, tokenizer_config, generation_config)


def _model_type(model: DecoderOnlyConfig) -> str:
    if model.experts > 1:
        return "qwen3_moe" if model.qk_norm else "mixtral"
    if model.qk_norm:
        return "qwen3"
    if isinstance(model.attention, WindowAttentionConfig):
        return "qwen2" if model.attention_bias or model.attention.full_layers else "mistral"
    return "qwen2" if model.attention_bias == "qkv" else "llama"


def _attention_settings(kind: str, model: DecoderOnlyConfig) -> dict[str, Any]:
    """Return biases and windows in the settings of a class; a window there includes the token itself."""
    window = model.attention.window + 1 if isinstance(model.attention, WindowAttentionConfig) else None
    has_setting = kind in ("llama", "qwen3", "qwen3_moe")
    settings: dict[str, Any] = {"attention_bias": model.attention_bias is True} if has_setting else {}
    if kind in ("mistral", "mixtral"):
        return settings | {"sliding_window": window}
    if kind == "qwen3_moe":
        return settings | {"use_sliding_window": window is not None, "sliding_window": window}
    if kind.startswith("qwen"):
        settings |= {"use_sliding_window": window is not None, "sliding_window": window}
        if isinstance(model.attention, WindowAttentionConfig):
            full = model.attention.full_layers
            settings["layer_types"] = [
                "full_attention" if n in full else "sliding_attention" for n in range(model.layers)
            ]
            settings["max_window_layers"] = 0
    return settings


def _expert_settings(kind: str, model: DecoderOnlyConfig) -> dict[str, Any]:
    """Return the settings of a mixture of experts, in a class that has one."""
    settings = {"num_experts_per_tok": model.experts_per_token}
    if kind == "mixtral":
        return settings | {"num_local_experts": model.experts}
    if kind == "qwen3_moe":
        return settings | {
            "num_experts": model.experts,
            "moe_intermediate_size": model.feed_forward,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return {}


def rope_parameters(model: DecoderOnlyConfig) -> dict[str, Any]:
    """Return the settings of rotary positions.

    >>> positions = RotaryPositionsConfig(scaling=LinearScalingConfig(factor=2))
    >>> rope_parameters(DecoderOnlyConfig(positions=positions))
    {'rope_theta': 10000.0, 'rope_type': 'linear', 'factor': 2.0}
    """
    assert isinstance(model.positions, RotaryPositionsConfig)  # checked by the caller
    base, scaling = model.positions.base, model.positions.scaling
    match scaling:
        case None:
            return {"rope_theta": base, "rope_type": "default"}
        case NtkScalingConfig():  # is the default with another base
            return {"rope_theta": NtkScaling(scaling.factor).base(model.head_width, base), "rope_type": "default"}
        case LinearScalingConfig():
            return {"rope_theta": base, "rope_type": "linear", "factor": scaling.factor}
        case YarnScalingConfig():
            table: dict[str, Any] = {"beta_fast": scaling.fast_turns, "beta_slow": scaling.slow_turns}
            if scaling.attention_factor is not None:
                table["attention_factor"] = scaling.attention_factor
        case Llama3ScalingConfig():
            table = {"low_freq_factor": scaling.low_turns, "high_freq_factor": scaling.high_turns}
    return {
        "rope_theta": base,
        "rope_type": scaling.kind,
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_length,
        **table,
    }


def _ids(ends: tuple[int, ...]) -> int | list[int]:
    return ends[0] if len(ends) == 1 else list(ends)


def _equivalent(arrays: Arrays, model: DecoderOnlyConfig, stored: DecoderOnlyConfig) -> Arrays:
    """Return arrays of a network that computes the same with Llama's rotation, scales and biases.

    Scaled embeddings are stored as they are used, unscaled scores as larger queries, pairs of neighbors as pairs that
    are half a head apart.
    """
    assert isinstance(model.positions, RotaryPositionsConfig)  # checked by the caller
    heads, kv_heads, width = model.heads, model.kv_heads or model.heads, model.head_width
    neighbors, factor = model.positions.layout == "interleaved", 1.0 if model.scale_scores else math.sqrt(width)
    changed = dict(arrays)
    if model.scale_embeddings:
        changed["decoder.embedding.weight"] = changed["decoder.embedding.weight"] * math.sqrt(model.embedding_width)
    for layer in (f"decoder.layers.{n}.attention" for n in range(model.layers)):
        for kind in ("weight", "bias"):
            name = f"{layer}.query_key_value.{kind}"
            if name not in changed and not stored.attention_bias:
                continue
            fused = changed.get(name, np.zeros((heads + 2 * kv_heads) * width, np.float32))
            query, key, value = np.split(fused, [heads * width, (heads + kv_heads) * width])
            if neighbors:
                query, key = separate(query, heads), separate(key, kv_heads)
            query = query if model.qk_norm else query * factor
            changed[name] = np.concatenate([query, key, value])
        if stored.attention_bias is True and model.attention_bias is not True:
            changed[f"{layer}.output.bias"] = np.zeros(model.width, np.float32)
        for name in (f"{layer}.query_norm.weight", f"{layer}.key_norm.weight") if model.qk_norm else ():
            gain = changed.get(name, np.ones(width, np.float32))
            gain = separate(gain, 1) if neighbors else gain
            changed[name] = gain * factor if "query" in name else gain
    return changed
