"""Import and export of Marian (OPUS-MT): the paper's encoder-decoder with swish, biases and sinusoids in halves.

Marian's sinusoidal positions are all sines before all cosines. Where ours alternate, exports permute the model width of
the whole network.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.config import Config, EncoderDecoderConfig, SinusoidalPositionsConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop.exporters import MAX_POSITIONS
from regard.interop.hf_folder import HFConfig, HFWeights, read_weights
from regard.interop.hf_spec import (
    SINGLE_ROW,
    HFSpec,
    ImportPlan,
    TensorMapping,
    common_reasons,
    first_reason,
    hf_activation,
    map_module,
    read_activation,
    same_tensor,
    suppressed_token_ids,
    to_huggingface,
    to_tensors,
    token_or_default,
    with_prefixes,
)
from regard.interop.hf_tokenizers import special_token_names
from regard.interop.marian_tokenizer import marian_tokenizers
from regard.interop.weight_transforms import Arrays, add_zero_biases, equalize_head_widths, permute_width
from regard.nn import sinusoidal_table

MARIAN_SHARED, MARIAN_OUTPUT, MARIAN_BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
MARIAN_SOURCE, MARIAN_TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
MARIAN_BUFFERS = r"model\.(en|de)coder\.embed_positions\.weight"
MARIAN_ENCODER_LAYER = [
    *map_module("attention.query_key_value", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    *map_module("attention.output", "self_attn.out_proj"),
    *map_module("attention_residual.norm", "self_attn_layer_norm"),
    *map_module("feed_forward.inner", "fc1"),
    *map_module("feed_forward.output", "fc2"),
    *map_module("feed_forward_residual.norm", "final_layer_norm"),
]
MARIAN_DECODER_LAYER = [
    *MARIAN_ENCODER_LAYER,
    *map_module("cross_attention.query", "encoder_attn.q_proj"),
    *map_module("cross_attention.key_value", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    *map_module("cross_attention.output", "encoder_attn.out_proj"),
    *map_module("cross_attention_residual.norm", "encoder_attn_layer_norm"),
]


def marian_mappings(model: EncoderDecoderConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `MarianMTModel`.

    >>> [entry.hf_names for entry in marian_mappings(EncoderDecoderConfig(layers=1, share_embeddings=False))[:2]]
    [('model.encoder.embed_tokens.weight',), ('model.decoder.embed_tokens.weight',)]
    """
    shared = [TensorMapping("encoder.embedding.weight", (MARIAN_SHARED,))]
    separate = [
        TensorMapping("encoder.embedding.weight", (MARIAN_SOURCE,)),
        TensorMapping("decoder.embedding.weight", (MARIAN_TARGET,)),
    ]
    return [
        *(shared if model.share_embeddings else separate),
        *layer_mappings("encoder", MARIAN_ENCODER_LAYER, model.layers),
        *layer_mappings("decoder", MARIAN_DECODER_LAYER, model.decoder_layers or model.layers),
        *([] if model.tie_output else [TensorMapping("output.weight", (MARIAN_OUTPUT,))]),
        *([TensorMapping("output.bias", (MARIAN_BIAS,), SINGLE_ROW)] if model.output_bias else []),
    ]


def layer_mappings(stack: str, layer: list[TensorMapping], count: int) -> list[TensorMapping]:
    """Return the entries of all layers of a stack."""
    return [
        entry
        for n in range(count)
        for entry in with_prefixes(layer, f"{stack}.layers.{n}.", f"model.{stack}.layers.{n}.")
    ]


def import_marian(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a Marian class."""
    _check_config(config)
    vocab_size, width = config.size("vocab_size", 58101), config.size("d_model", 1024)
    layers, decoder_layers = config.layers("encoder_layers", 12), config.layers("decoder_layers", 12)
    weights, notes = read_weights(folder, "model.", (MARIAN_OUTPUT, MARIAN_BIAS)), list[str]()
    share_embeddings, tie_output = resolve_embeddings(config, weights, notes)
    target_vocab_size = vocab_size
    if not share_embeddings and config.get("decoder_vocab_size") is not None:
        target_vocab_size = config.size("decoder_vocab_size", vocab_size)
    _check_positions(weights, width)
    model = EncoderDecoderConfig(
        vocab_size=vocab_size,
        width=width,
        layers=layers,
        heads=config.heads("encoder_attention_heads", 16, "d_model", width),
        feed_forward=config.size("encoder_ffn_dim", 4096),
        activation=read_activation(config, "activation_function", "gelu"),
        positions=SinusoidalPositionsConfig(layout="halves"),
        dropout=config.probability("dropout", 0.1),
        attention_dropout=config.probability("attention_dropout", 0.0),
        activation_dropout=config.probability("activation_dropout", 0.0),
        attention_bias=True,
        scale_embeddings=config.flag("scale_embedding", False),
        tie_output=tie_output,
        output_bias=MARIAN_BIAS in weights.tensors,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        share_embeddings=share_embeddings,
        target_vocab_size=None if target_vocab_size == vocab_size else target_vocab_size,
    )
    tokenizers = marian_tokenizers(folder)
    unknown = tokenizers.id_of(special_token_names(folder, unk_token="<unk>")["unk_token"])
    tokens = _import_special_tokens(config, target_vocab_size, unknown, notes)
    unused = {MARIAN_SHARED: "encoder and decoder have separate embeddings"}
    return ImportPlan(model, tokens, marian_mappings(model), weights, tokenizers, MARIAN_BUFFERS, unused, notes)


def _check_config(config: HFConfig) -> None:
    config.require("is_encoder_decoder", True, "translator has an encoder and a decoder")
    config.require("is_decoder", False, "translator has an encoder and a decoder")
    config.require("normalize_before", False, "Marian normalizes after each sublayer")
    config.require("normalize_embedding", False, "Marian does not normalize embeddings")
    config.require("add_final_layer_norm", False, "Marian has no norm at the end of a stack")
    config.require("static_position_embeddings", True, "Marian has sinusoidal positions")
    require_equal_stacks(config)


def require_equal_stacks(config: HFConfig) -> None:
    """Raise ModelError if encoder and decoder differ in heads or hidden units."""
    for description, name, default in (("heads", "attention_heads", 16), ("hidden units", "ffn_dim", 4096)):
        expected = config.size(f"encoder_{name}", default)
        if config.size(f"decoder_{name}", default) != expected:
            raise config.error(
                f"decoder_{name}",
                f"cannot be imported, because regard's encoder and decoder have the same number of {description}; "
                f"choose a model where it is {expected}, like encoder_{name}",
            )


def resolve_embeddings(config: HFConfig, weights: HFWeights, notes: list[str]) -> tuple[bool, bool]:
    """Return whether source and target share embeddings, and whether the output projection is tied to the target's.

    A shared matrix may be stored under any of its four names, or under several. Matrices that should be shared but
    differ are kept apart. Afterwards each is stored under its name in the table.
    """
    tied, shared = config.flag("tie_word_embeddings", True), config.flag("share_encoder_decoder_embeddings", True)
    tensors = weights.tensors
    output = tensors.pop(MARIAN_OUTPUT, None)
    names = (MARIAN_SHARED, MARIAN_SOURCE, MARIAN_TARGET)
    common = next((tensors[name] for name in names if name in tensors), output) if shared else None
    source = tensors.pop(MARIAN_SOURCE, common)
    target = tensors.pop(MARIAN_TARGET, output if tied and common is None else common)
    if source is None or target is None:  # the check of tensors names the first that is missing
        return shared, True
    share_embeddings = shared and same_tensor(source, target)
    tensors |= {MARIAN_SHARED: source} if share_embeddings else {MARIAN_SOURCE: source, MARIAN_TARGET: target}
    if output is None:
        if not tied:
            notes.append(f"The folder has no output projection ({MARIAN_OUTPUT}); the target embeddings are used.")
        return share_embeddings, True
    if tied and same_tensor(target, output):
        return share_embeddings, True
    tensors[MARIAN_OUTPUT] = output
    return share_embeddings, False


def _check_positions(weights: HFWeights, width: int) -> None:
    """Raise ModelError if stored positions are not the sinusoids that our network computes."""
    for name in ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"):
        table = weights.tensors.get(name)
        if table is not None and not _is_sinusoidal(table, width):
            raise ModelError(
                f"{weights.path}: {weights.name_in_file(name)} is not a table of sinusoids, "
                "which regard's Marian needs; choose a model with sinusoidal positions."
            )


def _is_sinusoidal(table: Tensor, width: int) -> bool:
    if table.dim() != 2 or table.size(1) != width:
        return False
    tolerance = 4e-3  # rounding of numbers up to 1 in bfloat16
    return torch.allclose(table.double(), sinusoidal_table(len(table), width, halves=True), atol=tolerance)


def _import_special_tokens(
    config: HFConfig, vocab_size: int, unknown: int | None, notes: list[str]
) -> SpecialTokensConfig:
    """Return the special tokens; Marian starts translations with the padding token."""
    pad = token_or_default(config.token("pad_token_id", 58100, vocab_size), vocab_size - 1, "the padding token", notes)
    end = token_or_default(config.token("eos_token_id", 0, vocab_size), 0, "the end token", notes)
    unknown = token_or_default(unknown, min(1, vocab_size - 1), "the unknown token", notes)
    start = config.token("decoder_start_token_id", None, vocab_size)
    return SpecialTokensConfig(pad=pad, unknown=unknown, start=pad if start is None else start, end=end)


MARIAN_EPSILON = 1e-5  # of its norms, not configurable
MARIAN_GENERATED_TOKENS = 512  # default of generation_config.json


def unsupported_by_marian(config: Config, model: EncoderDecoderConfig) -> str | None:
    """Return why Marian cannot hold a network; None if it can."""
    vocab_size = min(model.vocab_size, model.target_vocab_size or model.vocab_size)
    tokens = config.tokens
    return first_reason(
        {
            "Marian normalizes after each sublayer, and this network before": model.norm_order == "pre",
            **common_reasons(model, "Marian"),
            f"the epsilon of Marian's norms is {MARIAN_EPSILON}, and of this network's {model.norm_epsilon}": (
                model.norm_epsilon != MARIAN_EPSILON
            ),
            "Marian does not normalize embeddings, and this network does": model.embedding_norm,
            f"Marian's positions are sinusoidal, and this network's are {model.positions.kind}": not isinstance(
                model.positions, SinusoidalPositionsConfig
            ),
            "Marian adds positions to embeddings, and this network concatenates them": (
                model.embedding_width != model.width
            ),
            "the id of its padding, start or end token is outside of a vocabulary": (
                max(tokens.pad, tokens.start, tokens.end) >= vocab_size
            ),
        }
    )


def export_marian(config: Config, model: EncoderDecoderConfig, arrays: Arrays) -> HFSpec:
    """Return the contents of a Marian folder."""
    tokens = config.tokens
    arrays = add_zero_biases(equalize_head_widths(arrays, model))
    if isinstance(model.positions, SinusoidalPositionsConfig) and model.positions.layout == "interleaved":
        arrays = permute_width(arrays, sines_first_order(model.width))
    mappings = marian_mappings(model.model_copy(update={"output_bias": True}))
    hf_tensors = to_huggingface(mappings, to_tensors(arrays))
    if model.share_embeddings and not model.tie_output:  # transformers ties all of them or none
        hf_tensors |= {MARIAN_SOURCE: hf_tensors[MARIAN_SHARED], MARIAN_TARGET: hf_tensors[MARIAN_SHARED]}
    hf_config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": model.vocab_size,
        "decoder_vocab_size": model.target_vocab_size or model.vocab_size,
        "d_model": model.width,
        "encoder_layers": model.layers,
        "decoder_layers": model.decoder_layers or model.layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.feed_forward,
        "decoder_ffn_dim": model.feed_forward,
        "activation_function": hf_activation(model),
        "static_position_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "scale_embedding": model.scale_embeddings,
        "share_encoder_decoder_embeddings": model.share_embeddings,
        "tie_word_embeddings": model.tie_output,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "forced_eos_token_id": None,
    }
    generation_config = {
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "bad_words_ids": suppressed_token_ids(config) or None,
        "max_length": MARIAN_GENERATED_TOKENS,
        "num_beams": 4,
    }
    special = {"pad_token": tokens.pad, "unk_token": tokens.unknown, "bos_token": tokens.start, "eos_token": tokens.end}
    tokenizer_config = {"model_input_names": ["input_ids", "attention_mask"], "model_max_length": MAX_POSITIONS}
    return HFSpec(hf_config, hf_tensors, (), (tokens.end,), special, tokenizer_config, generation_config)


def sines_first_order(width: int) -> npt.NDArray[np.int64]:
    """Return the permutation that moves all sines of alternating sines and cosines before all cosines.

    >>> sines_first_order(5)
    array([0, 2, 4, 1, 3])
    """
    return np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
