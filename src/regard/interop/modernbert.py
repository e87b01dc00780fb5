"""Import of ModernBERT: pre-norms without biases, rotary positions, gates of GELU, windows in two of three layers.

Embeddings are normalized, so that the first layer does not normalize its input. Norms have no biases there; ours are
zero.
"""

from pathlib import Path

import torch

from regard.config import (
    AttentionConfig,
    EncoderOnlyConfig,
    FullAttentionConfig,
    NoHeadConfig,
    RotaryPositionsConfig,
    SpecialTokensConfig,
    TokenHeadConfig,
    WindowAttentionConfig,
)
from regard.interop.hf_folder import HFConfig, HFWeights, read_weights
from regard.interop.hf_spec import ImportPlan, TensorMapping, map_module, read_activation, with_prefixes
from regard.interop.hf_tokenizers import copy_tokenizers, no_tokenizers, special_token_names
from regard.models.folder_files import TOKENIZER_FILE

EMBEDDING, DECODER = "model.embeddings.tok_embeddings.weight", "decoder.weight"
UNSUPPORTED = {
    "head.": "regard's encoder has no such head",
    "decoder.": "regard's encoder has no such head",
    "classifier.": "regard's labels do not have ModernBERT's dense layer before them",
    "qa_outputs.": "regard's encoder has no question-answering head",
}


def modernbert_mappings(model: EncoderOnlyConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `ModernBertModel` inside a model with a head.

    >>> modernbert_mappings(EncoderOnlyConfig(layers=1))[1].hf_names
    ('model.embeddings.norm.weight',)
    """
    layer = [
        *map_module("attention_residual.norm", "attn_norm"),
        TensorMapping("attention.query_key_value.weight", ("attn.Wqkv.weight",)),
        TensorMapping("attention.output.weight", ("attn.Wo.weight",)),
        *map_module("feed_forward_residual.norm", "mlp_norm"),
        TensorMapping("feed_forward.inner.weight", ("mlp.Wi.weight",)),
        TensorMapping("feed_forward.output.weight", ("mlp.Wo.weight",)),
    ]
    head = [
        *map_module("head.dense", "head.dense"),
        *map_module("head.norm", "head.norm"),
        TensorMapping("head.output.bias", ("decoder.bias",)),
    ]
    return [
        TensorMapping("encoder.embedding.weight", (EMBEDDING,)),
        *map_module("encoder.embedding.norm", "model.embeddings.norm"),
        *(
            entry
            for n in range(model.layers)
            for entry in with_prefixes(layer[0 if n else 2 :], f"encoder.layers.{n}.", f"model.layers.{n}.")
        ),
        *map_module("encoder.norm", "model.final_norm"),
        *(head if isinstance(model.head, TokenHeadConfig) else []),
    ]


def import_modernbert(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a ModernBERT class."""
    for name in ("attention_bias", "mlp_bias"):
        config.require(name, False, "ModernBERT has no biases in its layers")
    if read_activation(config, "hidden_activation", "gelu") != "gelu":
        raise config.error("hidden_activation", "cannot be imported, because regard's gates of ModernBERT are gelu")
    vocab_size, width = config.size("vocab_size", 50368), config.size("hidden_size", 768)
    layers, epsilon = config.layers("num_hidden_layers", 22), config.epsilon("norm_eps", 1e-5)
    heads = config.heads("num_attention_heads", 12, "hidden_size", width)
    weights, notes = read_weights(folder, "model.", tuple(UNSUPPORTED)), list[str]()
    has_lm_head = "head.dense.weight" in weights.tensors and not any(
        name.startswith("classifier.") for name in weights.tensors
    )
    activation = read_activation(config, "classifier_activation", "gelu")
    types, bases = _layer_types(config, layers), _bases(config)
    model = EncoderOnlyConfig(
        vocab_size=vocab_size,
        width=width,
        layers=layers,
        heads=heads,
        feed_forward=config.size("intermediate_size", 1152),
        activation="geglu",
        norm_order="pre",
        norm_epsilon=epsilon,
        first_norm=False,
        embedding_norm=True,
        positions=RotaryPositionsConfig(
            layout="halves", base=bases[0], window_base=None if bases[0] == bases[1] else bases[1]
        ),
        attention=_attention(config, types),
        dropout=config.probability("mlp_dropout", 0.0),
        attention_dropout=config.probability("attention_dropout", 0.0),
        scale_embeddings=False,
        pooling="first" if config.get("classifier_pooling", "cls") == "cls" else "mean",
        head=TokenHeadConfig(activation=activation, norm_epsilon=epsilon) if has_lm_head else NoHeadConfig(),
    )
    _complete(weights, model)
    tokenizers = copy_tokenizers(folder, TOKENIZER_FILE)
    if not tokenizers.by_file:
        tokenizers = no_tokenizers(f"The folder has no {TOKENIZER_FILE}")
    names = special_token_names(folder, unk_token="[UNK]", mask_token="[MASK]")
    pad, start, end = (
        config.token(name, default, vocab_size)
        for name, default in (("pad_token_id", 50283), ("cls_token_id", 50281), ("sep_token_id", 50282))
    )
    pad = 0 if pad is None else pad
    unknown = tokenizers.id_of(names["unk_token"])
    tokens = SpecialTokensConfig(
        pad=pad,
        unknown=pad if unknown is None else unknown,
        start=pad if start is None else start,
        end=pad if end is None else end,
        mask=tokenizers.id_of(names["mask_token"]),
    )
    return ImportPlan(model, tokens, modernbert_mappings(model), weights, tokenizers, r"$^", UNSUPPORTED, notes)


def _complete(weights: HFWeights, model: EncoderOnlyConfig) -> None:
    """Add biases of zeros where ours are not optional, and remove a copy of the embeddings."""
    if DECODER in weights.tensors and isinstance(model.head, TokenHeadConfig):
        weights.tensors.setdefault(EMBEDDING, weights.tensors[DECODER])
        del weights.tensors[DECODER]
    for entry in modernbert_mappings(model):
        if entry.name.endswith(".bias"):
            rows = model.vocab_size if entry.name == "head.output.bias" else model.width
            weights.tensors.setdefault(entry.hf_names[0], torch.zeros(rows))


def _layer_types(config: HFConfig, layers: int) -> list[str]:
    every = config.size("global_attn_every_n_layers", 3)
    default = ["sliding_attention" if n % every else "full_attention" for n in range(layers)]
    types = config.get("layer_types") or default
    if not isinstance(types, list) or len(types) != layers:
        raise config.error("layer_types", f"should name the attention of {layers} layers")
    return types


def _attention(config: HFConfig, types: list[str]) -> AttentionConfig:
    full = tuple(n for n, kind in enumerate(types) if kind == "full_attention")
    if len(full) == len(types):
        return FullAttentionConfig()
    return WindowAttentionConfig(window=max(1, config.size("local_attention", 128) // 2), full_layers=full)


def _bases(config: HFConfig) -> tuple[float, float]:
    """Return the bases of rotary positions in full layers and in windows, under their present or old names."""
    tables = HFConfig(config.path, config.table("rope_parameters"))
    found = []
    for kind, old, default in (
        ("full_attention", "global_rope_theta", 160_000.0),
        ("sliding_attention", "local_rope_theta", 10_000.0),
    ):
        table = HFConfig(config.path, {"rope_theta": config.get(old, default)} | tables.table(kind))
        base = table.number("rope_theta", above=1.0)
        table.require("rope_type", "default", "ModernBERT's rotary positions are not scaled")
        found.append(base)
    return found[0], found[1]
