"""Import of Llama-like decoders: RMS pre-norms, rotary positions, SwiGLU, grouped-query attention.

Llama, SmolLM2, Mistral, Qwen2 and Qwen3 have the same tensors; they differ in biases, normalized queries and keys,
windows and the width of a head. Mixtral and Qwen3-MoE have a router and experts in the place of each SwiGLU.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from regard.config import (
    AttentionConfig,
    DecoderOnlyConfig,
    FullAttentionConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    RotaryPositionsConfig,
    ScalingConfig,
    SpecialTokensConfig,
    WindowAttentionConfig,
    YarnScalingConfig,
)
from regard.interop.hf_folder import HFConfig, read_generation, read_weights
from regard.interop.hf_spec import (
    ImportPlan,
    TensorLayout,
    TensorMapping,
    is_output_tied,
    read_activation,
    with_prefixes,
)
from regard.interop.hf_tokenizers import (
    ImportedTokenizers,
    llama_tokenizer,
    special_token_names,
)
from regard.models.folder_files import TOKENIZER_FILE

LLAMA_EMBEDDING, LLAMA_OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
LLAMA_BUFFERS = r".*\.rotary_emb\.inv_freq"
LLAMA_HEADS = {
    "score.": "regard's language model has no classification head",
    "qa_outputs.": "regard's language model has no question-answering head",
}


@dataclass(frozen=True)
class LlamaFamily:
    """What distinguishes a `model_type`, and the defaults of its class."""

    qkv_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    windows: Literal["always", "all layers", "some layers"] = "some layers"
    """Where windows are if `sliding_window` is set; but for `always` only with `use_sliding_window`."""
    head_dim: int | None = None
    kv_heads: int | None = None
    rope_theta: float = 10_000.0
    experts: "ExpertNames | None" = None


@dataclass(frozen=True)
class ExpertNames:
    """Names of the tensors and settings of a mixture of experts, with the defaults of its class."""

    router: str
    experts: str
    gate: str
    up: str
    down: str
    hidden_setting: str
    hidden: int
    count: int
    per_token: int

    def mappings(self, count: int, halves: TensorLayout) -> list[TensorMapping]:
        """Map the tensors of one layer."""
        entries = [TensorMapping("feed_forward.router.weight", (f"{self.router}.weight",))]
        for n in range(count):
            theirs = {name: f"{self.experts}.{n}.{getattr(self, name)}.weight" for name in ("gate", "up", "down")}
            names = (theirs["gate"], theirs["up"])
            entries.append(TensorMapping(f"feed_forward.experts.{n}.inner.weight", names, halves))
            entries.append(TensorMapping(f"feed_forward.experts.{n}.output.weight", (theirs["down"],)))
        return entries


MIXTRAL_EXPERTS = ExpertNames(
    *("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2"),
    hidden_setting="intermediate_size",
    hidden=14336,
    count=8,
    per_token=2,
)
QWEN3_EXPERTS = ExpertNames(
    *("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj"),
    hidden_setting="moe_intermediate_size",
    hidden=768,
    count=128,
    per_token=8,
)


FAMILIES = {
    "llama": LlamaFamily(),
    "mistral": LlamaFamily(window=4096, windows="always", kv_heads=8),
    "mixtral": LlamaFamily(windows="always", kv_heads=8, rope_theta=1e6, experts=MIXTRAL_EXPERTS),
    "qwen2": LlamaFamily(qkv_bias=True, kv_heads=32),
    "qwen3": LlamaFamily(qk_norm=True, head_dim=128, kv_heads=32),
    "qwen3_moe": LlamaFamily(qk_norm=True, windows="all layers", kv_heads=4, experts=QWEN3_EXPERTS),
}


def llama_mappings(model: DecoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `LlamaForCausalLM` and its relatives.

    >>> llama_mappings(DecoderOnlyConfig(layers=1, norm="rms"))[0].hf_names
    ('model.embed_tokens.weight',)
    """
    keys = (model.kv_heads or model.heads) * model.head_width
    sizes = [model.heads * model.head_width, keys, keys]
    rows = TensorLayout(lambda parts: torch.cat(list(parts)), lambda whole, _: whole.split(sizes))
    halves = TensorLayout(lambda parts: torch.cat(list(parts)), lambda whole, _: whole.chunk(2))
    projections = tuple(f"self_attn.{name}_proj" for name in "qkv")
    layer = [
        TensorMapping("attention_residual.norm.weight", ("input_layernorm.weight",)),
        TensorMapping("attention.query_key_value.weight", tuple(f"{name}.weight" for name in projections), rows),
        TensorMapping("attention.output.weight", ("self_attn.o_proj.weight",)),
        TensorMapping("feed_forward_residual.norm.weight", ("post_attention_layernorm.weight",)),
    ]
    if model.experts > 1:
        layer += (QWEN3_EXPERTS if model.qk_norm else MIXTRAL_EXPERTS).mappings(model.experts, halves)
    else:
        layer += [
            TensorMapping("feed_forward.inner.weight", ("mlp.gate_proj.weight", "mlp.up_proj.weight"), halves),
            TensorMapping("feed_forward.output.weight", ("mlp.down_proj.weight",)),
        ]
    if model.attention_bias:
        layer.append(
            TensorMapping("attention.query_key_value.bias", tuple(f"{name}.bias" for name in projections), rows)
        )
    if model.attention_bias is True:
        layer.append(TensorMapping("attention.output.bias", ("self_attn.o_proj.bias",)))
    if model.qk_norm:
        layer += [
            TensorMapping(f"attention.{ours}_norm.weight", (f"self_attn.{theirs}_norm.weight",))
            for ours, theirs in (("query", "q"), ("key", "k"))
        ]
    return [
        TensorMapping("decoder.embedding.weight", (LLAMA_EMBEDDING,)),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(layer, f"decoder.layers.{n}.", f"model.layers.{n}.")
        ),
        TensorMapping("decoder.norm.weight", ("model.norm.weight",)),
        *([] if model.tie_output else [TensorMapping("output.weight", (LLAMA_OUTPUT,))]),
    ]


def import_llama(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a class in `FAMILIES`."""
    family = FAMILIES[config.get("model_type")]
    config.require("mlp_bias", False, "SwiGLU has no biases")
    if read_activation(config, "hidden_act", "silu") != "swish":
        raise config.error("hidden_act", "cannot be imported, because regard's gates are swish; it should be silu")
    vocab_size, width = config.size("vocab_size", 32000), config.size("hidden_size", 4096)
    layers = config.layers("num_hidden_layers", 32)
    heads = config.heads("num_attention_heads", 32, "hidden_size", width)
    kv_heads, notes = _kv_heads(config, family, heads), list[str]()
    weights = read_weights(folder, "model.", (LLAMA_OUTPUT, *LLAMA_HEADS))
    model = DecoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=None if kv_heads == heads else kv_heads,
        value_width=_value_width(config, family, width, heads),
        **_feed_forward(config, family),
        activation="swiglu",
        norm="rms",
        norm_order="pre",
        norm_epsilon=config.epsilon("rms_norm_eps", 1e-6),
        qk_norm=family.qk_norm,
        positions=read_rotary(config, notes, family.rope_theta),
        attention=_attention(config, family, layers),
        dropout=0.0,
        attention_dropout=config.probability("attention_dropout", 0.0),
        attention_bias=_attention_bias(config, family),
        scale_embeddings=False,
        tie_output=is_output_tied(config, weights, notes, LLAMA_EMBEDDING, LLAMA_OUTPUT, default=False),
    )
    tokenizers = llama_tokenizer(folder)
    generation = read_generation(folder)
    tokens = read_special_tokens(config, generation, vocab_size, tokenizers)
    return ImportPlan(model, tokens, llama_mappings(model), weights, tokenizers, LLAMA_BUFFERS, LLAMA_HEADS, notes)


def _feed_forward(config: HFConfig, family: LlamaFamily) -> dict[str, Any]:
    """Return the settings of the feed-forward layers, or of the experts in their place."""
    names = family.experts
    if names is None:
        return {"feed_forward": config.size("intermediate_size", 11008)}
    if names is QWEN3_EXPERTS:
        fact = "gates are divided by their sum"
        config.require("norm_topk_prob", True, fact)
        if config.get("norm_topk_prob") is None:  # the default of the class is false
            raise config.error("norm_topk_prob", f"cannot be imported, because regard's {fact}; it should be true")
        config.require("decoder_sparse_step", 1, "layers all have experts")
        config.require("mlp_only_layers", [], "layers all have experts")
    setting = "num_local_experts" if config.get("num_local_experts") is not None else "num_experts"
    experts = config.size(setting, names.count, 4096)
    per_token = config.size("num_experts_per_tok", names.per_token)
    if not 2 <= per_token <= experts:
        raise config.error("num_experts_per_tok", f"should be from 2 to {setting} = {experts}")
    return {
        "feed_forward": config.size(names.hidden_setting, names.hidden),
        "experts": experts,
        "experts_per_token": per_token,
    }


def _kv_heads(config: HFConfig, family: LlamaFamily, heads: int) -> int:
    if config.get("num_key_value_heads", family.kv_heads) is None:
        return heads
    kv_heads = config.size("num_key_value_heads", family.kv_heads or heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"does not divide num_attention_heads = {heads}")
    return kv_heads


def _value_width(config: HFConfig, family: LlamaFamily, width: int, heads: int) -> int | None:
    default = family.head_dim or width // heads
    head_dim = default if config.get("head_dim") is None else config.size("head_dim", default)
    if head_dim % 2:
        raise config.error("head_dim", f"makes heads of {head_dim} units, which cannot be rotated in pairs")
    return None if head_dim * heads == width else head_dim


def _attention_bias(config: HFConfig, family: LlamaFamily) -> bool | Literal["qkv"]:
    return "qkv" if family.qkv_bias else config.flag("attention_bias", False)


def _attention(config: HFConfig, family: LlamaFamily, layers: int) -> AttentionConfig:
    """Return full attention, or windows: Mistral's in all layers, Qwen's in those that `layer_types` names."""
    is_used = family.windows == "always" or config.flag("use_sliding_window", False)
    if config.get("sliding_window", family.window) is None or not is_used:
        return FullAttentionConfig()
    window = config.size("sliding_window", family.window or 4096)
    first = config.get("max_window_layers", 28) if family.windows == "some layers" else 0
    if not isinstance(first, int):
        raise config.error("max_window_layers", "should be a number of layers")
    types = config.get("layer_types") or [
        "sliding_attention" if n >= first else "full_attention" for n in range(layers)
    ]
    if not isinstance(types, list) or len(types) != layers:
        raise config.error("layer_types", f"should name the attention of {layers} layers")
    full = tuple(n for n, kind in enumerate(types) if kind != "sliding_attention")
    if len(full) == layers or window >= config.size("max_position_embeddings", 2**24):
        return FullAttentionConfig()
    if window == 1:
        raise config.error("sliding_window", "leaves each token only itself, which regard does not support")
    return WindowAttentionConfig(window=window - 1, full_layers=full)  # theirs counts the token itself


def read_rotary(config: HFConfig, notes: list[str], default_base: float = 10_000.0) -> RotaryPositionsConfig:
    """Return the rotary positions of a config, with their base and scaling."""
    settings = config.table("rope_parameters") or config.table("rope_scaling")
    table = HFConfig(config.path, {"rope_theta": config.get("rope_theta", default_base)} | settings)
    base = table.number("rope_theta", above=1.0)
    table.require("partial_rotary_factor", 1.0, "rotary positions rotate all units of a head")
    return RotaryPositionsConfig(layout="halves", base=base, scaling=_scaling(config, table, notes))


def _scaling(config: HFConfig, table: HFConfig, notes: list[str]) -> ScalingConfig | None:
    kind = table.get("rope_type", table.get("type", "default"))
    original = "original_max_position_embeddings"
    length = table.size(original, 1) if table.get(original) else config.size("max_position_embeddings", 2048)
    number = table.number
    match kind:
        case "default":
            return None
        case "dynamic":
            notes.append(
                f"The original changes its frequencies for texts of more than {length} tokens (dynamic scaling); the "
                "imported one does not: set positions.scaling to ntk for such texts."
            )
            return None
        case "linear":
            return LinearScalingConfig(factor=number("factor"))
        case "llama3":
            turns = number("low_freq_factor", 1.0), number("high_freq_factor", 4.0)
            return Llama3ScalingConfig(
                factor=number("factor"), original_length=length, low_turns=turns[0], high_turns=turns[1]
            )
        case "yarn":
            table.require("truncate", True, "YaRN rounds the limits of its ramp")
            table.require("mscale_all_dim", 0, "YaRN has one factor of attention")
            return YarnScalingConfig(
                factor=number("factor"),
                original_length=length,
                fast_turns=number("beta_fast", 32.0),
                slow_turns=number("beta_slow", 1.0),
                attention_factor=None if table.get("attention_factor") is None else number("attention_factor"),
            )
        case _:
            raise table.error("rope_type", "cannot be imported; regard has default, linear, yarn and llama3")


def read_special_tokens(
    config: HFConfig, generation: HFConfig, vocab_size: int, tokenizers: ImportedTokenizers
) -> SpecialTokensConfig:
    """Return the special tokens: several end tokens, and no start token where the tokenizer adds none."""
    source = generation if generation.get("eos_token_id") is not None else config
    listed = source.get("eos_token_id", 2 if config.get("model_type") in ("llama", "mistral") else None)
    ends = [end for end in (listed if isinstance(listed, list) else [listed]) if end is not None]
    if not all(isinstance(end, int) and not isinstance(end, bool) and end >= 0 for end in ends):
        raise source.error("eos_token_id", "should be a token id, or a list of them")
    ends = list(dict.fromkeys(end for end in ends if end < vocab_size)) or [vocab_size - 1]
    start, pad = (config.token(name, None, vocab_size) for name in ("bos_token_id", "pad_token_id"))
    tokenizer = tokenizers.by_file.get(TOKENIZER_FILE)
    if tokenizer is not None and tokenizer.encode("a").ids[:1] != [start]:
        start = None
    end = ends[0]
    unknown = tokenizers.id_of(special_token_names(config.path.parent, unk_token="<unk>")["unk_token"])
    return SpecialTokensConfig(
        pad=end if pad is None else pad,
        unknown=end if unknown is None else unknown,
        start=end if start is None else start,
        end=end,
        other_ends=tuple(ends[1:]),
    )
