"""Import of Gemma 1 and 2: Llama with gates of GELU, scaled embeddings and gains that are stored less one.

Gemma 2 also normalizes what sublayers add, caps attention scores and logits, scales scores by a number of its own, and
has windows in every other layer.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from regard.config import AttentionConfig, DecoderOnlyConfig, FullAttentionConfig, WindowAttentionConfig
from regard.interop.hf_folder import HFConfig, read_generation, read_weights
from regard.interop.hf_spec import ImportPlan, TensorLayout, TensorMapping, is_output_tied, read_activation
from regard.interop.hf_tokenizers import llama_tokenizer
from regard.interop.llama import (
    LLAMA_BUFFERS,
    LLAMA_EMBEDDING,
    LLAMA_HEADS,
    LLAMA_OUTPUT,
    llama_mappings,
    read_rotary,
    read_special_tokens,
)

GAIN = TensorLayout(lambda parts: parts[0].float() + 1, lambda whole, _: [whole - 1])
GEMMA2_NORMS = {  # ours -> theirs; Llama's name of the second norm is that of the output of attention here
    "attention_residual.norm": "input_layernorm",
    "attention_residual.output_norm": "post_attention_layernorm",
    "feed_forward_residual.norm": "pre_feedforward_layernorm",
    "feed_forward_residual.output_norm": "post_feedforward_layernorm",
}


def gemma_mappings(model: DecoderOnlyConfig, score_factor: float = 1.0) -> list[TensorMapping]:
    """Map our tensors to those of a `GemmaForCausalLM` or `Gemma2ForCausalLM`.

    `score_factor` multiplies the queries, where scores are not divided by the root of the head's width.

    >>> [entry.hf_names[0] for entry in gemma_mappings(DecoderOnlyConfig(layers=1, norm="rms")) if entry.layout is GAIN]
    ['model.layers.0.input_layernorm.weight', 'model.layers.0.post_attention_layernorm.weight', 'model.norm.weight']
    """
    queries, keys = model.heads * model.head_width, (model.kv_heads or model.heads) * model.head_width

    def stack(parts: list[Tensor]) -> Tensor:
        return torch.cat([parts[0] * score_factor, *parts[1:]])

    def split(whole: Tensor) -> list[Tensor]:
        query, *others = whole.split([queries, keys, keys])
        return [query / score_factor, *others]

    scaled = TensorLayout(lambda parts: stack(list(parts)), lambda whole, _: split(whole))
    entries = []
    for entry in llama_mappings(model):
        if entry.name.endswith("norm.weight"):
            if not model.sandwich_norm or entry.name == "decoder.norm.weight":
                entries.append(TensorMapping(entry.name, entry.hf_names, GAIN))
        elif ".query_key_value." in entry.name:
            entries.append(TensorMapping(entry.name, entry.hf_names, scaled))
        else:
            entries.append(entry)
    if model.sandwich_norm:
        entries += [
            TensorMapping(f"decoder.layers.{n}.{ours}.weight", (f"model.layers.{n}.{theirs}.weight",), GAIN)
            for n in range(model.layers)
            for ours, theirs in GEMMA2_NORMS.items()
        ]
    return entries


def import_gemma(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a Gemma 1 or 2 class."""
    is_second = config.get("model_type") == "gemma2"
    config.require("use_bidirectional_attention", False, "language models have a causal mask")
    name = "hidden_activation" if is_second or config.get("hidden_activation") is not None else "hidden_act"
    activation = read_activation(config, name, "gelu_pytorch_tanh")
    if activation not in ("gelu", "gelu-tanh"):  # the first release says gelu and means the approximation
        raise config.error(name, "cannot be imported, because Gemma's gates are gelu_pytorch_tanh")
    vocab_size, width = config.size("vocab_size", 256000), config.size("hidden_size", 2304 if is_second else 3072)
    heads = config.size("num_attention_heads", 8 if is_second else 16)
    kv_heads = config.size("num_key_value_heads", 4 if is_second else 16)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"does not divide num_attention_heads = {heads}")
    layers, head_dim = config.layers("num_hidden_layers", 26 if is_second else 28), config.size("head_dim", 256)
    weights, notes = read_weights(folder, "model.", (LLAMA_OUTPUT, *LLAMA_HEADS)), list[str]()
    model = DecoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=layers,
        value_width=head_dim,
        heads=heads,
        kv_heads=None if kv_heads == heads else kv_heads,
        feed_forward=config.size("intermediate_size", 9216 if is_second else 24576),
        activation="geglu-tanh",
        norm="rms",
        norm_order="pre",
        norm_epsilon=config.epsilon("rms_norm_eps", 1e-6),
        sandwich_norm=is_second,
        positions=read_rotary(config, notes),
        attention=_attention(config, layers) if is_second else FullAttentionConfig(),
        dropout=0.0,
        attention_dropout=config.probability("attention_dropout", 0.0),
        attention_bias=config.flag("attention_bias", False),
        attention_soft_cap=_cap(config, "attn_logit_softcapping", 50.0) if is_second else None,
        logit_soft_cap=_cap(config, "final_logit_softcapping", 30.0) if is_second else None,
        tie_output=is_output_tied(config, weights, notes, LLAMA_EMBEDDING, LLAMA_OUTPUT, default=True),
    )
    tokenizers = llama_tokenizer(folder, "GemmaTokenizer")
    generation = read_generation(folder)
    factor = math.sqrt(head_dim / config.size("query_pre_attn_scalar", 256)) if is_second else 1.0
    tokens = read_special_tokens(config, generation, vocab_size, tokenizers)
    return ImportPlan(
        model,
        tokens,
        gemma_mappings(model, factor),
        weights,
        tokenizers,
        LLAMA_BUFFERS,
        LLAMA_HEADS,
        notes,
    )


def _attention(config: HFConfig, layers: int) -> AttentionConfig:
    """Return windows in the layers that `layer_types` names, every other one by default."""
    if config.get("sliding_window", 4096) is None:
        return FullAttentionConfig()
    window = config.size("sliding_window", 4096)
    default = ["full_attention" if n % 2 else "sliding_attention" for n in range(layers)]
    types = config.get("layer_types") or default
    if not isinstance(types, list) or len(types) != layers:
        raise config.error("layer_types", f"should name the attention of {layers} layers")
    full = tuple(n for n, kind in enumerate(types) if kind != "sliding_attention")
    if window == 1:
        raise config.error("sliding_window", "leaves each token only itself, which regard does not support")
    return WindowAttentionConfig(window=window - 1, full_layers=full) if len(full) < layers else FullAttentionConfig()


def _cap(config: HFConfig, name: str, default: float) -> float | None:
    return None if config.get(name, default) is None else config.number(name, default)
